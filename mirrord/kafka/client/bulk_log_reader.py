"""Reads ranges of offsets from the logs of one cluster, for work such as audits. Lanes use different code to fetch.

The caller names topics, and the reader returns whole batches. The reader connects to brokers through the same code as
the daemon, and does not use a consumer group. If a partition gets a new leader, the reader continues with that leader.
If a partition cannot be read for `patience_s` seconds, the reader raises an error.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing, asynccontextmanager

from mirrord.config.fault_text import closest_name
from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.kafka.client.connection import ConnectionOptions
from mirrord.kafka.client.partition_queries import Asks, bounds, last_stable_offset, leader_end
from mirrord.kafka.client.range_reader import CHUNK_BYTES, LogDiverged, ReadBatch, ReadFailed, Stretches
from mirrord.kafka.client.receive_buffers import BufferPool
from mirrord.kafka.client.topic_admin import KafkaTopicAdmin
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.rules.error_policy import Fetched, fetched
from mirrord.kafka.rules.topic import Topic
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.names import Alias, TopicId, TopicPartition

PATIENCE_S = 30.0
"""How long, in seconds, a partition may return nothing or have no leader before the read fails."""


class RangeGone(EnvironmentFault):
    """Raised when the requested offsets are below the log start offset because retention or another client has deleted
    their records. Also raised when the log has lost records while it was being read."""


class LogReader:
    """A reader of the logs of one cluster. `open_logs` creates it."""

    def __init__(
        self,
        view: ClusterView,
        topics: Mapping[str, Topic],
        patience_s: float,
        rebuild_bytes: int | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self.topics = topics
        """The requested topics, by name."""
        self._view = view
        self._patience_s = patience_s
        self._stretches = Stretches(view, patience_s, rebuild_bytes, chunk_bytes)
        self._asks = Asks(view, read_committed=True)
        self._watched: set[TopicId] = set()

    def close(self) -> None:
        """Cancel all requests for log start offsets and log end offsets that have not been answered yet."""
        self._asks.close()

    def partition(self, named: TopicPartition) -> PartitionId:
        """Return a partition together with its topic's id. Raises ConfigError if the topic has no such partition."""
        topic = self.topics[named.topic]
        if not 0 <= named.partition < topic.partitions:
            raise ConfigError(f"{named} does not exist: {named.topic} has the partitions 0 to {topic.partitions - 1}")
        if topic.topic_id not in self._watched:
            self._watched.add(topic.topic_id)
            self._view.watch(topic.name, topic.topic_id)
        return PartitionId(topic.name, topic.topic_id, named.partition)

    async def bounds(self, named: TopicPartition, *, committed: bool) -> tuple[int, int]:
        """Return (start, end): the range of offsets that can be read from a partition.

        If `committed` is set, the range ends at the last stable offset. Otherwise, the range ends at the high
        watermark. Raises EnvironmentFault or ConfigError.
        """
        partition = self.partition(named)
        deadline = asyncio.get_running_loop().time() + self._patience_s
        while True:
            await self._led(partition)
            try:
                end, start = await bounds(self._asks, partition)
                return start, await last_stable_offset(self._asks, partition) if committed else end
            except ReadFailed as failed:
                await self._wait(named, failed, deadline)

    async def leader_end(self, named: TopicPartition) -> int:
        """Return the log end offset of a partition's leader, which includes records that have not been replicated yet.
        Raises EnvironmentFault or ConfigError."""
        partition = self.partition(named)
        deadline = asyncio.get_running_loop().time() + self._patience_s
        while True:
            await self._led(partition)
            try:
                return (await leader_end(self._asks, partition))[1]
            except ReadFailed as failed:
                await self._wait(named, failed, deadline)

    async def read(
        self, named: TopicPartition, start: int, end: int, *, committed: bool
    ) -> AsyncGenerator[ReadBatch, None]:
        """Yield, in order, the batches that contain any of the offsets from `start` up to but not including `end`.

        If `committed` is set, only batches below the last stable offset are yielded, and aborted batches are marked.
        Raises RangeGone, another EnvironmentFault, or ConfigError.
        """
        partition = self.partition(named)
        position, epoch = start, -1
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_s
        while position < end:
            await self._led(partition)
            reading = self._stretches.read(partition, position, end, committed=committed, last_epoch=epoch)
            try:
                async with aclosing(reading) as batches:
                    async for batch in batches:
                        yield batch
                        position, epoch = batch.header.last_offset + 1, batch.header.leader_epoch
                        deadline = loop.time() + self._patience_s
                return
            except LogDiverged as lost:
                raise RangeGone(f"{named}: the log lost its last records while it was being read") from lost
            except ReadFailed as failed:
                if fetched(failed.error) is Fetched.RANGE:
                    raise await self._gone(named, position, end, failed) from failed
                await self._wait(named, failed, deadline)

    async def _wait(self, named: TopicPartition, failed: ReadFailed, deadline: float) -> None:
        """Request new metadata and wait briefly. The caller then retries its request.

        Raises EnvironmentFault if the failure is not temporary, or if the deadline has passed.
        """
        if fetched(failed.error) is not Fetched.AGAIN or asyncio.get_running_loop().time() > deadline:
            raise _fault(named, failed) from failed
        self._view.refresh()
        await asyncio.sleep(0.1)

    async def _gone(self, named: TopicPartition, position: int, end: int, failed: ReadFailed) -> EnvironmentFault:
        try:
            last, first = await bounds(self._asks, self.partition(named))
        except ReadFailed:
            return _fault(named, failed)
        if position < first:
            return RangeGone(
                f"{named}: the offsets {position} to {min(end, first) - 1} no longer exist; the log begins at {first}"
            )
        return EnvironmentFault(f"{named}: the offset {position} was requested, but the log ends at {last}")

    async def _led(self, partition: PartitionId) -> None:
        """Wait until the partition has a known leader. Raises EnvironmentFault if the topic is gone, or if no leader is
        known after `patience_s` seconds."""
        news = asyncio.Event()
        self._view.on_change.append(news.set)
        try:
            async with asyncio.timeout(self._patience_s):
                while self._view.leader(partition) is None:
                    if self._view.gone(partition.topic_id):
                        raise EnvironmentFault(f"{partition.topic} was deleted, or re-created, while it was being read")
                    news.clear()
                    self._view.refresh()
                    await news.wait()
        except TimeoutError:
            why = self._view.error or "it has no leader"
            raise EnvironmentFault(f"{partition.topic}-{partition.partition} cannot be read: {why}") from None
        finally:
            self._view.on_change.remove(news.set)


