"""The ledger as pure functions: encoding of facts, folding of facts into state, and snapshots of the state.

The input consists of the entries of the ledger topic, in order, and the records of the state topic. The output consists
of a `FlowState` (`state.py`), which only `fold.py` changes, and of snapshots of this state (`snapshot.py`). Only
`codec.py` knows the byte layout. The modules of this package perform no I/O and use no clock. The subpackage
`mirrord.ledger.store` reads and writes the topics.
"""
