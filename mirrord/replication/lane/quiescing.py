"""Makes a copying lane resume, that is, determine again where to continue in the target log. The lane first stops
sending, and resumes once all batches in flight have been answered."""

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Effects
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.transitions import Quiesce, Resume


def enter(lane: Lane, now: float, wanted: Quiesce) -> Effects:
    """Stop sending, and resume once all batches in flight have been answered."""
    if not lane.in_flight:
        until = max(lane.late_writes.until, lane.late_writes.former_holder_until) if wanted.until_safe else now
        lane.go(Resume(max(until - now, 0.0)))
        return []
    lane.ready.clear()
    lane.ready_bytes = 0
    lane.phase = Phase.SETTLING
    lane.failure = (ErrorCode.NOT_LEADER_OR_FOLLOWER, lane.in_flight[0])
    return []
