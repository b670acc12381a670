"""The ledger on Kafka: reads and appends, leases, compaction, and the detection of lost entries."""
