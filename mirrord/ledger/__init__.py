"""The ledger as pure functions: encoding and decoding of facts, folding of facts into state, and snapshots of that
state.

Input: entries in the order of the ledger topic, and records of the state topic. Output: a `FlowState` (`state.py`),
which only `fold.py` changes, and snapshots of it (`snapshot.py`). `codec.py` is the only module that knows the byte
layout. The package has no I/O and no clock; code that waits is in `mirrord.ledger.store`.
"""
