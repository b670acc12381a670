"""Where to resume: the resume sandwich, and the content of the target log itself.

The questions, in this order, all to the leader of the target partition:

1. End: who leads, in which epoch. A deposed leader does not answer for an epoch that it does not lead.
2. Producers: what it remembers of the lane's producer id, the uncommitted tail included.
3. End again: the same epoch, so the answer in between came from the leader; and the true end, after all that 2 shows.
4. Visible: until the high watermark covers that end. Records that are not yet replicated could still be lost.

Without an entry in 2, or whenever it cannot be relied on, the log after the mark is read by batch headers: "no entry"
means unknown, never "nothing was written".
"""

from mirrord.kafka.protocol.sequence import nearest
from mirrord.kafka.rules.error_policy import NONE
from mirrord.ledger.facts.core import LaneFact, SourceRun, TakeoverChecked, Verdict, VerdictGiven
from mirrord.ledger.facts.seeks import pending
from mirrord.model.runs import Run
from mirrord.replication.lane import intake, rebuilding, seek
from mirrord.replication.lane.correlation import append, ask, new_round
from mirrord.replication.lane.halt import drop, halt
from mirrord.replication.lane.lane_report import mark
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.notes import note
from mirrord.replication.lane.phases import Phase, Stage
from mirrord.replication.lane.second_path import NOT_YET
from mirrord.replication.lane.signals import (
    AskCheck,
    AskEnd,
    AskProducers,
    AskScan,
    AskVisible,
    Checked,
    Effects,
    EndTold,
    ProducersTold,
    SaveProgress,
    Scanned,
    StopFetch,
    TargetMoved,
    VisibleTold,
    Wake,
)
from mirrord.replication.lane.source import offset_gaps, source_epochs
from mirrord.replication.lane.source.declared_runs import decided, once, planned
from mirrord.replication.lane.state import NO_VERDICTS, Lane, Mark
from mirrord.replication.lane.target import hole_repair, in_doubt, mark_rewind, missing_ordinals, target_scan
from mirrord.replication.lane.target.evidence import is_another_leader, next_by_entry, remembers, went_back
from mirrord.replication.lane.target.scan_result import Log, Reading

NOT_LEADER = 6
NO_ANSWER = 13
"""NETWORK_EXCEPTION: the shell returns it for a question whose connection was lost."""
LOOK_BACK_RECORDS = 10_000


def target_moved(lane: Lane, now: float, told: TargetMoved) -> Effects:
    """Handle a new leader epoch of the target: an idle lane would not notice by itself what was lost with it."""
    if lane.phase is not Phase.COPYING or told.leader_epoch <= lane.end_epoch:
        return []
    if not lane.in_flight:
        return begin(lane, now, refresh=True)
    lane.phase = Phase.SETTLING
    lane.failure = (NOT_LEADER, lane.in_flight[0])
    return []


def begin(lane: Lane, now: float, delay_s: float = 0.0, *, refresh: bool = False) -> Effects:
    """Begin a new round: drop what is held and ask the target log. Answers to earlier rounds no longer count."""
    new_round(lane)
    lane.phase = Phase.RESUMING
    lane.mark = mark(lane)
    lane.suspicious = lane.suspicious or lane.unread is not None
    lane.trusted = max(lane.trusted, lane.acked)
    drop(lane)
    lane.skipped.clear()
    lane.blocked = None
    lane.doubt = lane.doubted = None
    lane.doubt_line = ""
    offset_gaps.forget(lane)
    missing_ordinals.forget(lane)
    lane.pipelined = False
    lane.failure = None
    lane.look_back = 0
    lane.later_end = -1
    lane.stage = Stage.END
    if lane.differs is not None:
        return [StopFetch(), *rebuilding.begin(lane, now, delay_s)]
    if delay_s > 0:
        lane.phase = Phase.WAITING
        return [StopFetch(), Wake(ask(lane), now + delay_s, refresh)]
    lane.end_asked_at = now
    return [StopFetch(), AskEnd(ask(lane))]


