"""Completes a resume: compares batches with the source, plans how the records of holes will be copied again, and begins
to copy."""

from itertools import islice

from msgspec.structs import replace

from mirrord.kafka.rules.error_policy import NONE
from mirrord.ledger.facts.core import SourceRun, TakeoverChecked, VerdictGiven
from mirrord.ledger.seeks import pending
from mirrord.model.intervals import joined
from mirrord.model.runs import Run
from mirrord.replication.lane import difference, intake, seek
from mirrord.replication.lane.correlation import append, ask
from mirrord.replication.lane.halt import halt
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.notes import note
from mirrord.replication.lane.phases import Phase, Stage
from mirrord.replication.lane.second_path import NOT_YET
from mirrord.replication.lane.signals import (
    AskCheck,
    CheckAnswer,
    Effects,
    LaneRecord,
    SaveProgress,
    Wake,
)
from mirrord.replication.lane.source import last_copied, recorded_epochs, source_epochs, truncation
from mirrord.replication.lane.source.declared_runs import (
    RestOfPlan,
    continues_at,
    decided,
    in_source_order,
    jumps,
    rest,
)
from mirrord.replication.lane.source.left_out_ranges import left_out
from mirrord.replication.lane.source.next_declared import declare
from mirrord.replication.lane.state import NO_VERDICTS, Lane, ResumePosition
from mirrord.replication.lane.target import (
    hole_repair,
    in_doubt,
    missing_ordinals,
    position_rewind,
    reassigned_ordinals,
    target_scan,
)
from mirrord.replication.lane.target.evidence import known_until, trusted_below, unproven_until
from mirrord.replication.lane.target.scan_result import Reading
from mirrord.replication.lane.target.superseded_records import MOST_RANGES


def must_wait_to_mend(lane: Lane, found: Reading) -> bool:
    """Return whether the lane must wait before it copies the records of a hole again. When they are copied again, they
    get the next ordinals. A former holder may still send other records under these ordinals, and a broker that
    remembers the producer would accept them. The lane therefore waits until no former holder can write."""
    return bool(found.holes) and _must_wait(lane)


def _must_wait(lane: Lane) -> bool:
    """Return whether batches that were sent earlier may have been appended since the lane asked for the end of the
    target log, or may still be appended."""
    return lane.late_writes.end_read_at < lane.late_writes.until


def must_wait_to_void(lane: Lane, ordinal: int) -> bool:
    """Return whether the lane must wait before it resumes at this ordinal. When it resumes, it revokes the holes and
    epochs that the ledger has at this ordinal and above. Batches that were sent while these were in effect may still be
    appended."""
    return (
        lane.late_writes.end_read_at < lane.late_writes.until
        and lane.record is not None
        and source_epochs.is_recorded_from(lane.record, ordinal)
    )


def wait_to_mend(lane: Lane) -> Effects:
    """Wait until no batch that was sent earlier can still be appended, and then ask for the end of the target log
    again."""
    lane.phase = Phase.WAITING
    lane.log.look_back = 0
    missing_ordinals.forget(lane)
    return in_doubt.wait(lane, lane.late_writes.end_read_at)


def _record_again(lane: Lane, ordinal: int, left: RestOfPlan | None) -> Effects:
    """Record again which runs and epochs apply from this ordinal onward.

    This is necessary if, for example, the target log has lost records below a hole or below a change of the source
    epoch. The ordinals of these records are then assigned again, and the ledger's runs and epochs for the later records
    are no longer valid.
    """
    runs = left.runs if left is not None else [Run(ordinal, lane.position)]
    pieces = left.pieces if left is not None and len(runs) > 1 else []
    lane.open_run = runs[0]
    lane.plan.clear()
    lane.plan.extend(runs[1:])
    facts = hole_repair.kept_plan(lane, runs)
    kept = [] if left is not None else _acknowledged_runs(lane, ordinal)
    runs = [*runs, *kept]
    epochs, regiven = source_epochs.epochs_again(lane, pieces, kept), in_doubt.assign(lane, runs)
    rewound = position_rewind.rewound_by(lane, runs, lane.resume_position) or position_rewind.unproven(lane, runs)
    effect = append(lane, (*facts, SourceRun(lane.id, lane.grant, tuple(runs), (), epochs, regiven, rewound)))
    lane.intents.append((effect.tag, ordinal))
    # The lane must either leave the kept runs as they are or record other runs in their place.
    lane.declared = kept[0].ordinal if kept else -1
    return [effect]


