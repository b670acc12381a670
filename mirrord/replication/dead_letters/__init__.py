"""The dead-letter topic: skipped records are parked in it, so that they can be replayed later."""
