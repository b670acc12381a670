"""A lane's line of the status: from its replicator's report, or from what stands in the ledger and the state topic."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping

from mirrord.ledger.state import FlowState
from mirrord.ledger.state import LaneState as LedgerLane
from mirrord.model.assignment import LaneReport, ReplicatorReport
from mirrord.model.facts import Progress
from mirrord.model.names import LaneId, TopicPartition
from mirrord.model.status import LaneStatus, ReplicatorStatus

RATE_SECONDS = 5.0
"""Rates are averages over this long."""


class Rates:
    """Records and bytes per second of each lane, from the counters that replicators report."""

    def __init__(self) -> None:
        self._seen: dict[tuple[LaneId, str], deque[tuple[float, int, int]]] = {}

    def note(self, host: str, report: LaneReport, now: float) -> tuple[float | None, float | None]:
        """Take in a report; the rates since the first one of the last few seconds, None when it is the only one."""
        seen = self._seen.setdefault((report.lane, host), deque())
        seen.append((now, report.copied_records, report.copied_bytes))
        while len(seen) > 2 and now - seen[0][0] > RATE_SECONDS:
            seen.popleft()
        return self.of(host, report.lane)

    def of(self, host: str, lane: LaneId) -> tuple[float | None, float | None]:
        """The rates as last noted."""
        seen = self._seen.get((lane, host), ())
        if len(seen) < 2 or seen[-1][0] <= seen[0][0]:
            return None, None
        seconds = seen[-1][0] - seen[0][0]
        return (seen[-1][1] - seen[0][1]) / seconds, (seen[-1][2] - seen[0][2]) / seconds

    def keep(self, hosted: Collection[tuple[LaneId, str]]) -> None:
        """Forget the lanes that are hosted there no longer."""
        for key in self._seen.keys() - set(hosted):
            del self._seen[key]


def reported_lane(
    report: LaneReport,
    host: str,
    rates: tuple[float | None, float | None],
    ledger: LedgerLane | None,
    now_ms: int,
) -> LaneStatus:
    """The line of a lane that a replicator reports."""
    lag_records = lag(report.source_offset, report.source_end)
    return LaneStatus(
        topic=report.source_topic,
        partition=report.partition,
        target_topic=report.target_topic,
        state=report.phase,
        host=host,
        ordinal=report.ordinal,
        source_offset=report.source_offset,
        source_end=report.source_end if report.source_end >= 0 else None,
        target_offset=report.target_offset,
        lag_records=lag_records,
        lag_s=lag_seconds(lag_records, report.last_record_ms, now_ms),
        protected=report.protected,
        records_per_s=rates[0],
        bytes_per_s=rates[1],
        in_flight_bytes=report.in_flight_bytes,
        copied_records=report.copied_records,
        copied_bytes=report.copied_bytes,
        raw_batches=report.raw_batches,
        rebuilt_batches=report.rebuilt,
        verdict_offsets=_verdicts(ledger),
        note=report.note,
    )


def replicators(reports: Iterable[ReplicatorReport]) -> tuple[ReplicatorStatus, ...]:
    """The lines of replicators that report, by their names."""
    return tuple(
        ReplicatorStatus(
            name=report.name,
            host=report.host,
            pid=report.pid,
            lanes=len(report.lanes),
            cpu_seconds=report.cpu_seconds,
            rss_bytes=report.rss_bytes,
            loop_age_ms=report.loop_age_ms,
        )
        for report in sorted(reports, key=lambda report: report.name)
    )


def recorded_lanes(
    state: FlowState, lanes: Iterable[LaneId], source_ends: Mapping[TopicPartition, int], now_ms: int
) -> tuple[LaneStatus, ...]:
    """The lines of lanes that nobody reports, by topic and partition.

    Of a topic that was created again only the newest lanes are shown. `source_ends` holds what the source told, if it
    could be asked.
    """
    newest: dict[tuple[str, int, str], LedgerLane] = {}
    for lane in lanes:
        ledger = state.lanes[lane]
        key = (ledger.source_topic, ledger.partition, ledger.target_topic)
        if key not in newest or newest[key].changed_at < ledger.changed_at:
            newest[key] = ledger
    return tuple(
        _recorded_lane(
            ledger, state.progress.get(ledger.key.id), source_ends.get(TopicPartition(topic, partition)), now_ms
        )
        for (topic, partition, _), ledger in sorted(newest.items(), key=lambda item: item[0])
    )


def _recorded_lane(ledger: LedgerLane, progress: Progress | None, source_end: int | None, now_ms: int) -> LaneStatus:
    halted = ledger.halted
    if progress is None:
        first = ledger.source_runs.at(0) if len(ledger.source_runs) else None
        return LaneStatus(
            topic=ledger.source_topic,
            partition=ledger.partition,
            target_topic=ledger.target_topic,
            state="halted" if halted else "unknown",
            source_offset=first.offset if first else None,
            source_end=source_end,
            lag_records=lag(first.offset, source_end) if first else None,
            verdict_offsets=_verdicts(ledger),
            note=halted.line if halted else "",
        )
    if source_end is None and progress.source_end >= 0:
        source_end = progress.source_end
    lag_records = lag(progress.source_offset, source_end)
    return LaneStatus(
        topic=ledger.source_topic,
        partition=ledger.partition,
        target_topic=ledger.target_topic,
        state="halted" if halted else "drained" if progress.state == "drained" else "unknown",
        host=progress.replicator,
        ordinal=progress.ordinal,
        source_offset=progress.source_offset,
        source_end=source_end,
        target_offset=progress.target_offset,
        lag_records=lag_records,
        lag_s=lag_seconds(lag_records, progress.last_record_ms, now_ms),
        protected=progress.protected,
        verdict_offsets=_verdicts(ledger),
        note=halted.line if halted else "",
    )


def lag(source_offset: int, source_end: int | None) -> int | None:
    """Source offsets not yet copied; None while the end is not known."""
    return None if source_end is None or source_end < 0 else max(0, source_end - source_offset)


def lag_seconds(lag_records: int | None, last_record_ms: int, now_ms: int) -> float | None:
    """Age of the newest copied record while there is lag, else 0; None when one of the two is not known."""
    if lag_records == 0:
        return 0.0
    return None if lag_records is None or last_record_ms < 0 else max(0.0, (now_ms - last_record_ms) / 1000)


def _verdicts(ledger: LedgerLane | None) -> dict[str, int]:
    return {reason: count for reason, count in ledger.verdicts.counts.items() if count} if ledger else {}
