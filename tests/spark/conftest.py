"""One Spark session for the whole tier: two threads, little memory, only loopback."""

import os
import sys
from collections.abc import Generator
from typing import Any

import pytest

from mirrord.jobs.kafka_batches import KafkaBatches


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Generator[Any]:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - other tiers do not wait for it

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(KafkaBatches)
    yield session
    session.stop()
