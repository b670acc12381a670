"""The replicator: the I/O that carries out what the lanes of a replicator decide."""
