"""Handles a difference between target and source: the lane remembers the difference and rebuilds the offset map before
it resumes copying.

The lane learns of a difference in one of three ways: a comparison finds it, a batch turns out to fill a hole, or the
source no longer has records that were to be copied again.
"""

from collections.abc import Iterator

from mirrord.ledger.facts.core import Reason, TakeoverChecked
from mirrord.model.intervals import joined, within
from mirrord.model.runs import Run
from mirrord.replication.lane import notes
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import CheckAnswer, Effects, Halted, LaneRecord
from mirrord.replication.lane.source import last_copied, recorded_epochs
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target import in_doubt, missing_ordinals, reassigned_ordinals, target_scan
from mirrord.replication.lane.transitions import Quiesce, Resume

_REMOVED: frozenset[Reason] = frozenset({"compacted", "expired", "unexplained", "rejected", "skipped"})
"""The reasons for which a holder does not copy records that an earlier holder may have read."""


def differ(lane: Lane, now: float, answer: CheckAnswer) -> Effects:
    """Handle a comparison that found a difference, or that could not confirm the offset map."""
    # After a takeover, an acknowledgement may have been for another holder's batch, so the range includes all records
    # that a later comparison still has to cover.
    begun = lane.comparison.later_from
    first = answer.first if begun is None else min(answer.first, begun.ordinal)
    if answer.outcome != "different" and first == answer.first and not lane.log.holes:
        # The comparison has confirmed the map below the first unsettled ordinal. The source may no longer have these
        # records, and a search in both logs would not find them.
        first = max(first, min(_unsettled(lane, answer), default=first))
    last = _last_in_log(lane, answer)
    lane.comparison.differs = TakeoverChecked(lane.id, lane.grant, first, last, "different", answer.note)
    line = answer.note
    if answer.first <= last:
        where = f"target and source differ at ordinals {answer.first} to {last}"
        line = f"{where}: {answer.note}" if answer.note else where
    lane.halt.line = f"{lane.source_topic}-{lane.partition}: {line}"
    return _doubt(lane, now)


def unread(lane: Lane, answer: CheckAnswer) -> CheckAnswer | None:
    """Return a difference if the target has records with ordinals to which the ledger assigns source records that no
    holder has sent (see `last_copied.unread_from`). Return None if there is no such difference, or if the comparison
    `answer` found that the records are the same nevertheless."""
    last = lane.resume_ordinal - 1
    first = last_copied.unread_from(lane, last)
    is_same = answer.outcome == "equal" and answer.equal_until == lane.resume_ordinal
    if first is None or is_same or lane.log.last_by_look_up is not None:
        return None
    note = f"ordinals {first} to {last} are in the target, and the source records that follow have not been read"
    return CheckAnswer(answer.question, 0, first, last, "different", note)


def _last_in_log(lane: Lane, answer: CheckAnswer) -> int:
    """Return the last ordinal that was compared. The compared range may end with ordinals that count as appended only
    because of a lookup. The log had no records for these ordinals, so they were not compared. In that case, return the
    ordinal before them."""
    start, end = lane.log.last_by_look_up or (NEVER, NEVER)
    return max(start, answer.first) - 1 if start <= answer.last < end else answer.last


def settles(lane: Lane, answer: CheckAnswer) -> bool:
    """Return whether a comparison has determined which records the target holds. If so, later comparisons in this round
    do not need to determine this again.

    Some ordinals may have been reassigned after a batch with different records was sent under them. The target then
    holds either the records in that batch or the records in the offset map. If the source has deleted the records in
    the map, the comparison cannot show which of the two the target holds. In this case, the result is False, and the
    offset map is rebuilt from both logs: the source may still have the records in that batch. The result is also False
    if the lane resumes and retention on the target has deleted the target's records with these ordinals. A compacted
    target is an exception: the map could not be rebuilt from its log, and the lane would stay halted.

    If the source has lost the records in the map in an election, the target usually holds the records in the map: the
    lane copied them before the election. There are two exceptions: a batch that was appended before the ordinals were
    reassigned (see `evidence.note_earlier`), and records in the map that may never have been read (see `_is_unread`).
    In both cases, the lane must not conclude that the source has lost records that were copied. If such a batch
    certainly holds other records than those in the map, the result is False even if no ordinals are in doubt.

    If the source has not had the records in the map yet, the map is wrong.
    """
    if any(True for _ in _unsettled(lane, answer)):
        return False
    # `regiven` is only the lowest of the ordinals in doubt. A comparison that begins above this ordinal does not end
    # the doubt, but the ordinals that it covers may be in doubt as well.
    first, _ = reassigned_ordinals.in_doubt(lane)
    if lane.has_policies or not answer.first <= first <= answer.last:
        return True
    # The fact about this comparison ends all doubt unless it says that a later comparison follows.
    lane.comparison.compared = answer.last + 1 if lane.comparison.follows(answer.last) else NEVER
    return True


