"""Spark jobs. Only this package imports pyspark. The input is options or a configuration; the output is Arrow batches
and reports."""
