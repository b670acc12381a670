"""Decodes the records of `__consumer_offsets`, in which the group coordinators store the committed offsets of groups.

The key of each record begins with a number that identifies the kind of the record, and the value begins with the
version of its layout (org.apache.kafka.coordinator.group.generated). The files `*Key.json` and `*Value.json` in Kafka's
group-coordinator module define the layouts, and CoordinatorRecordType defines the kinds. A null value means that the
committed offset no longer exists: it expired or was deleted, or its topic was deleted.

Records of kinds 0 and 1 hold committed offsets of classic groups, of KIP-848 groups and of Kafka Streams groups
(KIP-1071). Records of all other kinds describe groups and their members. In the keys of all kinds, the kind is followed
by the name of the group. The positions of share groups are in a different topic (`__share_group_state`, KIP-932).
"""

import msgspec

from mirrord.kafka.protocol.crc32c import Bytes
from mirrord.kafka.protocol.errors import UnknownLayout
from mirrord.kafka.protocol.primitives import Reader

TOPIC = "__consumer_offsets"
"""The value of GROUP_METADATA_TOPIC_NAME in org.apache.kafka.common.internals.Topic."""
OLDEST_KIND, OFFSET_KIND = 0, 1
"""The two kinds of records that hold committed offsets. Their keys, LegacyOffsetCommitKey and OffsetCommitKey in Kafka,
have the same fields."""
_NEWEST_VERSION = 4
_FLEXIBLE = 4
_WITH_EPOCH = 3
_WITH_EXPIRY = 1
_TOPIC_ID_TAG = 0


class OffsetKey(msgspec.Struct, frozen=True, order=True):
    """The key of a record with a group's committed offset in one partition."""

    group: str
    topic: str
    partition: int


class OffsetValue(msgspec.Struct, frozen=True):
    """The value of a record with a group's committed offset in one partition."""

    offset: int
    leader_epoch: int
    """Leader epoch of the last consumed record, or -1 if the client did not report it."""
    metadata: str
    commit_ms: int
    """Time of the commit by the coordinator's clock, in milliseconds since 1970."""
    topic_id: str | None = None
    """The id of the topic. None if the broker did not store the id. Before version 4 of the layout, values contain no
    topic id."""


def decode_key(data: Bytes) -> OffsetKey | int:
    """Return the key of a committed offset. If the record is of a kind other than 0 or 1, return the kind. Raises
    WireError."""
    reader = Reader(data)
    kind = reader.int16()
    if kind not in {OLDEST_KIND, OFFSET_KIND}:
        return kind
    key = OffsetKey(reader.string(), reader.string(), reader.int32())
    reader.expect_end()
    return key


def decode_value(data: Bytes) -> OffsetValue:
    """Decode the value of a committed offset (layout versions 0 to 4). Raises WireError, or UnknownLayout for newer
    versions."""
    reader = Reader(data)
    version = reader.int16()
    if not 0 <= version <= _NEWEST_VERSION:
        raise UnknownLayout(f"a commit of version {version}")
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= _WITH_EPOCH else -1
    metadata = reader.compact_string() if version >= _FLEXIBLE else reader.string()
    commit_ms = reader.int64()
    if version == _WITH_EXPIRY:
        reader.int64()
    topic_id: str | None = None
    if version >= _FLEXIBLE:
        for _ in range(reader.compact_tags()):
            number, field = reader.tag()
            if number == _TOPIC_ID_TAG:
                topic_id = field.uuid()
    reader.expect_end()
    return OffsetValue(offset, leader_epoch, metadata, commit_ms, topic_id)
