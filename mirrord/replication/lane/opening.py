"""Opens a lane: obtains its producer id, its grant and its first source offset. Each of the three is recorded as a
fact, and used only after the fact has taken effect in the ledger.

If several replicators append a `LaneOpened` or `LaneTaken` for the same lane, the first fact wins. A lane therefore
reads its own fact back from the ledger, and relies on it only if there was no earlier one. A producer id is never used
if its fact has not taken effect.
"""

import msgspec

from mirrord.kafka.rules.error_policy import NONE
from mirrord.ledger.facts.core import (
    LaneFact,
    LaneOpened,
    LaneResumed,
    LaneTaken,
    PolicyChanged,
    Progress,
    SourceRun,
    Verdict,
    VerdictGiven,
)
from mirrord.model.runs import Run
from mirrord.replication.lane import fast_handoff, rebuilding
from mirrord.replication.lane.assignment import longer_times, longest_s
from mirrord.replication.lane.correlation import append, ask, new_round
from mirrord.replication.lane.halt import drop, halt, leave_lane
from mirrord.replication.lane.lane_report import resume_position
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.notes import note, return_to_recorded
from mirrord.replication.lane.phases import Phase, Stage
from mirrord.replication.lane.signals import (
    AppendFailed,
    AskProducerId,
    AskStart,
    Bound,
    Effects,
    LaneRecord,
    ProducerIdAnswer,
    Start,
    StartAnswer,
    StopFetch,
    Wake,
)
from mirrord.replication.lane.source.epoch_cache import EpochCache
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target import epoch_ends, in_doubt, missing_ordinals, position_rewind
from mirrord.replication.lane.target.evidence import note_saved
from mirrord.replication.lane.transitions import Reopen, Resume


def start(lane: Lane, start: Start) -> Effects:
    """Open the lane if it is not in the ledger, or take it if it is. Only the first `Start` has an effect."""
    if lane.replicator:
        return []
    lane.replicator = start.replicator
    lane.takeover.barrier_s = start.barrier_s
    lane.takeover.times = start.times
    lane.takeover.left_cleanly = start.left_cleanly
    lane.record = start.record
    record = start.record
    if record is not None:
        lane.takeover.grant = record.grant
        _learn_difference(lane, record)
    word = start.handed if start.left_cleanly and fast_handoff.is_last(start.handed, record) else None
    progress = word or start.progress
    if progress is not None and not _is_hearsay(lane, progress):
        lane.takeover.begun = progress
        _take_position(lane, progress)
        # The progress record may be from an earlier holder, which knew nothing of what the last one did.
        is_last = start.left_cleanly and progress.state == "drained" and progress.grant == lane.takeover.grant
        lane.takeover.leaps_recorded = is_last
        if lane.resume_position.ordinal == progress.ordinal:
            # If a pending comparison held back the position in the progress record, the record does not show how much
            # was sent.
            lane.takeover.knows_sent = is_last and progress.settled
            lane.seen.begin(progress.source_offset, progress.source_epoch)
            lane.history.epochs_recorded = progress.epochs_told
    return _ask(lane) + (fast_handoff.begin(lane, word, record) if word is not None and record is not None else [])


def _learn_difference(lane: Lane, record: LaneRecord) -> None:
    check = record.last_check
    lane.comparison.differs = check if check is not None and check.outcome == "different" else None
    lane.halt.line = record.halted.line if lane.comparison.differs is not None and record.halted is not None else ""


def _take_position(lane: Lane, progress: Progress) -> None:
    lane.resume_position, reached = position_rewind.valid_position(progress, lane.record)
    lane.recorded_position, lane.trusted, lane.sent_below = (
        lane.resume_position,
        lane.resume_position.ordinal,
        progress.ordinal,
    )
    lane.acknowledged = ((reached, progress.leader_epoch),) if reached > 0 else ()
    note_saved(lane, reached)
    lane.history.saved_epoch = (reached, progress.source_epoch)
    epoch_ends.learn(lane, progress)


def _learn_since_start(lane: Lane, record: LaneRecord) -> None:
    """Process the facts that the former holder was still able to append until the new grant took effect. Such a fact
    may say that ordinals were reassigned, that target and source differ, that the map was rebuilt, or that the lane is
    halted."""
    begun, lane.takeover.begun = lane.takeover.begun, None
    if begun is not None and _is_hearsay(lane, begun):
        _take_position(lane, msgspec.structs.replace(begun, target_offset=0, leader_epoch=-1, epoch_ends=()))
        lane.takeover.knows_sent = lane.history.epochs_recorded = False
        lane.seen = EpochCache()
    elif begun is not None and position_rewind.valid_position(begun, record)[0] != lane.resume_position:
        _take_position(lane, begun)
        lane.takeover.knows_sent = lane.history.epochs_recorded = False
        lane.seen, lane.takeover.fast_handoff = EpochCache(), None
    _learn_difference(lane, record)
    if lane.comparison.differs is not None:
        lane.takeover.fast_handoff = None


