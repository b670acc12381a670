"""Tracks batches in doubt: batches that were not acknowledged but may still be appended. While a batch is in doubt, its
ordinals must not be assigned to other records.

A broker that remembers the producer identifies a batch by its sequence alone. If a later batch has the same ordinals,
the broker treats it as a duplicate: it acknowledges the batch but does not append it. The records of the later batch
would be missing. Therefore, no other record may be sent under an ordinal that may belong to a batch in flight. If a
source offset has been reused in a later leader epoch of the source, the new record counts as a different record.

A lane knows which ordinals its batches have, but the batches of a former holder may have any ordinals. To determine
which batches are in doubt, the lane notes when it last asked for the end of the target log. A batch that could be
appended only before this request was sent is reflected in the answer. A batch that could also be appended later is in
doubt.
"""

from collections.abc import Sequence

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.ledger.facts.core import Reason, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane.correlation import ask
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Effects, Wake
from mirrord.replication.lane.state import Lane

_DELETED: tuple[Reason, ...] = ("compacted", "expired", "unexplained")
"""The reasons for which the source lacks records that it had before."""
_UNANSWERED = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.LEADER_NOT_AVAILABLE)
"""The errors that `LaneHost` reports if the connection was lost before the request was answered, and if the partition
had no leader. A broker that is suspended for longer than its session loses its partitions. `Asks` reports only one of
the two errors for several requests that were waiting."""


def wait(lane: Lane, since: float) -> Effects:
    """Pause before the lane asks for the end of the target log again. A lane that waits asks several times: if it asked
    only at the end of the wait, it would not notice that the leader had been suspended until shortly before. `since` is
    the time of the last request or answer."""
    lane.late_writes.is_waiting = True
    if lane.phase is Phase.RESUMING:
        lane.phase = Phase.WAITING
    at = min(lane.late_writes.until, since + lane.limits.request_timeout_s / 8)
    return [Wake(ask(lane), at)]


def must_wait(lane: Lane, now: float) -> bool:
    """Return whether a lane that has begun to wait (see `wait`) must wait longer. Return False if the lane is not
    waiting."""
    lane.late_writes.is_waiting = lane.late_writes.is_waiting and now < lane.late_writes.until
    return lane.late_writes.is_waiting


def leave_in_flight(lane: Lane, now: float, end: int) -> None:
    """Remember that batches with ordinals below `end` may still be appended, although the lane no longer waits for
    the responses to their produce requests."""
    lane.late_writes.until = max(lane.late_writes.until, now + lane.limits.request_timeout_s)
    lane.late_writes.in_doubt_below = max(lane.late_writes.in_doubt_below, end)
    lane.late_writes.unanswered, lane.late_writes.delayed = True, False


def leave_at_halt(lane: Lane) -> None:
    """Remember that batches in flight may still be appended while the lane is halted. It is not known for how long, so
    the time counts from the first answer of the leader after the halt."""
    if lane.in_flight:
        last = lane.in_flight[-1]
        lane.late_writes.in_doubt_below = max(lane.late_writes.in_doubt_below, last.first + last.count)
        lane.late_writes.unanswered, lane.late_writes.delayed = True, False


def hold(lane: Lane, now: float, held_s: float) -> None:
    """Remember that the broker reads the remaining data of a lost connection only after `held_s` seconds, because it
    throttles the connection. Batches in this data may still be appended then."""
    lane.late_writes.until = max(lane.late_writes.until, now + held_s + lane.limits.request_timeout_s)


def note_question(lane: Lane, now: float) -> None:
    """Remember that the lane asks the leader of the target partition something. If the lane no longer waits for the
    answer to an earlier request, the time counts from that request: the leader has not answered since."""
    if not lane.late_writes.is_asking:
        lane.late_writes.asked_at, lane.late_writes.is_asking = now, True


def failed(lane: Lane, now: float, error: int) -> None:
    """Remember that a request to the leader has failed. A leader that was suspended may have lost its leadership in the
    meantime, so an error that arrives late has the same effect as a missing answer."""
    is_late = now - lane.late_writes.asked_at > lane.limits.request_timeout_s / 4
    lane.late_writes.is_asking = False
    if is_pending(lane) and (is_late or error in _UNANSWERED):
        lane.late_writes.unanswered = True


