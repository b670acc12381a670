"""Audit, divergence, repair, and rebuilding of a lost ledger.

All of these read the source log and the target log; all but the rebuild also read the ledger. An audit reports
differences with exact offsets. A divergence scan lists records that exist on one side only. A repair copies damaged
records. A rebuild writes the facts of a new ledger.

The package `rules` makes the decisions and is pure. The other modules read the logs and the ledgers, and write the
results.
"""
