"""What mirrord knows about brokers, as pure functions: error codes, versions, topic ids and the configs of internal
topics."""
