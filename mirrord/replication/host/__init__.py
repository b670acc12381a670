"""The code of a replicator: it passes input to its lanes and does the I/O that they request."""