def woken(lane: Lane, now: float) -> Effects:
    """Continue after a pause."""
    if lane.phase is Phase.WAITING:
        lane.phase = Phase.RESUMING
        lane.stage = Stage.END
        lane.end_asked_at = now
        return [AskEnd(ask(lane))]
    if lane.phase is Phase.REBUILDING and lane.stage is not Stage.VISIBLE:
        return rebuilding.woken(lane)
    if lane.stage is Stage.VISIBLE:
        return [AskVisible(ask(lane), lane.end_epoch)]
    return []


def again(lane: Lane, now: float) -> Effects:
    """Begin a new round after a pause."""
    return begin(lane, now, lane.limits.retry_s, refresh=True)


def end_told(lane: Lane, now: float, told: EndTold) -> Effects:
    """Handle the answers to questions 1 and 3."""
    if told.error != NONE:
        if told.error == NO_ANSWER:
            in_doubt.unreachable(lane)
        return again(lane, now)
    if lane.stage is Stage.END:
        in_doubt.answered(lane, now)
        lane.end_epoch = told.leader_epoch
        if lane.mode == "at-least-once":
            lane.entry = None
            return _ask_again(lane, now)
        lane.stage = Stage.PRODUCERS
        return [AskProducers(ask(lane), lane.producer_id)]
    if lane.stage is not Stage.END_AGAIN:
        return []
    if not same_leader(lane, told):
        return again(lane, now)
    lane.end = told.end
    lane.stage = Stage.VISIBLE
    return [AskVisible(ask(lane), lane.end_epoch)]


def same_leader(lane: Lane, told: EndTold) -> bool:
    """Return whether the epoch did not change around the answer in between."""
    return told.leader_epoch == lane.end_epoch


def producers_told(lane: Lane, now: float, told: ProducersTold) -> Effects:
    """Handle the answer to question 2."""
    if told.error != NONE:
        return again(lane, now)
    lane.entry = told.entry
    return _ask_again(lane, now)


def _ask_again(lane: Lane, now: float) -> Effects:
    """Ask question 3."""
    lane.stage = Stage.END_AGAIN
    in_doubt.look(lane, now)
    return [AskEnd(ask(lane))]


def visible_told(lane: Lane, now: float, told: VisibleTold) -> Effects:
    """Handle the answer to question 4, which is asked until the high watermark covers the end."""
    if told.error != NONE:
        return again(lane, now)
    if not covers(lane, told):
        behind = f"[{told.high_watermark}, {lane.end})"
        lane.trouble = f"target offsets {behind} are on fewer replicas than it must be: it waits for those"
        return [Wake(ask(lane), now + lane.limits.poll_s)]
    lane.log_start = told.log_start
    return decide(lane)


def covers(lane: Lane, told: VisibleTold) -> bool:
    """Return whether everything that the broker reported is committed."""
    return told.high_watermark >= lane.end


def barrier_until(lane: Lane) -> float:
    """Return the time until which an unprotected lane must not write, because batches sent earlier may be appended."""
    return lane.dirty_until


