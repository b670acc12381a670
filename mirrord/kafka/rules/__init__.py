"""Pure functions that contain what mirrord knows about brokers: error codes, versions, topic ids, and the configs of
internal topics."""
