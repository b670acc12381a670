"""Kafka without mirrord's subjects: the protocol's bytes, and clients for brokers."""
