"""Groups and their commits: FindCoordinator (API 10, versions 3 and 4), ListGroups (API 16, versions 4 and 5),
OffsetFetch (API 9, versions 7 and 8) and OffsetCommit (API 8, version 8).

FindCoordinator 4 (KIP-699) and OffsetFetch 8 (KIP-709) are about many groups at once; both are there since Kafka 3.0.
The versions before them are about one group each. Commits are made as by a client outside of the group (generation -1,
no member id): a broker takes them while the group has no members, and refuses them with UNKNOWN_MEMBER_ID otherwise
(org.apache.kafka.coordinator.group, validateOffsetCommit of ClassicGroup and ConsumerGroup). Topics are named by name:
the versions that name them by id (10) know no others.
"""

from collections.abc import Collection, Iterable, Mapping
from struct import Struct

import msgspec

from mirrord.kafka.protocol.primitives import (
    INT8,
    INT32,
    NO_TAGS,
    NULL,
    Reader,
    compact_array,
    compact_nullable_string,
    compact_string,
)

COORDINATORS_AT_ONCE = 4
"""From this version of FindCoordinator on many groups are asked for in one request."""
OFFSETS_AT_ONCE = 8
"""The same of OffsetFetch."""
TYPES_TOLD = 5
"""From this version of ListGroups on each group's type is told."""

_GROUP = INT8.pack(0)
"""org.apache.kafka.common.requests.FindCoordinatorRequest.CoordinatorType.GROUP."""
_FALSE = b"\x00"
_NO_GENERATION = INT32.pack(-1)
_COMMITTED = Struct(">iqi")
_ANSWERED = Struct(">ih")

TopicPartition = tuple[str, int]


class Coordinator(msgspec.Struct, frozen=True):
    """The broker that keeps a group, or why it is not known."""

    error: int
    node: int
    host: str
    port: int


class ListedGroup(msgspec.Struct, frozen=True):
    """A group as its coordinator lists it. Names of states and types are Kafka's (GroupState, GroupType)."""

    group: str
    protocol: str
    """`consumer` for consumers; nothing for commits without members."""
    state: str
    kind: str = ""
    """`Classic`, `Consumer`, `Share` or `Streams`; nothing where the broker does not tell."""


class CommittedOffset(msgspec.Struct, frozen=True):
    """What a group has committed in one partition."""

    offset: int
    leader_epoch: int
    """Of the last consumed record, or -1: whoever commits need not tell."""
    metadata: str


class GroupOffsets(msgspec.Struct, frozen=True):
    """All commits of a group, or why they are not told."""

    error: int
    offsets: dict[TopicPartition, CommittedOffset]


def encode_find(version: int, groups: Collection[str]) -> bytes:
    """The body of a FindCoordinator request; of one group alone below version 4."""
    if version >= COORDINATORS_AT_ONCE:
        return _GROUP + compact_array(map(compact_string, groups)) + NO_TAGS
    (group,) = groups
    return compact_string(group) + _GROUP + NO_TAGS


def decode_find(version: int, reader: Reader, groups: Collection[str]) -> dict[str, Coordinator]:
    """The answer for these groups. Raises WireError."""
    reader.int32()  # throttle time
    if version >= COORDINATORS_AT_ONCE:
        found = dict(reader.compact_array(_coordinator))
    else:
        error = reader.int16()
        reader.compact_nullable_string()  # message
        found = {group: Coordinator(error, *_address(reader)) for group in groups}
    reader.skip_tags()
    reader.expect_end()
    return found


def encode_list(version: int) -> bytes:
    """The body of a ListGroups request for all groups that the broker keeps."""
    any_state = any_type = compact_array(())
    return any_state + (any_type if version >= TYPES_TOLD else b"") + NO_TAGS


def decode_list(version: int, reader: Reader) -> tuple[int, list[ListedGroup]]:
    """Error and groups. Raises WireError."""
    reader.int32()  # throttle time
    error = reader.int16()
    groups = reader.compact_array(lambda each: _listed(version, each))
    reader.skip_tags()
    reader.expect_end()
    return error, groups


