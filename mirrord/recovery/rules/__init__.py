"""Decisions about the recovery of a flow, without I/O."""
