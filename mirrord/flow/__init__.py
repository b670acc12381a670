"""The way of a record: what a lane decides, as pure functions of what it has seen.

In: inputs (`signals.py`) that the shell observed at the two clusters and at the ledger. Out: effects that the shell
performs. `lane.step` is the one door; it calls `opening` (ledger), `resume` (where to go on), `reading` (what the
target log itself says), `intake` (fetched chunk to ready batches) and `flight` (what is on its way to the target).
`state` holds the lane's state and its phases, `answers` what every Kafka error code means to a lane, `packing` which
batches share a request, `compare` whether both sides hold the same. No I/O, no clock, no randomness.
"""
