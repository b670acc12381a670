"""The lane: the pure state machine of one replicated partition. `step` is its only entrance."""