@asynccontextmanager
async def open_logs(
    alias: Alias,
    cluster: ClusterConfig,
    topics: Collection[str],
    *,
    patience_s: float = PATIENCE_S,
    rebuild_bytes: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> AsyncGenerator[LogReader]:
    """Open a reader for these topics. `rebuild_bytes` is the flow's limit for decompressed batches. `chunk_bytes` is
    the approximate size of the response to a fetch.

    Raises EnvironmentFault, or ConfigError if a topic does not exist.
    """
    admin = KafkaTopicAdmin(cluster, patience_s)
    try:
        seen = await admin.describe(topics)
        unknown = sorted(set(topics) - set(seen.topics))
        if unknown:
            raise await _unknown(alias, unknown[0], seen.refused.get(unknown[0], ""), admin)
    finally:
        await admin.close()
    options = ConnectionOptions(connect_timeout_s=patience_s, request_timeout_s=patience_s)
    view = ClusterView(alias, cluster, BufferPool(), options, seen.cluster_id)
    view.start()
    reader = LogReader(view, seen.topics, patience_s, rebuild_bytes, chunk_bytes)
    try:
        yield reader
    finally:
        reader.close()
        await view.close()


async def _unknown(alias: Alias, topic: str, why: str, admin: KafkaTopicAdmin) -> ConfigError:
    like = closest_name(topic, (await admin.describe()).topics)
    hint = f'; did you mean "{like}"?' if like else ""
    reason = f" ({why})" if why and why != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name else ""
    return ConfigError(f'{alias} has no topic "{topic}"{reason}{hint}')


def _fault(named: TopicPartition, failed: ReadFailed) -> EnvironmentFault:
    return EnvironmentFault(f"{named} cannot be read: {ErrorCode.name_of(failed.error)}")
