"""Encodes and decodes Kafka's requests, responses and record batches, in pure functions."""
