"""What was sent earlier and may still be appended: until it cannot, ordinals keep the meaning that it was sent with.

A broker that remembers the producer takes a batch by its sequence alone, and calls one of the same ordinals that comes
after it a repeat. So another epoch of the source, or another record, under an ordinal that a batch on its way may have
would be acknowledged and not be written. Of its own batches a lane knows the ordinals; a former holder's may be any.
What counts is the time at which the lane last asked where the target log ends: what could still arrive then may have.
"""

from mirrord.flow.state import Lane


def leave(lane: Lane, now: float, behind: int) -> None:
    """Batches of ordinals below this one may still be appended, though nobody waits for them."""
    lane.dirty_until = max(lane.dirty_until, now + lane.limits.request_timeout_s)
    lane.limbo = max(lane.limbo, behind)
    lane.unanswered, lane.delayed = True, False


def unreachable(lane: Lane) -> None:
    """The leader did not answer within a request timeout."""
    if _is_pending(lane):
        lane.unanswered = True


def answered(lane: Lane, now: float) -> None:
    """The leader of the target partition answers where its log ends.

    A broker that was suspended or cut off reads only afterwards what had arrived before. So if it may have been, the
    request timeout counts from this answer: if it is the first one since something was left on its way, or since none
    came, and once if it was slow. A broker that is always slow must not delay the lane for ever.
    """
    slow = _is_pending(lane) and not lane.delayed and now - lane.end_asked_at > lane.limits.request_timeout_s / 4
    if not lane.unanswered and not slow:
        return
    lane.unanswered, lane.delayed = False, lane.delayed or slow
    if lane.former_until > lane.looked_at:
        lane.former_until = max(lane.former_until, now + max(lane.times[1] / 1000, lane.limits.request_timeout_s))
    lane.dirty_until = max(lane.dirty_until, lane.former_until, now + lane.limits.request_timeout_s)


def _is_pending(lane: Lane) -> bool:
    """The log has not been read since the last batch on its way was given up."""
    return lane.looked_at < max(lane.dirty_until, lane.former_until)


def look(lane: Lane, now: float) -> None:
    """The target is about to be asked for its end."""
    lane.looked_at = now
    if now >= lane.dirty_until:
        lane.limbo = -1


def was_given(lane: Lane, ordinal: int) -> bool:
    """Another record may have been sent under this ordinal, and nothing has shown yet that it did not arrive.

    After a take-over this holds for the next ordinal until the first acknowledgement was compared, even if the former
    holder's time has run out: its bytes can arrive later than they should, and the lane finds them before it sends its
    own. That comparison covers no run further on, so nothing would end it there.
    """
    return lane.check_later or ordinal < lane.given or (lane.check_first_ack and ordinal == lane.acked)


def holds(lane: Lane, ordinal: int) -> bool:
    """A batch that may still be appended, or was not seen yet, may have this ordinal or one behind it."""
    return lane.looked_at < lane.former_until or ordinal < lane.limbo
