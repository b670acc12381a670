"""Compares records whose ordinals were assigned again, as soon as they have been acknowledged.

If a different record may already have been sent under an ordinal (`SourceRun.regiven`), an acknowledgement does not
prove which of the two records the target holds. Only a comparison with the source does. Until a comparison is complete,
the ledger keeps the lowest of these ordinals as a mark. If the mark were kept for long, the next holder would have to
compare all records that were copied since. If the source or the target had deleted some of them by then, that holder
would rebuild the offset map, and would copy records again that the target already had.

The lane therefore compares these records when they have been acknowledged. At the same time, it records in the ledger
where the ordinals in doubt end (`TargetRun.in_doubt_below`). A drain does not wait for the comparison, and a replicator
may end before the comparison is complete. In both cases, the next holder makes the comparison, and it knows that all
records have been acknowledged and which of them are in doubt. No resume position above the mark is saved before the
ledger contains this fact.
"""

from msgspec.structs import replace

from mirrord.ledger.facts.core import TargetRun
from mirrord.replication.lane.correlation import ask
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.notes import note
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import AskCheck, CheckAnswer, Effects, Wake
from mirrord.replication.lane.source import recorded_epochs
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target import target_scan
from mirrord.replication.lane.target.resume_position import ResumePosition


def in_doubt(lane: Lane) -> tuple[int, int]:
    """Return the ordinals [first, end) for which neither the ledger nor a comparison in this round shows which records
    the target holds. Both are `NEVER` if there are none. `end` is also `NEVER` if the ledger does not show where these
    ordinals end."""
    record = lane.record
    if record is None or record.regiven < 0:
        return NEVER, NEVER
    first = max(record.regiven, lane.comparison.compared)
    end = record.regiven_until if record.regiven_until >= 0 else NEVER
    return (first, end) if first < end else (NEVER, NEVER)


def compare(lane: Lane, first: int, start: int) -> Effects:
    """Compare all acknowledged records from the ordinal `first` onward with the source. If an acknowledged record with
    a lower ordinal is in doubt, begin with that record. `start` is the target offset of the ordinal `first`."""
    effects = limit_doubt(lane)
    marked, _ = in_doubt(lane)
    if marked < lane.acked:
        first, start = min(first, marked), min(start, _first_offset(lane, marked))
    if (known := lane.comparison.first_ack_check) is not None:
        first, start = min(first, known.first), min(start, known.start)
    return [*effects, _ask(lane, first, start)]


def compare_due(lane: Lane) -> Effects:
    """Begin to compare reassigned ordinals that have been acknowledged, unless another comparison includes them or is
    open. After a takeover, the lane compares everything that it has copied since, which includes these ordinals. Only
    one comparison of reassigned ordinals is open at a time. If each acknowledged batch began another one, the same
    records would be compared repeatedly."""
    if lane.acked <= lane.comparison.due_at or lane.comparison.later_pending:
        return []
    if lane.comparison.first_ack_check is not None:
        return limit_doubt(lane)
    marked, _ = in_doubt(lane)
    if marked >= lane.acked:
        if marked < NEVER:
            lane.comparison.due_at = marked
        elif lane.acked >= lane.comparison.due_below:
            lane.comparison.due_at, lane.comparison.due_below = NEVER, 0
        return []  # nothing is in doubt below `acked`, or the ledger does not have the next mark yet
    return compare(lane, marked, _first_offset(lane, marked))


def limit_doubt(lane: Lane) -> Effects:
    """Record in the ledger where the ordinals in doubt end, once all reassigned ordinals have been acknowledged in this
    round. While a former holder may still be writing, nothing is recorded, because later ordinals are in doubt, too."""
    first, end = in_doubt(lane)
    if first >= lane.acked or end < NEVER or lane.comparison.later_pending or not lane.pipelined:
        return []
    if lane.acked < lane.comparison.due_below or lane.comparison.is_doubt_limited:
        return []
    lane.comparison.is_doubt_limited = True
    last = (lane.acked - 1, lane.expected - 1, lane.log.end_epoch)
    return note(lane, (TargetRun(lane.id, lane.grant, *last, in_doubt_below=lane.acked),))


