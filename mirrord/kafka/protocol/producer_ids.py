"""Encodes and decodes InitProducerId (API 22, versions 3 to 5) and DescribeProducers (API 61, version 0).

InitProducerId returns a new producer id for a lane. DescribeProducers returns the producer state that a partition's
leader remembers.
"""

from collections.abc import Iterable, Mapping
from struct import Struct

import msgspec

from mirrord.kafka.protocol.primitives import INT32, NO_TAGS, NULL, Reader, compact_array, compact_string

# The fields are: transaction timeout (not used here), producer id, producer epoch.
_INIT = Struct(">iqh")
_ALLOCATED = Struct(">ihqh")
_PRODUCER = Struct(">qiiqiq")


class ProducerIdentity(msgspec.Struct, frozen=True):
    """A new producer id and its epoch.

    If `error` is not 0, the ids are invalid. Shortly after it has started, a broker may return the error
    COORDINATOR_LOAD_IN_PROGRESS. The client must then retry.
    """

    error: int
    producer_id: int
    producer_epoch: int


class ActiveProducer(msgspec.Struct, frozen=True):
    """The state of one producer that a partition's leader remembers.

    The state expires when the timestamp of the producer's last record is too old, even if that record was appended
    recently.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int
    """Start offset of the producer's open transaction, or -1 if it has none."""


class PartitionProducers(msgspec.Struct, frozen=True):
    """The producers that the leader of a partition remembers. Their state also covers batches above the high
    watermark."""

    topic: str
    partition: int
    error: int
    message: str | None
    producers: list[ActiveProducer]


def encode_init_producer_id() -> bytes:
    """Encode the body of an InitProducerId request for a producer without a transactional id."""
    return NULL + _INIT.pack(60_000, -1, -1) + NO_TAGS


def decode_init_producer_id(reader: Reader) -> ProducerIdentity:
    """Decode an InitProducerId response. Raises WireError."""
    _, error, producer_id, producer_epoch = reader.unpack(_ALLOCATED)
    reader.skip_tags()
    reader.expect_end()
    return ProducerIdentity(error, producer_id, producer_epoch)


def encode_describe_producers(topics: Mapping[str, Iterable[int]]) -> bytes:
    """Encode the body of a DescribeProducers request for these partitions, by topic name."""
    elements = (
        compact_string(topic) + compact_array(INT32.pack(partition) for partition in partitions) + NO_TAGS
        for topic, partitions in topics.items()
    )
    return compact_array(elements) + NO_TAGS


def decode_describe_producers(reader: Reader) -> list[PartitionProducers]:
    """Decode a DescribeProducers response. Raises WireError."""
    reader.int32()  # throttle time
    answers: list[PartitionProducers] = []
    for _ in range(reader.compact_count()):
        topic = reader.compact_string()
        answers += [_partition(reader, topic) for _ in range(reader.compact_count())]
        reader.skip_tags()
    reader.skip_tags()
    reader.expect_end()
    return answers


def _partition(reader: Reader, topic: str) -> PartitionProducers:
    partition, error = reader.int32(), reader.int16()
    message = reader.compact_nullable_string()
    answer = PartitionProducers(topic, partition, error, message, reader.compact_array(_producer))
    reader.skip_tags()
    return answer


def _producer(reader: Reader) -> ActiveProducer:
    producer = ActiveProducer(*reader.unpack(_PRODUCER))
    reader.skip_tags()
    return producer
