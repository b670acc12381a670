"""Seeks ahead in the source on an operator command: the records in a range of source offsets are skipped if they have
not been copied yet.

A seek reassigns the next ordinal, so when it is carried out, no batch of the lane itself or of a former holder may be
in flight (see `mirrord.replication.lane.target.in_doubt`). A single entry in the ledger records the verdict on the
range, the run after the range, and the fact that the command has been carried out. Until that entry has taken effect,
each holder that takes the lane carries out the command again.
"""

import msgspec

from mirrord.ledger.facts.seeks import SeekDone
from mirrord.ledger.seeks import Seek, Seeks, pending, skipped_epochs
from mirrord.ledger.standing_orders import describe_origin
from mirrord.replication.lane import intake, quarantine
from mirrord.replication.lane.correlation import ask
from mirrord.replication.lane.lane_report import source_offset
from mirrord.replication.lane.notes import note
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Append, AskEnd, Effects, Lost
from mirrord.replication.lane.source import truncation
from mirrord.replication.lane.source.declared_runs import mended_until
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target import in_doubt
from mirrord.replication.lane.transitions import Quiesce, Resume


def order_recorded(lane: Lane) -> Effects:
    """Handle an operator command that has been recorded in the ledger. A halted lane resumes. If a lane is copying and
    can carry out the command now, it stops sending and then resumes."""
    match lane.phase:
        case Phase.HALTED:
            return quarantine.released(lane)
        case Phase.RESUMING:
            lane.go(Resume())  # the next step was decided without knowledge of the command
            return []
        case Phase.COPYING:
            lane.seeks = pending(lane.record.seeks) if lane.record is not None else ()
            if is_due(lane):
                lane.go(Quiesce())
            return []
        case _:
            return []  # the lane handles the command when it resumes


def is_due(lane: Lane) -> bool:
    """Return whether a seek command can be carried out now. This requires that all records before its range have been
    copied or are in flight, and that no records remain to be copied again."""
    record = lane.record
    if record is None or not _due(lane):
        return False
    return not lane.plan and lane.acked >= mended_until(record, lane.acked)


def _due(lane: Lane) -> Seeks:
    """Return the seek commands whose ranges begin at or below the lane's position and end at or below the end of the
    source log. Records that do not exist yet cannot be skipped."""
    at = source_offset(lane)
    end = max(lane.source_end, at)
    return tuple(each for each in lane.seeks if each.start <= at and each.end <= end)


def accepts_deleted(lane: Lane, log_start: int) -> bool:
    """Return whether an operator has commanded a lane to seek ahead of records that were to be copied again, and knew
    that the source has deleted its records below `log_start`."""
    return bool(lane.plan) and any(each.start <= lane.position and log_start <= each.log_start for each in lane.seeks)


def must_wait(lane: Lane) -> bool:
    """Return whether a seek must wait because a batch with the next ordinal may still be appended."""
    return bool(lane.seeks) and in_doubt.holds(lane, lane.resume_ordinal)


def end_confirmed(lane: Lane) -> Effects:
    """Carry out the seek, now that the end of the target log has been confirmed. The end is confirmed again before the
    first produce request, which may be much later."""
    lane.fetching = False
    effects = carry_out(lane)
    lane.confirm_end = True
    return effects + truncation.begin_to_read(lane)


def carry_out(lane: Lane) -> Effects:
    """Skip the ranges of the seek commands that are due. The caller ensures that nothing is in flight and that the lane
    is about to copy. Ask first whether the source still has the copied records: later, the lane asks only about the
    skipped ones, and a log that has these may lack the copied ones. Then ask for the epochs of the skipped records
    (`SeekDone.epochs`). Finally, if the broker does not remember the producer, ask for the end of the target log again:
    a batch from a dead connection may have been appended during these questions, and its records are not skipped."""
    if not lane.seeks or not is_due(lane):
        return []
    order = _due(lane)[-1]
    if effects := truncation.confirm_before_seek(lane, order.lost_from):
        return effects
    start, end = lane.position, order.end
    if start < end and lane.source_epoch < 0 and (effects := truncation.ask_leader_epoch(lane, end)):
        return effects
    search, there = None, max(start, order.log_start)
    if there < end and lane.source_epoch >= 0:
        if effects := truncation.ask_skipped_epochs(lane, there, end):
            return effects
        if not is_due(lane):
            return []  # the source log ends below `end` by now
        search = lane.history.epoch_search
    if start < end and lane.confirm_end:
        lane.confirming = lane.fetching = True
        return [AskEnd(ask(lane))]
    lane.seeks = tuple(each for each in lane.seeks if each.end > end)
    if start >= end:
        return note(lane, (SeekDone(lane.id, lane.grant, end, end),))
    epochs = search.found if search is not None else ()
    done = SeekDone(lane.id, lane.grant, start, end, lane.source_epoch, epochs)
    line = f"source offsets [{start}, {end}) are skipped {describe_origin(order.origin)}"
    if search is not None and search.is_cut:
        line += "; the source has so many leader epochs that the ledger does not contain all of theirs"
    effects = intake.leap(lane, end, "skipped", expired_below=order.log_start)
    if lane.source_epoch >= 0:
        skipped = Seek(start, end, order.log_start, order.origin, done=True, epoch=lane.source_epoch, epochs=epochs)
        lane.history.left_position = (end, skipped.epoch_before(end))
        lane.history.skipped_epochs += tuple(skipped_epochs((skipped,)))
    extended = [
        msgspec.structs.replace(each, facts=(done, *each.facts)) if isinstance(each, Append) else each
        for each in effects
    ]
    return [Lost(f"{lane.source_topic}-{lane.partition}: {line}"), *extended]
