"""The Spark jobs of mirrord: audits, compactions, and a data source for Kafka's record batches. Only this package
imports pyspark."""
