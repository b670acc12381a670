"""How a lane that copies stops to look anew: what is in flight is answered first."""

from mirrord.flow import resume
from mirrord.flow.signals import Effects
from mirrord.flow.state import Lane, Phase


def wait(lane: Lane, now: float) -> Effects:
    """Stand still until nothing of it can arrive, and look then at what stands there."""
    if not lane.in_flight:
        return resume.begin(lane, now, max(lane.dirty_until - now, lane.former_until - now, 0.0))
    return settle(lane)


def settle(lane: Lane) -> Effects:
    """Send nothing new; when all in flight is answered, the lane resumes."""
    lane.ready.clear()
    lane.ready_bytes = 0
    lane.phase = Phase.SETTLING
    lane.failure = (resume.NOT_LEADER, lane.in_flight[0])
    return []
