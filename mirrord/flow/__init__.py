"""The path of a record: a lane's decisions, as pure functions of what the lane has seen.

In: inputs (`signals.py`) that the shell observed at the two clusters and at the ledger. Out: effects that the shell
performs. `lane.step` is the only entry point; it calls `opening` (ledger), `resume` (where to resume), `reading` (the
content of the target log), `intake` (fetched chunk to ready batches) and `flight` (batches in flight to the target).
`state` holds the lane's state and its phases, `answers` defines what every Kafka error code means to a lane, `packing`
which batches share a request, `compare` whether both sides hold the same. No I/O, no clock, no randomness.
"""
