"""Encodes and decodes WriteTxnMarkers (API 27, version 1; KIP-98).

A transaction coordinator writes markers with this request when a transaction ends. A marker also raises the epoch of
its producer. From then on, the leader of the partition refuses batches of this producer with a lower epoch.
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from mirrord.kafka.protocol.primitives import INT32, NO_TAGS, Reader, compact_array, compact_string

# The fields are: producer id, producer epoch, whether the transaction is committed.
_MARKER = Struct(">qh?")
_PARTITION = Struct(">ih")


class MarkedPartition(NamedTuple):
    """A partition and the producer whose marker is written there."""

    producer_id: int
    topic: str
    partition: int


class AbortMarker(NamedTuple):
    """A marker that aborts the transaction of a producer in one partition, if the producer has one."""

    where: MarkedPartition
    producer_epoch: int
    coordinator_epoch: int


def encode_abort_markers(markers: Iterable[AbortMarker]) -> bytes:
    """Encode the body of a WriteTxnMarkers request. Each producer may occur once per partition."""
    return compact_array(map(_marker, markers)) + NO_TAGS


def _marker(marker: AbortMarker) -> bytes:
    where = marker.where
    topic = compact_string(where.topic) + compact_array([INT32.pack(where.partition)]) + NO_TAGS
    head = _MARKER.pack(where.producer_id, marker.producer_epoch, False)
    return head + compact_array([topic]) + INT32.pack(marker.coordinator_epoch) + NO_TAGS


def decode_markers(reader: Reader) -> dict[MarkedPartition, int]:
    """Decode a WriteTxnMarkers response: the error code of each marker. Raises WireError."""
    errors: dict[MarkedPartition, int] = {}
    for _ in range(reader.compact_count()):
        producer_id = reader.int64()
        for _ in range(reader.compact_count()):
            topic = reader.compact_string()
            for partition, error in reader.compact_array(_answer):
                errors[MarkedPartition(producer_id, topic, partition)] = error
            reader.skip_tags()
        reader.skip_tags()
    reader.skip_tags()
    reader.expect_end()
    return errors


def _answer(reader: Reader) -> tuple[int, int]:
    partition, error = reader.unpack(_PARTITION)
    reader.skip_tags()
    return partition, error
