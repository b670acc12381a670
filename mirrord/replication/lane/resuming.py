"""Determines where a lane resumes, based on the target's answers and on the contents of the target log itself.

The lane sends four requests to the leader of the target partition, in this order. The first three are the resume
sandwich:

1. End: the log end and the leader epoch. A deposed leader does not answer for an epoch in which it is not the leader.
2. Producers: what the leader remembers about the lane's producer id, including records that have not been replicated
   yet.
3. End again: the epoch must be the same, which shows that answer 2 came from this leader. All records that answer 2
   includes are below this end.
4. Visible: the high watermark. The request is repeated until the high watermark reaches the end from answer 3, because
   records that have not been replicated yet could still be lost.

If answer 2 has no entry, or an entry that cannot be relied on, the lane reads the batch headers of the log after the
resume position. "No entry" means that nothing is known, not that nothing was written.
"""

from mirrord.kafka.rules.error_policy import NONE
from mirrord.ledger.facts.core import LaneFact
from mirrord.replication.lane import rebuilding, resume_point
from mirrord.replication.lane.correlation import ask, new_round
from mirrord.replication.lane.halt import drop
from mirrord.replication.lane.lane_report import resume_position
from mirrord.replication.lane.notes import note
from mirrord.replication.lane.phases import Phase, Stage
from mirrord.replication.lane.signals import (
    AskEnd,
    AskProducers,
    AskScan,
    AskVisible,
    Effects,
    EndAnswer,
    ProducersAnswer,
    StopFetch,
    TargetMoved,
    VisibleAnswer,
    Wake,
)
from mirrord.replication.lane.source import offset_gaps
from mirrord.replication.lane.state import Lane, ResumePosition
from mirrord.replication.lane.target import in_doubt, look_back, missing_ordinals, out_of_order, target_scan
from mirrord.replication.lane.target.evidence import (
    copied_until,
    is_another_leader,
    known_until,
    next_by_entry,
    note_former_holder,
    note_saved,
    remembers,
    went_back,
)
from mirrord.replication.lane.transitions import Quiesce, RebuildMap, Resume


def target_moved(lane: Lane, moved: TargetMoved) -> Effects:
    """Resume when the target partition has a new leader epoch. Records may have been lost in the election, and an idle
    lane does not notice this without a resume."""
    if lane.phase is not Phase.COPYING or moved.leader_epoch <= lane.log.end_epoch:
        return []
    lane.go(Quiesce(until_safe=False))
    return []


def enter(lane: Lane, now: float, wanted: Resume) -> Effects:
    """Begin a new round: drop all batches in memory, and ask for the end of the target log. From then on, answers to
    requests from earlier rounds are ignored."""
    new_round(lane)
    note_saved(lane)
    lane.phase = Phase.RESUMING
    lane.resume_position = resume_position(lane)
    lane.log.must_read_log = lane.log.must_read_log or lane.log.unread_from is not None
    lane.trusted = max(lane.trusted, lane.acked)
    drop(lane)
    lane.skipped.clear()
    lane.blocked = None
    lane.origin.doubt = lane.origin.asked_about = None
    lane.origin.line = ""
    offset_gaps.forget(lane)
    missing_ordinals.forget(lane)
    lane.log.holes, lane.log.facts_with_holes = [], ()  # the log may have changed since they were found
    lane.pipelined = False
    lane.failure = None
    lane.log.look_back = 0
    lane.comparison.later_end = -1
    lane.stage = Stage.END
    if lane.comparison.differs is not None:
        lane.go(RebuildMap(wanted.delay_s))
        return [StopFetch()]
    if wanted.delay_s > 0:
        lane.phase = Phase.WAITING
        return [StopFetch(), Wake(ask(lane), now + wanted.delay_s, wanted.refresh)]
    in_doubt.note_question(lane, now)
    return [StopFetch(), AskEnd(ask(lane))]


