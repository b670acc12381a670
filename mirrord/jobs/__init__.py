"""mirrord's Spark jobs: audits, compactions, and a data source for Kafka's record batches. Only this package imports
pyspark."""