def answered(lane: Lane, now: float) -> None:
    """Remember that the leader of the target partition has answered a request that the lane made to find out where to
    resume, or what a former holder has appended.

    When a broker that was suspended or cut off from the network recovers, it reads the data that arrived in the
    meantime. This data may include the lane's batches. The lane assumes this in two cases: the answer is the first one
    since a batch was left in flight or a request remained unanswered, or the answer was slow. The lane then waits for
    one request timeout, measured from this answer. An answer that takes longer than the request timeout counts as an
    unanswered request. Other slow answers count only once, because a broker that is always slow must not delay the lane
    forever.
    """
    took_s = now - lane.late_writes.asked_at
    lane.late_writes.is_asking = False
    pending = is_pending(lane)
    slow = pending and not lane.late_writes.delayed and took_s > lane.limits.request_timeout_s / 4
    is_late = pending and took_s > lane.limits.request_timeout_s
    if not (lane.late_writes.unanswered or slow or is_late):
        return
    lane.late_writes.delayed = lane.late_writes.delayed or (slow and not lane.late_writes.unanswered)
    lane.late_writes.unanswered = False
    if lane.late_writes.former_holder_until > lane.late_writes.end_read_at:
        lane.late_writes.former_holder_until = max(
            lane.late_writes.former_holder_until,
            now + max(lane.takeover.times[1] / 1000, lane.limits.request_timeout_s),
        )
    lane.late_writes.until = max(
        lane.late_writes.until, lane.late_writes.former_holder_until, now + lane.limits.request_timeout_s
    )


def is_pending(lane: Lane) -> bool:
    """Return whether a batch that was sent earlier may have been appended after the lane last asked for the end of the
    target log."""
    return lane.late_writes.end_read_at < max(lane.late_writes.until, lane.late_writes.former_holder_until)


def note_end_question(lane: Lane, now: float) -> None:
    """Remember that the lane is about to ask for the end of the target log."""
    lane.late_writes.end_read_at = now
    if now >= lane.late_writes.until:
        lane.late_writes.in_doubt_below = -1


def sent_until(lane: Lane) -> int:
    """Return the ordinal after the last one that is known to have been sent, whichever record it was assigned to."""
    return max(lane.sent_below, lane.late_writes.sent_before)


def earlier_leaders_until(lane: Lane) -> int:
    """Return the ordinal up to which an earlier leader of the target partition may have appended batches that the
    present leader's log lacks. Return 0 if no batch can have been sent to an earlier leader."""
    if lane.late_writes.sent_since >= lane.log.end_epoch:
        return 0
    is_unknown = lane.comparison.later_pending or lane.comparison.first_ack_pending
    return NEVER if is_unknown else sent_until(lane)


def was_given(lane: Lane, ordinal: int) -> bool:
    """Return whether a different record may have been sent under this ordinal and may have been appended.

    After a takeover, the result is true for the next ordinal and all later ones until the first batch of this holder
    has been acknowledged. The result is true even after the barrier, because a batch of the former holder may be
    appended later than expected. The lane does not know how many records this batch has. Reassigned ordinals may
    begin in the middle of the batch: if the source has deleted one of its records, only the ordinals from that record
    onward are assigned to other records.
    """
    return (
        lane.comparison.later_pending
        or ordinal < sent_until(lane)
        or (lane.comparison.first_ack_pending and ordinal >= lane.acked)
    )


def note_deleted(lane: Lane, ordinal: int, verdicts: Sequence[Verdict]) -> None:
    """Remember that the run that begins at `ordinal` follows source offsets with these verdicts.

    This matters if it is the first run in this round and the source has deleted records before it. A former holder that
    read these records may have sent them under this ordinal. Even if that holder left the lane cleanly, its batch may
    be appended late, after a delay longer than the barrier. Therefore, the lane compares the first acknowledged batch
    with the source, as after a takeover that was not clean.
    """
    is_first = ordinal == lane.acked == lane.resumed_at.ordinal
    if is_first and not lane.takeover.opened_here and any(each.reason in _DELETED for each in verdicts):
        lane.comparison.first_ack_pending = True


def assign(lane: Lane, runs: Sequence[Run]) -> bool:
    """Note which ordinals these runs assign. The runs are in ascending order. Return whether a different record may
    already have been sent under the first ordinal of the first run. If so, comparisons made earlier in this round no
    longer settle which records the target holds (see `difference.settles`)."""
    first = runs[0].ordinal
    if not was_given(lane, first):
        return False
    comparison, sent = lane.comparison, sent_until(lane)
    comparison.compared = min(comparison.compared, first)
    if lane.record is None or lane.record.source_runs.offset_of(first) != runs[0].offset:
        # Otherwise, the runs of a former holder are recorded again, and that holder may have sent their records.
        comparison.assigned_from = min(comparison.assigned_from, first)
        lane.late_writes.sent_before, lane.sent_below = sent, min(lane.sent_below, first)
    comparison.due_at = min(comparison.due_at, first)
    # All ordinals that were sent may have had other records, not only those at which a run begins.
    comparison.due_below = max(comparison.due_below, runs[-1].ordinal + 1, sent if first < sent else 0)
    comparison.is_doubt_limited = False
    return True


def holds(lane: Lane, ordinal: int) -> bool:
    """Return whether this ordinal or a later one may belong to a batch of which the lane is unaware. Such a batch may
    have been appended after the lane last asked for the end of the target log, or may still be appended."""
    return (
        lane.late_writes.end_read_at < lane.late_writes.former_holder_until or ordinal < lane.late_writes.in_doubt_below
    )
