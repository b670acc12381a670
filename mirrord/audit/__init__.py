"""Audit, divergence scan, repair, and rebuilding of a lost ledger.

All of these operations read the source log and the target log. All except the rebuild also read the ledger. An audit
reports the differences between source and target with exact offsets. A divergence scan lists the records that exist
only on the source or only on the target. A repair copies damaged records. A rebuild writes the facts of a new ledger.

The package `rules` makes the decisions and does no I/O. The other modules read the logs and the ledgers, and write the
results.
"""
