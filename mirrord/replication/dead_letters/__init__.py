"""The dead-letter topic: records that a target refuses are parked there, and replayed from there."""
