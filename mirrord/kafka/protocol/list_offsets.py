"""Encodes and decodes ListOffsets (API 2, versions 6 to 8) and OffsetForLeaderEpoch (API 23, version 4).

ListOffsets reports where a log begins and ends, and which offset corresponds to a timestamp. OffsetForLeaderEpoch
reports where a leader epoch ends. Both requests identify topics by name.
"""

from collections.abc import Callable, Iterable
from struct import Struct
from typing import TypeVar

import msgspec

from mirrord.kafka.protocol.primitives import INT32, NO_TAGS, Reader, compact_array, compact_string

T = TypeVar("T")

EARLIEST = -2
"""A special timestamp in a request. It selects the log start offset."""
LATEST = -1
"""A special timestamp in a request. It selects the high watermark. If the request asks for committed records only, this
timestamp selects the last stable offset instead."""
EARLIEST_LOCAL = -4
"""A special timestamp in a request. It selects the start of the local part of the log (KIP-405, version 8). Records
before that offset are only in remote storage."""

_CONSUMER = -1
_LIST_HEAD = Struct(">ib")
_LIST_PARTITION = Struct(">iiqb")
_LISTED = Struct(">ihqqi")
_EPOCH_PARTITION = Struct(">iiib")
_EPOCH_END = Struct(">hiiq")


class OffsetQuestion(msgspec.Struct, frozen=True):
    """Asks for the offset of the first record whose timestamp is `time` (in ms) or later. `time` can also be EARLIEST,
    LATEST or EARLIEST_LOCAL."""

    topic: str
    partition: int
    time: int
    leader_epoch: int = -1


class ListedOffset(msgspec.Struct, frozen=True):
    """The answer to an `OffsetQuestion`: the offset and the timestamp of the record that was found. `offset` is -1 if
    there is no such record. `time` is -1 for EARLIEST, LATEST and EARLIEST_LOCAL."""

    topic: str
    partition: int
    error: int
    time: int
    offset: int
    leader_epoch: int


class EpochQuestion(msgspec.Struct, frozen=True):
    """Asks for the offset at which the leader epoch `epoch` ends. `leader_epoch` is the current leader epoch, as known
    to the client. If the broker's current leader epoch differs, the broker refuses to answer (KIP-320)."""

    topic: str
    partition: int
    leader_epoch: int
    epoch: int


class EpochEnd(msgspec.Struct, frozen=True):
    """The answer to an `EpochQuestion`. `epoch` is the requested leader epoch, or an earlier one if the log has no
    records of the requested epoch. `end` is the offset at which `epoch` ends. If the log has only records of later
    epochs, `epoch` is the requested one, and `end` is the offset at which the first later epoch begins.

    The end of the current epoch is the end of the leader's log, which includes records that have not been replicated
    yet. `epoch` and `end` are -1 if the broker does not know where the requested epoch ends.
    """

    topic: str
    partition: int
    error: int
    epoch: int
    end: int


def encode_list_offsets(questions: Iterable[OffsetQuestion], read_committed: bool) -> bytes:
    """Encode the body of a ListOffsets request."""
    topics: dict[str, list[bytes]] = {}
    for question in questions:
        partition = _LIST_PARTITION.pack(question.partition, question.leader_epoch, question.time, 0)
        topics.setdefault(question.topic, []).append(partition)
    return _LIST_HEAD.pack(_CONSUMER, read_committed) + _by_topic(topics) + NO_TAGS


def decode_list_offsets(reader: Reader) -> list[ListedOffset]:
    """Decode a ListOffsets response. Raises WireError."""
    return _decode(reader, _listed)


def encode_epoch_ends(questions: Iterable[EpochQuestion]) -> bytes:
    """Encode the body of an OffsetForLeaderEpoch request. Its replica id is -1, which identifies the client as a
    consumer."""
    topics: dict[str, list[bytes]] = {}
    for question in questions:
        partition = _EPOCH_PARTITION.pack(question.partition, question.leader_epoch, question.epoch, 0)
        topics.setdefault(question.topic, []).append(partition)
    return INT32.pack(_CONSUMER) + _by_topic(topics) + NO_TAGS


def decode_epoch_ends(reader: Reader) -> list[EpochEnd]:
    """Decode an OffsetForLeaderEpoch response. Raises WireError."""
    return _decode(reader, _epoch_end)


def _by_topic(topics: dict[str, list[bytes]]) -> bytes:
    return compact_array(compact_string(topic) + compact_array(parts) + NO_TAGS for topic, parts in topics.items())


def _decode(reader: Reader, read: Callable[[Reader, str], T]) -> list[T]:
    reader.int32()  # throttle time
    answers: list[T] = []
    for _ in range(reader.compact_count()):
        topic = reader.compact_string()
        answers += [read(reader, topic) for _ in range(reader.compact_count())]
        reader.skip_tags()
    reader.skip_tags()
    reader.expect_end()
    return answers


def _listed(reader: Reader, topic: str) -> ListedOffset:
    partition, error, time, offset, leader_epoch = reader.unpack(_LISTED)
    reader.skip_tags()
    return ListedOffset(topic, partition, error, time, offset, leader_epoch)


def _epoch_end(reader: Reader, topic: str) -> EpochEnd:
    error, partition, epoch, end = reader.unpack(_EPOCH_END)
    reader.skip_tags()
    return EpochEnd(topic, partition, error, epoch, end)
