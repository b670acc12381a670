"""Failovers in the simulator: the processes that carry them out, their brokers, the operator and the checks.

The processes run the product's own executor and hands. Only the clients that open connections are replaced.
"""
