"""Measures the smoothed data rate of each lane of a flow. The rates make it possible to balance replicators by bytes
instead of by the number of lanes."""

import math
from collections.abc import Iterable

from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import ReplicatorReport
from mirrord.supervision.rules.placement import EQUAL, Weights

BASE_BYTES_PER_S = 64 << 10
"""Weight of a lane without data, in bytes per second. It is added to the rate of every lane, because even a lane
without data requires fetches and reports."""
HALF_LIFE_S = 30.0
PAUSE_S = 30.0
"""Minimum interval between two rebalances of the lanes. Rebalances are limited because a lane briefly makes no progress
while it moves."""


class Loads:
    """The data rates of all lanes of a flow. When a lane moves to another replicator, it keeps its rate."""

    def __init__(self) -> None:
        self.by_bytes = True
        """True if the weight of a lane is its data rate. False if all lanes have the same weight."""
        self._seen: dict[LaneId, tuple[str, float, int]] = {}
        """For each lane: the replicator that last reported the lane, the time of that report, and the number of copied
        bytes."""
        self._rates: dict[LaneId, float] = {}
        self._even_after = 0.0

    def note(self, report: ReplicatorReport, now: float) -> None:
        """Update the rates with the counters in a replicator's report."""
        if not self.by_bytes:
            return
        for lane in report.lanes:
            host, then, before = self._seen.get(lane.lane, ("", now, 0))
            self._seen[lane.lane] = (report.name, now, lane.copied_bytes)
            if host != report.name or now <= then or lane.copied_bytes < before:
                continue
            rate = (lane.copied_bytes - before) / (now - then)
            known = self._rates.get(lane.lane)
            share = 1 - math.exp2((then - now) / HALF_LIFE_S)
            self._rates[lane.lane] = rate if known is None else known + share * (rate - known)

    def keep(self, lanes: Iterable[LaneId]) -> None:
        """Forget the rates of all lanes except the given ones."""
        wanted = set(lanes)
        for kept in (self._seen, self._rates):
            for lane in kept.keys() - wanted:
                del kept[lane]

    @property
    def weights(self) -> Weights:
        """The current weight of each lane."""
        if not self.by_bytes:
            return EQUAL
        by_lane = {lane: rate + BASE_BYTES_PER_S for lane, rate in self._rates.items()}
        return Weights(by_lane, BASE_BYTES_PER_S)

    def may_even_out(self, now: float) -> bool:
        """Return whether lanes may be moved now to balance the loads."""
        return now >= self._even_after

    def evened_out(self, now: float) -> None:
        """Record that lanes are being moved now. For the next `PAUSE_S` seconds, no more lanes are moved to balance the
        loads."""
        if self.by_bytes:
            self._even_after = now + PAUSE_S