def woken(lane: Lane, now: float) -> Effects:
    """Continue after a pause."""
    if lane.phase is Phase.WAITING:
        lane.phase = Phase.RESUMING
        lane.stage = Stage.END
        in_doubt.note_question(lane, now)
        return [AskEnd(ask(lane))]
    if lane.phase is Phase.REBUILDING and lane.stage is not Stage.VISIBLE:
        return rebuilding.woken(lane, now)
    if lane.stage is Stage.VISIBLE:
        in_doubt.note_question(lane, now)
        return [AskVisible(ask(lane), lane.log.end_epoch)]
    return []


def end_answered(lane: Lane, now: float, answer: EndAnswer) -> Effects:
    """Handle the answers to requests 1 and 3 of the resume sandwich."""
    if answer.error != NONE:
        in_doubt.failed(lane, now, answer.error)
        return lane.retry()
    if lane.stage in {Stage.END, Stage.END_AGAIN}:
        in_doubt.answered(lane, now)
    if lane.stage is Stage.END:
        if in_doubt.must_wait(lane, now):
            return in_doubt.wait(lane, now)
        lane.log.end_epoch, lane.log.end_before_entry = answer.leader_epoch, answer.end
        if lane.mode == "at-least-once" and (in_doubt.is_pending(lane) or not out_of_order.must_ask_producers(lane)):
            # While batches are in doubt, request 2 is left out: if it were never answered, the lane would wait forever.
            lane.log.entry = None
            return _ask_again(lane, now)
        lane.stage = Stage.PRODUCERS
        in_doubt.note_question(lane, now)
        return [AskProducers(ask(lane), lane.producer_id)]
    if lane.stage is not Stage.END_AGAIN:
        return []
    if not same_leader(lane, answer):
        return lane.retry()
    lane.log.end = answer.end
    lane.stage = Stage.VISIBLE
    in_doubt.note_question(lane, now)
    return [AskVisible(ask(lane), lane.log.end_epoch)]


def same_leader(lane: Lane, answer: EndAnswer) -> bool:
    """Return whether the leader epoch is the same in the answers to requests 1 and 3 of the resume sandwich. If so, the
    answer to request 2 came from the same leader."""
    return answer.leader_epoch == lane.log.end_epoch


def producers_answered(lane: Lane, now: float, answer: ProducersAnswer) -> Effects:
    """Handle the answer to request 2 of the resume sandwich, which asks for the broker's producer state."""
    if answer.error != NONE and lane.mode == "sequence":
        in_doubt.failed(lane, now, answer.error)
        return lane.retry()
    # The answer to request 3 shows only batches that cannot be appended after this request is sent. The wait for late
    # batches is therefore extended first.
    in_doubt.answered(lane, now)
    lane.log.entry = answer.entry if answer.error == NONE else None
    return _ask_again(lane, now)


def _ask_again(lane: Lane, now: float) -> Effects:
    """Ask for the end of the target log again (request 3 of the resume sandwich)."""
    lane.stage = Stage.END_AGAIN
    in_doubt.note_question(lane, now)
    in_doubt.note_end_question(lane, now)
    return [AskEnd(ask(lane))]


def visible_answered(lane: Lane, now: float, answer: VisibleAnswer) -> Effects:
    """Handle the answer to request 4, the high watermark. Repeat the request until the high watermark covers the log
    end."""
    if answer.error != NONE:
        in_doubt.failed(lane, now, answer.error)
        return lane.retry()
    in_doubt.answered(lane, now)
    if not covers(lane, answer):
        behind = f"[{answer.high_watermark}, {lane.log.end})"
        lane.trouble = f"target offsets {behind} are on fewer replicas than required: the lane is waiting for these"
        return [Wake(ask(lane), now + lane.limits.poll_s)]
    lane.log.log_start = answer.log_start
    if lane.log.entry is not None and answer.log_start > lane.log.end_before_entry:
        return lane.retry()  # retention may have deleted batches that were appended after the broker was asked
    return decide(lane)


def covers(lane: Lane, answer: VisibleAnswer) -> bool:
    """Return whether the high watermark has reached the end of the target log that the broker reported."""
    return answer.high_watermark >= lane.log.end


def barrier_until(lane: Lane) -> float:
    """Return the time until which an unprotected lane must not write, because batches that were sent earlier may still
    be appended."""
    return lane.late_writes.until


