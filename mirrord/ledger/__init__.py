"""The ledger as pure functions: encoding of facts, folding of facts into state, and snapshots of the state.

The input is the entries of the ledger topic in their order, and the records of the state topic. The output is a
`FlowState` (`state.py`), which only `fold.py` changes, and snapshots of this state (`snapshot.py`). Only `codec.py`
knows the byte layout. The package uses no I/O and no clock; `mirrord.ledger.store` contains the code that waits.
"""
