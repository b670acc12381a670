"""Records of `__consumer_offsets`: the committed offsets of groups, as the group coordinator stores them.

Keys begin with their kind, and values with their version (org.apache.kafka.coordinator.group.generated, whose layouts
are the `*Key.json` and `*Value.json` of Kafka's module group-coordinator; the kinds are CoordinatorRecordType). A null
value removes its key: the offset has expired or was deleted, or its topic was deleted.

Kinds 0 and 1 are offsets of classic groups, of groups of KIP-848 and of Kafka Streams groups (KIP-1071) alike. All
other kinds describe groups and their members, and begin with the name of the group. Share groups keep their positions
in another topic (`__share_group_state`, KIP-932).
"""

import msgspec

from mirrord.kafka.protocol.crc32c import Bytes
from mirrord.kafka.protocol.errors import UnknownLayout
from mirrord.kafka.protocol.primitives import Reader

TOPIC = "__consumer_offsets"
"""org.apache.kafka.common.internals.Topic.GROUP_METADATA_TOPIC_NAME."""
OLDEST_KIND, OFFSET_KIND = 0, 1
"""LegacyOffsetCommitKey and OffsetCommitKey, which have the same fields."""
_NEWEST_VERSION = 4
_FLEXIBLE = 4
_WITH_EPOCH = 3
_WITH_EXPIRY = 1
_TOPIC_ID_TAG = 0


class OffsetKey(msgspec.Struct, frozen=True, order=True):
    """The key of a group's committed offset in one partition."""

    group: str
    topic: str
    partition: int


class OffsetValue(msgspec.Struct, frozen=True):
    """The value of a record: a group's committed offset in one partition."""

    offset: int
    leader_epoch: int
    """Leader epoch of the last consumed record, or -1."""
    metadata: str
    commit_ms: int
    """When the offset was committed, by the coordinator's clock."""
    topic_id: str | None = None
    """The id of the topic with this name; None if the broker did not store it (before version 4)."""


def decode_key(data: Bytes) -> OffsetKey | int:
    """Return the key of an offset, or the kind of any other record. Raises WireError."""
    reader = Reader(data)
    kind = reader.int16()
    if kind not in {OLDEST_KIND, OFFSET_KIND}:
        return kind
    key = OffsetKey(reader.string(), reader.string(), reader.int32())
    reader.expect_end()
    return key


def decode_value(data: Bytes) -> OffsetValue:
    """Decode the value of an offset record, versions 0 to 4. Raises WireError, or UnknownLayout for newer versions."""
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