def _acknowledged_runs(lane: Lane, ordinal: int) -> list[Run]:
    """Return the ledger's runs that begin after this ordinal and that must be recorded again. The records of these runs
    were acknowledged, or may have been, but a compacted target log has lost them. They are copied again in the same
    order, so their runs still apply. If the runs were not recorded again, the ledger would no longer show which records
    were acknowledged.

    A single entry contains all runs, so their number is limited. If there are too many, the remaining runs are not
    recorded again. The ledger then maps their ordinals to other records, and the lane no longer knows that these
    ordinals were acknowledged (see `position_rewind`)."""
    record = lane.record
    if record is None or not lane.log.cleaned or lane.decided.open:
        return []
    is_other = record.source_runs.offset_of(ordinal) != lane.position
    is_other = is_other or any(hole.first >= ordinal for hole in record.holes)
    if is_other or any(first > ordinal for first, _ in record.truncations):
        return []
    until = max(known_until(lane), unproven_until(lane))
    return list(islice(record.source_runs.beginning_in(ordinal + 1, until - 1), MOST_RANGES - 1))


def resume_at(lane: Lane, ordinal: int, begins: int = NEVER) -> Effects:
    """Resume at this ordinal. If batches below it were not acknowledged during this attempt to host the lane, first
    compare them with the source. `begins` is the lowest target offset of a batch that has to be compared.

    A former holder may have found a hole that begins below a resume position, because the log had also lost records
    before this position. If the log no longer shows where the lane was, the lane continues after the hole: the ledger
    says that the target has no records under the ordinals of the hole."""
    if lane.log.entry is None:
        ordinal = target_scan.after_hole(lane, ordinal)
    lane.resume_ordinal = ordinal
    lane.comparison.begins_at = min(begins, lane.comparison.begins_at if lane.notes else NEVER)
    if must_check(lane):
        if lane.intents:
            # An intent of an earlier round may assign these ordinals to other records. A comparison with the former
            # assignment would end the doubt about the new one.
            return lane.retry()
        lane.stage = Stage.CHECK
        first = min(trusted_below(lane), ordinal)
        begun = ResumePosition(
            min(first, lane.resume_position.ordinal),
            lane.resume_position.target_offset,
            lane.resume_position.leader_epoch,
        )
        start = min(target_scan.first_offset_of(lane, begun), lane.log.end, begins)
        epochs = recorded_epochs.known_epochs(lane, first)
        where = first, ordinal - 1, start, lane.log.end, _continues_at(lane)
        reassigned = tuple(joined(lane.log.reassigned))
        return [AskCheck(ask(lane), lane.producer_id, *where, epochs, reassigned)]
    return _bind_holes(lane)


def _continues_at(lane: Lane) -> int:
    if lane.record is None:
        return -1
    if (left := _left_to_copy(lane, lane.record)) is not None:
        return left.runs[0].offset
    position = continues_at(lane.record, lane.resume_ordinal)
    return -1 if position is None else position


def _left_to_copy(lane: Lane, record: LaneRecord) -> RestOfPlan | None:
    """Return the records that are still to be copied again from the resume ordinal onward, or None if there are none.

    In a compacted target, they are copied in source order: a record must not follow a newer one with the same key."""
    left = rest(record, lane.resume_ordinal)
    return in_source_order(record, left) if left is not None and lane.log.cleaned else left


def must_check(lane: Lane) -> bool:
    """Return whether the lane must compare batches in the target log with the source. This is necessary for batches
    whose acknowledgements the lane has not received since it was assigned to this replicator, and for batches that an
    election has brought back."""
    return lane.resume_ordinal > trusted_below(lane)