def decide(lane: Lane) -> Effects:
    """Decide where to resume, or what to read first, now that the target has answered everything."""
    if lane.differs is not None:
        return rebuilding.locate(lane)
    lane.protected = remembers(lane)
    # For shaped records the broker's memory proves only sequences: another answer of a policy is another record.
    if (lane.shaped or not lane.protected) and lane.looked_at < barrier_until(lane):
        lane.phase = Phase.WAITING
        return [Wake(ask(lane), barrier_until(lane))]
    if lane.opened_here and not lane.sent:
        # Only this attempt ever knew the producer id in a way that binds, and it has sent nothing.
        lane.mark = Mark(0, lane.end, lane.end_epoch)
        return _resume_at(lane, 0)
    if lane.end < lane.mark.target_offset or went_back(lane):
        return look_back(lane)
    if must_read(lane):
        # Scan from the last record below the mark: it must still be there, or the log went back and grew again. Without
        # such a record, batches before the mark may be the lane's own in a log that went back.
        may_lie = is_another_leader(lane) or lane.suspicious
        before = 1 if lane.mark.ordinal > 0 else LOOK_BACK_RECORDS if may_lie else 0
        start = max(lane.mark.target_offset - before, lane.log_start)
        lane.stage = Stage.SCAN
        return [AskScan(ask(lane), "resume", lane.producer_id, start, lane.end)]
    ordinal = next_by_entry(lane)
    facts: tuple[LaneFact, ...] = ()
    if ordinal > lane.mark.ordinal and lane.record is not None:
        facts = target_scan.placed(lane, lane.record.target_runs.copy(), lane.mark.ordinal, lane.mark.target_offset)
    if must_wait_to_void(lane, ordinal):
        return _wait_to_mend(lane)
    return note(lane, facts) + _resume_at(lane, ordinal)


def must_read(lane: Lane) -> bool:
    """Return whether the broker's memory is not enough, so that the log after the mark must be read."""
    appended = lane.end - lane.mark.target_offset
    # Two equal numbers prove nothing if the log may have gone back and others may have written since. More may be
    # acknowledged than the mark says, and others may have written as many records as the log lost.
    acknowledged = missing_ordinals.known_until(lane) > 0
    if is_another_leader(lane) and (acknowledged or lane.end > lane.log_start or lane.entry is not None):
        return True
    if lane.entry is None or not lane.protected or lane.suspicious:
        return appended > 0 or lane.suspicious
    return appended != next_by_entry(lane) - lane.mark.ordinal


def scanned(lane: Lane, now: float, told: Scanned) -> Effects:
    """Handle the scanned log after the mark."""
    if told.error != NONE:
        return again(lane, now)
    log = missing_ordinals.read(lane, told)
    target_scan.begins_at(lane, told.own)
    if lane.stage is Stage.VERIFY:
        return _verified(lane, now, told, log)
    expected, own = lane.mark.ordinal, told.own
    if told.start < lane.mark.target_offset and lane.mark.ordinal > 0:
        if not target_scan.holds_mark(lane, own):
            return look_back(lane)
        own, expected = target_scan.behind_mark(lane, own)
        log = log._replace(start=own[0].base_offset if own is told.own else lane.mark.target_offset)
    elif told.start > lane.mark.target_offset and own:
        # The target has already expired the records right after the mark.
        expected = max(expected, nearest(own[0].base_sequence, expected))
    return _read(lane, now, target_scan.walk(lane, own, expected, log), log)


def _read(lane: Lane, now: float, found: Reading, log: Log) -> Effects:
    if found.doubled is not None:
        return target_scan.stand_still(lane, found.doubled)
    if lane.entry is not None and found.next_ordinal > next_by_entry(lane) and not went_back(lane):
        return again(lane, now)  # a former holder's batch came in after the broker was asked
    if lane.protected and found.next_ordinal < next_by_entry(lane) and not lane.cleaned:
        line = (
            f"the target broker remembers ordinal {next_by_entry(lane) - 1} as the lane's last one, "
            f"its log ends with {found.next_ordinal - 1}"
        )
        return halt(lane, "unexplained", line, lane.position, lane.position)
    if found.void < NEVER:
        return rebuilding.filled(lane, now, found)
    stood = found.next_ordinal if lane.entry is None else max(found.next_ordinal, next_by_entry(lane))
    lost = missing_ordinals.lost_ordinals(lane, stood) if lane.cleaned else ()
    return missing_ordinals.look_up(lane, found, log, lost) or judged(lane, found)


def judged(lane: Lane, found: Reading) -> Effects:
    """Continue, now that the contents and the gaps of the log are known."""
    if must_wait_to_mend(lane, found) or must_wait_to_void(lane, found.next_ordinal):
        return _wait_to_mend(lane)
    return _keep(lane, found, ()) + _resume_at(lane, found.next_ordinal, found.begins)


