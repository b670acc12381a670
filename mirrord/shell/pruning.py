"""Forgets runs whose records neither cluster has any more; the keeper's next trim takes them from the topics."""

import asyncio
from collections.abc import Callable, Sequence

from mirrord.cluster.topics import PlannedLane
from mirrord.ledger.state import FlowState
from mirrord.model.config import ClusterConfig
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId, TopicPartition
from mirrord.shell.ledger_store import LedgerStore
from mirrord.shell.log_offsets import log_offsets

PRUNE_S = 300.0


async def prune_for_ever(
    store: LedgerStore, wanted: Callable[[], Sequence[PlannedLane]], source: ClusterConfig, target: ClusterConfig
) -> None:
    """From time to time, until it is cancelled. A cluster that does not answer is asked the next time."""
    while True:
        await asyncio.sleep(PRUNE_S)
        lanes = [lane for lane in wanted() if lane.lane in store.state.lanes and _has_many_runs(store.state, lane.lane)]
        if not lanes:
            continue
        sources = {lane: TopicPartition(lane.source_topic, lane.key.partition) for lane in lanes}
        targets = {lane: TopicPartition(lane.target_topic, lane.key.partition) for lane in lanes}
        try:
            source_starts = await log_offsets(source, set(sources.values()), "start")
            target_starts = await log_offsets(target, set(targets.values()), "start")
        except EnvironmentFault:
            continue  # whoever copies tells that
        for lane in lanes:
            if sources[lane] in source_starts and targets[lane] in target_starts:
                store.prune(lane.lane, source_starts[sources[lane]], target_starts[targets[lane]])


def _has_many_runs(state: FlowState, lane: LaneId) -> bool:
    return len(state.lanes[lane].source_runs) > 1 or len(state.lanes[lane].target_runs) > 1
