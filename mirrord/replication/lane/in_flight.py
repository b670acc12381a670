"""Handles the batches in flight to the target: how many there may be, and what their answers mean, including answers
that leave it in doubt whether a batch was appended.

Two observations confirm that a batch was appended at the expected position. First, the broker accepted the sequence
number of the batch. Second, the base offset in the broker's answer equals the end of the target log as recorded by the
lane.
"""

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.rules.error_policy import NONE, Produced, produced
from mirrord.ledger.facts.core import SourceRun, TargetRun
from mirrord.model.runs import Run, Runs
from mirrord.replication.lane import intake, quarantine, seek
from mirrord.replication.lane.correlation import ask
from mirrord.replication.lane.lane_report import resume_position
from mirrord.replication.lane.notes import note
from mirrord.replication.lane.phases import Phase, Stage
from mirrord.replication.lane.signals import (
    AskEnd,
    AskScan,
    Batch,
    Drained,
    Effects,
    EndAnswer,
    Produce,
    ProduceAccepted,
    ProduceAnswer,
    SaveProgress,
    StopFetch,
)
from mirrord.replication.lane.source import source_epochs
from mirrord.replication.lane.state import Lane, ResumePosition
from mirrord.replication.lane.target import in_doubt, out_of_order, position_rewind, reassigned_ordinals, refused_retry
from mirrord.replication.lane.transitions import Quiesce, Resume

CORRUPT = 2


def window(lane: Lane) -> int:
    """Return how many batches may be in flight: only one until a batch has been acknowledged over this connection and
    in this leader epoch.

    A broker that has no state for the producer id accepts any sequence number. If two batches were in flight, the
    broker could refuse the first one and still accept the second one. The first batch would then be silently lost.
    """
    return lane.reach.batches if lane.pipelined and lane.mode == "sequence" else 1


def explained_below(lane: Lane) -> int | None:
    """Return the lowest ordinal whose intent has not taken effect yet. Only records with lower ordinals may be
    produced. Return None if all intents have taken effect."""
    return lane.intents[0][1] if lane.intents else None


def send(lane: Lane) -> Effects:
    """Produce the batches that may be produced now."""
    if not lane.ready or lane.phase is not Phase.COPYING or lane.confirming:
        return []
    limit, bound = window(lane), explained_below(lane)
    ready, flying = lane.ready, lane.in_flight
    batches: list[Batch] = []
    size = 0
    room = lane.reach.bytes - lane.in_flight_bytes
    while ready and len(flying) < limit and (size < room or not flying):
        batch = ready[0]
        if bound is not None and batch.first + batch.count > bound:
            break
        ready.popleft()
        flying.append(batch)
        batches.append(batch)
        size += batch.end - batch.start
    if not batches:
        return []
    lane.in_flight_bytes += size
    lane.ready_bytes -= size
    if lane.confirm_end:
        # Only the log itself shows whether batches that were sent over a dead connection have been appended since the
        # resume.
        ready.extendleft(reversed(batches))
        flying.clear()
        lane.ready_bytes += size
        lane.in_flight_bytes -= size
        lane.confirming = True
        return [AskEnd(ask(lane))]
    lane.sent = True
    lane.sent_below = max(lane.sent_below, batches[-1].first + batches[-1].count)
    return [Produce(lane.round, batches)]


def end_confirmed(lane: Lane, answer: EndAnswer) -> Effects:
    """Handle the log end that was requested again just before the first produce request."""
    if answer.error != NONE or answer.leader_epoch != lane.log.end_epoch or answer.end < lane.expected:
        lane.go(Resume(lane.limits.retry_s if answer.error else 0.0))
        return []
    if answer.end > lane.expected:
        return [AskScan(ask(lane), "confirm", lane.producer_id, lane.expected, answer.end)]
    return go(lane, answer.end)


def go(lane: Lane, end: int) -> Effects:
    """Send batches, or carry out a seek, now that the log end is confirmed."""
    lane.confirm_end = lane.confirming = False
    lane.expected = end
    lane.resumed_at = ResumePosition(lane.resumed_at.ordinal, end, lane.log.end_epoch)
    return send(lane) if lane.ready else seek.end_confirmed(lane)


def batch_answered(lane: Lane, now: float, answer: ProduceAnswer) -> Effects:
    """Handle the target's answer for a batch in flight.

    On one connection, answers arrive in order. The only exception is a batch that was never sent because the lease had
    expired: its answer arrives before those to earlier batches. This answer is a failure, and the lane still waits for
    the answers to all earlier batches.
    """
    if answer.held_s:
        in_doubt.hold(lane, now, answer.held_s)
    if answer.round != lane.round or not lane.in_flight:
        return []
    batch = answer.batch
    if lane.in_flight[0] is batch:
        lane.in_flight.popleft()
    elif any(each is batch for each in lane.in_flight):
        lane.in_flight.remove(batch)
    else:
        return []
    size = batch.end - batch.start
    lane.in_flight_bytes -= size
    base_offset = answer.base_offset
    if answer.error == NONE and lane.failure is None and base_offset >= lane.expected:
        effects: Effects = leapt(lane, batch, base_offset) if base_offset > lane.expected else []
        count = batch.count
        lane.expected = base_offset + count
        lane.acked = batch.first + count
        lane.copied_records += count
        lane.copied_bytes += size
        lane.last_record_ms = batch.newest_ms
        if not lane.pipelined:
            effects += _first_acknowledgement(lane, batch, base_offset, is_recorded=bool(effects))
        if lane.phase is Phase.COPYING:
            return _go_on(lane, effects)
    else:
        effects = _answer_in_doubt(lane, now, batch, answer, produced(answer.error))
    if not lane.in_flight:
        effects += _settled(lane, now)
    return effects