def comparison_answered(lane: Lane, now: float, answer: CheckAnswer) -> Effects:
    """Handle the result of a comparison. If the outcome is `different`, the offset map is wrong and will be rebuilt."""
    waiting = lane.phase is Phase.RESUMING and lane.stage is Stage.CHECK
    is_later = answer.question == lane.comparison.later_question
    if answer.error != NONE:
        if is_later:
            return [Wake(ask(lane), now + lane.limits.retry_s)]
        return lane.retry() if waiting else reassigned_ordinals.comparison_failed(lane, now, answer)
    if is_later:
        lane.comparison.later_pending, lane.comparison.later_from = False, None
    # Records that were read after the comparison was requested are compared once they have been acknowledged. Until
    # then, their ordinals stay in doubt.
    is_all = is_later and not _must_wait(lane) and lane.next_ordinal == answer.last + 1
    reassigned_ordinals.compared(lane, answer, is_all=is_all)
    if waiting and answer.outcome != "different" and difference.must_read_log(lane, answer):
        lane.log.must_read_log = True
        return lane.retry()
    if waiting and answer.outcome != "different" and (unread := difference.unread(lane, answer)) is not None:
        return difference.differ(lane, now, unread)
    if answer.outcome == "different" or not difference.settles(lane, answer):
        return difference.differ(lane, now, answer)
    position = _continues_at(lane)
    if waiting and _ends_short(lane, answer, position):
        if missing_ordinals.is_look_up_outdated(lane, answer.source_end):
            return lane.retry()
        known = last_copied.last_below(lane, lane.resume_ordinal, position)
        is_unknown = last_copied.left_at(lane, known, lane.resume_ordinal, position) is None
        if is_unknown or truncation.must_halt(lane, answer.source_end):
            # This comparison is not recorded in the ledger, because such a fact would end the doubt about its ordinals.
            # The comparison is repeated when the lane resumes.
            line = f"the source log ends at offset {answer.source_end}, below the position {position}"
            return halt(lane, "truncated", line, answer.source_end, position)
        lane.history.short_end = answer.source_end
    ends = (lane.comparison.follows(answer.last), is_all)
    fact = TakeoverChecked(lane.id, lane.grant, answer.first, answer.last, answer.outcome, answer.note, *ends)
    effects = note(lane, (fact,))
    if waiting:
        lane.trusted = lane.resume_ordinal
        lane.history.found_epoch = (position, answer.source_epoch)
        # The offsets between the last compared record and the position may be from a different history of the source
        # log.
        is_next = lane.record is not None and recorded_epochs.follows(lane.record, lane.resume_ordinal)
        lane.history.found_equal = answer.outcome == "equal" and is_next and answer.equal_until == lane.resume_ordinal
        return effects + _bind_holes(lane)
    if lane.phase is not Phase.COPYING:
        return effects
    return effects + reassigned_ordinals.compare_due(lane) + intake.want_more(lane)


def _ends_short(lane: Lane, answer: CheckAnswer, position: int) -> bool:
    """Return whether the lane cannot continue because the source log ends below its position."""
    is_short = 0 <= answer.source_end < position and truncation.must_halt(lane, answer.source_end)
    return is_short or source_epochs.ends_short(lane, answer, position)


def _bind_holes(lane: Lane) -> Effects:
    """If the target has skipped or lost records, append a plan to copy them again under new ordinals. The plan must
    take effect in the ledger before these records are produced. If the target has not skipped or lost any records,
    begin to copy once all intents of earlier rounds have taken effect."""
    if (lane.log.holes or lane.log.copied_again is not None) and lane.record is not None:
        if effects := _record_first_verdicts(lane):
            return effects
        plan = hole_repair.repair(lane, lane.record)
        facts = (*lane.log.facts_with_holes, *plan)
        # Other records were sent under the ordinals that follow, so batches that are acknowledged under these ordinals
        # have to be compared with the source.
        lane.comparison.first_ack_pending = lane.comparison.later_pending = True
        lane.log.holes, lane.log.copied_again = [], None
        if lane.log.cleaned:
            lane.log.looked_up_to = lane.log.end
        missing_ordinals.other_records_from(lane, lane.resume_ordinal)
        effect = append(lane, facts)
        if (known := lane.log.went_back) is not None:
            known.tag = effect.tag
            known.rewound = next((fact.rewound for fact in plan if isinstance(fact, SourceRun)), None)
        lane.intents.append((effect.tag, lane.resume_ordinal))
        lane.stage = Stage.FACTS
        return [effect]
    if lane.intents:
        # An intent of an earlier round may still take effect, which would change what the ledger declares.
        lane.stage = Stage.FACTS
        return []
    return copy(lane)


def _record_first_verdicts(lane: Lane) -> Effects:
    """If the plan has more verdicts than one entry may contain, record the first of them before the plan. The remaining
    ones follow once the first ones have taken effect. If the lane has to begin a new round before the plan is recorded,
    it looks up all of the records again."""
    number, fact = next(
        ((at, each) for at, each in enumerate(lane.log.facts_with_holes) if isinstance(each, VerdictGiven)), (0, None)
    )
    if fact is None or len(fact.verdicts) <= MOST_RANGES:
        return []
    first, left = replace(fact, verdicts=fact.verdicts[:MOST_RANGES], note=""), fact.verdicts[MOST_RANGES:]
    facts = lane.log.facts_with_holes
    lane.log.facts_with_holes = (*facts[:number], replace(fact, verdicts=left), *facts[number + 1 :])
    effect = append(lane, (first,))
    lane.intents.append((effect.tag, lane.resume_ordinal))
    lane.stage = Stage.FACTS
    return [effect]


