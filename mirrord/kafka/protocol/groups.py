"""Encodes and decodes requests about consumer groups and their committed offsets: FindCoordinator (API 10, versions 3
and 4), ListGroups (API 16, versions 4 and 5), OffsetFetch (API 9, versions 7 and 8) and OffsetCommit (API 8, version
8).

Version 4 of FindCoordinator (KIP-699) and version 8 of OffsetFetch (KIP-709) accept many groups in one request. Kafka
3.0 introduced both. Earlier versions accept only one group.

mirrord commits offsets as a client that is not a member of the group (generation -1, no member id). A broker accepts
such a commit if the group has no members. Otherwise it rejects the commit with UNKNOWN_MEMBER_ID
(org.apache.kafka.coordinator.group, validateOffsetCommit of ClassicGroup and ConsumerGroup).

Topics are identified by name. Version 10 of OffsetFetch and OffsetCommit accepts only topic ids, so it is not used.
"""

from collections.abc import Collection, Iterable, Mapping
from struct import Struct

import msgspec

from mirrord.kafka.protocol.errors import WireError
from mirrord.kafka.protocol.primitives import (
    INT8,
    INT32,
    NO_TAGS,
    NULL,
    Reader,
    TopicAndPartition,
    compact_array,
    compact_nullable_string,
    compact_string,
)

COORDINATORS_AT_ONCE = 4
"""The first version of FindCoordinator in which a request can contain many groups."""
OFFSETS_AT_ONCE = 8
"""The first version of OffsetFetch in which a request can contain many groups."""
TYPES_REPORTED = 5
"""The first version of ListGroups in which the response contains the type of each group."""

_GROUP = INT8.pack(0)
"""The code of CoordinatorType.GROUP (org.apache.kafka.common.requests.FindCoordinatorRequest)."""
_FALSE = b"\x00"
_NO_GENERATION = INT32.pack(-1)
_COMMITTED = Struct(">iqi")
_ANSWERED = Struct(">ih")


class Coordinator(msgspec.Struct, frozen=True):
    """The broker that coordinates a group, or the error that explains why the coordinator is unknown."""

    error: int
    node: int
    host: str
    port: int


class ListedGroup(msgspec.Struct, frozen=True):
    """One group in a ListGroups response. `state` and `kind` are names from Kafka's enums GroupState and GroupType."""

    group: str
    protocol: str
    """The protocol type of the group, which is `consumer` for consumer groups. It is empty for a group with committed
    offsets but without members."""
    state: str
    kind: str = ""
    """`Classic`, `Consumer`, `Share` or `Streams`. Empty if the broker does not report it."""


class CommittedOffset(msgspec.Struct, frozen=True):
    """The committed offset of a group in one partition."""

    offset: int
    leader_epoch: int
    """The leader epoch of the last consumed record. It is -1 if the client did not specify the epoch when it
    committed."""
    metadata: str


class GroupOffsets(msgspec.Struct, frozen=True):
    """All committed offsets of a group, or the error that explains why they are not returned."""

    error: int
    offsets: dict[TopicAndPartition, CommittedOffset]


def encode_find(version: int, groups: Collection[str]) -> bytes:
    """Encode the body of a FindCoordinator request. Versions below 4 accept only one group."""
    if version >= COORDINATORS_AT_ONCE:
        return _GROUP + compact_array(map(compact_string, groups)) + NO_TAGS
    (group,) = groups
    return compact_string(group) + _GROUP + NO_TAGS


def decode_find(version: int, reader: Reader, groups: Collection[str]) -> dict[str, Coordinator]:
    """Decode a FindCoordinator response for these groups. Raises WireError."""
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
    """Encode the body of a ListGroups request for all groups that the broker coordinates."""
    any_state = any_type = compact_array(())
    return any_state + (any_type if version >= TYPES_REPORTED else b"") + NO_TAGS


def decode_list(version: int, reader: Reader) -> tuple[int, list[ListedGroup]]:
    """Return the error and the groups in a ListGroups response. Raises WireError."""
    reader.int32()  # throttle time
    error = reader.int16()
    groups = reader.compact_array(lambda each: _listed(version, each))
    reader.skip_tags()
    reader.expect_end()
    return error, groups


def encode_fetch(version: int, groups: Collection[str]) -> bytes:
    """Encode the body of an OffsetFetch request for all committed offsets of these groups. Versions below 8 accept only
    one group.

    If an open transaction contains a newer offset of a group, the broker does not wait for the transaction to end. The
    response then contains the previous offset.
    """
    all_topics = NULL
    if version >= OFFSETS_AT_ONCE:
        wanted = compact_array(compact_string(group) + all_topics + NO_TAGS for group in groups)
    else:
        (group,) = groups
        wanted = compact_string(group) + all_topics
    return wanted + _FALSE + NO_TAGS


def decode_fetch(version: int, reader: Reader, groups: Collection[str]) -> dict[str, GroupOffsets]:
    """Decode an OffsetFetch response for these groups. Raises WireError."""
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


def encode_commit(group: str, offsets: Mapping[TopicAndPartition, CommittedOffset]) -> bytes:
    """Encode the body of an OffsetCommit request from a client that is not a member of the group."""
    topics: dict[str, list[bytes]] = {}
    for (topic, partition), commit in offsets.items():
        where = _COMMITTED.pack(partition, commit.offset, commit.leader_epoch)
        topics.setdefault(topic, []).append(where + compact_string(commit.metadata) + NO_TAGS)
    wanted: Iterable[bytes] = (
        compact_string(topic) + compact_array(partitions) + NO_TAGS for topic, partitions in topics.items()
    )
    no_member, no_instance = compact_string(""), compact_nullable_string(None)
    return compact_string(group) + _NO_GENERATION + no_member + no_instance + compact_array(wanted) + NO_TAGS


def decode_commit(reader: Reader) -> dict[TopicAndPartition, int]:
    """Return the error code of each partition in an OffsetCommit response. Raises WireError."""
    reader.int32()  # throttle time
    errors: dict[TopicAndPartition, int] = {}
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


def encode_delete(group: str) -> bytes:
    """Encode the body of a DeleteGroups request for one group (KIP-229)."""
    return compact_array([compact_string(group)]) + NO_TAGS


def decode_delete(reader: Reader) -> int:
    """Return the error code in a DeleteGroups response for one group. Raises WireError."""
    reader.int32()  # throttle time

    def deleted(each: Reader) -> int:
        each.compact_string()
        error = each.int16()
        each.skip_tags()
        return error

    errors = reader.compact_array(deleted)
    reader.skip_tags()
    reader.expect_end()
    if len(errors) != 1:
        raise WireError(f"a response about {len(errors)} groups, but one was to be deleted")
    return errors[0]


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
    # The broker sends the type in lower case (org.apache.kafka.coordinator.group.Group.GroupType).
    kind = reader.compact_string().capitalize() if version >= TYPES_REPORTED else ""
    reader.skip_tags()
    return ListedGroup(group, protocol, state, kind)


def _group_offsets(reader: Reader) -> tuple[str, GroupOffsets]:
    group = reader.compact_string()
    offsets = _offsets(reader)
    error = reader.int16()
    reader.skip_tags()
    return group, GroupOffsets(error, offsets)


def _offsets(reader: Reader) -> dict[TopicAndPartition, CommittedOffset]:
    """Return the committed offsets. Partitions with an error are omitted, and so are partitions with the offset -1, for
    which nothing has been committed."""
    offsets: dict[TopicAndPartition, CommittedOffset] = {}
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
