"""Reads the records in batches: decompresses them into bounded memory, decodes them, and computes their digests."""