def facts_bound(lane: Lane) -> Effects:
    """Continue once all intents of this round and of earlier ones have taken effect. If the plan for copying records
    again has not been recorded completely, append its next part. Otherwise, begin to copy."""
    return _bind_holes(lane) if lane.stage is Stage.FACTS and not lane.intents else []


def copy(lane: Lane) -> Effects:
    """Begin to copy at the resume ordinal, now that the lane knows what the target holds and all intents have taken
    effect."""
    ordinal = lane.resume_ordinal
    record = lane.record
    run = record.source_runs.run_at(ordinal) if record is not None else None
    if record is None or run is None:
        return halt(lane, "unexplained", f"the ledger no longer explains ordinal {ordinal}", 0, 0)
    lane.seeks = pending(record.seeks)
    left = _left_to_copy(lane, record)
    if seek.must_wait(lane) or (left is not None and left.differs and _must_wait(lane)):
        return wait_to_mend(lane)
    lane.stage = Stage.DONE
    lane.phase, lane.takeover.knows_sent = Phase.COPYING, True
    lane.log.went_back = None
    lane.unbound = NO_VERDICTS
    lane.log.must_read_log = False
    lane.log.unread_from, lane.log.unread_parts = None, 0
    lane.log.appended_later = (-1, -1, -1)
    lane.open_run = run
    lane.position = _continues_at(lane)
    lane.next_ordinal = lane.acked = ordinal
    source_epochs.recall(lane)
    lane.sent_below = max(lane.sent_below, ordinal)
    lane.late_writes.sent_since = min(lane.late_writes.sent_since, lane.log.end_epoch)
    lane.trusted = min(lane.trusted, ordinal)  # a late batch may contain records that were acknowledged and then lost
    lane.expected = lane.log.end
    lane.resume_position = lane.resumed_at = ResumePosition(ordinal, lane.log.end, lane.log.end_epoch)
    if not lane.notes:
        lane.recorded_position = lane.resume_position
    lane.confirm_end = not lane.protected
    if lane.comparison.later_pending and (
        lane.comparison.later_from is None or ordinal <= lane.comparison.later_from.ordinal
    ):
        # If the ordinal is the same, its target offset may now be lower than before.
        lane.comparison.later_from, lane.comparison.later_begins_at = lane.resume_position, NEVER
    effects: Effects = [SaveProgress()]
    lane.plan.clear()
    lane.plan.extend(jumps(record, ordinal, left))
    lane.log.plans_end = max((hole.until for hole in record.holes if hole.first > hole.last), default=-1)
    lane.history.source_confirmed, lane.history.divergence_question, lane.history.suspected_position = False, -1, -1
    if lane.plan or lane.epoch >= 0 or lane.position <= lane.history.short_end:
        lane.history.short_end = -1  # a fetch from the position shows whether the source has lost records
    declare(lane, lane.plan[-1].ordinal if lane.plan else ordinal)
    lane.decided = decided(record, ordinal) if lane.has_policies else NOT_YET
    if (
        unproven_until(lane) >= 0
        or lane.decided.open
        or any(hole.first >= ordinal for hole in record.holes)
        or source_epochs.is_revoked_ahead(lane, record)
        or (left is not None and left.differs)
    ):
        effects += _record_again(lane, ordinal, left)
    return effects + _begin_to_read(lane, record)


def _begin_to_read(lane: Lane, record: LaneRecord) -> Effects:
    """Leave out what the ledger says is not to be copied, and read from the position onward. If the source log ended
    below the position, ask the source first whether it has lost records."""
    lowest = min([lane.position, *(run.offset for run in lane.plan)])
    lane.left_out = left_out(record, lowest)
    effects = [*intake.leave_out(lane), *seek.carry_out(lane)]
    is_short = lane.history.short_end >= 0
    effects += [] if is_short else truncation.begin_to_read(lane)
    effects += reassigned_ordinals.compare_again(lane, lane.resume_ordinal)
    if lane.comparison.later_pending:
        effects.append(Wake(ask(lane), lane.late_writes.former_holder_until))
    return effects + truncation.ask_short(lane) if is_short else effects
