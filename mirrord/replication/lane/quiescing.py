"""How a copying lane stops in order to resume: all batches in flight are answered first."""

from mirrord.replication.lane import resuming
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Effects
from mirrord.replication.lane.state import Lane


def wait(lane: Lane, now: float) -> Effects:
    """Stop until nothing that was sent can arrive any more, and then read what the target holds."""
    if not lane.in_flight:
        return resuming.begin(lane, now, max(lane.dirty_until - now, lane.former_until - now, 0.0))
    return settle(lane)


def settle(lane: Lane) -> Effects:
    """Send nothing new; when all batches in flight are answered, the lane resumes."""
    lane.ready.clear()
    lane.ready_bytes = 0
    lane.phase = Phase.SETTLING
    lane.failure = (resuming.NOT_LEADER, lane.in_flight[0])
    return []
