"""Pure functions with facts about brokers: error codes, versions, topic ids, and the configs of internal topics."""
