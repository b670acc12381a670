"""Decides which lanes of a replicator are fetched first: the lanes whose next records the source will soon delete."""

import time

from mirrord.replication.lane.flow_control.retention_forecast import OffsetAt, RetentionPace

URGENT_S = 3600.0
"""A lane is urgent if, at the pace of the last hour, retention will reach its position within this time (in
seconds)."""


class FetchPriority:
    """The urgency of one lane. Threads that report on the lane update its urgency, and the thread that fetches its
    records reads the urgency.

    A lane is urgent if the log start offset advances so fast that it will soon reach the lane's position. A lane is
    also urgent if the supervisor concludes from the topic's configs that retention will soon delete the lane's next
    records.
    """

    __slots__ = ("_approach", "_is_reported", "_is_seen", "is_near")

    def __init__(self) -> None:
        self._approach = RetentionPace()
        self._is_seen = self._is_reported = False
        self.is_near = False

    def note(self, log_start: int, position: int, end: int) -> None:
        """Record the position of the lane, and the start and the end of the source log."""
        if log_start < 0 or end <= position:
            self._approach.points.clear()
            # No record can be lost now. If this changes, the supervisor reports the lane again.
            self._is_seen = self._is_reported = False
        else:
            self._approach.note(OffsetAt(time.monotonic(), log_start, position, end))
            left_s = self._approach.left_s()
            self._is_seen = left_s is not None and left_s < URGENT_S
        self.is_near = self._is_seen or self._is_reported

    def tell(self, *, near: bool) -> None:
        """Record whether, according to the supervisor, retention will soon delete the lane's next records."""
        self._is_reported = near
        self.is_near = self._is_seen or near