def must_wait_to_mend(lane: Lane, found: Reading) -> bool:
    """Return whether to wait before mending a hole, which reassigns the next ordinals. A broker that remembers the
    producer would accept them from a former holder with the old meaning, so no one else may still be writing."""
    return bool(found.holes) and lane.looked_at < lane.dirty_until


def must_wait_to_void(lane: Lane, ordinal: int) -> bool:
    """Return whether the ledger has a hole or an epoch that begins at this ordinal or later. Batches that were sent
    with that meaning may still arrive, so it must not be revoked while anyone else may be writing."""
    return (
        lane.looked_at < lane.dirty_until
        and lane.record is not None
        and source_epochs.is_told_from(lane.record, ordinal)
    )


def _wait_to_mend(lane: Lane) -> Effects:
    lane.phase = Phase.WAITING
    lane.look_back = 0
    missing_ordinals.forget(lane)
    return [Wake(ask(lane), lane.dirty_until)]


def _keep(lane: Lane, found: Reading, more: tuple[LaneFact, ...]) -> Effects:
    """Record what was read. If records are copied again under other ordinals, both are recorded together."""
    lane.holes = list(found.holes)
    waits = bool(lane.holes) or lane.retold is not None
    lane.beside_holes = (*more, *found.facts) if waits else ()
    return [] if waits else note(lane, (*more, *found.facts))


def look_back(lane: Lane) -> Effects:
    """Read the log at and below the recorded offset before anything is copied again: "went back" is not "was lost"."""
    if missing_ordinals.must_ask(lane):
        return missing_ordinals.ask_shared(lane)
    lane.look_back = LOOK_BACK_RECORDS if lane.look_back == 0 else lane.look_back * 8
    lane.stage = Stage.VERIFY
    start = max(lane.log_start, min(lane.mark.target_offset, lane.end) - lane.look_back)
    return [AskScan(ask(lane), "verify", lane.producer_id, start, lane.end)]


def _verified(lane: Lane, now: float, told: Scanned, log: Log) -> Effects:
    own = told.own
    is_late = not own or target_scan.is_later(lane, own[0]) or target_scan.begins_late(lane, own, told.start)
    if missing_ordinals.must_ask(lane) or (told.start > lane.log_start and is_late and lane.shared < 0):
        return look_back(lane)
    if lane.shared >= 0 or (lane.cleaned and not own):
        found = target_scan.walk(lane, own, target_scan.ordinal_before(lane, max(told.start, lane.shared)), log)
    elif not own:
        # If no record of the lane is left to read, the runs show which ordinal was at the end, or where others' records
        # are.
        displaced = target_scan.displaced_at(lane, told.others)
        found = Reading(target_scan.ordinal_at(lane, lane.end if displaced is None else displaced), (), (), None)
    else:
        first = nearest(told.own[0].base_sequence, lane.mark.ordinal)
        late = target_scan.begins_late(lane, told.own, told.start)
        found = target_scan.walk(lane, told.own, target_scan.ordinal_at(lane, told.start) if late else first, log)
    if lane.differs is not None:
        return rebuilding.verified(lane, found)
    if found.doubled is not None or found.next_ordinal >= lane.mark.ordinal:
        return _read(lane, now, found, log)
    if found.void < NEVER:
        return rebuilding.filled(lane, now, found)
    lost = missing_ordinals.lost_ordinals(lane, found.next_ordinal) if lane.cleaned else ()
    return missing_ordinals.look_up(lane, found, log, lost) or went_back_to(lane, found)


