"""Determines, on request, the lag of committed offsets in records and in time."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.kafka.client.log_offsets import log_offsets
from mirrord.kafka.client.range_reader import ReadFailed, Stretches
from mirrord.kafka.client.watched_topics import WatchedTopics
from mirrord.kafka.protocol.record_batch import CONTROL
from mirrord.ledger.state import LaneState
from mirrord.model.errors import EnvironmentFault
from mirrord.model.group_status import GroupStatus
from mirrord.model.names import TopicPartition
from mirrord.runtime.clock import Clock

MOST_TIMES = 500
"""Maximum number of positions in one request for which the lag in time is determined. The lag in time is the age of the
first unread record. This record must be fetched for each position."""
PATIENCE_S = 3.0
POLL_S = 0.05


class Lag(NamedTuple):
    """The distance between a position and the end of its partition."""

    records: int
    first_ms: int | None
    """Timestamp of the first record that the group has not read. None if there is no such record, or if its timestamp
    is unknown."""


class TargetLags:
    """Determines the lag of positions on the target cluster."""

    def __init__(self, view: ClusterView, cluster: ClusterConfig, rebuild_bytes: int) -> None:
        self._view = view
        self._cluster = cluster
        self._stretches = Stretches(view, PATIENCE_S, rebuild_bytes)
        self._watched = WatchedTopics(view)

    async def ask(self, positions: Mapping[PartitionId, set[int]]) -> dict[tuple[PartitionId, int], Lag]:
        """Return the lag of each of these offsets. Offsets with an unknown lag are omitted."""
        partitions = {TopicPartition(each.topic, each.partition) for each in positions}
        try:
            ends = await log_offsets(self._cluster, partitions, "end")
        except EnvironmentFault:
            return {}
        lags: dict[tuple[PartitionId, int], Lag] = {}
        behind: list[tuple[PartitionId, int]] = []
        for partition, offsets in positions.items():
            end = ends.get(TopicPartition(partition.topic, partition.partition))
            if end is None:
                continue
            for offset in offsets:
                lags[partition, offset] = Lag(max(0, end - offset), None)
                if offset < end:
                    behind.append((partition, offset))
        behind = behind[:MOST_TIMES]
        await self._until_known({partition for partition, _ in behind})
        for place, first_ms in zip(behind, await asyncio.gather(*(self._time(*each) for each in behind)), strict=True):
            lags[place] = Lag(lags[place].records, first_ms)
        return lags

    async def _until_known(self, partitions: set[PartitionId]) -> None:
        for partition in partitions:
            self._watched.see(partition)
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while any(self._view.leader(partition) is None for partition in partitions):
            if asyncio.get_running_loop().time() > deadline:
                return
            await asyncio.sleep(POLL_S)

    async def _time(self, partition: PartitionId, offset: int) -> int | None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                async for batch in self._stretches.read(partition, offset, offset + 1):
                    if not batch.is_old and batch.header.attributes & CONTROL:
                        continue
                    records = await batch.decoded()
                    return next((each.time_ms for each in records if each.offset >= offset), None)
        except (ReadFailed, TimeoutError, ValueError):
            return None
        return None


async def with_lags(
    statuses: Sequence[GroupStatus], lanes: Mapping[tuple[str, int], LaneState], lags: TargetLags, clock: Clock
) -> tuple[GroupStatus, ...]:
    """Return the given statuses of group positions, with the lag of each position on the target added. `lanes` holds
    the lane of each source partition. A status is returned unchanged if the lag of its position is unknown."""
    places: dict[int, tuple[PartitionId, int]] = {}
    wanted: dict[PartitionId, set[int]] = {}
    for at, each in enumerate(statuses):
        lane = lanes.get((each.topic, each.partition))
        if lane is not None and each.target_offset is not None:
            partition = PartitionId(lane.target_topic, lane.key.target_topic_id, lane.partition)
            places[at] = (partition, each.target_offset)
            wanted.setdefault(partition, set()).add(each.target_offset)
    found = await lags.ask(wanted) if wanted else {}
    now_ms = clock.wall_ms()
    updated = list(statuses)
    for at, place in places.items():
        lag = found.get(place)
        if lag is not None:
            lag_s = max(0, now_ms - lag.first_ms) / 1000 if lag.first_ms is not None else None
            lag_s = 0.0 if lag.records == 0 else lag_s
            updated[at] = msgspec.structs.replace(updated[at], lag_records=lag.records, lag_s=lag_s)
    return tuple(updated)
