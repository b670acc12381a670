"""Spark jobs. Only this package imports pyspark. Input: options or a configuration. Output: Arrow
batches and reports."""
