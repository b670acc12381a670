"""What each lane of a flow carries, smoothed, so that placement can even out bytes instead of partitions."""

import math
from collections.abc import Iterable

from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import ReplicatorReport
from mirrord.supervision.rules.placement import EQUAL, Weights

BASE_BYTES_PER_S = 64 << 10
"""What a lane weighs that carries nothing: fetching and status cost something all the same."""
HALF_LIFE_S = 30.0
PAUSE_S = 30.0
"""Between two rounds of evening out: each lane that moves stands still for a moment."""


class Loads:
    """The rates of all lanes. They outlive a move: a lane weighs at its new host what it weighed before."""

    def __init__(self) -> None:
        self.by_bytes = True
        """Lanes weigh what they carry; else all weigh the same."""
        self._seen: dict[LaneId, tuple[str, float, int]] = {}
        """By lane: the replicator that counted, when, and its count."""
        self._rates: dict[LaneId, float] = {}
        self._even_after = 0.0

    def note(self, report: ReplicatorReport, now: float) -> None:
        """Take in what a replicator has counted."""
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
        """Forget all others."""
        wanted = set(lanes)
        for kept in (self._seen, self._rates):
            for lane in kept.keys() - wanted:
                del kept[lane]

    @property
    def weights(self) -> Weights:
        """As they are now."""
        if not self.by_bytes:
            return EQUAL
        by_lane = {lane: rate + BASE_BYTES_PER_S for lane, rate in self._rates.items()}
        return Weights(by_lane, BASE_BYTES_PER_S)

    def may_even_out(self, now: float) -> bool:
        """Whether it is time again."""
        return now >= self._even_after

    def evened_out(self, now: float) -> None:
        """Lanes move."""
        if self.by_bytes:
            self._even_after = now + PAUSE_S
