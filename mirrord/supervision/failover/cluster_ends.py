"""Requests the high watermarks of both clusters for a failover."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.log_offsets import LogOffsets
from mirrord.ledger.last_seen.source_ends import SeenEnd, SeenEnds
from mirrord.ledger.source_ends import SourcePartition
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId, TopicId
from mirrord.runtime.clock import Clock

SOURCE_S = 2.0
"""Time limit for a source that may be gone."""


class _TargetPartition(NamedTuple):
    topic: str
    topic_id: TopicId
    partition: int


async def source_ends(
    source: ClusterConfig, partitions: Collection[SourcePartition], clock: Clock, *, is_lost: bool
) -> dict[SourcePartition, SeenEnd]:
    """Return the high watermarks of these partitions. Partitions whose leaders do not answer are omitted.

    Raises EnvironmentFault if no broker answers, unless `is_lost` is true.
    """
    asked_ms = clock.wall_ms()
    with closing(LogOffsets(source, *((SOURCE_S,) if is_lost else ()))) as client:
        try:
            if not is_lost:
                ends = await client.high_watermarks(partitions)
            else:
                async with asyncio.timeout(SOURCE_S):
                    ends = await client.high_watermarks(partitions)
        except (EnvironmentFault, TimeoutError):
            if not is_lost:
                raise
            return {}
    return {where: SeenEnd(end, asked_ms) for where, end in ends.items()}


async def target_ends(target: ClusterConfig, lanes: Sequence[LaneState]) -> Mapping[LaneId, int]:
    """Return the high watermarks of the lanes' target partitions. Partitions whose leaders do not answer are omitted.

    Raises EnvironmentFault if no broker answers.
    """
    wanted = {_TargetPartition(lane.target_topic, lane.key.target_topic_id, lane.partition): lane for lane in lanes}
    with closing(LogOffsets(target)) as client:
        ends = await client.high_watermarks(wanted)
    return {wanted[where].key.id: end for where, end in ends.items()}


def complete(
    ends: Mapping[SourcePartition, SeenEnd], partitions: Collection[SourcePartition]
) -> Mapping[SourcePartition, SeenEnd]:
    """Return the high watermarks. Raises EnvironmentFault if one of these partitions is missing."""
    for where in sorted(partitions):
        if where not in ends:
            raise EnvironmentFault(f"the leader of {where.topic}-{where.partition} on the source does not answer")
    return ends


def observed(partitions: Collection[SourcePartition], state: FlowState) -> set[SourcePartition]:
    """Return those of the partitions whose topics were selected when the source was last seen. If nothing was ever
    recorded, return all of them."""
    known = SeenEnds(state)
    topics = {where.topic_id for where in known.ends}
    return {where for where in partitions if not known.is_recorded or where.topic_id in topics}


def partitions_of(lanes: Sequence[LaneState]) -> list[SourcePartition]:
    """Return the source partitions of these lanes."""
    return [SourcePartition(lane.source_topic, lane.key.source_topic_id, lane.partition) for lane in lanes]
