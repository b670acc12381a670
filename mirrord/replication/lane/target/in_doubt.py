"""Tracks batches in doubt: while a batch that was not acknowledged may still be appended, its ordinals must not be
reassigned.

A broker that remembers the producer accepts a batch by its sequence alone. It treats a later batch with the same
ordinals as a repeat, which it acknowledges but does not write. So while a batch in flight may have an ordinal, no other
record may be sent under that ordinal. Records of another source epoch count as other records.

A lane knows the ordinals of its own batches, but a former holder's batches may have any ordinals. The decisive time is
when the lane last asked for the end of the target log. A batch that could be appended after that time may have been
appended since.
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
    """Note that the leader of the target partition answered the question for the end of its log.

    A broker that was suspended or cut off from the network later reads the data that arrived in the meantime. If this
    may have happened, the request timeout is measured from this answer. It may have happened if this is the first
    answer since a batch was left in flight, or since a question was not answered. It may also have happened if the
    answer was slow. A slow answer counts only once, because a broker that is always slow must not delay the lane
    forever.
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
    """Return whether another record may have been sent under this ordinal and may have been appended.

    After a takeover, this is true for the next ordinal until the first acknowledged batch has been compared with the
    source. It is true even if the former holder's time has run out, because its batches may be appended later than they
    should. The lane finds such batches before it sends its own. It is not true for later ordinals: the comparison does
    not include later runs, so it could not end the doubt about them.
    """
    return (
        lane.comparison.later_pending
        or ordinal < lane.sent_below
        or (lane.comparison.first_ack_pending and ordinal == lane.acked)
    )


def assign(lane: Lane, ordinal: int) -> bool:
    """Note that a run begins at this ordinal, and return whether another record may have been sent under the same
    ordinal. If so, this is a new doubt, which no earlier comparison of this round ends (`difference.settles`)."""
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