def _is_hearsay(lane: Lane, progress: Progress) -> bool:
    """Return whether the progress record is from a former holder that opened the lane and wrote no record to the
    target.

    The record's position is valid only if no other holder had written to the target by the time the record was saved.
    This is not certain: if the former holder did not yet know that another holder had taken the lane, its progress
    record may have replaced a newer one.
    """
    return progress.ordinal == 0 and progress.grant < lane.takeover.grant


def _ask(lane: Lane) -> Effects:
    if lane.record is None:
        return [AskProducerId(ask(lane))]
    if not check_former_holder(lane, lane.record):
        return leave_lane(lane, "another replicator took the lane")
    return _bind(lane, (LaneTaken(lane.id, lane.record.grant + 1, lane.replicator, lane.takeover.times),))


def check_former_holder(lane: Lane, record: LaneRecord) -> bool:
    """Before the lane takes its next grant, find out whose grant precedes it. Return whether the lane may still be
    taken.

    The lane takes several grants if appends are reported as failed. In the meantime, another replicator may have taken
    the lane. The information about its former holder then does not apply to the holder from which it takes the lane,
    and nothing is known about that holder. A lane that has already held a grant leaves, because another replicator has
    been given the lane after it.
    """
    takeover = lane.takeover
    known = max(takeover.grant, takeover.own_grant)
    if record.grant == known:
        return True
    if record.grant == known + 1 and is_ours(lane, record):
        takeover.own_grant = record.grant  # the append of `LaneTaken` has taken effect after all
        return True
    if lane.grant > 0:
        return False
    takeover.grant, takeover.own_grant = record.grant, 0
    takeover.left_cleanly = takeover.knows_sent = takeover.leaps_recorded = False
    takeover.times = longer_times(takeover.times, record.times)
    takeover.barrier_s = longest_s(takeover.times)
    _learn_difference(lane, record)
    return True


def _bind(lane: Lane, facts: tuple[LaneFact, ...]) -> Effects:
    effect = append(lane, facts)
    lane.facts_tag = effect.tag
    return [effect]


def _note_taken(lane: Lane, record: LaneRecord) -> Effects:
    """Record what the new grant changes. If the lane was halted, it continues: an operator who starts a halted lane
    wants it to try again. If the cause of the halt still exists, the lane will halt again.

    These facts must not be in the entry with `LaneTaken`. If another replicator has taken the lane first, `LaneTaken`
    does not take effect. The other facts carry the same grant as those of that replicator, so they would take effect,
    and would end a halt of its lane.
    """
    facts: list[LaneFact] = []
    if record.halted is not None and lane.comparison.differs is None:  # otherwise, halted until the map is rebuilt
        facts.append(LaneResumed(lane.id, lane.grant))
    if record.policy != lane.policy:
        facts.append(PolicyChanged(lane.id, lane.grant, lane.policy))
    return note(lane, facts)


def producer_id_answered(lane: Lane, now: float, answer: ProducerIdAnswer) -> Effects:
    """Handle the answer to the request for a producer id. After an error, request a producer id again, because a target
    that has just started may not be ready to assign one."""
    if lane.phase is not Phase.OPENING:
        return []
    if answer.error != NONE:
        return [Wake(ask(lane), now + lane.limits.retry_s, refresh=True)]
    opened = LaneOpened(
        lane.id,
        lane.source_topic,
        lane.target_topic,
        lane.partition,
        answer.producer_id,
        answer.producer_epoch,
        lane.policy,
        lane.mode,
    )
    return _bind(lane, (opened, LaneTaken(lane.id, 1, lane.replicator, lane.takeover.times)))


def woken(lane: Lane) -> Effects:
    """Retry the failed request or append."""
    if lane.facts_tag >= 0 and lane.record is not None and lane.record.grant == lane.grant and lane.grant > 0:
        return [AskStart(ask(lane))]
    return _ask(lane)


def is_ours(lane: Lane, record: LaneRecord) -> bool:
    """Return whether, according to the ledger, the lane's holder is this attempt to host the lane."""
    return record.replicator == lane.replicator and record.grant > 0


