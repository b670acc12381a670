"""Describes a lane in two forms: as a progress record for the state topic, and as a status report."""

from mirrord.ledger.facts.core import Progress
from mirrord.replication.lane.assignment import LaneReport, SourceBounds
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.source import source_epochs
from mirrord.replication.lane.state import Lane, ResumePosition
from mirrord.replication.lane.target import epoch_ends, in_doubt
from mirrord.replication.lane.target.evidence import is_plan_unrecorded, is_recorded


def resume_position(lane: Lane) -> ResumePosition:
    """Return the resume position. All records of the lane below this position are known to be in the target log exactly
    once, and to be below the high watermark."""
    known = lane.resume_position
    if lane.acked > known.ordinal:
        known = ResumePosition(lane.acked, lane.expected, lane.log.end_epoch)
    if lane.log.unread_from is None and lane.comparison.later_from is None:
        return known  # the usual case, kept fast because this is computed for each lane every second
    limits = [each for each in (lane.log.unread_from, lane.comparison.later_from) if each is not None]
    return min([*limits, known], key=lambda each: each.ordinal)


def source_offset(lane: Lane) -> int:
    """Return the source offset of the first record that the target has not acknowledged. The lane has finished with all
    offsets below it: their records were acknowledged, or the offsets were skipped."""
    if lane.in_flight:
        return lane.in_flight[0].offset
    if lane.ready:
        return lane.ready[0].offset
    if lane.phase is Phase.COPYING:
        return lane.position
    # Batches that were fetched and then dropped do not count as done, so the result is the source offset to which the
    # ledger maps the resume position.
    known = lane.record.source_runs.offset_of(resume_position(lane).ordinal) if lane.record is not None else None
    return known or 0


def next_record_ms(lane: Lane) -> int:
    """Return the newest record timestamp in the next batch to be copied, or -1 if it is not known."""
    for batches in (lane.in_flight, lane.ready):
        if batches:
            return batches[0].newest_ms
    return lane.dropped[1] if lane.dropped[0] == source_offset(lane) else -1


def state(lane: Lane) -> str:
    """Return the lane's phase for the state topic. "drained" promises that none of the lane's batches is in flight."""
    return "unknown" if lane.phase is Phase.DRAINED and not lane.clean else lane.phase.value


def progress_record(lane: Lane, lease_epoch: int, at_ms: int) -> Progress | None:
    """Return the progress record of the lane for the state topic. `at_ms` is the wall-clock time, which is included for
    information only.

    Return None while the ledger lacks facts about the records below the resume position: where these records are, or
    which of them the source or the target has lost.
    """
    if lane.comparison.differs is not None and not is_recorded(lane):
        return None
    if lane.notes or source_epochs.is_truncation_unrecorded(lane) or is_plan_unrecorded(lane):
        return None
    known, offset = resume_position(lane), source_offset(lane)
    return Progress(
        lane=lane.id,
        lease_epoch=lease_epoch,
        grant=lane.grant,
        ordinal=known.ordinal,
        target_offset=known.target_offset,
        leader_epoch=known.leader_epoch,
        source_offset=offset,
        source_end=lane.source_end,
        last_record_ms=lane.last_record_ms,
        at_ms=at_ms,
        protected=is_protected(lane, at_ms),
        state=state(lane),
        replicator=lane.replicator,
        raw_batches=lane.raw_batches,
        rebuilt_batches=sum(lane.rebuilt_batches.values()),
        copied_bytes=lane.copied_bytes,
        source_epoch=lane.seen.before(offset),
        epochs_told=lane.history.epochs_recorded,
        settled=_is_settled(lane, known),
        rewinds=len(lane.record.rewinds) if lane.record is not None else 0,
        epoch_ends=epoch_ends.earlier(lane, known.leader_epoch),
    )


def _is_settled(lane: Lane, known: ResumePosition) -> bool:
    """Return whether the lane has finished with every source record before its position (`Progress.settled`).

    A lane that was drained before it resumed has not read the target log. It knows how much was sent only if the former
    holder reported this.
    """
    if lane.phase is Phase.DRAINED:
        return lane.clean and lane.takeover.knows_sent and known.ordinal >= in_doubt.sent_until(lane)
    held = lane.in_flight or lane.ready or lane.intents or lane.plan or (lane.has_policies and lane.skipped)
    return lane.phase is Phase.COPYING and not held and known.ordinal == lane.next_ordinal


def differs(lane: Lane, lease_epoch: int, saved: Progress | None) -> bool | None:
    """Return whether the progress record must be saved, because it differs from `saved` in more than its timestamp.
    Return None if the lane currently has no progress record."""
    if lane.phase in {Phase.GONE, Phase.DRAINED}:
        return False
    now = progress_record(lane, lease_epoch, 0 if saved is None else saved.at_ms)
    return None if now is None else now != saved


def is_protected(lane: Lane, at_ms: int) -> bool:
    """Return whether the target broker remembers the lane's producer, according to the broker's own answer or the age
    of the last record.

    A broker uses the timestamps of a producer's records to decide when to forget the producer. Once a batch has been
    accepted, the lane is therefore protected while these timestamps are recent.
    """
    if lane.mode == "at-least-once":
        return False
    if lane.pipelined:
        return at_ms - lane.last_record_ms < lane.limits.producer_expiry_ms // 2
    return lane.protected


def _trouble(lane: Lane) -> str:
    """Return why the target is currently not accepting any batches, or an empty string."""
    tries = lane.phase in {Phase.WAITING, Phase.RESUMING, Phase.SETTLING} or bool(lane.in_flight)
    return lane.trouble if tries else ""


def describe(lane: Lane, source: SourceBounds, at_ms: int) -> LaneReport:
    """Return a report of the lane's current state. `source` contains the bounds of the source partition as the
    `LaneHost` knows them, and `at_ms` is the wall-clock time."""
    known = resume_position(lane)
    return LaneReport(
        lane=lane.id,
        source_topic=lane.source_topic,
        target_topic=lane.target_topic,
        partition=lane.partition,
        phase=lane.phase.value,
        ordinal=known.ordinal,
        source_offset=source_offset(lane),
        source_end=source.end,
        source_end_age_s=source.age_s,
        source_start=source.start,
        target_offset=known.target_offset,
        protected=is_protected(lane, at_ms),
        last_record_ms=lane.last_record_ms,
        raw_batches=lane.raw_batches,
        rebuilt=dict(lane.rebuilt_batches),
        copied_records=lane.copied_records,
        copied_bytes=lane.copied_bytes,
        in_flight_bytes=lane.buffered_bytes,
        next_record_ms=next_record_ms(lane),
        unconfirmed_records=max(0, lane.acked - known.ordinal),
        note=lane.halt.line or lane.origin.line or _trouble(lane),
    )
