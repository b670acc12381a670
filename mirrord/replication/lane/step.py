"""The lane: one source partition that is copied to one target partition. `step` is its only entry point.

`step(lane, now, signal)` changes the lane and returns the effects to perform. The state is changed in place, because
copying it for each chunk would take longer than `step` itself. No other code in the project changes the state. `now` is
the current time on the `LaneHost`'s monotonic clock, in seconds.
"""

from collections.abc import Callable
from typing import Any

from mirrord.kafka.protocol import sequence
from mirrord.kafka.rules.error_policy import Fetched, fetched
from mirrord.replication.lane import (
    fast_handoff,
    in_flight,
    intake,
    opening,
    quarantine,
    quiescing,
    rebuilding,
    resume_point,
    resuming,
    seek,
    target_reading,
)
from mirrord.replication.lane.correlation import answers, ask, settles
from mirrord.replication.lane.halt import halt, leave_lane, retry_record
from mirrord.replication.lane.intake_stops import Diverged, Early, Unfinished, Vanished
from mirrord.replication.lane.lane_report import resume_position
from mirrord.replication.lane.notes import plan_bound
from mirrord.replication.lane.phases import Phase, Stage
from mirrord.replication.lane.signals import (
    AppendFailed,
    Bound,
    CheckAnswer,
    Chunk,
    ConfigsAnswer,
    DivergenceAnswer,
    Drain,
    Effects,
    EndAnswer,
    Fenced,
    FetchFrom,
    Input,
    Lost,
    OriginsAnswer,
    ParkAnswer,
    ProduceAccepted,
    ProduceAnswer,
    ProducerIdAnswer,
    ProducersAnswer,
    RebuildAnswer,
    RebuildLater,
    Released,
    ScanAnswer,
    Start,
    StartAnswer,
    TargetFar,
    TargetMoved,
    VisibleAnswer,
    Woken,
)
from mirrord.replication.lane.source import offset_gaps, origin_check, truncation, vanished_records
from mirrord.replication.lane.source.cleanup_policy import CleanupAnswer
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target import in_doubt, late_verification, reassigned_ordinals, refused_retry, target_scan
from mirrord.replication.lane.target.superseded_records import SharedAnswer, SupersededAnswer
from mirrord.replication.lane.transitions import Quiesce, RebuildMap, Reopen, Resume, Transition

STILL = (Phase.HALTED, Phase.DRAINED, Phase.GONE)

ENTER: dict[type[Transition], Callable[[Lane, float, Any], Effects]] = {
    Resume: resuming.enter,
    Quiesce: quiescing.enter,
    Reopen: opening.enter,
    RebuildMap: rebuilding.enter,
}
"""The function that carries out each transition that a handler may request (see
`mirrord.replication.lane.transitions`)."""


def step(lane: Lane, now: float, signal: Input) -> Effects:
    """Process one input and return the effects in the order in which they must be performed."""
    effects = _handle(lane, now, signal)
    while (transition := lane.transition) is not None:
        lane.transition = None
        effects += ENTER[type(transition)](lane, now, transition)
    return effects


def _handle(lane: Lane, now: float, signal: Input) -> Effects:  # noqa: C901, PLR0911, PLR0912 -- one case per input kind
    match signal:
        case ProduceAccepted():
            return in_flight.batches_accepted(lane, now, signal) if lane.phase not in STILL else []
        case ProduceAnswer():
            return in_flight.batch_answered(lane, now, signal) if lane.phase not in STILL else []
        case Chunk():
            copies = lane.phase is Phase.COPYING and answers(lane, signal.question)
            return _chunk(lane, now, signal) if copies else fast_handoff.fetched(lane, signal)
        case Drain():
            return in_flight.drain(lane, now)
        case Fenced():
            return leave_lane(lane, "fenced") if lane.phase not in STILL else []
        case TargetFar():
            lane.is_far = signal.is_far
            return []  # the answer to a batch follows this signal
        case Released():
            return seek.order_recorded(lane) if signal.ahead or lane.phase is Phase.HALTED else []
        case _ if lane.phase is Phase.HALTED:
            return _while_halted(lane, now, signal)
        case Bound() | AppendFailed() if not settles(lane, signal.tag):
            return []
        case Bound() | AppendFailed() if lane.phase is Phase.DRAINING:
            return _bound_while_draining(lane, now, signal)
        case _ if lane.phase in STILL or lane.phase is Phase.DRAINING:
            return []
        case Bound():
            return _bound(lane, now, signal)
        case AppendFailed():
            return opening.append_failed(lane, signal)
        case TargetMoved():
            return resuming.target_moved(lane, signal)
        case Start():
            return opening.start(lane, signal)
        case _:
            return _answered(lane, now, signal) if answers(lane, signal.question) else []