def _unsettled(lane: Lane, answer: CheckAnswer) -> Iterator[int]:
    """Yield ordinals for which a comparison has not determined which record the target holds (see `settles`). All
    ordinals below the lowest of them have the records in the map."""
    yield from (start for start, _ in answer.unwritten)
    record, others = lane.record, joined(lane.log.reassigned)
    yield from (start for each in (*answer.gone, *answer.replaced) for start, _ in within(each, others))
    # If there are policies, which may change records, the lane waits before it writes (`resuming.decide`). Apart from
    # batches that an election has brought back, the target then holds the records in the map.
    if record is None or lane.has_policies:
        return
    yield from (start for start, end in answer.replaced if _is_unsent(lane, record, answer, start, end))
    if record.regiven < 0:
        return
    first, until = reassigned_ordinals.in_doubt(lane)
    if _is_deleted_in_doubt(lane, answer) and not lane.log.cleaned:
        yield answer.first
    earlier = joined(lane.log.earlier)
    gone = (*answer.gone, *(part for each in answer.replaced for part in within(each, earlier)))
    yield from (max(start, first) for start, end in gone if end > first and start < until)
    doubtful = (max(start, first) for start, end in answer.replaced if end > first)
    yield from (start for start in doubtful if _is_unread(lane, record, answer, start))


def must_read_log(lane: Lane, answer: CheckAnswer) -> bool:
    """Return whether the lane has to read the target log before it handles the result of a comparison. This is the case
    if retention on the target has deleted records in doubt, because only a scan shows whether the target is
    compacted."""
    is_open = lane.record is not None and not lane.has_policies and lane.record.regiven >= 0
    return is_open and not lane.log.must_read_log and _is_deleted_in_doubt(lane, answer)


def _is_deleted_in_doubt(lane: Lane, answer: CheckAnswer) -> bool:
    """Return whether retention on the target has deleted records of ordinals that were assigned to other records.

    Records that were acknowledged to the lane itself are not in doubt. The same is true if the ledger shows that a
    former holder received acknowledgements for all ordinals in doubt (`TargetRun.in_doubt_below`). Before that holder
    assigned the ordinals to other records, it had waited until no earlier batch could arrive.
    """
    first, end = reassigned_ordinals.in_doubt(lane)
    return lane.phase is Phase.RESUMING and end > lane.resume_ordinal and answer.deleted_until > first


def _is_unsent(lane: Lane, record: LaneRecord, answer: CheckAnswer, first: int, end: int) -> bool:
    """Return whether this lane itself has assigned some of the ordinals [first, end) to other records since this
    replicator began to host it, and has not sent these records. If so, the target holds batches that were sent before.

    There is one exception: if the lane has continued after deleted source records and has not read a record there, and
    if the source log now ends below the offset at which it continued, the source has lost records.
    """
    unsent = max(first, lane.sent_below)
    run = record.source_runs.run_at(unsent)
    if lane.phase is not Phase.RESUMING or run is None or unsent >= end or lane.comparison.assigned_from > run.ordinal:
        return False
    return _is_read(record, unsent) or _reaches(answer, run.offset)


