"""Removes runs from a flow's state if their records no longer exist on either cluster.

The removed runs remain in the ledger and the state topic until the lease holder next trims the ledger by writing new
snapshots and deleting the ledger entries that these snapshots cover.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.log_offsets import log_offsets
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.archived_runs import ArchiveLost
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId, TopicId, TopicPartition
from mirrord.topics.discovery import Discovered

PRUNE_S = 300.0
_ALL = 1 << 62


class _Sides(NamedTuple):
    """The source partition and the target partition of a lane. A partition is None if the name of its topic now belongs
    to a different topic, which means that the records of the original topic no longer exist."""

    lane: LaneId
    source: TopicPartition | None
    target: TopicPartition | None


async def prune_for_ever(
    store: LedgerStore, discovered: Callable[[], Discovered | None], source: ClusterConfig, target: ClusterConfig
) -> None:
    """Prune the lanes of a flow at regular intervals until cancelled. If a cluster does not answer, the lanes are
    pruned after the next interval."""
    while True:
        await asyncio.sleep(PRUNE_S)
        seen = discovered()
        lanes = list(_prunable(store.state, seen)) if seen is not None else []
        if not lanes:
            continue
        try:
            source_starts = await log_offsets(source, {lane.source for lane in lanes if lane.source}, "start")
            target_starts = await log_offsets(target, {lane.target for lane in lanes if lane.target}, "start")
        except EnvironmentFault:
            continue  # the replicators report that the cluster does not answer
        for lane in lanes:
            source_start, target_start = _start(lane.source, source_starts), _start(lane.target, target_starts)
            if source_start is not None and target_start is not None:
                with suppress(ArchiveLost):  # the lane is pruned later, which does no harm
                    store.prune(lane.lane, source_start, target_start)


def _prunable(state: FlowState, seen: Discovered) -> Iterator[_Sides]:
    """Yield the lanes that may have runs to prune, including lanes of topics that were deleted and re-created.

    A lane is omitted if its source topic or its target topic is not visible under its name, because the topic may still
    exist.
    """
    for lane_id, lane in state.lanes.items():
        if len(lane.source_runs) < 2 and len(lane.target_runs) < 2:
            continue
        is_source = _is_present(seen.source.topics, lane.source_topic, lane.key.source_topic_id)
        is_target = _is_present(seen.target.topics, lane.target_topic, lane.key.target_topic_id)
        if is_source is None or is_target is None:
            continue
        yield _Sides(
            lane_id,
            TopicPartition(lane.source_topic, lane.partition) if is_source else None,
            TopicPartition(lane.target_topic, lane.partition) if is_target else None,
        )


def _is_present(topics: Mapping[str, Topic], name: str, topic_id: TopicId) -> bool | None:
    found = topics.get(name)
    return None if found is None else found.topic_id == topic_id


def _start(partition: TopicPartition | None, starts: Mapping[TopicPartition, int]) -> int | None:
    return _ALL if partition is None else starts.get(partition)
