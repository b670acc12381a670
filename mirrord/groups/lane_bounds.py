"""Requests the log start offset and the high watermark of partitions.

On the target, the high watermark shows how much a lane has copied since its last progress record. On the source, the
high watermark is the highest offset to which a group's position may be set.
"""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial

from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.kafka.client.partition_queries import Asks
from mirrord.kafka.client.watched_topics import WatchedTopics
from mirrord.ledger.state import LaneState
from mirrord.model.names import LaneId, Side

ANSWER_S = 0.5
"""How long, in seconds, a caller waits for the answers. Partitions for which no answer has arrived by then are
omitted."""


class LaneEnds:
    """Requests the log start offset and the high watermark of the lanes' partitions, either on the source or at the
    target."""

    def __init__(self, view: ClusterView, side: Side, answer_s: float = ANSWER_S) -> None:
        self._side = side
        self._answer_s = answer_s
        self._asks = Asks(view, read_committed=False)
        self._watched = WatchedTopics(view)

    async def ask(self, lanes: Iterable[LaneState]) -> dict[LaneId, int]:
        """Return the high watermark of each lane's partition. Lanes are omitted if no answer for their partition
        arrives in time."""
        return {lane: end for lane, (_, end) in (await self.bounds(lanes)).items()}

    async def bounds(self, lanes: Iterable[LaneState]) -> Mapping[LaneId, tuple[int, int]]:
        """Return the log start offset and the high watermark of each lane's partition. Lanes are omitted if no answer
        for their partition arrives in time."""
        found: dict[LaneId, tuple[int, int]] = {}
        waiting: set[asyncio.Future[None]] = set()
        for lane in lanes:
            partition = self._partition(lane)
            self._watched.see(partition)
            answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting.add(answered)
            self._asks.bounds(partition, -1, partial(_take_bounds, found, lane.key.id, answered))
        if waiting:
            await asyncio.wait(waiting, timeout=self._answer_s)
        return dict(found)

    def close(self) -> None:
        """Stop sending requests to the cluster."""
        self._asks.close()

    def _partition(self, lane: LaneState) -> PartitionId:
        if self._side == "source":
            return PartitionId(lane.source_topic, lane.key.source_topic_id, lane.partition)
        return PartitionId(lane.target_topic, lane.key.target_topic_id, lane.partition)


def _take_bounds(
    found: dict[LaneId, tuple[int, int]],
    lane: LaneId,
    answered: asyncio.Future[None],
    error: int,
    high_watermark: int,
    log_start: int,
) -> None:
    if not error:
        found[lane] = (log_start, high_watermark)
    if not answered.done():
        answered.set_result(None)
