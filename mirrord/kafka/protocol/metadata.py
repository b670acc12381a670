"""Encodes and decodes Metadata (API 3, versions 11 to 13), which reports the leaders of partitions and the ids of the
cluster and its topics.

Versions 12 and 13 can request topics by id (KIP-516). Version 13 can return REBOOTSTRAP_REQUIRED for the whole request
(KIP-1102).
"""

from collections.abc import Collection, Generator, Iterable
from struct import Struct
from typing import cast

import msgspec

from mirrord.kafka.protocol.errors import Malformed
from mirrord.kafka.protocol.primitives import (
    NO_TAGS,
    NULL,
    UUID_LENGTH,
    Reader,
    compact_array,
    compact_nullable_string,
    compact_string,
    uuid_bytes,
)

TOPIC_BY_ID = 12
_TOP_LEVEL_ERROR = 13
_NO_ID = bytes(UUID_LENGTH)
_FALSE, _TRUE = b"\x00", b"\x01"
NOT_REPORTED = -(1 << 31)
"""The value of `TopicMetadata.allowed` if the request did not ask for the permitted operations."""
_PARTITION = Struct(">hiii")
AT_ONCE = 500
"""Number of brokers or partitions that `decoding` decodes at once. They take one to three milliseconds."""


class Broker(msgspec.Struct, frozen=True):
    node: int
    host: str
    port: int
    rack: str | None


class Partition(msgspec.Struct, frozen=True, gc=False):
    """The metadata of one partition. `leader` is -1 while the partition has no leader.

    The garbage collector does not track partitions and their tuples, which can be in no cycle. With lists, it took a
    third of the time to decode the metadata of 100,000 partitions.
    """

    error: int
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


class TopicMetadata(msgspec.Struct, frozen=True):
    """The metadata of one topic. `name` is None if the topic was requested by id and does not exist."""

    error: int
    name: str | None
    id: str
    internal: bool
    partitions: list[Partition]
    allowed: int = NOT_REPORTED
    """The operations that this client may perform on the topic, one bit each (KIP-430). The bit numbers are the codes
    of org.apache.kafka.common.acl.AclOperation."""


class Metadata(msgspec.Struct, frozen=True):
    brokers: list[Broker]
    cluster_id: str | None
    controller: int
    topics: list[TopicMetadata]
    error: int


def encode(version: int, topics: Iterable[str] | None, ids: Iterable[str] = (), *, allowed: bool = False) -> bytes:
    """Encode the body of a Metadata request. `topics` contains topic names. If it is None, all topics are requested. In
    versions 12 and 13, `ids` can add topics by id.

    The request never creates a topic. If `allowed` is set, the response also contains the operations that this client
    may perform on each topic.
    """
    if topics is None:
        wanted = NULL
    else:
        elements = [_NO_ID + compact_string(topic) + NO_TAGS for topic in topics]
        for topic_id in ids:
            if version < TOPIC_BY_ID:
                raise ValueError(f"Metadata {version} cannot ask for a topic by id")
            elements.append(uuid_bytes(topic_id) + compact_nullable_string(None) + NO_TAGS)
        wanted = compact_array(elements)
    allow_auto_creation = _FALSE
    return wanted + allow_auto_creation + (_TRUE if allowed else _FALSE) + NO_TAGS


def decode(version: int, reader: Reader, requested: Collection[str] | None = None) -> Metadata:
    """Decode a Metadata response, as `decoding` does. Raises WireError."""
    work = decoding(version, reader, requested)
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast(Metadata, end.value)


def decoding(version: int, reader: Reader, requested: Collection[str] | None = None) -> Generator[None, None, Metadata]:
    """Decode a Metadata response in steps, so that a caller can do other work after `AT_ONCE` brokers, topics or
    partitions. The metadata of 100,000 partitions take 0.2 to 0.6 s.

    `requested` contains the names of the requested topics; None if the request was for all topics, or for topics by id.
    A response with any other topic is refused before the partitions of this topic are decoded. Raises WireError.
    """
    reader.int32()  # throttle time
    brokers: list[Broker] = []
    for number in range(1, reader.compact_count() + 1):
        brokers.append(_broker(reader))
        if number % AT_ONCE == 0:
            yield
    cluster_id = reader.compact_nullable_string()
    controller = reader.int32()
    topics: list[TopicMetadata] = []
    decoded = 0
    for _ in range(reader.compact_count()):
        error = reader.int16()
        name, topic_id, internal = reader.compact_nullable_string(), reader.uuid(), reader.boolean()
        if requested is not None and name not in requested:
            raise Malformed("the broker describes a topic that was not requested")
        partitions: list[Partition] = []
        for _ in range(reader.compact_count()):
            partitions.append(_partition(reader))
            decoded += 1
            if decoded % AT_ONCE == 0:
                yield
        if not partitions:
            # A topic that does not exist or that this client may not describe has no partitions.
            decoded += 1
            if decoded % AT_ONCE == 0:
                yield
        topics.append(TopicMetadata(error, name, topic_id, internal, partitions, reader.int32()))
        reader.skip_tags()
    error = reader.int16() if version >= _TOP_LEVEL_ERROR else 0
    reader.skip_tags()
    reader.expect_end()
    return Metadata(brokers, cluster_id, controller, topics, error)


def _broker(reader: Reader) -> Broker:
    broker = Broker(reader.int32(), reader.compact_string(), reader.int32(), reader.compact_nullable_string())
    reader.skip_tags()
    return broker


def _partition(reader: Reader) -> Partition:
    error, partition, leader, leader_epoch = reader.unpack(_PARTITION)
    replicas, in_sync, offline = reader.int32s(), reader.int32s(), reader.int32s()
    reader.skip_tags()
    return Partition(error, partition, leader, leader_epoch, replicas, in_sync, offline)
