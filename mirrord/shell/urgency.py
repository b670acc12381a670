"""Which lanes of a replicator are fetched first: those that their source's log start is about to reach."""

import time

from mirrord.cluster.headroom import Approach, Point

URGENT_S = 3600.0
"""So soon the log start reaches the lane, as both have moved in the last hour."""


class Urgency:
    """Of one lane. Noted from whichever thread tells of the lane, read by the one that fetches."""

    __slots__ = ("_approach", "is_near")

    def __init__(self) -> None:
        self._approach = Approach()
        self.is_near = False

    def note(self, log_start: int, position: int, end: int) -> None:
        """Where the log and the lane stand now."""
        if log_start < 0 or end <= position:
            self._approach.points.clear()
            self.is_near = False
            return
        self._approach.note(Point(time.monotonic(), log_start, position, end))
        left_s = self._approach.left_s()
        self.is_near = left_s is not None and left_s < URGENT_S
