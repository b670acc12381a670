"""Encodes Fetch requests (API 1) for many partitions and finds the batches in the response without copying them.

Versions 12 to 18 are supported. Version 12 identifies topics by name, and versions 13 and later identify them by id
(KIP-516). In this module, `topic` means the name or the id, depending on the version. For a consumer, versions 13 to 18
differ in only one way: version 15 moved the replica id from the beginning of the request into a tagged field (KIP-903).
The other tagged fields of these versions concern only followers.

A request can belong to a fetch session, which KIP-227 defines. `mirrord.kafka.protocol.fetch_session` keeps track of
the session.
"""

from collections.abc import Iterable, Sequence
from struct import Struct

import msgspec

from mirrord.kafka.protocol.api_versions import FETCH_BY_TOPIC_ID
from mirrord.kafka.protocol.primitives import (
    EMPTY_ARRAY,
    NO_TAGS,
    Reader,
    TopicAndPartition,
    compact_array,
    compact_string,
    uuid_bytes,
)

_CONSUMER = Struct(">i").pack(-1)
_REPLICA_STATE_VERSION = 15
_REQUEST = Struct(">iiibii")
# The fields are: partition, current leader epoch, fetch offset, last fetched epoch, log start offset, max bytes, no
# tags.
_PARTITION = Struct(">iiqiqib")
_INDEX = Struct(">i")
_TOP = Struct(">ihi")
# The fields are: partition, error, three offsets, count of aborted transactions (usually one byte), preferred replica.
_FETCHED = Struct(">ihqqqBi")
_NO_ABORTED = 1
_ABORTED = Struct(">qq")
_LEADER = Struct(">ii")
_DIVERGING = Struct(">iq")
_NO_RACK = compact_string("")


class FetchPosition(msgspec.Struct, frozen=True):
    """The position from which to fetch a partition."""

    offset: int
    leader_epoch: int = -1
    """The current leader epoch, as known to the client. The broker refuses the request if its own leader epoch differs
    (KIP-320)."""
    last_epoch: int = -1
    """The leader epoch of the last record before `offset`. With this epoch, the broker can detect a truncation
    (KIP-595)."""
    max_bytes: int = 1 << 20


class FetchLimits(msgspec.Struct, frozen=True):
    """The limits of a whole Fetch request. The broker returns the first batch even if it is larger than `max_bytes`
    (KIP-74)."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 8 << 20
    read_committed: bool = True


class SessionStep(msgspec.Struct, frozen=True):
    """The session fields of one Fetch request. If `epoch` is 0 (a new session) or -1 (no session), `fetch` lists all
    partitions. Otherwise `fetch` and `forget` contain only the changes since the previous request."""

    session_id: int
    epoch: int
    fetch: Sequence[tuple[TopicAndPartition, FetchPosition]]
    forget: Sequence[TopicAndPartition]


class FetchedPartition(msgspec.Struct):
    """The response for one partition. Its records are in bytes [records_start, records_end) of the frame."""

    topic: str
    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records_start: int
    records_end: int
    aborted: list[tuple[int, int]]
    """The aborted transactions that overlap the records, as (producer id, first offset)."""
    preferred_read_replica: int = -1
    leader: int = -1
    leader_epoch: int = -1
    """`leader` is the id of the current leader, and `leader_epoch` is its epoch. The broker sends both with the errors
    NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951). Otherwise both are -1."""
    diverging_epoch: int = -1
    diverging_end: int = -1
    """`diverging_epoch` is the largest leader epoch that the broker's log shares with the client's log, and
    `diverging_end` is the end offset of that epoch. The two logs diverge after this end (KIP-595). Both are -1 if the
    broker has found no divergence."""


class FetchResponse(msgspec.Struct):
    """A decoded Fetch response. If `session_id` is 0, the broker keeps no session."""

    error: int
    session_id: int
    throttle_ms: int
    partitions: list[FetchedPartition]


def encode(version: int, limits: FetchLimits, step: SessionStep) -> bytes:
    """Encode the body of a Fetch request. Raises Malformed if the version requires topic ids and a topic is not a valid
    id."""
    parts = [] if version >= _REPLICA_STATE_VERSION else [_CONSUMER]
    parts.append(
        _REQUEST.pack(
            limits.max_wait_ms, limits.min_bytes, limits.max_bytes, limits.read_committed, step.session_id, step.epoch
        )
    )
    topics: dict[str, list[bytes]] = {}
    for (topic, partition), position in step.fetch:
        topics.setdefault(topic, []).append(
            _PARTITION.pack(
                partition, position.leader_epoch, position.offset, position.last_epoch, -1, position.max_bytes, 0
            )
        )
    parts.append(_topics(version, topics))
    forgotten: dict[str, list[bytes]] = {}
    for topic, partition in step.forget:
        forgotten.setdefault(topic, []).append(_INDEX.pack(partition))
    parts += (_topics(version, forgotten), _NO_RACK, NO_TAGS)
    return b"".join(parts)


def _topics(version: int, topics: dict[str, list[bytes]]) -> bytes:
    if not topics:
        return EMPTY_ARRAY
    name = uuid_bytes if version >= FETCH_BY_TOPIC_ID else compact_string
    elements: Iterable[bytes] = (
        name(topic) + compact_array(partitions) + NO_TAGS for topic, partitions in topics.items()
    )
    return compact_array(elements)


def decode(version: int, reader: Reader) -> FetchResponse:
    """Decode a Fetch response without copying the records. Raises WireError."""
    throttle_ms, error, session_id = reader.unpack(_TOP)
    partitions: list[FetchedPartition] = []
    by_id = version >= FETCH_BY_TOPIC_ID
    for _ in range(reader.compact_count()):
        topic = reader.uuid() if by_id else reader.compact_string()
        partitions += [_partition(reader, topic) for _ in range(reader.compact_count())]
        reader.skip_tags()
    reader.skip_tags()
    reader.expect_end()
    return FetchResponse(error, session_id, throttle_ms, partitions)


def _partition(reader: Reader, topic: str) -> FetchedPartition:
    partition, error, high_watermark, last_stable, log_start, count, replica = reader.unpack(_FETCHED)
    aborted: list[tuple[int, int]] = []
    if count > _NO_ABORTED:
        reader.position -= 5
        aborted = [_aborted(reader) for _ in range(reader.compact_count())]
        replica = reader.int32()
    start = reader.advance(max(reader.compact_length(), 0))
    fetched = FetchedPartition(
        topic, partition, error, high_watermark, last_stable, log_start, start, reader.position, aborted, replica
    )
    tags = reader.compact_tags()
    if tags:
        _tags(reader, tags, fetched)
    return fetched


def _tags(reader: Reader, tags: int, fetched: FetchedPartition) -> None:
    for _ in range(tags):
        number, field = reader.tag()
        if number == 0:
            fetched.diverging_epoch, fetched.diverging_end = field.unpack(_DIVERGING)
        elif number == 1:
            fetched.leader, fetched.leader_epoch = field.unpack(_LEADER)


def _aborted(reader: Reader) -> tuple[int, int]:
    producer_id, first_offset = reader.unpack(_ABORTED)
    reader.skip_tags()
    return producer_id, first_offset
