"""The pure decisions of one-off operations: which permissions a flow needs."""
