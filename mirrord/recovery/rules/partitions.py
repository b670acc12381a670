"""Determines what would be lost of each source partition if the source were gone now."""

from collections.abc import Iterable, Mapping, Sequence

from mirrord.ledger.last_seen.source_ends import NEVER, SeenEnd, SeenEnds, seen_partitions
from mirrord.ledger.offset_map import CopiedPosition, finished_below
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.names import LaneId, TopicPartition
from mirrord.model.readiness import PartitionReadiness, ProofReadiness
from mirrord.model.status import LaneStatus

NOT_COPIED = "the partition is selected, but it is not copied"


def recorded_partitions(
    state: FlowState,
    lanes: Iterable[LaneState],
    ends: Mapping[TopicPartition, SeenEnd],
    copied: Mapping[LaneId, CopiedPosition],
) -> list[PartitionReadiness]:
    """Return the partitions as the ledger and the records of the state topic show them.

    `ends` holds the high watermarks of source partitions that the source has just reported. `copied` holds how far
    lanes have copied according to the ends of their target partitions, if that is further than in their progress
    records.
    """
    known, found = SeenEnds(state), list[PartitionReadiness]()
    for lane in lanes:
        seen = ends.get(TopicPartition(lane.source_topic, lane.partition)) or known.of(lane)
        found.append(_recorded(state, lane, seen, copied.get(lane.key.id)))
    lanes_of = {(lane.key.source_topic_id, lane.partition) for lane in state.lanes.values()}
    for where, end in seen_partitions(state):
        if end.end > 0 and (where.topic_id, where.partition) not in lanes_of:
            found.append(_uncopied(where.topic, where.partition, end))
    return sorted(found, key=lambda each: (each.topic, each.partition))


def _recorded(state: FlowState, lane: LaneState, seen: SeenEnd, copied: CopiedPosition | None) -> PartitionReadiness:
    progress, halted = state.progress.get(lane.key.id), lane.halted
    first = lane.source_runs.first
    source_offset, target_offset, safe_ms = None if first is None else first.offset, None, None
    if progress is not None:
        copied, safe_ms = copied or CopiedPosition.by(progress), progress.last_record_ms
    if copied is not None:
        source_offset, target_offset = finished_below(lane, copied), copied.target_offset
    lag_records = None if source_offset is None or seen == NEVER else max(0, seen.end - source_offset)
    return PartitionReadiness(
        topic=lane.source_topic,
        partition=lane.partition,
        target_topic=lane.target_topic,
        state=_phase(state, lane),
        source_offset=source_offset,
        target_offset=target_offset,
        safe_ms=safe_ms if safe_ms is not None and safe_ms >= 0 else None,
        source_end=None if seen == NEVER else seen.end,
        seen_ms=None if seen == NEVER else seen.at_ms,
        lag_records=lag_records,
        lag_s=_lag_s(lag_records, safe_ms, seen.at_ms),
        note="" if halted is None else halted.line,
    )


def _phase(state: FlowState, lane: LaneState) -> str:
    if lane.halted is not None:
        return "halted"
    return "unknown" if state.orders.pause_of(lane.source_topic, lane.partition) is None else "paused"


def _lag_s(lag_records: int | None, safe_ms: int | None, seen_ms: int) -> float | None:
    """Return how old the oldest record may be that would be lost. All of these records are newer than the newest copied
    one, if the timestamps of the records are correct."""
    if not lag_records:
        return None if lag_records is None else 0.0
    return None if safe_ms is None or not 0 <= safe_ms <= seen_ms else (seen_ms - safe_ms) / 1000


def _uncopied(topic: str, partition: int, end: SeenEnd) -> PartitionReadiness:
    return PartitionReadiness(
        topic=topic,
        partition=partition,
        target_topic="",
        state="not copied",
        source_end=end.end,
        seen_ms=end.at_ms,
        note=NOT_COPIED,
    )


def reported_partitions(state: FlowState, lanes: Sequence[LaneStatus], at_ms: int) -> list[PartitionReadiness]:
    """Return the partitions as the flow's daemon reports them. `at_ms` is the time of the report."""
    newest = {
        (lane.source_topic, lane.partition): lane for lane in sorted(state.lanes.values(), key=lambda each: each.age)
    }
    found: list[PartitionReadiness] = []
    for lane in lanes:
        ledger = newest.get((lane.topic, lane.partition))
        progress = None if ledger is None else state.progress.get(ledger.key.id)
        safe_ms = -1 if progress is None else progress.last_record_ms
        copies = ledger is not None
        found.append(
            PartitionReadiness(
                topic=lane.topic,
                partition=lane.partition,
                target_topic=lane.target_topic,
                state=lane.state if copies else "not copied",
                source_offset=lane.source_offset,
                target_offset=lane.target_offset,
                safe_ms=safe_ms if safe_ms >= 0 else None,
                source_end=lane.source_end,
                seen_ms=None if lane.source_end is None else at_ms,
                lag_records=lane.lag_records,
                lag_s=lane.lag_s,
                note=lane.note or ("" if copies else NOT_COPIED),
            )
        )
    return found


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
