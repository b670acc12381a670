"""The bytes of Kafka's requests, responses and record batches. Pure."""