def decide(lane: Lane) -> Effects:
    """Now that the target has answered all requests, decide where to resume or what to read first."""
    note_former_holder(lane)
    if lane.comparison.differs is not None:
        return rebuilding.locate(lane)
    lane.protected = lane.mode == "sequence" and remembers(lane)
    # With policies, what the broker remembers proves only sequences: if a policy decides differently the next time, a
    # different record gets the same sequence.
    if (lane.has_policies or not lane.protected) and lane.late_writes.end_read_at < barrier_until(lane):
        return in_doubt.wait(lane, lane.late_writes.end_read_at)
    if lane.takeover.opened_here and not lane.sent:
        # No other attempt has ever used the producer id, and this attempt has sent nothing.
        lane.resume_position = ResumePosition(0, lane.log.end, lane.log.end_epoch)
        return resume_point.resume_at(lane, 0)
    if out_of_order.is_position_refused(lane):
        lane.log.shared = missing_ordinals.NOT_KNOWN  # the position is wrong even if the log has not changed
        return look_back.begin(lane)
    if lane.log.end < lane.resume_position.target_offset or went_back(lane):
        return look_back.begin(lane)
    if must_read(lane):
        # Scan from the last record below the resume position. If that record is missing, the log was truncated and then
        # grew again. If the lane has no record below the resume position and the log may have been truncated, there may
        # be batches of the lane itself before that position.
        may_lie = is_another_leader(lane) or lane.log.must_read_log
        before = 1 if lane.resume_position.ordinal > 0 else look_back.LOOK_BACK_RECORDS if may_lie else 0
        start = max(lane.resume_position.target_offset - before, lane.log.log_start)
        lane.stage = Stage.SCAN
        expected, until = lane.resume_position.ordinal, copied_until(lane)
        return [AskScan(ask(lane), "resume", lane.producer_id, start, lane.log.end, expected, until)]
    ordinal = next_by_entry(lane)
    facts: tuple[LaneFact, ...] = ()
    if ordinal > lane.resume_position.ordinal and lane.record is not None:
        start = lane.resume_position
        appended = (start.ordinal, start.target_offset, ordinal - start.ordinal)
        facts = target_scan.placed(lane, lane.record.target_runs.copy(), *appended)
    if resume_point.must_wait_to_void(lane, ordinal):
        return resume_point.wait_to_mend(lane)
    return note(lane, facts) + resume_point.resume_at(lane, ordinal)


def must_read(lane: Lane) -> bool:
    """Return whether the log after the resume position must be read, because what the broker remembers is not
    sufficient."""
    appended = lane.log.end - lane.resume_position.target_offset
    # That the log has grown by exactly as many records as the broker remembers proves nothing if the log may have been
    # truncated and other clients may have written to it since then. More records may have been acknowledged than the
    # resume position shows, and other clients may have written exactly as many records as the log lost.
    acknowledged = known_until(lane) > 0
    if is_another_leader(lane) and (acknowledged or lane.log.end > lane.log.log_start or lane.log.entry is not None):
        return True
    if lane.log.log_start > lane.resume_position.target_offset:
        return True  # retention on the target may have deleted records of the lane
    if lane.log.entry is None or lane.log.must_read_log:
        return appended > 0 or lane.log.must_read_log
    differs = appended != next_by_entry(lane) - lane.resume_position.ordinal
    return differs or (_may_leap(lane) if lane.protected else appended > 0)


def _may_leap(lane: Lane) -> bool:
    """Return whether there may be gaps between the target offsets of the lane's records after the resume position. The
    log end cannot rule this out: other clients may have written exactly as many records as are missing because of a
    hole.

    The ledger shows where these records are in two cases: if their acknowledgements arrived during this attempt to host
    the lane, or if the former holder drained the lane. In all other cases, the former holder may have ended before it
    recorded its last leap. The records are then compared with the source anyway.
    """
    if lane.record is None:
        return False
    start, behind = lane.resume_position, next_by_entry(lane)
    if behind > max(start.ordinal, lane.trusted) and (lane.sent or not lane.takeover.leaps_recorded):
        return True
    inside = lane.record.target_runs.beginning_in(start.ordinal, behind - 1)
    return any(run.offset - run.ordinal != start.target_offset - start.ordinal for run in inside)
