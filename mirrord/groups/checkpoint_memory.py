"""Reads the checkpoints on the target, which `mirrord.mm2.checkpoints` writes. They hold the positions that consumer
groups had before this process started.

A checkpoint records a group's last known position on the source and the matching position on the target. The source's
`__consumer_offsets` may hold only a newer position of the group. With the checkpoint, mirrord can still detect that the
group moved back to an earlier offset while no mirrord process was running.
"""

import asyncio
from collections.abc import Mapping

import structlog

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.groups.rules.reverse_plan import PositionPairs
from mirrord.kafka.protocol.errors import WireError
from mirrord.kafka.protocol.mm2_records import Checkpoint
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.mm2.client_topic import Mm2Topic
from mirrord.model.errors import EnvironmentFault
from policies.mm2_names import checkpoints_topic

READ_S = 20.0

log = structlog.get_logger()


async def remember(
    flow: FlowConfig,
    target: ClusterConfig,
    timeout_s: float,
    copies: Mapping[TopicAndPartition, TopicAndPartition],
    pairs: PositionPairs,
) -> None:
    """Add the positions from the flow's checkpoints to `pairs`, which holds the matching source and target positions of
    each group. `copies` maps each target partition to its source partition.

    Nothing is added if the flow writes no checkpoints, or if the checkpoints cannot be read.
    """
    if not flow.mm2_records.checkpoints:
        return
    topic = Mm2Topic(checkpoints_topic(flow.source, flow.mm2_records.separator), target, timeout_s)
    try:
        async with asyncio.timeout(READ_S):
            records = await topic.read_all() if await topic.exists() else []
    except (EnvironmentFault, TimeoutError) as fault:
        log.warning("checkpoints_not_read", flow=flow.name, reason=str(fault) or f"no answer within {READ_S:g} s")
        return
    finally:
        await topic.end()
    for key, value in records:
        try:
            checkpoint = Checkpoint.decode(key, value)
        except WireError:
            continue  # MirrorMaker 2's MirrorCheckpointTask also ignores records that it cannot decode
        place = copies.get((checkpoint.topic, checkpoint.partition))
        if place is not None:
            pairs.learn(checkpoint.group, place, checkpoint.upstream, checkpoint.downstream)