def went_back_to(lane: Lane, found: Reading, kept: tuple[tuple[int, int], ...] | None = None) -> Effects:
    """Copy the lost end of the log again. `kept`: only these ordinals (first, last), because a compacted copy has newer
    records of the other keys."""
    must_wait = kept is not None and lane.looked_at < lane.dirty_until
    if must_wait or must_wait_to_mend(lane, found) or must_wait_to_void(lane, found.next_ordinal):
        return _wait_to_mend(lane)
    ordinal = found.next_ordinal
    until = missing_ordinals.known_until(lane)
    went = f"the target log went back from ordinal {until} to {ordinal}: these records are copied again"
    verdicts: list[Verdict] = []
    if kept is not None and lane.record is not None:
        missing_ordinals.go_back(lane, kept, ordinal)
        verdicts = missing_ordinals.leave_out(lane, lane.record, kept)
        went += ", except those of which the target has a newer record of the same key"
    lane.mark = Mark(ordinal, lane.end, lane.end_epoch)
    lane.told = min(lane.told, lane.mark, key=lambda each: each.ordinal)
    lane.acked = lane.trusted = min(lane.trusted, ordinal)
    verdict = VerdictGiven(lane.id, lane.grant, tuple(verdicts), went)
    return _keep(lane, found, (verdict,)) + _resume_at(lane, ordinal, found.begins)


def _tell_anew(lane: Lane, ordinal: int) -> Effects:
    """Record again what holds from here: the log went back below a hole, or below a change of the source's epoch, so
    these ordinals are reused and later declarations in the ledger are void."""
    lane.open_run = Run(ordinal, lane.position)
    runs, pieces = once([lane.open_run, *lane.plan]) if lane.plan else ([lane.open_run], [])
    lane.plan.clear()
    lane.plan.extend(runs[1:])
    epochs, regiven = source_epochs.tell_anew(lane, pieces), in_doubt.was_given(lane, ordinal)
    rewound = mark_rewind.tell(lane, runs, lane.mark)
    effect = append(lane, (SourceRun(lane.id, lane.grant, tuple(runs), (), epochs, regiven, rewound),))
    lane.intents.append((effect.tag, ordinal))
    lane.declared = -1
    return [effect]


def _resume_at(lane: Lane, ordinal: int, begins: int = NEVER) -> Effects:
    lane.resume_ordinal = ordinal
    if must_check(lane):
        lane.stage = Stage.CHECK
        first = min(lane.trusted, ordinal)
        begun = Mark(min(first, lane.mark.ordinal), lane.mark.target_offset, lane.mark.leader_epoch)
        start = min(target_scan.stands_from(lane, begun), lane.end, begins)
        epochs = source_epochs.known_epochs(lane, first)
        return [AskCheck(ask(lane), lane.producer_id, first, ordinal - 1, start, lane.end, _goes_on_at(lane), epochs)]
    return _bind_holes(lane)


def _goes_on_at(lane: Lane) -> int:
    position = source_epochs.goes_on_at(lane.record, lane.resume_ordinal) if lane.record is not None else None
    return -1 if position is None else position


def must_check(lane: Lane) -> bool:
    """Trust, then check: return whether batches not acknowledged to this attempt must be compared with the source."""
    return lane.resume_ordinal > lane.trusted


def checked(lane: Lane, now: float, told: Checked) -> Effects:
    """Handle the result of the comparison; with `different` the map is wrong and is rebuilt."""
    waiting = lane.phase is Phase.RESUMING and lane.stage is Stage.CHECK
    is_later = told.question == lane.later_check
    if told.error != NONE:
        return [Wake(ask(lane), now + lane.limits.retry_s)] if is_later else again(lane, now) if waiting else []
    if is_later:
        lane.check_later, lane.check_from = False, None
    if told.outcome == "different" or not rebuilding.settles(lane, told):
        return rebuilding.differ(lane, now, told)
    ends = (lane.check_later, is_later and lane.looked_at >= lane.dirty_until)
    fact = TakeoverChecked(lane.id, lane.grant, told.first, told.last, told.outcome, told.note, *ends)
    effects = note(lane, (fact,))
    if waiting:
        position = _goes_on_at(lane)
        if source_epochs.ends_short(lane, told, position) or (
            lane.on_loss == "halt" and 0 <= told.source_end < position
        ):
            line = f"the source log ends at offset {told.source_end}, below the position {position}"
            return effects + halt(lane, "truncated", line, told.source_end, position)
        lane.trusted = lane.resume_ordinal
        lane.found_epoch = (position, told.source_epoch)
        # The offsets between the last compared record and the position may belong to another history.
        is_next = lane.record is not None and source_epochs.follows(lane.record, lane.resume_ordinal)
        lane.found_equal = told.outcome == "equal" and is_next and told.equal_until == lane.resume_ordinal
        return effects + _bind_holes(lane)
    return effects + (intake.want_more(lane) if lane.phase is Phase.COPYING else [])


