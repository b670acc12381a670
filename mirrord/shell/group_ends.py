"""Where target partitions end, asked often: between two marks of a lane it tells how far the lane is copied."""

import asyncio
from collections.abc import Iterable
from functools import partial

from mirrord.ledger.state import LaneState
from mirrord.model.names import LaneId
from mirrord.shell.asks import Asks
from mirrord.shell.metadata import ClusterView, PartitionId

ANSWER_S = 0.5
"""Without an answer within this the mark has to do."""


class TargetEnds:
    """Asks one cluster."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._asks = Asks(view, read_committed=False)
        self._watched: set[str] = set()

    async def ask(self, lanes: Iterable[LaneState]) -> dict[LaneId, int]:
        """The high watermark of each lane's target partition; those of which it is not told in time are left out."""
        ends: dict[LaneId, int] = {}
        waiting: set[asyncio.Future[None]] = set()
        for lane in lanes:
            topic_id = lane.key.target_topic_id
            if topic_id not in self._watched:
                self._watched.add(topic_id)
                self._view.watch(lane.target_topic, topic_id)
            answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting.add(answered)
            told = partial(_told, ends, lane.key.id, answered)
            self._asks.bounds(PartitionId(lane.target_topic, topic_id, lane.partition), -1, told)
        if waiting:
            await asyncio.wait(waiting, timeout=ANSWER_S)
        return dict(ends)

    def close(self) -> None:
        """Ask nothing more."""
        self._asks.close()


def _told(
    ends: dict[LaneId, int],
    lane: LaneId,
    answered: asyncio.Future[None],
    error: int,
    high_watermark: int,
    _log_start: int,
) -> None:
    if not error:
        ends[lane] = high_watermark
    if not answered.done():
        answered.set_result(None)
