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


def look(lane: Lane, now: float) -> None:
    """The target is about to be asked for its end."""
    lane.looked_at = now
    if now >= lane.dirty_until:
        lane.limbo = -1


def was_given(lane: Lane, ordinal: int) -> bool:
    """Another record may have been sent under this ordinal, and nothing has shown yet that it did not arrive."""
    return lane.check_later or ordinal < lane.given


def holds(lane: Lane, ordinal: int) -> bool:
    """A batch that may still be appended, or was not seen yet, may have this ordinal or one behind it."""
    return lane.looked_at < lane.former_until or ordinal < lane.limbo
