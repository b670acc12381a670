"""Determines what would be lost of each source partition if the source were gone now."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from mirrord.ledger.last_seen.source_ends import NEVER, SeenEnd, SeenEnds
from mirrord.ledger.offset_map import CopiedPosition, LaneMap, recorded_position
from mirrord.ledger.source_ends import SourcePartition
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.names import TopicId, TopicPartition
from mirrord.model.readiness import PartitionReadiness, ProofReadiness
from mirrord.model.status import LaneStatus
from mirrord.recovery.rules.headroom import RetentionLimits, source_headroom
from mirrord.supervision.rules.lag import lag_seconds

NOT_COPIED = "the partition is selected, but it is not copied"


class SourceRetention(NamedTuple):
    """The retention of the source topics, as it was last seen."""

    now_ms: int
    limits: Mapping[str, RetentionLimits]
    others: RetentionLimits
    """What is known about topics that are not in `limits`."""


UNKNOWN_RETENTION = SourceRetention(0, {}, RetentionLimits(is_known=False))


def observed_lanes(
    known: SeenEnds, lanes: Iterable[LaneState], reported: Sequence[LaneStatus] | None
) -> list[LaneState]:
    """Return those of the lanes whose source topics existed and were selected when the source was last seen, and those
    that the flow's daemon reports. If nothing was ever recorded, return all of them."""
    topics = {where.topic_id for where in known.ends}
    names = {each.topic for each in reported or ()}
    return [
        lane
        for lane in lanes
        if not known.is_recorded or lane.key.source_topic_id in topics or lane.source_topic in names
    ]


def partitions_of(
    known: SeenEnds,
    lanes: Sequence[LaneState],
    ends: Mapping[TopicPartition, SeenEnd],
    reported: Sequence[LaneStatus] | None,
    retention: SourceRetention = UNKNOWN_RETENTION,
) -> Iterator[PartitionReadiness]:
    """Yield what would be lost of the partitions of these lanes, and of partitions that were never copied.

    `ends` holds high watermarks that the source has just reported. For all other partitions, those in `known` count.
    `reported` holds the lanes as the flow's daemon reports them, or is None if it does not answer. The positions then
    come from the progress records, which may be about a second old.
    """
    state = known.state
    statuses = {(each.topic, each.partition): each for each in reported or ()}
    for lane in lanes:
        seen = known.of(lane)
        if (live := ends.get(TopicPartition(lane.source_topic, lane.partition))) is not None:
            seen = seen._replace(end=live.end, at_ms=live.at_ms)
        status = statuses.pop((lane.source_topic, lane.partition), None)
        yield _with_headroom(
            _partition(state, lane, seen, status, answers=reported is not None), seen, status, retention
        )
    there = {(lane.key.source_topic_id, lane.partition) for lane in state.lanes.values()}
    for where, end in known.ends.items():
        if (where.topic_id, where.partition) not in there:
            statuses.pop((where.topic, where.partition), None)
            yield _uncopied(where, end)
    for each in statuses.values():  # the daemon may have found partitions that are not recorded yet
        yield _uncopied(SourcePartition(each.topic, TopicId(""), each.partition), NEVER)


def _with_headroom(
    found: PartitionReadiness, seen: SeenEnd, status: LaneStatus | None, retention: SourceRetention
) -> PartitionReadiness:
    forecast_s = None if status is None else status.retention_left_s
    limits = retention.limits.get(found.topic, retention.others)
    return replace(found, source_headroom=source_headroom(found, seen, limits, forecast_s, retention.now_ms))


def _partition(
    state: FlowState, lane: LaneState, seen: SeenEnd, status: LaneStatus | None, *, answers: bool
) -> PartitionReadiness:
    progress, source_offset = state.progress.get(lane.key.id), recorded_position(state, lane)
    target_offset, safe_ms = (None, -1) if progress is None else (progress.target_offset, progress.last_record_ms)
    if status is not None and status.source_offset is not None and status.state == "copying":
        source_offset, target_offset = status.source_offset, status.target_offset  # newer than the progress record
    lag_records = None if source_offset is None or seen.end < 0 else max(0, seen.end - source_offset)
    return PartitionReadiness(
        topic=lane.source_topic,
        partition=lane.partition,
        target_topic=lane.target_topic,
        state=_phase(state, lane, status, answers=answers),
        source_offset=source_offset,
        target_offset=target_offset,
        safe_ms=safe_ms if safe_ms >= 0 else None,
        source_end=None if seen.end < 0 else seen.end,
        seen_ms=None if seen.at_ms < 0 else seen.at_ms,
        lag_records=lag_records,
        lag_s=_lag_s(lag_records, safe_ms, seen),
        note=_note(lane, status),
    )


def _phase(state: FlowState, lane: LaneState, status: LaneStatus | None, *, answers: bool) -> str:
    if status is not None and (status.state != "unknown" or answers):
        return status.state
    if lane.halted is not None:
        return "halted"
    return "unknown" if state.orders.pause_of(lane.source_topic, lane.partition) is None else "paused"


def _note(lane: LaneState, status: LaneStatus | None) -> str:
    if status is not None:
        return status.note
    return "" if lane.halted is None else lane.halted.line


def _lag_s(lag_records: int | None, safe_ms: int, seen: SeenEnd) -> float | None:
    """Return how old the oldest record may be that would be lost."""
    if not lag_records:
        return None if lag_records is None else 0.0
    held_s = (seen.at_ms - seen.held_ms) / 1000 if 0 <= seen.held_ms <= seen.at_ms else None
    return lag_seconds(lag_records, safe_ms, seen.at_ms, held_s)


def _uncopied(where: SourcePartition, end: SeenEnd) -> PartitionReadiness:
    return PartitionReadiness(
        topic=where.topic,
        partition=where.partition,
        target_topic="",
        state="not copied",
        source_end=None if end.end < 0 else end.end,
        seen_ms=None if end.at_ms < 0 else end.at_ms,
        note=NOT_COPIED,
    )


def has_expired(known: SeenEnds, lane: LaneState, target_offset: int) -> bool:
    """Return whether the source had deleted the record at this target offset when it was last seen."""
    progress = known.state.progress.get(lane.key.id)
    there = LaneMap(lane, None if progress is None else CopiedPosition.by(progress)).to_source(target_offset)
    if there.kind == "before_map":
        return there.reason == "forgotten"  # the map was pruned because both logs began after the record
    return there.record is not None and there.record < known.of(lane).start


def proof_of(state: FlowState, lanes: Iterable[LaneState]) -> ProofReadiness:
    """Return what audits have proven of these lanes."""
    times, unproven = list[int](), 0
    for lane in lanes:
        progress, audited = state.progress.get(lane.key.id), lane.audited
        copied = 0 if progress is None else progress.ordinal
        unproven += max(0, copied - (0 if audited is None else audited.end))
        if audited is not None:
            times.append(audited.at_ms)
    return ProofReadiness(partitions=len(times), unproven_records=unproven, oldest_ms=min(times, default=None))
