"""A Kafka cluster that attacks its clients: a broker whose answers are wrong on purpose."""
