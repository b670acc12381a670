"""Pure functions that embody mirrord's knowledge of brokers: error codes, versions, topic ids, and the configs of
internal topics."""
