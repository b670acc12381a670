"""The lane: a state machine without I/O that copies one partition. `step` is its only entry point."""