def batches_accepted(lane: Lane, now: float, accepted: ProduceAccepted) -> Effects:
    """Handle several accepted batches in one step. Batches with the expected offsets are counted together, and the lane
    then sends and fetches only once for all of them.

    The first batch with a different offset, and all batches after it, are passed to `batch_answered` one by one.
    """
    if accepted.round != lane.round:
        return []
    flying, expected = lane.in_flight, lane.expected
    usual = lane.pipelined and lane.failure is None and lane.phase is Phase.COPYING
    count = records = size = 0
    batch = None
    for each, base_offset in zip(accepted.batches, accepted.base_offsets, strict=True) if usual else ():
        if base_offset != expected or not flying or flying[0] is not each:
            break
        batch = flying.popleft()
        expected += batch.count
        records += batch.count
        size += batch.end - batch.start
        count += 1
    effects: Effects = []
    if batch is not None:
        lane.in_flight_bytes -= size
        lane.expected = expected
        lane.acked = batch.first + batch.count
        lane.copied_records += records
        lane.copied_bytes += size
        lane.last_record_ms = batch.newest_ms
    if count == len(accepted.batches):
        return _go_on(lane, effects)
    for each, base_offset in zip(accepted.batches[count:], accepted.base_offsets[count:], strict=True):
        effects += batch_answered(lane, now, ProduceAnswer(accepted.round, each, NONE, base_offset))
    return effects


def _go_on(lane: Lane, effects: Effects) -> Effects:
    """Send and fetch as much as the limits currently allow."""
    if lane.acked > lane.comparison.due_at:
        effects += reassigned_ordinals.compare_due(lane)
    if lane.seeks and seek.is_due(lane):
        lane.go(Quiesce())
        return effects
    if lane.ready:
        effects += send(lane)
    if not lane.fetching:
        effects += intake.want_more(lane)
    if lane.blocked is not None and not lane.ready and not lane.in_flight:
        effects += blocked(lane)
    return effects


def leapt(lane: Lane, batch: Batch, base_offset: int) -> Effects:
    """Handle an accepted batch whose base offset is above the recorded log end, which means that other batches were
    appended before it."""
    effects = note(lane, (TargetRun(lane.id, lane.grant, batch.first, base_offset, lane.log.end_epoch),))
    if not lane.protected:
        # The batches in between may be the lane's own batches, sent by a former holder. This can be ruled out only if
        # the broker remembers the producer.
        lane.log.unread_from = lane.log.unread_from or ResumePosition(batch.first, lane.expected, lane.log.end_epoch)
        lane.log.unread_parts += 1
        effects.append(AskScan(ask(lane), "gap", lane.producer_id, lane.expected, base_offset))
    return effects


def _first_acknowledgement(lane: Lane, batch: Batch, base_offset: int, *, is_recorded: bool) -> Effects:
    lane.pipelined, lane.trouble, lane.log.out_of_order = True, "", out_of_order.NEVER_REFUSED
    runs = lane.record.target_runs if lane.record is not None else Runs()
    # Runs after this ordinal describe the log as it was before it lost its last records. The new fact supersedes these
    # runs. Facts that have not taken effect yet may change the runs.
    stale = runs.offset_of(batch.first) != base_offset or runs.after(batch.first) is not None or bool(lane.notes)
    effects: Effects = [SaveProgress()]
    if stale and not is_recorded:
        effects += note(lane, (TargetRun(lane.id, lane.grant, batch.first, base_offset, lane.log.end_epoch),))
    if lane.comparison.first_ack_pending:
        lane.comparison.first_ack_pending = False
        effects += reassigned_ordinals.compare(lane, batch.first, base_offset)
    return effects


def _answer_in_doubt(lane: Lane, now: float, batch: Batch, answer: ProduceAnswer, outcome: Produced) -> Effects:
    if lane.failure is None:
        lane.failure = (answer.error, batch)
        if lane.phase is Phase.COPYING:
            lane.phase = Phase.SETTLING
        if outcome is Produced.DONE:
            lane.log.must_read_log = True  # below the recorded end: the log was truncated, or this is a duplicate
            if out_of_order.is_deleted_repeat(lane, answer.base_offset):
                lane.failure = (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, batch)
            elif lane.resume_position.ordinal == 0 and 0 <= answer.base_offset < lane.resume_position.target_offset:
                # The lane has no records below this resume position, so nothing else would make the next scan begin at
                # this batch.
                lane.resume_position = ResumePosition(0, answer.base_offset, lane.resume_position.leader_epoch)
    elif outcome is Produced.DONE:
        lane.log.must_read_log = True  # a success after a failure leaves a hole
    if outcome is Produced.UNKNOWN:
        in_doubt.leave_in_flight(lane, now, batch.first + batch.count)
    return []


