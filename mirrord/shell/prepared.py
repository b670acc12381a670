"""A replicator is told of a lane before it gets it: who leads the partitions is known then, and connections are open.

Nothing is asked or written for the lane yet. If it never comes, what was learnt is forgotten after a while.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from mirrord.cluster.topics import PlannedLane
from mirrord.model.assignment import LaneAssignment
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId
from mirrord.shell.engine import ReplicatorDead, ReplicatorHandle, ReplicatorUnsure
from mirrord.shell.members import Member
from mirrord.shell.metadata import ClusterView, PartitionId

AHEAD_S = 1.0
"""How much later a lane may leave for that."""
KEPT_S = 30.0
"""A lane that is on its way comes within a few seconds."""
Coming = Mapping[str, Collection[LaneId]]
"""Which lanes a replicator will get, by its name."""
NOWHERE: Coming = MappingProxyType({})
SOURCE = ("ask", "fetch-hot")
TARGET = ("ask", "produce")
"""What the links to brokers are for that a lane needs first."""


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


async def prepare(source: ClusterView, target: ClusterView, lanes: Sequence[LaneAssignment]) -> None:
    """Returns when all is there that can be. A cluster that cannot be reached is for the lane itself to tell."""
    sides = [
        (view, PartitionId(topic, topic_id, lane.key.partition), purposes)
        for lane in lanes
        for view, topic, topic_id, purposes in (
            (source, lane.source_topic, lane.key.source_topic_id, SOURCE),
            (target, lane.target_topic, lane.key.target_topic_id, TARGET),
        )
    ]
    for view, partition, _ in sides:
        view.watch(partition.topic, partition.topic_id)
        asyncio.get_running_loop().call_later(KEPT_S, view.unwatch, partition.topic_id)
    await asyncio.gather(*(_side(*side) for side in sides))


async def _side(view: ClusterView, partition: PartitionId, purposes: Sequence[str]) -> None:
    node = await _leader(view, partition)
    opening = [view.link(node, purpose).get() for purpose in purposes]
    for opened in await asyncio.gather(*opening, return_exceptions=True):
        if isinstance(opened, BaseException) and not isinstance(opened, EnvironmentFault):
            raise opened


async def _leader(view: ClusterView, partition: PartitionId) -> int:
    changed = asyncio.Event()
    view.on_change.append(changed.set)
    try:
        while (leader := view.leader(partition)) is None:
            await changed.wait()
            changed.clear()
        return leader.node
    finally:
        view.on_change.remove(changed.set)
