"""Which lanes of a replicator are fetched first: those that their source's retention is about to reach."""

import time

from mirrord.replication.lane.flow_control.retention_forecast import Approach, Point

URGENT_S = 3600.0
"""So soon retention reaches the lane, as things have moved in the last hour."""


class Urgency:
    """Of one lane. Noted from whichever thread tells of the lane, read by the one that fetches.

    That the log start comes near is seen here; the supervisor tells what else is known, by the topic's settings.
    """

    __slots__ = ("_approach", "_is_seen", "_is_told", "is_near")

    def __init__(self) -> None:
        self._approach = Approach()
        self._is_seen = self._is_told = False
        self.is_near = False

    def note(self, log_start: int, position: int, end: int) -> None:
        """Where the log and the lane stand now."""
        if log_start < 0 or end <= position:
            self._approach.points.clear()
            self._is_seen = self._is_told = False  # nothing is left to lose; what was told is told again
        else:
            self._approach.note(Point(time.monotonic(), log_start, position, end))
            left_s = self._approach.left_s()
            self._is_seen = left_s is not None and left_s < URGENT_S
        self.is_near = self._is_seen or self._is_told

    def tell(self, *, near: bool) -> None:
        """What the supervisor knows."""
        self._is_told = near
        self.is_near = self._is_seen or near
