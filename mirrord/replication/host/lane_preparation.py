"""Prepares a replicator for a lane before the lane arrives: finds the leaders and opens the connections."""

import asyncio
from collections.abc import Sequence

from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.model.errors import EnvironmentFault
from mirrord.replication.lane.assignment import LaneAssignment

KEPT_S = 30.0
"""How long, in seconds, the metadata of a prepared partition is kept up to date. A lane that is moved arrives within a
few seconds."""


SOURCE = ("ask", "fetch-hot")


TARGET = ("ask", "produce")
"""Each connection to a broker has one purpose. `SOURCE` lists the purposes for which a lane initially needs connections
to a source broker, and `TARGET` lists those for a target broker."""


async def prepare(source: ClusterView, target: ClusterView, lanes: Sequence[LaneAssignment]) -> None:
    """Find the leaders of the lanes' partitions, and open the connections to these leaders. Return when the connections
    are open.

    Connection errors are ignored, because the lane itself reports a cluster that cannot be reached.
    """
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
