"""Decisions of one-off operations, made without I/O: which permissions a flow needs."""
