"""Reads the progress of MirrorMaker 2, which Kafka Connect has stored as source offsets in a topic on the target
cluster.

A key is a JSON array, such as `["MirrorSourceConnector",{"cluster":"eu","partition":0,"topic":"orders"}]`. The
connector name at the beginning may be different if Connect does not run as part of MirrorMaker 2. The value is
`{"offset":1233}`, the offset of the last record that was copied. For each key, only the newest value is valid, and a
record without a value deletes the key (org.apache.kafka.connect.mirror.MirrorUtils,
org.apache.kafka.connect.storage.ConnectorOffsetBackingStore).
"""

# pyright: reportMissingTypeStubs=false

import asyncio
from typing import Annotated, Any, cast

import msgspec
from aiokafka.errors import GroupAuthorizationFailedError

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.kafka.client.metadata_decoding import ask_metadata
from mirrord.kafka.client.partition_queries import Asks, bounds
from mirrord.kafka.client.range_reader import ReadFailed, Stretches
from mirrord.kafka.client.topic_admin import Admin
from mirrord.kafka.protocol.api_versions import METADATA
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.metadata import TopicMetadata
from mirrord.kafka.protocol.record_batch import CONTROL
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import Alias, TopicId, TopicPartition

LEADERS_S = 10.0
_LOOK_S = 0.05


class _Partition(msgspec.Struct):
    cluster: str
    partition: int
    topic: str


class _Offset(msgspec.Struct):
    offset: Annotated[int, msgspec.Meta(ge=0)]


_KEYS = msgspec.json.Decoder(tuple[str, _Partition])
_VALUES = msgspec.json.Decoder(_Offset)


class NotAllowed(EnvironmentFault):
    """Raised if mirrord has no permission for a request that shows how far MirrorMaker 2 has copied. The message names
    the missing permission."""


def default_topic(source: Alias) -> str:
    """Return the default name of the topic that holds MirrorMaker 2's source offsets
    (MirrorMakerConfig.workerConfig)."""
    return f"mm2-offsets.{source}.internal"


def workers_group(source: Alias) -> str:
    """Return the group id of the MirrorMaker 2 workers that copy from a cluster (MirrorMakerConfig.workerConfig)."""
    return f"{source}-mm2"


def positions(records: list[tuple[bytes | None, bytes | None]], source: Alias) -> dict[TopicPartition, int]:
    """Decode these records of an offsets topic of MirrorMaker 2. For each source partition, return the offset after the
    last record that MirrorMaker 2 has copied. Records in a different format or about a different source are ignored."""
    found: dict[TopicPartition, int] = {}
    for key, value in records:
        try:
            _, where = _KEYS.decode(key or b"")
            offset = _VALUES.decode(value).offset if value is not None else None
        except msgspec.MsgspecError:
            continue
        if where.cluster != source:
            continue
        place = TopicPartition(where.topic, where.partition)
        if offset is None:
            found.pop(place, None)
        else:
            found[place] = offset + 1
    return found


async def read_positions(
    view: ClusterView, asks: Asks, stretches: Stretches, topic: str, source: Alias
) -> dict[TopicPartition, int] | None:
    """Return the positions that MirrorMaker 2 recorded in this topic for all partitions of a source cluster, or None if
    the topic does not exist.

    Raises NotAllowed if mirrord has no permission to read the topic, and ReadFailed if the topic cannot be read at the
    moment. Raises EnvironmentFault for other failures.
    """
    found = await _look_up(view, topic)
    if found is None:
        return None
    topic_id = TopicId(found.id)
    view.watch(topic, topic_id)
    try:
        records: list[tuple[bytes | None, bytes | None]] = []
        for partition in sorted(each.partition for each in found.partitions):
            where = PartitionId(topic, topic_id, partition)
            await _await_leader(view, where)
            end, begin = await bounds(asks, where)
            async for batch in stretches.read(where, begin, end, committed=True):
                if batch.aborted or batch.header.attributes & CONTROL:
                    continue
                try:
                    records += [(each.key, each.value) for each in await batch.decoded()]
                except ValueError as error:
                    raise EnvironmentFault(f"{topic}-{partition} cannot be read: {error}") from error
    except ReadFailed as failed:
        if failed.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise _may_not_be_read(topic) from failed
        raise
    finally:
        view.unwatch(topic_id)
    return positions(records, source)


async def active_workers(target: ClusterConfig, group: str, timeout_s: float) -> int:
    """Return how many workers of MirrorMaker 2 are currently in this group, or 0 if the group does not exist.

    Raises NotAllowed if mirrord has no permission to describe the group, and EnvironmentFault for other failures.
    """
    may_not = NotAllowed(
        f"mirrord is not allowed to see whether MirrorMaker 2 is still copying: allow DESCRIBE on the group {group}"
    )
    async with Admin(target, timeout_s) as admin:
        try:
            # The client library's answers are untyped.
            (answer,) = cast(Any, await admin.describe_consumer_groups([group]))
        except GroupAuthorizationFailedError:
            raise may_not from None  # refused by the broker that was asked for the coordinator
    error, _, _, _, _, members, *_ = answer.groups[0]
    if error == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        raise may_not
    return 0 if error else len(members)


def _may_not_be_read(topic: str) -> NotAllowed:
    return NotAllowed(f"{topic}, which would show whether MirrorMaker 2 wrote them, cannot be read: allow READ on it")


async def _look_up(view: ClusterView, topic: str) -> TopicMetadata | None:
    connection = await view.any_broker()
    answer = await ask_metadata(connection, [topic], connection.version(METADATA))
    found = next((each for each in answer.topics if each.name == topic), None)
    if found is None or found.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if found.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise _may_not_be_read(topic)
    if found.error:
        raise EnvironmentFault(f"{topic}: {ErrorCode.name_of(found.error)}")
    return found


async def _await_leader(view: ClusterView, partition: PartitionId) -> None:
    try:
        async with asyncio.timeout(LEADERS_S):
            while view.leader(partition) is None:
                view.refresh()
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise EnvironmentFault(f"{partition.topic}-{partition.partition} has no leader") from None