def _bind_holes(lane: Lane) -> Effects:
    """Copy what the target leapt over under new ordinals; the ledger must know before these are produced."""
    if (lane.holes or lane.retold is not None) and lane.record is not None:
        facts = (*lane.beside_holes, *hole_repair.mend(lane, lane.record))
        # Other records were sent under the ordinals that follow: batches that are acknowledged as these are compared.
        lane.holes, lane.retold, lane.check_first_ack, lane.check_later = [], None, True, True
        missing_ordinals.other_records_from(lane, lane.resume_ordinal)
        effect = append(lane, facts)
        lane.intents.append((effect.tag, lane.resume_ordinal))
        lane.stage = Stage.FACTS
        return [effect]
    if lane.intents:
        # An intent of an earlier round may still bind, and would change what the ledger declares.
        lane.stage = Stage.FACTS
        return []
    return copy(lane)


def facts_bound(lane: Lane) -> Effects:
    """Handle the binding of an intent of the current or an earlier round."""
    return copy(lane) if lane.stage is Stage.FACTS and not lane.intents else []


def copy(lane: Lane) -> Effects:
    """Copy from here, now that everything is known."""
    ordinal = lane.resume_ordinal
    record = lane.record
    run = record.source_runs.run_at(ordinal) if record is not None else None
    if record is None or run is None:
        return halt(lane, "unexplained", f"the ledger no longer explains ordinal {ordinal}", 0, 0)
    lane.sought = pending(record.seeks)
    if seek.must_wait(lane):
        return _wait_to_mend(lane)
    lane.stage = Stage.DONE
    lane.phase, lane.knows_sent = Phase.COPYING, True
    lane.unbound = NO_VERDICTS
    lane.suspicious = False
    lane.unread, lane.gaps = None, 0
    lane.open_run = run
    lane.position = _goes_on_at(lane)
    lane.next_ordinal = lane.acked = ordinal
    source_epochs.recall(lane)
    lane.given = max(lane.given, ordinal)
    lane.trusted = min(lane.trusted, ordinal)  # records that were acknowledged and lost may come again, from elsewhere
    lane.expected = lane.end
    lane.mark = lane.resumed_at = Mark(ordinal, lane.end, lane.end_epoch)
    if not lane.notes:
        lane.told = lane.mark
    lane.confirm_end = not lane.protected
    if lane.check_later and (lane.check_from is None or ordinal < lane.check_from.ordinal):
        lane.check_from, lane.check_begins = lane.mark, NEVER
    effects: Effects = [SaveProgress()]
    lane.plan.clear()
    lane.plan.extend(planned(record, ordinal))
    lane.assured, lane.parting, lane.suspected = False, -1, -1
    intake.declare(lane, lane.plan[-1].ordinal if lane.plan else ordinal)
    lane.decided = decided(record, ordinal) if lane.shaped else NOT_YET
    if (
        lane.decided.open
        or any(hole.first >= ordinal for hole in record.holes)
        or source_epochs.is_told_ahead(lane, record)
    ):
        effects += _tell_anew(lane, ordinal)
    lowest = min([lane.position, *(run.offset for run in lane.plan)])
    lane.left_out = seek.left_out(record, lowest)
    effects += intake.leave_out(lane)
    effects += seek.obey(lane)
    effects += intake.want_more(lane)
    if lane.check_later:
        effects.append(Wake(ask(lane), lane.former_until))
    return effects
