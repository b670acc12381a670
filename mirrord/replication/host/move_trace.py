"""When a lane that another replicator has left passes each station here: the log tells what a move waited for."""

import asyncio
from typing import Literal

import structlog

from mirrord.replication.lane.signals import Chunk, Input
from mirrord.replication.lane.state import Lane, Phase

Station = Literal["ledger", "grant", "target", "fetch", "produce"]
"""The ledger was read; the grant is bound; what the target holds is known; records came; the target took some."""

log = structlog.get_logger()


class Journey:
    """From being told of a lane until the target has taken its first records."""

    def __init__(self, lane: str) -> None:
        self._lane = lane
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._passed: dict[Station, float] = {}

    def passes(self, station: Station) -> None:
        """It has come there; only the first time counts."""
        self._passed.setdefault(station, round((self._loop.time() - self._began) * 1000, 1))

    def follow(self, lane: Lane, signal: Input) -> bool:
        """Look where it is after a signal; whether there is more to come."""
        if lane.phase not in {Phase.OPENING, Phase.HALTED, Phase.GONE}:
            self.passes("grant")
        if lane.phase is Phase.COPYING:
            self.passes("target")
        if isinstance(signal, Chunk) and signal.end > signal.start:
            self.passes("fetch")
        if lane.pipelined:
            self.passes("produce")
            log.info("lane_moved", lane=self._lane, **{f"{each}_ms": at for each, at in self._passed.items()})
        return not lane.pipelined and lane.phase not in {Phase.HALTED, Phase.DRAINED, Phase.GONE}
