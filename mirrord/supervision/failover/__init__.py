"""Carries out failovers: ends the copying of a flow, or of some of its topics, because clients move to the target.

Input: a failover that an operator has begun in the ledger. Output: its completed steps as facts in the ledger.
"""
