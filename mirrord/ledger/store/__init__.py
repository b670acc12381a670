"""The ledger on Kafka: appends, reads, leases, compaction, and the detection of a lost end."""
