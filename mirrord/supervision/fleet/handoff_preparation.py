"""Preparing for lanes: announce a lane to a replicator ahead of its assignment.

When the lane arrives, the replicator already knows the leaders of the partitions and has open connections to them.
Nothing is asked or written for the lane yet. If the lane never arrives, the replicator forgets the partitions after a
while.
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
"""How long preparation may delay a lane's departure."""
Coming = Mapping[str, Collection[LaneId]]
"""The lanes that each replicator will get, by the replicator's name."""
NOWHERE: Coming = MappingProxyType({})


async def prepare_ahead(members: Mapping[str, Member], planned: Mapping[LaneId, PlannedLane], coming: Coming) -> None:
    """Let replicators prepare for lanes, and wait until they are ready or `AHEAD_S` is over."""
    by_handle = {members[name].handle: lanes for name, lanes in coming.items() if name in members}
    preparing = [
        asyncio.create_task(_prepare(handle, [_assignment(planned[lane]) for lane in lanes if lane in planned]))
        for handle, lanes in by_handle.items()
        if handle is not None
    ]
    if not preparing:
        return
    try:
        await asyncio.wait(preparing, timeout=AHEAD_S)
    finally:
        for task in preparing:
            task.cancel()


async def _prepare(handle: ReplicatorHandle, lanes: Sequence[LaneAssignment]) -> None:
    # The code that supervises the replicator finds out what has happened to it.
    with suppress(ReplicatorDead, ReplicatorUnsure):
        await handle.prepare(lanes)


def _assignment(lane: PlannedLane) -> LaneAssignment:
    """Return an assignment that says nothing yet about the lane's former holder."""
    return LaneAssignment(lane.key, lane.source_topic, lane.target_topic, "unknown")
