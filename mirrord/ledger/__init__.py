"""The ledger as pure functions: facts to bytes and back, facts to state, state to snapshots and back.

In: entries in the order of the ledger topic, records of the state topic. Out: a `FlowState` (`state.py`) that only
`fold.py` changes, and snapshots of it (`snapshot.py`). `codec.py` is the one place that knows the bytes. No I/O, no
clock: what waits is in `mirrord.ledger.store`.
"""
