"""The retention forecast: how long until the source deletes what a lane has not copied.

Retention deletes whole segments, so a log start stands still and then jumps. What it has done over the last hour is
what it is taken to go on doing; the lane's own pace over the same time tells whether it is reached.
"""

from collections import deque
from collections.abc import Collection

from mirrord.model.assignment import LaneReport
from mirrord.model.names import LaneId

WINDOW_S = 3600.0
GRAIN_S = 60.0
"""A point is kept each minute: sixty for a lane that is behind, none for one that is not."""


class Headroom:
    """Of all lanes of a flow."""

    def __init__(self) -> None:
        self._seen: dict[LaneId, deque[tuple[float, int, int]]] = {}

    def note(self, report: LaneReport, now: float) -> None:
        """Take in a report. A lane without lag has nothing to lose."""
        if report.source_start < 0 or report.source_end <= report.source_offset:
            self._seen.pop(report.lane, None)
            return
        seen = self._seen.setdefault(report.lane, deque())
        if seen and (report.source_start < seen[-1][1] or report.source_offset < seen[-1][2]):
            seen.clear()  # the source, or the lane, went back
        if len(seen) > 1 and now - seen[-2][0] < GRAIN_S:
            seen.pop()
        seen.append((now, report.source_start, report.source_offset))
        while now - seen[0][0] > WINDOW_S:
            seen.popleft()

    def left_s(self, lane: LaneId) -> float | None:
        """Seconds until the log's start reaches the lane's position; None when it does not come nearer."""
        seen = self._seen.get(lane)
        if seen is None or len(seen) < 2 or seen[-1][0] <= seen[0][0]:
            return None
        (begun, first_start, first_offset), (now, start, offset) = seen[0], seen[-1]
        if offset <= start > first_start:
            return 0.0
        nearer = (start - first_start) - (offset - first_offset)
        return None if nearer <= 0 else max(0, offset - start) * (now - begun) / nearer

    def keep(self, lanes: Collection[LaneId]) -> None:
        """Forget all others."""
        for lane in self._seen.keys() - set(lanes):
            del self._seen[lane]
