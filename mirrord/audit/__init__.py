"""Check whether the copy matches the ledger, and reconstruct what a lost ledger would say. The input is what both logs
hold; the output is either differences with exact offsets, or the facts of a lane.

The package is pure: the shell and the jobs read the logs.
"""