def _is_unread(lane: Lane, record: LaneRecord, answer: CheckAnswer, ordinal: int) -> bool:
    """Return whether it is possible that nobody has sent the source record that the map assigns to this ordinal, which
    a former holder has assigned again. If so, the target may hold a batch that was sent before the ordinal was
    reassigned, and nothing shows that the source has lost a record that was copied.

    Only the ledger shows what the former holder has done:

    - It has sent the record if the ledger contains the end of the ordinals in doubt (`TargetRun.in_doubt_below`).
    - A holder that skips deleted source records and continues at the end of the source log has not read a record there.
      It then records that the source epoch is not known. Before it sends the first record under these ordinals, it
      records the epoch. An epoch that is not known therefore shows that no record was sent. However, if the source log
      now ends below the offset at which that holder continued, the source has lost records.
    - Once the epoch is known, it is not known how many of the records were sent. If the run follows records that other
      holders may have sent, and that the source has deleted or an operator has skipped, the earlier batch may hold
      these records. In all other cases, the source has lost whichever record the target holds.
    """
    run = record.source_runs.run_at(ordinal)
    if lane.phase is not Phase.RESUMING or run is None or lane.comparison.assigned_from <= run.ordinal:
        return False
    if recorded_epochs.follows(record, run.ordinal):
        return False
    if _is_read(record, ordinal):
        return record.regiven_until < 0 and _follows_removed(record, run)
    return _reaches(answer, run.offset)


def _follows_removed(record: LaneRecord, run: Run) -> bool:
    """Return whether the source offsets before this run include some that were not copied, although a holder may have
    read records there earlier."""
    former = record.source_runs.offset_of(run.ordinal - 1)
    start = 0 if former is None else former + 1
    return any(
        each.reason in _REMOVED and each.start < run.offset and start < each.end for each in record.newest_verdicts
    )


def _is_read(record: LaneRecord, ordinal: int) -> bool:
    """Return whether a holder has read a source record of the run that contains this ordinal, according to the
    ledger."""
    return recorded_epochs.recorded_at(record.epochs, ordinal) != recorded_epochs.UNKNOWN


def _reaches(answer: CheckAnswer, offset: int) -> bool:
    """Return whether the source log still reaches this offset."""
    return answer.source_end < 0 or answer.source_end >= offset


def filled(lane: Lane, now: float, found: target_scan.Reading) -> Effects:
    """Handle batches that were found in a hole after the target log had lost its newest records. The lane had planned
    to copy the records of these batches again under later ordinals."""
    note = "records are in a hole, and were to follow under later ordinals"
    # Records that the log lost below the hole are also part of the difference: once the facts about these batches have
    # taken effect, the runs no longer show that loss.
    first = min([found.void, *(first for first, _ in found.holes), *(each.first for each in found.missing)])
    answer = CheckAnswer(-1, 0, first, found.next_ordinal - 1, "different", note)
    return notes.note(lane, found.facts) + differ(lane, now, answer)


def vanished(lane: Lane, now: float) -> Effects:
    """Handle the loss of source records that were to be copied again. The records that follow the lost ones therefore
    get ordinals other than those planned.

    If a compacted target log has lost these records, the lane first looks them up again. The source's log cleaner may
    have removed some of them because of newer records with the same key. The records that it removed need not be
    copied. The offset map is not rebuilt until this lookup has been done, because a rebuilt map does not show which of
    the lost records are superseded by newer ones.
    """
    is_lost = lane.log.cleaned and missing_ordinals.planned_until(lane) > lane.next_ordinal
    if is_lost and lane.history.vanished_position != lane.position:
        lane.history.vanished_position = lane.position
        lane.log.must_read_log = True
        lane.go(Quiesce(until_safe=False))
        return []
    note = f"records from ordinal {lane.acked} on were to be copied again, and the source no longer has all of them"
    # The target holds none of these records.
    return differ(lane, now, CheckAnswer(-1, 0, lane.acked, lane.acked - 1, "different", note))


def _doubt(lane: Lane, now: float) -> Effects:
    """Halt the lane until the offset map has been rebuilt."""
    if lane.in_flight:
        in_doubt.leave_in_flight(lane, now, lane.in_flight[-1].first + lane.in_flight[-1].count)
    lane.go(Resume())
    return [Halted(lane.halt.line, rebuilds=True)]
