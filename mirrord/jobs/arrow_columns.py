"""Turns record batches and records into Arrow columns, and defines the schemas of these columns in the notations of
Spark and Arrow."""

from collections.abc import Iterable
from typing import Any, Protocol

from mirrord.kafka.client.range_reader import ReadBatch
from mirrord.kafka.protocol.record_batch import CODEC_MASK, CONTROL, LOG_APPEND_TIME
from mirrord.kafka.records.header_names import shown_name
from mirrord.runtime.arrow import RecordBatch, arrow

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""The names of the compression codecs. The index of a name is the number of the codec in a batch's attributes, as
defined in org.apache.kafka.common.record.CompressionType."""

_BATCH_TYPES: dict[str, Any] = {
    "topic": arrow.string(),
    "partition": arrow.int32(),
    "base_offset": arrow.int64(),
    "last_offset": arrow.int64(),
    "record_count": arrow.int32(),
    "magic": arrow.int32(),
    "attributes": arrow.int32(),
    "codec": arrow.string(),
    "is_control": arrow.bool_(),
    "is_aborted": arrow.bool_(),
    "leader_epoch": arrow.int32(),
    "base_timestamp_ms": arrow.int64(),
    "max_timestamp_ms": arrow.int64(),
    "producer_id": arrow.int64(),
    "producer_epoch": arrow.int32(),
    "base_sequence": arrow.int32(),
    "size_bytes": arrow.int64(),
    "crc": arrow.int64(),
    "records_crc": arrow.int64(),
}
_HEADERS: Any = arrow.list_(arrow.struct([arrow.field("key", arrow.string()), arrow.field("value", arrow.binary())]))
_RECORD_TYPES: dict[str, Any] = {
    "topic": arrow.string(),
    "partition": arrow.int32(),
    "offset": arrow.int64(),
    "timestamp_ms": arrow.int64(),
    "has_append_time": arrow.bool_(),
    "key": arrow.binary(),
    "value": arrow.binary(),
    "headers": _HEADERS,
    "producer_id": arrow.int64(),
    "sequence": arrow.int64(),
}
_SPARK_NAMES: dict[str, str] = {
    "string": "string",
    "int32": "int",
    "int64": "bigint",
    "bool": "boolean",
    "binary": "binary",
}
_SEQUENCES = 1 << 31
"""Number of distinct sequence numbers. After the highest one, sequence numbers wrap to 0."""


class ColumnBuilder(Protocol):
    """Collects the rows of one partition, and returns them as one Arrow batch."""

    rows: int
    held_bytes: int

    def take(self, batch: ReadBatch) -> None:
        """Add the row or rows of a record batch. Raises ValueError if its records cannot be read."""
        ...

    def arrow(self) -> RecordBatch:
        """Return all collected rows as one Arrow batch."""
        ...


def spark_schema(*, records: bool) -> str:
    """Return a schema in Spark's DDL notation: the schema of records if `records` is set, and the schema of batches
    otherwise."""
    types = _RECORD_TYPES if records else _BATCH_TYPES
    headers = "array<struct<key:string,value:binary>>"
    return ", ".join(
        f"`{name}` {headers if kind is _HEADERS else _SPARK_NAMES[str(kind)]}" for name, kind in types.items()
    )


class BatchColumns:
    """Collects one row for each record batch. The row is derived from the header alone."""

    def __init__(self, topic: str, partition: int) -> None:
        self.rows = 0
        self.held_bytes = 0
        self._place = (topic, partition)
        self._values: list[tuple[Any, ...]] = []

    def take(self, batch: ReadBatch) -> None:
        """Add the row of a record batch. None of the batch's bytes are kept."""
        header = batch.header
        size = batch.end - batch.start
        if batch.is_old:
            # In message formats 0 and 1, a batch has no header with the other fields.
            batch_values = (
                header.base_offset,
                header.last_offset,
                None,
                header.magic,
                *(None,) * 2,
                False,
                batch.aborted,
            )
            self._values.append((*batch_values, *(None,) * 6, size, None, None))
        else:
            attributes = header.attributes
            self._values.append(
                (
                    header.base_offset,
                    header.last_offset,
                    header.record_count,
                    header.magic,
                    attributes,
                    codec_name(attributes),
                    bool(attributes & CONTROL),
                    batch.aborted,
                    header.leader_epoch,
                    header.base_timestamp,
                    header.max_timestamp,
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    size,
                    header.crc & 0xFFFFFFFF,
                    batch.records_crc,
                )
            )
        self.rows += 1

    def arrow(self) -> RecordBatch:
        """Return all collected rows as one Arrow batch."""
        return _arrow(_BATCH_TYPES, self._place, zip(*self._values, strict=True))


class RecordColumns:
    """Collects one row for each record with an offset in [start, end)."""

    def __init__(self, topic: str, partition: int, start: int, end: int) -> None:
        self.rows = 0
        self.held_bytes = 0
        self._place = (topic, partition)
        self._start = start
        self._end = end
        self._values: list[tuple[Any, ...]] = []

    def take(self, batch: ReadBatch) -> None:
        """Add the rows of a batch's records. Raises ValueError if the records cannot be read."""
        header = batch.header
        if not batch.is_old and header.attributes & CONTROL:
            return
        appended = None if batch.is_old else bool(header.attributes & LOG_APPEND_TIME)
        producer_id = None if batch.is_old else header.producer_id
        for record in batch.records():
            if not self._start <= record.offset < self._end:
                continue
            sequence = None
            if not batch.is_old and header.base_sequence >= 0:
                sequence = (header.base_sequence + record.offset - header.base_offset) % _SEQUENCES
            headers = [{"key": shown_name(name), "value": value} for name, value in record.headers]
            values = (record.key, record.value, headers, producer_id, sequence)
            self._values.append((record.offset, record.time_ms, appended, *values))
            self.held_bytes += len(record.key or b"") + len(record.value or b"")
            self.rows += 1

    def arrow(self) -> RecordBatch:
        """Return all collected rows as one Arrow batch."""
        return _arrow(_RECORD_TYPES, self._place, zip(*self._values, strict=True))


def codec_name(attributes: int) -> str:
    """Return the name of the compression codec of a batch with these attributes, or the number of the codec if mirrord
    does not know its name."""
    number = attributes & CODEC_MASK
    return CODECS[number] if number < len(CODECS) else str(number)


def _arrow(types: dict[str, Any], place: tuple[str, int], columns: Iterable[Any]) -> RecordBatch:
    found = list(columns)
    rows = len(found[0])
    arrays = [arrow.array([place[0]] * rows, arrow.string()), arrow.array([place[1]] * rows, arrow.int32())]
    arrays += [arrow.array(column, kind) for column, kind in zip(found, list(types.values())[2:], strict=True)]
    return arrow.RecordBatch.from_arrays(arrays, schema=arrow.schema(list(types.items())))
