"""A replicator is told of a lane before it gets it: who leads the partitions is known then, and connections are open.

Nothing is asked or written for the lane yet. If it never comes, what was learnt is forgotten after a while.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import LaneAssignment
from mirrord.supervision.fleet.engine import ReplicatorDead, ReplicatorHandle, ReplicatorUnsure
from mirrord.supervision.fleet.member import Member
from mirrord.topics.rules.topic_plan import PlannedLane

AHEAD_S = 1.0
"""How much later a lane may leave for that."""
Coming = Mapping[str, Collection[LaneId]]
"""Which lanes a replicator will get, by its name."""
NOWHERE: Coming = MappingProxyType({})


async def tell_ahead(members: Mapping[str, Member], planned: Mapping[LaneId, PlannedLane], coming: Coming) -> None:
    """Let replicators prepare for lanes, as long as that may take."""
    told = {members[name].handle: lanes for name, lanes in coming.items() if name in members}
    preparing = [
        asyncio.create_task(_tell(handle, [_assignment(planned[lane]) for lane in lanes if lane in planned]))
        for handle, lanes in told.items()
        if handle is not None
    ]
    if not preparing:
        return
    try:
        await asyncio.wait(preparing, timeout=AHEAD_S)
    finally:
        for task in preparing:
            task.cancel()


async def _tell(handle: ReplicatorHandle, lanes: Sequence[LaneAssignment]) -> None:
    # Whoever watches over it finds out what has become of it.
    with suppress(ReplicatorDead, ReplicatorUnsure):
        await handle.prepare(lanes)


def _assignment(lane: PlannedLane) -> LaneAssignment:
    """Before anything is known of who had it."""
    return LaneAssignment(lane.key, lane.source_topic, lane.target_topic, "unknown")
