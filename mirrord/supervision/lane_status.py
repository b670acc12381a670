"""Builds the `LaneStatus` of each lane from the report of its replicator, or from the ledger and the state topic."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import msgspec

from mirrord.ledger.foreign_writes import foreign_counts
from mirrord.ledger.seeks import pending
from mirrord.ledger.source_ends import former_losses, lane_end
from mirrord.ledger.standing_orders import POLICY, Orders, describe_origin, pausable
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.names import LaneId, TopicId, TopicPartition
from mirrord.model.status import HostState, LaneStatus, LossStatus, ProofStatus, ReplicatorStatus
from mirrord.replication.lane.assignment import LaneReport, ReplicatorReport
from mirrord.runtime.clock import Clock
from mirrord.supervision.flow_stats import FlowFigures
from mirrord.supervision.rules.lag import lag, lag_seconds
from mirrord.topics.discovery import Discovered
from mirrord.topics.rules.topic_plan import PlannedLane


def lines(
    state: FlowState,
    reports: Mapping[str, ReplicatorReport],
    wanted: Sequence[PlannedLane],
    figures: FlowFigures,
    clock: Clock,
    ends: Mapping[TopicPartition, int],
    hidden: Mapping[str, str],
) -> tuple[LaneStatus, ...]:
    """Return the status of all lanes of a running flow. The status of a lane comes from the report of its replicator
    or, without a report, from the ledger. If the ledger does not contain the lane either, the status contains only the
    topic names, the partition and, if known, the log end of the source partition.

    `ends` holds the known log ends of source partitions that no lane is fetching. `hidden` holds the topics that
    mirrord is no longer permitted to see, with one line about each.
    """
    now_ms, now = clock.wall_ms(), clock.monotonic()
    foreign = foreign_counts(state)
    lanes = {
        lane.lane: _ordered(_beside(foreign.get(lane.lane, 0), reported_lane(
            lane, host, figures.rates.of(host, lane.lane), state.lanes.get(lane.lane),
            held_s=figures.behind.held_s(lane.lane, now), left_s=figures.retention_left_s(lane, now_ms), now_ms=now_ms,
        )), state.orders, state.lanes.get(lane.lane))
        for host, report in reports.items()
        for lane in report.lanes
    }  # fmt: skip
    unreported = [lane for lane in wanted if lane.lane not in lanes]
    known = [lane.lane for lane in unreported if lane.lane in state.lanes]
    recorded = [_as_known(lane, ends) for lane in recorded_lanes(state, known, ends, now_ms)]
    unknown = [
        _ordered(
            LaneStatus(
                topic=lane.source_topic,
                partition=lane.key.partition,
                target_topic=lane.target_topic,
                state="unknown",
                source_end=ends.get(TopicPartition(lane.source_topic, lane.key.partition)),
            ),
            state.orders,
            None,
        )
        for lane in unreported
        if lane.lane not in state.lanes
    ]
    recorded += _hidden_lanes(state, hidden, lanes.keys(), now_ms)
    return tuple(sorted((*lanes.values(), *recorded, *unknown), key=lambda lane: (lane.topic, lane.partition)))


def _hidden_lanes(
    state: FlowState, hidden: Mapping[str, str], reported: Container[LaneId], now_ms: int
) -> Iterator[LaneStatus]:
    """Yield the status of lanes whose source topic mirrord is no longer permitted to see. Such a lane counts as
    waiting, and its lag is unknown."""
    names = [] if not hidden else [each for each, lane in state.lanes.items() if lane.source_topic in hidden]
    for lane in recorded_lanes(state, [each for each in names if each not in reported], {}, now_ms):
        known = {"source_end": None, "lag_records": None, "lag_s": None}
        yield msgspec.structs.replace(lane, state="waiting", note=hidden[lane.topic], **known)


def reported_lane(
    report: LaneReport,
    host: str,
    rates: tuple[float | None, float | None],
    ledger: LaneState | None,
    *,
    held_s: float | None,
    left_s: float | None = None,
    now_ms: int,
) -> LaneStatus:
    """Return the status of a lane that a replicator reports.

    `held_s` is the number of seconds since the target was last known to hold all records of the source. `left_s` is the
    estimated number of seconds until the source deletes records that have not been copied.
    """
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
        lag_s=lag_seconds(lag_records, report.last_record_ms, now_ms, held_s),
        source_start=report.source_start if report.source_start >= 0 else None,
        retention_left_s=left_s,
        open_transaction=report.open_transaction,
        protected=report.protected,
        records_per_s=rates[0],
        bytes_per_s=rates[1],
        in_flight_bytes=report.in_flight_bytes,
        copied_records=report.copied_records,
        copied_bytes=report.copied_bytes,
        raw_batches=report.raw_batches,
        rebuilt_batches=report.rebuilt,
        verdict_offsets=_verdicts(ledger),
        proof=_proof(ledger),
        unproven_records=_unproven(ledger, report.ordinal),
        unconfirmed_records=report.unconfirmed_records,
        note=report.note,
    )


def _beside(foreign: int, lane: LaneStatus) -> LaneStatus:
    """Return the lane's status with `foreign` added: the number of target offsets that other clients have written
    between the lane's records."""
    return msgspec.structs.replace(lane, foreign_offsets=foreign) if foreign else lane


def _as_known(lane: LaneStatus, ends: Mapping[TopicPartition, int]) -> LaneStatus:
    """Remove the source end and the lag from the status of a paused lane if `ends` does not contain the end of its
    source partition, because the last known end may be outdated. The status of any other lane is returned unchanged."""
    if lane.state != "paused" or TopicPartition(lane.topic, lane.partition) in ends:
        return lane
    return msgspec.structs.replace(lane, source_end=None, lag_records=None, lag_s=None)


