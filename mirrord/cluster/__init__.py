"""The way of a partition: which target topics there must be, which lanes that gives, and who hosts which lane.

In: what was observed (topics of both clusters, replicators and their lanes). Out: plans, as plain values for the shell
to carry out. The same observation always gives the same plan, and a plan that was carried out gives an empty one. No
I/O, no clock, no randomness.
"""