def _while_halted(lane: Lane, now: float, signal: Input) -> Effects:
    match signal:
        case ParkAnswer():
            return quarantine.parking_answered(lane, now, signal) if answers(lane, signal.question) else []
        case Woken() if signal.question == lane.refusal.parking_pause:
            return quarantine.retry_parking(lane) if answers(lane, signal.question) else []
        case ConfigsAnswer():
            return refused_retry.configs_answered_while_halted(lane, now, signal)
        case Woken() if signal.question == lane.refusal.configs_pause:
            return refused_retry.read_configs_again(lane) if answers(lane, signal.question) else []
        case _:
            return retry_record(lane, now, signal)


def _answered(lane: Lane, now: float, signal: Input) -> Effects:  # noqa: C901, PLR0911, PLR0912 -- one case per input kind
    match signal:
        case Woken():
            if signal.question == lane.gap.question:
                return offset_gaps.ask_again(lane)
            return (
                origin_check.ask_again(lane)
                if signal.question == lane.origin.question
                else _woken(lane, now, signal.question)
            )
        case CleanupAnswer():
            effects = offset_gaps.cleanup_answered(lane, now, signal)
            return effects + intake.want_more(lane) if lane.is_copying else effects
        case OriginsAnswer():
            return origin_check.origins_answered(lane, now, signal)
        case ConfigsAnswer():
            return refused_retry.configs_answered(lane, now, signal)
        case ProducerIdAnswer():
            return opening.producer_id_answered(lane, now, signal)
        case StartAnswer():
            return opening.start_answered(lane, now, signal)
        case EndAnswer() | ProducersAnswer() if lane.takeover.fast_handoff is not None:
            return _early(lane, now, fast_handoff.target_answered(lane, signal))
        case DivergenceAnswer():
            lane.source_epoch = signal.leader_epoch
            return _proven(lane, now, truncation.divergence_answered(lane, now, signal))
        case EndAnswer() if signal.question == lane.comparison.later_end_question:
            return late_verification.end_answered(lane, now, signal)
        case EndAnswer() if lane.confirming:
            return in_flight.end_confirmed(lane, signal)
        case EndAnswer():
            return resuming.end_answered(lane, now, signal)
        case ProducersAnswer():
            return resuming.producers_answered(lane, now, signal)
        case VisibleAnswer():
            return resuming.visible_answered(lane, now, signal)
        case ScanAnswer() if signal.purpose == "later":
            return late_verification.scan_answered(lane, now, signal)
        case ScanAnswer() if signal.purpose in ("confirm", "gap"):
            return _between(lane, signal)
        case ScanAnswer():
            return target_reading.scan_answered(lane, now, signal)
        case CheckAnswer():
            return resume_point.comparison_answered(lane, now, signal)
        case SharedAnswer():
            return target_reading.shared_answered(lane, now, signal)
        case SupersededAnswer():
            return target_reading.superseded_answered(lane, now, signal)
        case RebuildAnswer():
            return rebuilding.rebuild_answered(lane, signal)
        case _:
            return []


def _woken(lane: Lane, now: float, question: int) -> Effects:
    if lane.phase is Phase.OPENING:
        return opening.woken(lane)
    if lane.history.divergence_question == question:
        return truncation.ask_again(lane, now)
    if question == lane.comparison.first_ack_pause:
        return reassigned_ordinals.retry_comparison(lane)
    if lane.phase is Phase.COPYING and lane.comparison.later_pending and now >= lane.late_writes.former_holder_until:
        return late_verification.begin(lane, now)
    return resuming.woken(lane, now)