def _settled(lane: Lane, now: float) -> Effects:
    if lane.phase is Phase.DRAINING:
        return drained(lane, now)
    if lane.failure is None:
        return []
    error, batch = lane.failure
    outcome = produced(error)
    if error == CORRUPT and lane.refusal.corrupt_ordinal != batch.first:
        lane.refusal.corrupt_ordinal = batch.first
        lane.go(Resume())
        return []
    if outcome is Produced.REFUSED and not lane.log.must_read_log:
        return refused_retry.batch_refused(lane, error, batch)
    if effects := out_of_order.refused(lane, error, batch):
        return effects
    said = f"the target currently accepts nothing; the batch is retried: {ErrorCode.name_of(error)}"
    lane.trouble = said if error else ""
    is_denied = outcome is Produced.DENIED
    delay_s = lane.limits.denied_s if is_denied else lane.limits.retry_s if error else 0.0
    lane.go(Resume(delay_s, refresh=not is_denied))
    return []


def blocked(lane: Lane) -> Effects:
    """Quarantine a batch that cannot be read, now that the target has all records before it."""
    why, start, end = lane.blocked or ("", lane.position, lane.position)
    return quarantine.park(lane, "unreadable", 0, f"source offsets [{start}, {end}) hold {why}", start, end)


def drain(lane: Lane, now: float) -> Effects:
    """Stop sending. The effect `Drained` follows once all batches in flight have been answered."""
    if lane.phase in {Phase.DRAINING, Phase.DRAINED}:
        return []
    if lane.phase in {Phase.HALTED, Phase.GONE}:
        return [Drained(clean=False)]
    effects: Effects = [StopFetch(), *_record_skipped(lane)]
    lane.ready.clear()
    lane.ready_bytes = 0
    lane.fetching = False
    lane.takeover.fast_handoff = lane.history.unconfirmed_chunk = None
    if lane.in_flight or lane.notes:
        lane.phase = Phase.DRAINING
        return effects
    return [*effects, *drained(lane, now)]


def _record_skipped(lane: Lane) -> Effects:
    """Record the verdicts on the source offsets that were skipped after the last copied record. The ledger then
    explains all offsets before the lane's position."""
    if lane.phase is not Phase.COPYING or lane.ready or lane.plan or lane.intents or lane.blocked is not None:
        return []
    if not lane.skipped or lane.declared >= 0 or lane.next_ordinal < lane.late_writes.in_doubt_below:
        return []  # facts that the ledger already has must not be superseded
    verdicts, lane.skipped = tuple(lane.skipped), []
    run = Run(lane.next_ordinal, lane.position)
    source_epochs.begin_run(lane)
    epochs, regiven = source_epochs.take_new(lane, run.ordinal), in_doubt.assign(lane, (run,))
    rewound = position_rewind.rewound_by(lane, (run,), resume_position(lane))
    return note(lane, (SourceRun(lane.id, lane.grant, (run,), verdicts, epochs, regiven, rewound),))


def drained(lane: Lane, now: float) -> Effects:
    """Finish the drain once all of the lane's facts are in the ledger. No batch is in flight at this point."""
    if lane.notes:
        return []
    if not lane.log.must_read_log and (effects := reassigned_ordinals.limit_doubt(lane)):
        lane.phase = Phase.DRAINING
        return effects
    # Batches that were sent over a dead connection may still be appended. If so, the next holder has to wait for them.
    lane.clean = lane.failure is None and not lane.log.must_read_log and lane.phase is not Phase.OPENING
    lane.clean = lane.clean and lane.log.unread_from is None and now >= lane.late_writes.until
    # A broker that was suspended may still append batches that it received earlier, however long ago (see
    # `in_doubt.answered`).
    lane.clean = lane.clean and lane.late_writes.end_read_at >= lane.late_writes.former_holder_until
    # The same is true of the lane's own batches in doubt, unless their ordinals have been acknowledged since.
    is_known = lane.stage is Stage.DONE and lane.acked >= lane.late_writes.in_doubt_below
    is_read = is_known or lane.late_writes.end_read_at >= lane.late_writes.until
    lane.clean = lane.clean and is_read
    lane.clean = lane.clean and not lane.late_writes.unanswered and lane.comparison.differs is None
    lane.clean = lane.clean and (lane.sent or lane.takeover.left_cleanly or lane.takeover.opened_here)
    lane.phase = Phase.DRAINED
    return [SaveProgress(), Drained(lane.clean)]
