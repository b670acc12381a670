"""Announces a lane to a replicator before the lane is assigned to it, so that a planned move takes less time.

By the time the lane is assigned, the replicator already knows the leaders of the source partition and the target
partition, and is connected to them. Before the assignment, the replicator neither fetches nor writes records of the
lane. If the lane is never assigned to it, the replicator forgets the partitions after a while.
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
"""Maximum time that a lane stays on its current replicator while the next replicator is being prepared."""
Coming = Mapping[str, Collection[LaneId]]
"""The lanes that each replicator will get, by the replicator's name."""
NOWHERE: Coming = MappingProxyType({})


async def prepare_ahead(members: Mapping[str, Member], planned: Mapping[LaneId, PlannedLane], coming: Coming) -> None:
    """Announce lanes to the replicators that will get them, and wait up to `AHEAD_S` seconds for these replicators to
    be prepared."""
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
    # A failure is not reported here, because the next poll of the replicator notices it.
    with suppress(ReplicatorDead, ReplicatorUnsure):
        await handle.prepare(lanes)


def _assignment(lane: PlannedLane) -> LaneAssignment:
    """Return the assignment that announces a lane to its next replicator. `former` is "unknown" in this assignment,
    because the lane's current replicator has not left the lane yet."""
    return LaneAssignment(lane.key, lane.source_topic, lane.target_topic, "unknown")
