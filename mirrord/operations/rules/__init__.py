"""Makes the decisions of one-off operations without I/O: determines which permissions a flow needs."""
