"""The code of a replicator: it passes input to its lanes and performs the I/O that they request."""