def compare_again(lane: Lane, ordinal: int) -> Effects:
    """Begin the comparison of the ordinals in doubt below `ordinal`, at which the lane continues. If the new round has
    interrupted a comparison, repeat it as well. There is one exception: if the target has lost records, `ordinal` may
    be one of the ordinals of the interrupted comparison. In this case, nothing is compared yet. The lane appends the
    lost records again, and compares them once they have been acknowledged."""
    known, marked = lane.comparison.first_ack_check, in_doubt(lane)[0]
    lane.comparison.is_doubt_limited = False
    if marked < NEVER and lane.record is not None:
        # The ledger does not show which of the later runs have reassigned ordinals.
        last = lane.record.source_runs.last
        lane.comparison.due_at = min(lane.comparison.due_at, marked)
        lane.comparison.due_below = max(lane.comparison.due_below, marked + 1, 0 if last is None else last.ordinal + 1)
    if known is not None and ordinal <= known.last:
        lane.comparison.first_ack_pending, lane.comparison.first_ack_check = True, None
        return []
    if marked < ordinal and not lane.comparison.later_pending:
        return compare(lane, marked, _first_offset(lane, marked))
    if known is None:
        return []
    start = min(known.start, _first_offset(lane, known.first))
    # The log may have lost records, and its end may be lower than before.
    lane.comparison.first_ack_check = replace(known, question=ask(lane), start=start, end=lane.expected)
    return [lane.comparison.first_ack_check]


def compared(lane: Lane, answer: CheckAnswer, *, is_all: bool) -> None:
    """Remember that these ordinals have been compared. `is_all` says that no batch that was sent earlier can be
    appended after the compared ones (see `TakeoverChecked.is_all`)."""
    if answer.outcome == "equal" and answer.first < answer.equal_until:
        lane.comparison.note_equal(answer.first, answer.equal_until, lane.log.end_epoch)
    check = lane.comparison.first_ack_check
    if check is not None and answer.first <= check.first <= check.last <= answer.last:
        lane.comparison.first_ack_check = None
    if answer.first <= lane.comparison.due_at <= answer.last + is_all:
        is_rest_due = answer.last + 1 < lane.comparison.due_below and not is_all
        due = (answer.last + 1, lane.comparison.due_below) if is_rest_due else (NEVER, 0)
        lane.comparison.due_at, lane.comparison.due_below = due


def comparison_failed(lane: Lane, now: float, answer: CheckAnswer) -> Effects:
    """Repeat a comparison after a pause, because one of the logs could not be read."""
    check = lane.comparison.first_ack_check
    if lane.phase is not Phase.COPYING or check is None or check.question != answer.question:
        return []
    lane.comparison.first_ack_pause = ask(lane)
    return [Wake(lane.comparison.first_ack_pause, now + lane.limits.retry_s)]


def retry_comparison(lane: Lane) -> Effects:
    """Repeat the comparison of acknowledged records, after the pause that follows a failed attempt."""
    check = lane.comparison.first_ack_check
    if lane.phase is not Phase.COPYING or check is None or check.question in lane.questions:
        return []
    lane.comparison.first_ack_check = replace(check, question=ask(lane))
    return [lane.comparison.first_ack_check]


def _ask(lane: Lane, first: int, start: int) -> AskCheck:
    epochs = recorded_epochs.known_epochs(lane, first)
    check = AskCheck(ask(lane), lane.producer_id, first, lane.acked - 1, start, lane.expected, epochs=epochs)
    lane.comparison.first_ack_check = check
    return check


def _first_offset(lane: Lane, ordinal: int) -> int:
    """Return the lowest target offset at which a record with this ordinal may be stored."""
    resumed = lane.resumed_at
    if ordinal >= resumed.ordinal:
        return resumed.target_offset
    # The fact that shows where a scan has found the record may not have taken effect yet.
    known = target_scan.first_offset_of(lane, ResumePosition(ordinal, resumed.target_offset))
    return min(known, lane.comparison.begins_at)
