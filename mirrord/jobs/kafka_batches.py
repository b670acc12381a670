"""`kafka_batches`: a Spark data source that reads Kafka's record batches as they are stored.

It returns one row for each batch, from its header alone and without decompression, or one row for each record. Any
Spark session can use it:

    spark.dataSource.register(KafkaBatches)
    spark.read.format("kafka_batches").option("bootstrap", "eu1:9092").option("topics", "orders").load()

The driver determines the ranges of offsets to read and splits them by size. Each task reads one part with the daemon's
protocol code. docs/reference/kafka-batches.md describes the options and the columns.
"""

# pyright: reportMissingTypeStubs=false

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from mirrord.jobs.arrow_columns import BatchColumns, ColumnBuilder, RecordColumns, spark_schema
from mirrord.jobs.blocking import blocking
from mirrord.jobs.kafka_batches_options import NAME, BatchesOptions, LogRange, parse
from mirrord.jobs.splitting import estimated_bytes, split
from mirrord.kafka.client.bulk_log_reader import LogReader, RangeGone, open_logs
from mirrord.kafka.protocol.record_batch import CONTROL
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.names import TopicPartition
from mirrord.runtime.arrow import RecordBatch

ROWS_AT_ONCE = 8_192
BYTES_AT_ONCE = 8 << 20
"""Number of bytes of keys and values after which a new Arrow batch begins. A new one also begins after `ROWS_AT_ONCE`
rows."""
SAMPLES = 3
"""Number of offsets in a range at which the size of a batch is sampled."""


class KafkaBatches(DataSource):
    """The data source that a Spark session registers. All its options are strings, as is usual in Spark."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the data source, as it is passed to `format`."""
        return NAME

    def schema(self) -> str:
        """Return the schema of the rows, which depends on the option `records`. Raises ConfigError."""
        return spark_schema(records=self._options().records)

    def reader(self, schema: Any) -> "BatchesReader":
        """Return a reader that uses the options of this data source. Raises ConfigError."""
        del schema  # no caller can supply a different schema
        return BatchesReader(self._options())

    def _options(self) -> BatchesOptions:
        return parse(cast(dict[str, str], self.options))


class ReadRange(InputPartition):
    """The input of one Spark task: a part of a range of offsets. A batch belongs to the part in which it begins. A
    batch that begins before the range and extends into it belongs to the first part."""

    def __init__(self, piece: LogRange, *, is_first: bool) -> None:
        super().__init__(piece)
        self.piece = piece
        self.is_first = is_first


class BatchesReader(DataSourceReader):
    """The reader of the data source. On the driver, it plans the parts to read. In each task, it reads one of them."""

    def __init__(self, options: BatchesOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts that the tasks have to read. Raises ConfigError. Raises EnvironmentFault if a topic is
        unknown or a range no longer exists."""
        return asyncio.run(plan(self._options))

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Return the rows of one of the parts from `partitions`. If there are no parts, Spark passes an argument of a
        different type, and the result is empty. Raises EnvironmentFault."""
        if not isinstance(partition, ReadRange):
            return iter(())
        return blocking(lambda: read_piece(self._options, partition))


async def plan(options: BatchesOptions) -> list[InputPartition]:
    """Query the cluster, and return the parts that the tasks have to read. Raises EnvironmentFault."""
    topics = options.topics or tuple(dict.fromkeys(each.partition.topic for each in options.ranges))
    pieces: list[InputPartition] = []
    async with open_logs(options.alias, options.cluster, topics) as logs:
        ranges = [
            LogRange(named, *await logs.bounds(named, committed=options.committed))
            for topic in options.topics
            for named in (TopicPartition(topic, number) for number in range(logs.topics[topic].partitions))
        ]
        for wanted in options.ranges:
            await _check(logs, wanted, committed=options.committed)
            ranges.append(wanted)
        for whole in ranges:
            if whole.end <= whole.start:
                continue
            size = await _size(logs, whole, options)
            for number, piece in enumerate(split(whole, size, options.split_bytes)):
                pieces.append(ReadRange(piece, is_first=number == 0))
    return pieces


async def read_piece(options: BatchesOptions, wanted: ReadRange) -> AsyncGenerator[RecordBatch, None]:
    """Yield the rows of a part as Arrow batches. `ROWS_AT_ONCE` and `BYTES_AT_ONCE` limit the size of an Arrow
    batch."""
    piece = wanted.piece
    named = piece.partition

    def fresh() -> ColumnBuilder:
        if options.records:
            return RecordColumns(named.topic, named.partition, piece.start, piece.end)
        return BatchColumns(named.topic, named.partition)

    columns = fresh()
    async with (
        open_logs(options.alias, options.cluster, [named.topic]) as logs,
        aclosing(logs.read(named, piece.start, piece.end, committed=options.committed)) as batches,
    ):
        async for batch in batches:
            if options.committed and (batch.aborted or batch.header.attributes & CONTROL):
                continue
            if not options.records and batch.header.base_offset < piece.start and not wanted.is_first:
                continue
            try:
                columns.take(batch)
            except ValueError as error:
                where = f"{named}, the batch at offset {batch.header.base_offset}"
                raise EnvironmentFault(f"{where}: its records cannot be read: {error}") from error
            if columns.rows >= ROWS_AT_ONCE or columns.held_bytes >= BYTES_AT_ONCE:
                yield columns.arrow()
                columns = fresh()
    if columns.rows:
        yield columns.arrow()


async def _check(logs: LogReader, wanted: LogRange, *, committed: bool) -> None:
    start, end = await logs.bounds(wanted.partition, committed=committed)
    if wanted.start < start:
        last = min(wanted.end, start) - 1
        raise RangeGone(
            f"{wanted.partition}: the offsets {wanted.start} to {last} no longer exist; the log begins at {start}"
        )
    if wanted.end > end:
        raise ConfigError(f"{wanted.partition}: the range ends at {wanted.end}, but the log ends at {end}")


async def _size(logs: LogReader, whole: LogRange, options: BatchesOptions) -> int:
    """Estimate the size of a range in bytes, from batches at some of its offsets."""
    samples: list[tuple[int, int, int]] = []
    for number in range(SAMPLES):
        place = whole.start + (whole.end - whole.start) * number // SAMPLES
        if samples and place <= samples[-1][1]:
            continue
        async with aclosing(logs.read(whole.partition, place, whole.end, committed=options.committed)) as batches:
            batch = await anext(batches, None)
            if batch is not None:
                samples.append((place, max(batch.header.last_offset, place), batch.end - batch.start))
    return estimated_bytes(whole, samples)
