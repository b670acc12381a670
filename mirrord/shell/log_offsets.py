"""Where the logs of many partitions begin and end, asked by a client of its own: for looking, not for copying."""

# pyright: reportMissingTypeStubs=false

import asyncio
from collections.abc import Collection
from typing import Any, Literal, cast

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.errors import KafkaError

from mirrord.model.config import ClusterConfig
from mirrord.model.names import TopicPartition
from mirrord.shell.connections import Unreachable
from mirrord.shell.credentials import client_options
from mirrord.shell.topics import KafkaTopicAdmin

ANSWER_S = 5.0


async def log_offsets(
    cluster: ClusterConfig, partitions: Collection[TopicPartition], which: Literal["start", "end"]
) -> dict[TopicPartition, int]:
    """The log start, or the high watermark, of each partition that exists. Raises EnvironmentFault."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await _ask(cluster, partitions, which)
    except TimeoutError:
        raise Unreachable(f"no answer within {ANSWER_S:g} s") from None
    except (KafkaError, OSError) as error:
        raise Unreachable(str(error)) from error


async def _ask(
    cluster: ClusterConfig, partitions: Collection[TopicPartition], which: Literal["start", "end"]
) -> dict[TopicPartition, int]:
    admin = KafkaTopicAdmin(cluster, ANSWER_S)
    try:
        known = (await admin.look({each.topic for each in partitions})).topics
    finally:
        await admin.close()
    # The consumer would wait for a partition that does not exist any more.
    asked = [
        KafkaPartition(each.topic, each.partition)
        for each in partitions
        if each.topic in known and each.partition < known[each.topic].partitions
    ]
    if not asked:
        return {}
    consumer: Any = AIOKafkaConsumer(
        bootstrap_servers=",".join(cluster.bootstrap), client_id="mirrord", **client_options(cluster.security)
    )
    try:
        await consumer.start()
        ask = consumer.beginning_offsets if which == "start" else consumer.end_offsets
        offsets = cast(dict[KafkaPartition, int], await ask(asked))
    finally:
        await consumer.stop()
    return {TopicPartition(partition.topic, partition.partition): offset for partition, offset in offsets.items()}
