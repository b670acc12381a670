"""Measures how long each step takes when a lane is moved to this replicator, so that the process's log shows what the
move had to wait for."""

import asyncio
from typing import Literal

import structlog

from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Chunk, Input
from mirrord.replication.lane.state import Lane

Station = Literal["ledger", "grant", "target", "fetch", "produce"]
"""The steps of a move, in order: the ledger has been read, the grant has taken effect, the content of the target is
known, the first records have arrived, and the target has accepted the first records."""

log = structlog.get_logger()


class MoveTrace:
    """The progress of a lane from its assignment until the target has accepted its first records."""

    def __init__(self, lane: str) -> None:
        self._lane = lane
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._passed: dict[Station, float] = {}

    def passes(self, station: Station) -> None:
        """Record that the lane has now completed a step of its move. Later calls for the same step have no effect."""
        self._passed.setdefault(station, round((self._loop.time() - self._began) * 1000, 1))

    def follow(self, lane: Lane, signal: Input) -> bool:
        """Record which steps the lane has completed after this signal, and return whether any steps remain."""
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