def _between(lane: Lane, signal: ScanAnswer) -> Effects:
    """Handle the answer to a scan of the target log above the recorded log end. The scan was requested because a batch
    or a higher log end had been seen there. The answer shows whether any of the lane's own batches are there."""
    if signal.purpose == "confirm":
        if signal.error or signal.own:
            lane.go(Resume(lane.limits.retry_s if signal.error else 0.0))
            return []
        return in_flight.go(lane, signal.end)
    if signal.error:
        lane.go(Resume(lane.limits.retry_s))
        return []
    if signal.own and signal.own[0].leader_epoch > lane.log.end_epoch:
        # A later leader appended the batch, which means that the log was truncated and does not contain any record
        # twice. If the lane is not copying, either a resume follows, or the resume position stays before the offsets
        # that have not been read.
        if lane.phase is Phase.COPYING:
            lane.go(Quiesce(until_safe=False))
        return []
    if signal.own:
        first = sequence.nearest(signal.own[0].base_sequence, lane.acked)
        return target_scan.halt_on_repeat(lane, (first, first + signal.own[0].count, signal.own[0].base_offset))
    lane.log.unread_parts -= 1
    if lane.log.unread_parts == 0:
        lane.log.unread_from = None
        return intake.want_more(lane) if lane.phase is Phase.COPYING else []
    return []


def _bound(lane: Lane, now: float, answer: Bound) -> Effects:
    if lane.phase is Phase.OPENING:
        return _early(lane, now, opening.grant_bound(lane, now, answer)) if answer.tag == lane.facts_tag else []
    if not all(answer.bound):
        return leave_lane(lane, "another replicator took the lane")
    plan_bound(lane, answer.tag)
    if answer.tag in lane.notes:
        lane.notes.discard(answer.tag)
        if not lane.notes:
            lane.recorded_position = resume_position(lane)
    if lane.phase is Phase.REBUILDING and answer.tag == lane.facts_tag:
        return rebuilding.facts_bound(lane)
    if lane.stage is Stage.RELEASED and answer.tag == lane.facts_tag:
        lane.go(Resume())
        return []
    for intent in lane.intents:
        if intent[0] == answer.tag:
            lane.intents.remove(intent)
            return resume_point.facts_bound(lane) if lane.phase is Phase.RESUMING else in_flight.send(lane)
    return []


def _bound_while_draining(lane: Lane, now: float, answer: Bound | AppendFailed) -> Effects:
    if isinstance(answer, AppendFailed):
        # Batches in flight may still be acknowledged at offsets above the current end, so only the resume position is
        # held back.
        lane.log.must_read_log = True
        lane.log.unread_from = lane.recorded_position
    elif all(answer.bound):
        plan_bound(lane, answer.tag)
    lane.notes.discard(answer.tag)
    return in_flight.drained(lane, now) if not lane.in_flight else []


def _early(lane: Lane, now: float, effects: Effects) -> Effects:
    """Process the chunk that the lane fetched during a fast handoff, before it was allowed to copy."""
    if lane.takeover.fast_handoff is None or not lane.is_copying:
        return effects
    chunk, lane.takeover.fast_handoff = lane.takeover.fast_handoff.chunk, None
    return effects if chunk is None else effects + _chunk(lane, now, chunk)


def _proven(lane: Lane, now: float, effects: Effects) -> Effects:
    """Continue with what was kept until the source confirmed that it still has the copied records: a chunk, or a
    command to seek ahead."""
    if not lane.history.source_confirmed or lane.history.asked_before_seek is not None or not lane.is_copying:
        return effects
    if lane.history.unconfirmed_chunk is None:
        return effects + seek.carry_out(lane) + truncation.begin_to_read(lane)
    chunk, lane.history.unconfirmed_chunk = lane.history.unconfirmed_chunk, None
    return effects + _chunk(lane, now, chunk)


