"""Pure facts about brokers: error codes, versions, topic shapes and the configs of internal topics."""