def encode_fetch(version: int, groups: Collection[str]) -> bytes:
    """The body of an OffsetFetch request for all commits of these groups; of one group alone below version 8.

    What a transaction has committed and not ended is not waited for: the offset before it is told.
    """
    all_topics = NULL
    if version >= OFFSETS_AT_ONCE:
        wanted = compact_array(compact_string(group) + all_topics + NO_TAGS for group in groups)
    else:
        (group,) = groups
        wanted = compact_string(group) + all_topics
    return wanted + _FALSE + NO_TAGS


def decode_fetch(version: int, reader: Reader, groups: Collection[str]) -> dict[str, GroupOffsets]:
    """The answer for these groups. Raises WireError."""
    reader.int32()  # throttle time
    if version >= OFFSETS_AT_ONCE:
        found = dict(reader.compact_array(_group_offsets))
    else:
        offsets = _offsets(reader)
        error = reader.int16()
        found = {group: GroupOffsets(error, offsets) for group in groups}
    reader.skip_tags()
    reader.expect_end()
    return found


def encode_commit(group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> bytes:
    """The body of an OffsetCommit request of a client outside of the group."""
    topics: dict[str, list[bytes]] = {}
    for (topic, partition), commit in offsets.items():
        where = _COMMITTED.pack(partition, commit.offset, commit.leader_epoch)
        topics.setdefault(topic, []).append(where + compact_string(commit.metadata) + NO_TAGS)
    wanted: Iterable[bytes] = (
        compact_string(topic) + compact_array(partitions) + NO_TAGS for topic, partitions in topics.items()
    )
    no_member, no_instance = compact_string(""), compact_nullable_string(None)
    return compact_string(group) + _NO_GENERATION + no_member + no_instance + compact_array(wanted) + NO_TAGS


def decode_commit(reader: Reader) -> dict[TopicPartition, int]:
    """The error of each partition. Raises WireError."""
    reader.int32()  # throttle time
    errors: dict[TopicPartition, int] = {}
    for _ in range(reader.compact_count()):
        topic = reader.compact_string()
        for _ in range(reader.compact_count()):
            partition, error = reader.unpack(_ANSWERED)
            reader.skip_tags()
            errors[topic, partition] = error
        reader.skip_tags()
    reader.skip_tags()
    reader.expect_end()
    return errors


def _address(reader: Reader) -> tuple[int, str, int]:
    return reader.int32(), reader.compact_string(), reader.int32()


def _coordinator(reader: Reader) -> tuple[str, Coordinator]:
    group = reader.compact_string()
    node, host, port = _address(reader)
    error = reader.int16()
    reader.compact_nullable_string()  # message
    reader.skip_tags()
    return group, Coordinator(error, node, host, port)


def _listed(version: int, reader: Reader) -> ListedGroup:
    group, protocol, state = reader.compact_string(), reader.compact_string(), reader.compact_string()
    # The broker writes it in small letters (org.apache.kafka.coordinator.group.Group.GroupType).
    kind = reader.compact_string().capitalize() if version >= TYPES_TOLD else ""
    reader.skip_tags()
    return ListedGroup(group, protocol, state, kind)


def _group_offsets(reader: Reader) -> tuple[str, GroupOffsets]:
    group = reader.compact_string()
    offsets = _offsets(reader)
    error = reader.int16()
    reader.skip_tags()
    return group, GroupOffsets(error, offsets)


def _offsets(reader: Reader) -> dict[TopicPartition, CommittedOffset]:
    """Those that are there: a partition without a commit has the offset -1, and an error has none."""
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for _ in range(reader.compact_count()):
        topic = reader.compact_string()
        for _ in range(reader.compact_count()):
            partition, offset, leader_epoch = reader.unpack(_COMMITTED)
            metadata = reader.compact_nullable_string()
            error = reader.int16()
            reader.skip_tags()
            if offset >= 0 and not error:
                offsets[topic, partition] = CommittedOffset(offset, leader_epoch, metadata or "")
        reader.skip_tags()
    return offsets