def _chunk(lane: Lane, now: float, chunk: Chunk) -> Effects:
    lane.fetching = False
    if chunk.high_watermark >= 0:
        lane.source_end, lane.source_epoch = chunk.high_watermark, chunk.leader_epoch
    outcome = fetched(chunk.error)
    if outcome is Fetched.TAKE and chunk.diverging_end < 0:
        if lane.epoch < 0 and truncation.is_unconfirmed(lane, chunk):
            return truncation.confirm_source(lane, chunk)
        effects, unreadable = intake.take(lane, chunk)
        if isinstance(unreadable, Early):
            lane.go(Quiesce())
            return effects
        if isinstance(unreadable, Unfinished):
            return effects + _go_on_later(lane, unreadable)
        if isinstance(unreadable, Vanished):
            return effects + vanished_records.leave_out(lane, now, chunk, unreadable)
        if isinstance(unreadable, Diverged):
            return effects + in_flight.send(lane) + truncation.another_record(lane, now)
        if unreadable is not None:
            lane.blocked = (str(unreadable), unreadable.start, unreadable.end)
            if not lane.ready and not lane.in_flight:
                return effects + in_flight.blocked(lane)
        origin_check.forget_answered(lane)
        if lane.seeks and seek.is_due(lane):
            lane.go(Quiesce())
            return effects
        effects += in_flight.send(lane)
        effects += origin_check.ask_origin(lane, now) + offset_gaps.ask_cleanup(lane)
        effects += intake.want_more(lane)
        return effects
    return _not_a_chunk(lane, now, chunk, outcome)


def _go_on_later(lane: Lane, stop: Unfinished) -> Effects:
    """Send what precedes a batch that is rebuilt later, and continue with the chunk after that."""
    if lane.seeks and seek.is_due(lane):
        lane.go(Quiesce())
        return []
    lane.fetching = True
    return [*in_flight.send(lane), RebuildLater(ask(lane), stop.work, stop.rest)]


def _not_a_chunk(lane: Lane, now: float, chunk: Chunk, outcome: Fetched) -> Effects:
    if outcome is Fetched.TAKE:
        return truncation.fetch_diverged(lane, now, chunk)
    if outcome is Fetched.RANGE:
        return _out_of_range(lane, chunk)
    if outcome is Fetched.HALT:
        line = f"the source refuses to be read at offset {lane.position} with Kafka error {chunk.error}"
        return quarantine.park(lane, "unreadable", 0, line, lane.position, lane.position + 1)
    lane.fetching = True
    delay = lane.limits.denied_s if outcome is Fetched.DENIED else lane.limits.retry_s
    return [FetchFrom(ask(lane), lane.round, lane.position, lane.epoch, delay, refresh=True)]


def _out_of_range(lane: Lane, chunk: Chunk) -> Effects:
    if 0 <= lane.position < chunk.log_start:
        may_continue = lane.on_loss == "continue" or seek.accepts_deleted(lane, chunk.log_start)
        if may_continue and in_doubt.holds(lane, lane.next_ordinal):
            lane.go(Quiesce())
            return []
        line = f"source offsets [{lane.position}, {chunk.log_start}) were deleted before they were copied"
        if may_continue and lane.plan:
            return vanished_records.leave_out_deleted(lane, chunk.log_start)
        if may_continue:
            lost = Lost(f"{lane.source_topic}-{lane.partition}: {line}")
            effects = [lost, *intake.leap(lane, chunk.log_start, "expired")]
            # If retention has deleted the range of a seek command, the command is carried out now, because the next
            # record may not arrive for a long time.
            if lane.seeks and seek.is_due(lane):
                lane.go(Quiesce())
                return effects
            return effects + intake.want_more(lane)
        if lane.plan and (lost := vanished_records.uncopied(lane, chunk.log_start)):
            line = vanished_records.describe_loss(lost)
        return halt(lane, "expired", line, lane.position, chunk.log_start)
    return truncation.ends_below(lane, chunk.high_watermark)
