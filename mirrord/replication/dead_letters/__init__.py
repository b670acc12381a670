"""The dead-letter topic: skipped records are parked in it, and can be replayed later."""
