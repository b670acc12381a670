"""Audit, divergence, repair, and rebuilding of a lost ledger. The input is the contents of both logs and, except for a
rebuild, the ledger. The output is differences with exact offsets, records that exist on one side only, repaired
records, or the facts of a rebuilt ledger.

`rules` makes the decisions and is pure. The other modules read the logs and the ledgers, and write the results.
"""
