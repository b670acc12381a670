"""Computes a flow's figures from the reports of its replicators: rates, the lag of each lane in seconds, and counters.

The counters never decrease. Memory usage depends only on the current number of replicators and lanes.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from operator import neg

from mirrord.model.metrics import LATENCY_BOUNDS_S
from mirrord.model.names import LaneId
from mirrord.model.status import CountsStatus, RequestKind, RequestsStatus
from mirrord.replication.host.flow_control.fetch_priority import URGENT_S
from mirrord.replication.lane.assignment import LaneReport, ReplicatorReport
from mirrord.replication.lane.flow_control.retention_forecast import RetentionForecast
from mirrord.topics.rules.retention import NOTHING_KNOWN, Retention

RATE_SECONDS = 5.0
"""The period in seconds over which rates are averaged."""
ENDS_KEPT = 64
"""Maximum number of log ends that are kept for a source partition until its lane has reached them. If there are more,
every second log end is dropped."""


class FlowFigures:
    """The rates, lags and counters of one flow."""

    def __init__(self) -> None:
        self.rates = Rates()
        self.behind = Behind()
        self.headroom = RetentionForecast()
        self.retention: Mapping[str, Retention] = {}
        """The retention of each source topic whose configs are known."""
        self._counts = Counts()

    def note(self, reports: Mapping[str, ReplicatorReport], deaths: int, now: float) -> None:
        """Update the figures with the current reports of the replicators. Forget the rates of lanes that no report
        contains.

        `deaths` is the number of replicators that died or were lost under this lease.
        """
        for host, report in reports.items():
            for lane in report.lanes:
                self.rates.note(host, lane, now)
                self.behind.note(lane, now)
                self.headroom.note(lane, now)
        hosted = {(lane.lane, host) for host, report in reports.items() for lane in report.lanes}
        self.rates.keep(hosted)
        self._counts.note(reports)
        self._counts.note_deaths(deaths)

    def retention_left_s(self, lane: LaneReport, wall_ms: int) -> float | None:
        """Return the estimated time in seconds until the source deletes records that the lane has not copied. Return
        None if nothing indicates that these records will be deleted."""
        return self.headroom.left_s(lane.lane, self.retention.get(lane.source_topic, NOTHING_KNOWN), wall_ms)

    def urgent(self, reports: Mapping[str, ReplicatorReport], wall_ms: int) -> set[LaneId]:
        """Return the lanes for which `retention_left_s` is less than `URGENT_S` seconds. The source will soon delete
        records that these lanes have not copied."""
        found = ((lane.lane, self.retention_left_s(lane, wall_ms)) for each in reports.values() for lane in each.lanes)
        return {lane for lane, left_s in found if left_s is not None and left_s < URGENT_S}

    def keep(self, lanes: Collection[LaneId]) -> None:
        """Forget the lags of all lanes except the given ones. The caller also passes lanes that no replicator currently
        hosts."""
        self.behind.keep(lanes)
        self.headroom.keep(lanes)

    def adopt(self, replicators: Iterable[str]) -> None:
        """Register replicators that were already running when this process started.

        Their work before the first report to this process is not counted.
        """
        self._counts.adopted.update(replicators)

    @property
    def counts(self) -> CountsStatus:
        """The counters of the flow."""
        return self._counts.status()


class Rates:
    """The records and bytes per second of each lane, computed from the counters in the reports of replicators."""

    def __init__(self) -> None:
        self._seen: dict[tuple[LaneId, str], deque[tuple[float, int, int]]] = {}

    def note(self, host: str, report: LaneReport, now: float) -> tuple[float | None, float | None]:
        """Add a report on a lane. Return the lane's records and bytes per second over the last few seconds.

        Both rates are None after the first report.
        """
        seen = self._seen.setdefault((report.lane, host), deque())
        seen.append((now, report.copied_records, report.copied_bytes))
        while len(seen) > 2 and now - seen[0][0] > RATE_SECONDS:
            seen.popleft()
        return self.of(host, report.lane)

    def of(self, host: str, lane: LaneId) -> tuple[float | None, float | None]:
        """Return a lane's records and bytes per second as of its latest report. Both rates are None if there are fewer
        than two reports."""
        seen = self._seen.get((lane, host), ())
        if len(seen) < 2 or seen[-1][0] <= seen[0][0]:
            return None, None
        seconds = seen[-1][0] - seen[0][0]
        return (seen[-1][1] - seen[0][1]) / seconds, (seen[-1][2] - seen[0][2]) / seconds

    def keep(self, hosted: Collection[tuple[LaneId, str]]) -> None:
        """Forget all pairs of lane and replicator except the given ones."""
        for key in self._seen.keys() - set(hosted):
            del self._seen[key]


class _Trail:
    """The log ends of a source partition that its lane has not reached yet, each with the time at which the source
    reported it. The time of the newest log end that the lane has reached is also kept."""

    __slots__ = ("ends", "reached", "reached_end")

    def __init__(self) -> None:
        self.ends: deque[tuple[float, int]] = deque()
        self.reached: float | None = None
        self.reached_end = 0

    def note(self, at: float, end: int, position: int) -> None:
        ends = self.ends
        if ends and end < ends[-1][1]:
            ends.clear()  # the source's log was truncated; ends that the lane has reached still count as reached
        if ends and end == ends[-1][1]:
            ends[-1] = (max(at, ends[-1][0]), end)
        elif not ends or at > ends[-1][0]:
            ends.append((at, end))
        if position < self.reached_end:
            self.reached, self.reached_end = None, 0  # the target, or the source, has lost records
        while ends and ends[0][1] <= position:
            at, self.reached_end = ends.popleft()
            self.reached = max(at, self.reached or 0.0)
        if len(ends) > ENDS_KEPT:
            newest = ends[-1]
            self.ends = deque(list(ends)[:-1:2])
            self.ends.append(newest)


class Behind:
    """Computes how many seconds each lane is behind its source partition.

    The class keeps each log end that the source reported, with the time of the report. When a lane has copied up to
    such a log end, the target holds every record that the source held at that time. The result does not depend on
    record timestamps, which producers may set to any value.
    """

    def __init__(self) -> None:
        self._trails: dict[LaneId, _Trail] = {}

    def note(self, report: LaneReport, now: float) -> None:
        """Take the log end and the lane's source offset from a report that has just arrived."""
        if report.source_end >= 0:
            self.see(report.lane, report.source_end, report.source_offset, now - report.source_end_age_s)

    def see(self, lane: LaneId, end: int, position: int, at: float) -> None:
        """Take a log end that the source reported at the time `at`. The lane has finished with all source offsets below
        `position`."""
        self._trails.setdefault(lane, _Trail()).note(at, end, position)

    def held_s(self, lane: LaneId, now: float) -> float | None:
        """Return how many seconds ago the source reported the newest log end that the lane has reached. The target
        holds all records that the source partition held at that time. Return None if the lane has not reached any log
        end yet."""
        trail = self._trails.get(lane)
        return None if trail is None or trail.reached is None else max(0.0, now - trail.reached)

    def keep(self, lanes: Collection[LaneId]) -> None:
        """Forget all lanes except the given ones."""
        for lane in self._trails.keys() - set(lanes):
            del self._trails[lane]


