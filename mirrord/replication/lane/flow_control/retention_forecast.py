"""Forecasts how long it will be until the source deletes records that a lane has not copied yet.

Retention deletes whole segments, so a log start offset stays the same for a while and then jumps. The first forecast
therefore uses averages over the last hour: how fast the log start offset advanced, and how fast the lane's position
did. It assumes that both will continue to advance at the same pace.

The topic's configs show which records will be deleted next, even before the log start offset advances. There is
therefore also a forecast for each of two configs:

- `retention.ms`: the age of the next records is taken from the newest timestamp in the next batch to be copied.
- `retention.bytes`: the size of the records that have not been copied yet is estimated from the average size of the
  records that have been copied.

Forecasts that cannot be computed are ignored. The shortest of the remaining ones is returned.
"""

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import LaneReport
from mirrord.topics.rules.retention import NOTHING_KNOWN, Retention

WINDOW_S = 3600.0
GRAIN_S = 60.0
"""Minimum time in seconds between the stored states (`OffsetAt`) of a lane. For a lane with lag, about sixty states are
stored. For a lane without lag, no state is stored."""


class OffsetAt(NamedTuple):
    """The position of a lane, and the start and the end of its source log, at one moment."""

    at: float
    start: int
    """Log start offset of the source."""
    offset: int
    """Position of the lane."""
    end: int = -1
    next_ms: int = -1
    """Newest timestamp in the batch at the lane's position, or -1 if it is not known."""


class RetentionPace:
    """Tracks how the distance between the start of one log and the position of its reader changes over time."""

    __slots__ = ("points",)

    def __init__(self) -> None:
        self.points: deque[OffsetAt] = deque()

    def note(self, point: OffsetAt) -> None:
        """Record the current start of the log and the current position."""
        seen = self.points
        if seen and (point.start < seen[-1].start or point.offset < seen[-1].offset):
            seen.clear()  # the log start or the reader moved back
        if len(seen) > 1 and point.at - seen[-2].at < GRAIN_S:
            seen.pop()
        seen.append(point)
        while point.at - seen[0].at > WINDOW_S:
            seen.popleft()

    def left_s(self) -> float | None:
        """Return the number of seconds until the log start reaches the reader's position.

        Return None if the distance does not shrink, or if too little is known.
        """
        seen = self.points
        if len(seen) < 2 or seen[-1].at <= seen[0].at:
            return None
        first, last = seen[0], seen[-1]
        if last.offset <= last.start > first.start:
            return 0.0
        nearer = (last.start - first.start) - (last.offset - first.offset)
        return None if nearer <= 0 else max(0, last.offset - last.start) * (last.at - first.at) / nearer

    def ages_out_s(self, limit_ms: int, wall_ms: int) -> float | None:
        """Return the number of seconds until the next batch to be copied is older than `limit_ms`, if the age of the
        next batch continues to grow as it has recently.

        Return None if the age does not grow, or if too little is known.
        """
        first = next((point for point in self.points if point.next_ms >= 0), None)
        last = self.points[-1] if self.points else None
        if first is None or last is None or last.next_ms < 0 or last.at <= first.at:
            return None
        seconds = last.at - first.at
        aged_s = seconds - (last.next_ms - first.next_ms) / 1000
        left_s = (limit_ms - (wall_ms - last.next_ms)) / 1000
        return None if aged_s <= 0 else max(0.0, left_s) * seconds / aged_s

    def grows_out_s(self, limit_bytes: int, record_bytes: float) -> float | None:
        """Return the number of seconds until the records from the reader's position onward exceed `limit_bytes`, if
        their number continues to grow as it has recently. `record_bytes` is their average size.

        Return None if the number does not grow, or if too little is known.
        """
        if len(self.points) < 2 or self.points[-1].at <= self.points[0].at:
            return None
        first, last = self.points[0], self.points[-1]
        grown = (last.end - last.offset) - (first.end - first.offset)
        left = limit_bytes / record_bytes - (last.end - last.offset)
        return None if grown <= 0 else max(0.0, left) * (last.at - first.at) / grown


class RetentionForecast:
    """The forecasts of all lanes of a flow."""

    def __init__(self) -> None:
        self._seen: dict[LaneId, RetentionPace] = {}
        self._sizes: dict[LaneId, float] = {}
        """Average size in bytes of the records that have been copied so far, by lane."""

    def note(self, report: LaneReport, now: float) -> None:
        """Record a lane's report. A lane without lag is dropped, because none of its records can be lost."""
        if report.copied_records > 0:
            self._sizes[report.lane] = report.copied_bytes / report.copied_records
        if report.source_start < 0 or report.source_end <= report.source_offset:
            self._seen.pop(report.lane, None)
            return
        point = OffsetAt(now, report.source_start, report.source_offset, report.source_end, report.next_record_ms)
        self._seen.setdefault(report.lane, RetentionPace()).note(point)

    def left_s(self, lane: LaneId, retention: Retention = NOTHING_KNOWN, wall_ms: int = 0) -> float | None:
        """Return the number of seconds until the source deletes uncopied records, according to the forecasts. Return
        None if no deletion is forecast, or if too little is known."""
        seen = self._seen.get(lane)
        if seen is None:
            return None
        found = [seen.left_s()]
        if retention.ms is not None:
            found.append(seen.ages_out_s(retention.ms, wall_ms))
        if retention.bytes is not None and self._sizes.get(lane):
            found.append(seen.grows_out_s(retention.bytes, self._sizes[lane]))
        return min((each for each in found if each is not None), default=None)

    def keep(self, lanes: Collection[LaneId]) -> None:
        """Drop all lanes except the given ones."""
        for known in (self._seen, self._sizes):
            for lane in known.keys() - set(lanes):
                del known[lane]
