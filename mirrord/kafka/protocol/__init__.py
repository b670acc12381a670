"""Pure functions that encode and decode Kafka's requests, responses and record batches."""