class _Lane:
    """The counters that one replicator last reported for one lane."""

    __slots__ = ("bytes", "raw", "rebuilt", "records")

    def __init__(self, report: LaneReport | None = None) -> None:
        self.records = self.bytes = self.raw = 0
        self.rebuilt: Mapping[str, int] = {}
        if report is not None:
            self.take(report)

    def take(self, report: LaneReport) -> None:
        self.records, self.bytes, self.raw = report.copied_records, report.copied_bytes, report.raw_batches
        self.rebuilt = report.rebuilt


class Counts:
    """The counters of one flow, which never decrease.

    Each counter is a sum over the flow's replicators and lanes. The counters in the reports can restart at zero: a
    lane's counters when the lane moves, and a replicator's counters when another replicator takes its place. Therefore,
    only the increases between reports are added.
    """

    def __init__(self) -> None:
        self._records = self._bytes = self._raw = 0
        self._deaths = self._deaths_reported = 0
        self._rebuilt: Counter[str] = Counter()
        self._requests: dict[RequestKind, _Requests] = {}
        self.adopted: set[str] = set()
        """Replicators whose next report is not counted, because it provides only the values from which counting
        starts."""
        self._lanes: dict[tuple[LaneId, str], _Lane] = {}
        self._seen: dict[tuple[str, RequestKind], RequestsStatus] = {}

    def note(self, reports: Mapping[str, ReplicatorReport]) -> None:
        """Add the increases since the previous reports. Forget replicators and lanes that are not in the new
        reports."""
        lanes: dict[tuple[LaneId, str], _Lane] = {}
        seen: dict[tuple[str, RequestKind], RequestsStatus] = {}
        for host, report in reports.items():
            for lane in report.lanes:
                known = _Lane(lane) if host in self.adopted else self._lanes.get((lane.lane, host)) or _Lane()
                lanes[lane.lane, host] = self._lane(known, lane)
            for requests in report.requests:
                total = self._requests.setdefault(requests.api, _Requests())
                total.add(requests, requests if host in self.adopted else self._seen.get((host, requests.api)))
                seen[host, requests.api] = requests
            self.adopted.discard(host)
        self._lanes, self._seen = lanes, seen

    def note_deaths(self, deaths: int) -> None:
        """Update the counter of replicator deaths. `deaths` is the number of deaths under the current lease. It starts
        at zero with each lease."""
        self._deaths += deaths - self._deaths_reported if deaths >= self._deaths_reported else deaths
        self._deaths_reported = deaths

    def status(self) -> CountsStatus:
        """Return the current values of the counters."""
        return CountsStatus(
            copied_records=self._records,
            copied_bytes=self._bytes,
            raw_batches=self._raw,
            rebuilt_batches=dict(sorted(self._rebuilt.items())),
            replicator_deaths=self._deaths,
            requests=tuple(
                RequestsStatus(
                    api=api,
                    buckets=tuple(all_.buckets),
                    seconds=all_.seconds,
                    errors=dict(all_.errors),
                    throttled_s=all_.throttled_s,
                )
                for api, all_ in sorted(self._requests.items())
            ),
        )

    def _lane(self, known: _Lane, lane: LaneReport) -> _Lane:
        if lane.copied_records < known.records:
            known = _Lane()  # the lane has left the replicator and returned, so its counters have restarted
        self._records += lane.copied_records - known.records
        self._bytes += lane.copied_bytes - known.bytes
        self._raw += lane.raw_batches - known.raw
        for reason, count in lane.rebuilt.items():
            self._rebuilt[reason] += count - known.rebuilt.get(reason, 0)
        known.take(lane)
        return known


class _Requests:
    """The statistics of one kind of request to brokers, summed over all replicators."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.seconds = self.throttled_s = 0.0
        self.errors: Counter[str] = Counter()

    def add(self, now: RequestsStatus, before: RequestsStatus | None) -> None:
        known = before.buckets if before else (0,) * len(now.buckets)
        self.buckets = [sum(each) for each in zip(self.buckets, now.buckets, map(neg, known), strict=True)]
        self.seconds += now.seconds - (before.seconds if before else 0.0)
        self.throttled_s += now.throttled_s - (before.throttled_s if before else 0.0)
        for error, count in now.errors.items():
            self.errors[error] += count - (before.errors.get(error, 0) if before else 0)
