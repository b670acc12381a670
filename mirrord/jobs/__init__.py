"""Spark jobs: the only importer of pyspark. In come options or a configuration, out go Arrow batches and reports."""
