"""The pure decisions of one-off work: which permissions a flow needs."""
