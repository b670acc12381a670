"""Access to Kafka: the bytes of its protocol, clients for brokers, and rules about brokers and topics."""
