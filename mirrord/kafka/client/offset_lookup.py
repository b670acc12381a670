"""Asks for the start and end offsets of many partitions with a separate client, for inspection and not for copying."""

# pyright: reportMissingTypeStubs=false

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from typing import Any, Literal, cast

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.errors import KafkaError

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.connection import Unreachable
from mirrord.kafka.client.credentials import client_options
from mirrord.kafka.client.topic_admin import KafkaTopicAdmin
from mirrord.model.names import TopicPartition

ANSWER_S = 5.0


async def log_offsets(
    cluster: ClusterConfig, partitions: Collection[TopicPartition], which: Literal["start", "end"]
) -> dict[TopicPartition, int]:
    """Return the log start or the high watermark of each partition that exists. Raises EnvironmentFault."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await _ask(cluster, partitions, which)
    except TimeoutError:
        raise Unreachable(f"no answer within {ANSWER_S:g} s") from None
    except (KafkaError, OSError) as error:
        raise Unreachable(str(error)) from error


async def offsets_at(
    cluster: ClusterConfig, partitions: Collection[TopicPartition], time_ms: int
) -> dict[TopicPartition, tuple[int, int] | None]:
    """Return the offset and timestamp (ms) of the first record at or after this time, for each partition that exists.

    The result is None for a partition without such a record. Raises EnvironmentFault.
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            return await _ask_times(cluster, partitions, time_ms)
    except TimeoutError:
        raise Unreachable(f"no answer within {ANSWER_S:g} s") from None
    except (KafkaError, OSError) as error:
        raise Unreachable(str(error)) from error


async def _ask(
    cluster: ClusterConfig, partitions: Collection[TopicPartition], which: Literal["start", "end"]
) -> dict[TopicPartition, int]:
    asked = await _existing(cluster, partitions)
    if not asked:
        return {}
    async with _consumer(cluster) as consumer:
        ask = consumer.beginning_offsets if which == "start" else consumer.end_offsets
        offsets = cast(dict[KafkaPartition, int], await ask(asked))
    return {TopicPartition(partition.topic, partition.partition): offset for partition, offset in offsets.items()}


async def _ask_times(
    cluster: ClusterConfig, partitions: Collection[TopicPartition], time_ms: int
) -> dict[TopicPartition, tuple[int, int] | None]:
    asked = await _existing(cluster, partitions)
    if not asked:
        return {}
    async with _consumer(cluster) as consumer:
        told = cast(dict[KafkaPartition, Any], await consumer.offsets_for_times(dict.fromkeys(asked, time_ms)))
    return {
        TopicPartition(partition.topic, partition.partition): (found.offset, found.timestamp) if found else None
        for partition, found in told.items()
    }


async def _existing(cluster: ClusterConfig, partitions: Collection[TopicPartition]) -> list[KafkaPartition]:
    """Return the partitions that exist, because the client would wait for one that does not."""
    admin = KafkaTopicAdmin(cluster, ANSWER_S)
    try:
        known = (await admin.look({each.topic for each in partitions})).topics
    finally:
        await admin.close()
    return [
        KafkaPartition(each.topic, each.partition)
        for each in partitions
        if each.topic in known and each.partition < known[each.topic].partitions
    ]


@asynccontextmanager
async def _consumer(cluster: ClusterConfig) -> AsyncGenerator[Any]:
    consumer: Any = AIOKafkaConsumer(
        bootstrap_servers=",".join(cluster.bootstrap), client_id="mirrord", **client_options(cluster.security)
    )
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()
