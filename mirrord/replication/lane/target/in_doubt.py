"""Tracks batches in doubt: while a batch that was not acknowledged may still be appended, its ordinals must not be
reassigned.

A broker that remembers the producer accepts a batch by its sequence alone, and treats a later batch of the same
ordinals as a repeat. So if a batch in flight may have a certain ordinal, another batch with this ordinal, of another
source epoch or with another record, would be acknowledged but not written. A lane knows the ordinals of its own
batches; a former holder's batches may have any ordinals. The decisive time is when the lane last asked where the target
log ends: a batch that could still arrive then may have arrived since.
"""

from mirrord.replication.lane.state import Lane

NO_ANSWER = 13
"""NETWORK_EXCEPTION: `LaneHost` returns it for a question whose connection was lost."""


def leave_in_flight(lane: Lane, now: float, behind: int) -> None:
    """Note that batches with ordinals below `behind` may still be appended, although the lane no longer waits for their
    answers."""
    lane.late_writes.until = max(lane.late_writes.until, now + lane.limits.request_timeout_s)
    lane.late_writes.in_doubt_below = max(lane.late_writes.in_doubt_below, behind)
    lane.late_writes.unanswered, lane.late_writes.delayed = True, False


def unreachable(lane: Lane) -> None:
    """Note that the leader did not answer within a request timeout."""
    if _is_pending(lane):
        lane.late_writes.unanswered = True


def answered(lane: Lane, now: float) -> None:
    """Note that the leader of the target partition answered the question where its log ends.

    A broker that was suspended or cut off reads data that arrived in the meantime only afterwards. So if that may have
    happened, the request timeout is measured from this answer. That is the case if it is the first answer since a batch
    was left in flight, or since a question was not answered, and also if it was slow. A slow answer counts only once,
    because a broker that is always slow must not delay the lane forever.
    """
    slow = (
        _is_pending(lane)
        and not lane.late_writes.delayed
        and now - lane.late_writes.end_asked_at > lane.limits.request_timeout_s / 4
    )
    if not lane.late_writes.unanswered and not slow:
        return
    lane.late_writes.unanswered, lane.late_writes.delayed = False, lane.late_writes.delayed or slow
    if lane.late_writes.former_holder_until > lane.late_writes.end_read_at:
        lane.late_writes.former_holder_until = max(
            lane.late_writes.former_holder_until,
            now + max(lane.takeover.times[1] / 1000, lane.limits.request_timeout_s),
        )
    lane.late_writes.until = max(
        lane.late_writes.until, lane.late_writes.former_holder_until, now + lane.limits.request_timeout_s
    )


def _is_pending(lane: Lane) -> bool:
    """Return whether a batch that was sent earlier could still be appended after the target was last asked for its
    end."""
    return lane.late_writes.end_read_at < max(lane.late_writes.until, lane.late_writes.former_holder_until)


def note_end_question(lane: Lane, now: float) -> None:
    """Note that the target is about to be asked for its end."""
    lane.late_writes.end_read_at = now
    if now >= lane.late_writes.until:
        lane.late_writes.in_doubt_below = -1


def was_given(lane: Lane, ordinal: int) -> bool:
    """Return whether another record may have been sent under this ordinal and may have arrived.

    After a takeover this is true for the next ordinal until the first acknowledgement was compared, even if the former
    holder's time has run out: its bytes can arrive later than they should, and the lane finds them before it sends its
    own. It is not true for later ordinals, because that comparison covers no later run and so could not end the doubt
    about them.
    """
    return (
        lane.comparison.later_pending
        or ordinal < lane.sent_below
        or (lane.comparison.first_ack_pending and ordinal == lane.acked)
    )


def assign(lane: Lane, ordinal: int) -> bool:
    """Note that a run begins at this ordinal, and return whether another record may have been sent under the same
    ordinal. If so, this is a new doubt, which no earlier comparison of this round settles (`difference.settles`)."""
    if not was_given(lane, ordinal):
        return False
    lane.comparison.compared = min(lane.comparison.compared, ordinal)
    return True


def holds(lane: Lane, ordinal: int) -> bool:
    """Return whether a batch that may still be appended, or that the lane has not seen yet, may have this ordinal or a
    later one."""
    return (
        lane.late_writes.end_read_at < lane.late_writes.former_holder_until or ordinal < lane.late_writes.in_doubt_below
    )