def _ordered(lane: LaneStatus, orders: Orders, ledger: LaneState | None) -> LaneStatus:
    """Return the lane's status, including the operator commands that affect the lane: a seek, a pause or a pin.

    A paused lane that is halted or still draining keeps that phase. A lane that mirrord itself has paused, because it
    ended its replicator again and again, counts as halted.
    """
    sought = pending(ledger.seeks)[-1:] if ledger is not None else ()
    for seek in sought:
        note = f"to continue at source offset {seek.end} {describe_origin(seek.origin)}"
        lane = msgspec.structs.replace(lane, seek_to=seek.end, note=lane.note or note)
    pause = orders.pause_of(lane.topic, lane.partition)
    if pause is not None and lane.state in {"unknown", "drained"}:
        if pause.origin.by == POLICY:
            line = f"{lane.topic}-{lane.partition}: {pause.origin.reason}"
            return msgspec.structs.replace(lane, state="halted", note=line)
        what = pausable(pause.topic, pause.partition) if pause.partition < 0 else "it"
        note = f"{what} was paused {describe_origin(pause.origin)}"
        return msgspec.structs.replace(lane, state="paused", note=lane.note or note)
    pin = orders.pin_of(TopicPartition(lane.topic, lane.partition))
    if pin is not None and not lane.note:
        return msgspec.structs.replace(lane, note=f"pinned to replicator {pin.slot} {describe_origin(pin.origin)}")
    return lane


def replicators(reports: Iterable[ReplicatorReport], states: Mapping[str, HostState]) -> tuple[ReplicatorStatus, ...]:
    """Return the status of each replicator that has reported, sorted by name."""
    return tuple(
        ReplicatorStatus(
            name=report.name,
            host=report.host,
            pid=report.pid,
            lanes=len(report.lanes),
            cpu_seconds=report.cpu_seconds,
            rss_bytes=report.rss_bytes,
            loop_age_ms=report.loop_age_ms,
            state=states.get(report.name, "healthy"),
            node=report.node,
        )
        for report in sorted(reports, key=lambda report: report.name)
    )


def recorded_lanes(
    state: FlowState, lanes: Iterable[LaneId], source_ends: Mapping[TopicPartition, int], now_ms: int
) -> tuple[LaneStatus, ...]:
    """Return the status of lanes that no replicator reports, sorted by topic and partition.

    If a topic was deleted and re-created, only the lanes of the newest topic are included. `source_ends` holds the
    known log ends of source partitions.
    """
    foreign = foreign_counts(state)
    return tuple(
        _ordered(_beside(foreign.get(lane.key.id, 0), _recorded_lane(
            state, lane, source_ends.get(TopicPartition(lane.source_topic, lane.partition)), now_ms
        )), state.orders, lane)
        for lane in present_lanes(state, lanes)
    )  # fmt: skip


def present_lanes(state: FlowState, lanes: Iterable[LaneId]) -> list[LaneState]:
    """Return the newest of these lanes for each pair of source partition and target topic, sorted by source topic and
    partition.

    Lanes of source topics that were deleted and re-created are omitted.
    """
    newest: dict[tuple[str, int, str], LaneState] = {}
    present: dict[tuple[str, int], TopicId] = {}
    for lane in sorted((state.lanes[each] for each in lanes), key=lambda each: each.age):
        newest[lane.source_topic, lane.partition, lane.target_topic] = lane
        present[lane.source_topic, lane.partition] = lane.key.source_topic_id
    return [
        lane
        for (topic, partition, _), lane in sorted(newest.items(), key=lambda item: item[0])
        if present[topic, partition] == lane.key.source_topic_id
    ]


def lost_topics(state: FlowState, discovered: Discovered | None) -> tuple[LossStatus, ...]:
    """Return the losses in deleted topics. The lanes of these topics are not in the status."""
    if discovered is None:
        return former_losses(state, {lane.key.id for lane in present_lanes(state, state.lanes)})
    shown = {lane.lane for lane in discovered.lanes}
    shown |= {each for each, lane in state.lanes.items() if lane.source_topic in discovered.faults}
    return former_losses(state, shown)


def _recorded_lane(state: FlowState, ledger: LaneState, source_end: int | None, now_ms: int) -> LaneStatus:
    progress, halted, known = state.progress.get(ledger.key.id), ledger.halted, lane_end(state, ledger)
    if source_end is None and known >= 0:
        source_end = known
    if progress is None:
        first = ledger.source_runs.first
        return LaneStatus(
            topic=ledger.source_topic,
            partition=ledger.partition,
            target_topic=ledger.target_topic,
            state="halted" if halted else "unknown",
            source_offset=first.offset if first else None,
            source_end=source_end,
            lag_records=lag(first.offset, source_end) if first else None,
            verdict_offsets=_verdicts(ledger),
            proof=_proof(ledger),
            note=halted.line if halted else "",
        )
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
        proof=_proof(ledger),
        unproven_records=_unproven(ledger, progress.ordinal),
        note=halted.line if halted else "",
    )


def _verdicts(ledger: LaneState | None) -> dict[str, int]:
    return {reason: count for reason, count in ledger.verdicts.counts.items() if count} if ledger else {}


def _proof(ledger: LaneState | None) -> ProofStatus | None:
    audited = ledger.audited if ledger else None
    if audited is None:
        return None
    newest_ms = audited.newest_ms if audited.newest_ms >= 0 else None
    return ProofStatus(
        level=audited.level, source_offset=audited.source_offset, newest_ms=newest_ms, at_ms=audited.at_ms
    )


def _unproven(ledger: LaneState | None, ordinal: int) -> int | None:
    if ordinal < 0:
        return None
    return max(0, ordinal - (ledger.audited.end if ledger and ledger.audited else 0))