def grant_bound(lane: Lane, now: float, answer: Bound) -> Effects:
    """Handle the facts about opening or taking the lane, now that they have been read back from the ledger."""
    record = answer.record
    if record is None or not is_ours(lane, record):
        return leave_lane(lane, "another replicator took the lane first")
    lane.record = record
    effects: Effects = []
    is_rebuilt = False
    if lane.grant != record.grant:
        is_next = record.grant == lane.grant + 1
        is_rebuilt = lane.comparison.rebuild_in_doubt and is_next and record.last_check is None
        if is_rebuilt:
            rebuilding.map_recorded(lane)
        is_first, lane.grant = lane.grant == 0, record.grant
        lane.takeover.own_grant = record.grant
        if is_first:
            _learn_since_start(lane, record)
        if not is_rebuilt:
            effects = _note_taken(lane, record)
        missing_ordinals.return_to_acknowledged(lane)
        lane.comparison.rebuild_in_doubt = False
        lane.producer_id, lane.producer_epoch = record.producer_id, record.producer_epoch
        lane.takeover.opened_here = record.grant == 1 and len(answer.bound) > 1 and answer.bound[0] and not lane.sent
        if is_first and not lane.takeover.opened_here:
            lane.late_writes.sent_since = lane.resume_position.leader_epoch
        # Otherwise, this very attempt held the lane before, and it knows what it has sent.
        if is_first and not lane.takeover.opened_here and not lane.takeover.left_cleanly:
            lane.late_writes.former_holder_until = now + lane.takeover.barrier_s
            lane.late_writes.until = max(lane.late_writes.until, lane.late_writes.former_holder_until)
            lane.comparison.first_ack_pending = True
            lane.comparison.later_pending = lane.late_writes.unanswered = lane.takeover.barrier_s > 0
        if record.regiven >= 0:
            lane.trusted = min(lane.trusted, record.regiven)  # the resume position proves ordinals, not records
            lane.comparison.first_ack_pending = (
                True  # these ordinals may not have been copied yet, and only a comparison can settle this
            )
    if len(record.source_runs) == 0:
        return [*effects, AskStart(ask(lane))]
    if lane.takeover.fast_handoff is not None:
        return effects + fast_handoff.grant_bound(lane, record.grant)
    if is_rebuilt:
        return effects + rebuilding.resume_or_halt(lane)
    lane.go(Resume())
    return effects


def start_answered(lane: Lane, now: float, answer: StartAnswer) -> Effects:
    """Record the source offset at which a lane without history begins, so that a restart does not choose a different
    offset."""
    if lane.phase is not Phase.OPENING:
        return []
    lane.halt.line = f"{lane.source_topic}-{lane.partition}: {answer.trouble}" if answer.waits else ""
    if answer.error != NONE or answer.waits:
        return [Wake(ask(lane), now + lane.limits.retry_s, refresh=True)]
    inherited = answer.inherited
    if answer.trouble:
        start = inherited.said if inherited is not None else 0
        return halt(lane, "inherited", answer.trouble, start, start)
    facts: list[LaneFact] = [SourceRun(lane.id, lane.grant, (Run(0, answer.offset),))]
    if inherited is not None:
        facts.append(msgspec.structs.replace(inherited, grant=lane.grant))
        if inherited.doubled:
            doubled = tuple(Verdict(*each, "doubled") for each in inherited.doubled)
            facts.append(VerdictGiven(lane.id, lane.grant, doubled, "by MirrorMaker 2"))
    return _bind(lane, tuple(facts))


def append_failed(lane: Lane, failure: AppendFailed) -> Effects:
    """Handle an append with an unknown outcome."""
    lane.record = failure.record
    is_rebuilt = lane.phase is Phase.REBUILDING and lane.stage is Stage.FACTS
    lane.comparison.rebuild_in_doubt = lane.comparison.rebuild_in_doubt or is_rebuilt
    lane.go(Reopen())
    return []


def enter(lane: Lane, now: float, _: Reopen) -> Effects:
    """Take a new grant, because the outcome of an append is unknown. Once the new grant has taken effect, facts from
    older grants can no longer take effect. From then on, the ledger shows the outcome of the append."""
    new_round(lane)
    note_saved(lane)
    lane.appends.clear()
    if lane.in_flight:
        in_doubt.leave_in_flight(lane, now, lane.in_flight[-1].first + lane.in_flight[-1].count)
    lane.trusted = max(lane.trusted, lane.acked)
    lane.pipelined = False
    if lane.notes:
        missing_ordinals.note_acknowledged(lane)  # the target had these records, whatever the ledger says
        return_to_recorded(lane)
    else:
        lane.resume_position = resume_position(lane)
    drop(lane)
    lane.intents.clear()
    lane.log.holes, lane.log.facts_with_holes = [], ()
    lane.comparison.assigned_from = NEVER  # it is not known which assignments have taken effect
    lane.phase = Phase.OPENING
    lane.facts_tag = -1
    # `opened_here` ends with the first grant, but what it says about other holders remains true.
    lane.takeover.left_cleanly = lane.takeover.left_cleanly or lane.takeover.opened_here
    return [StopFetch(), Wake(ask(lane), now + lane.limits.retry_s)]
