"""Access to Kafka: the encoding of its protocol, clients for brokers, and rules about brokers and topics."""
