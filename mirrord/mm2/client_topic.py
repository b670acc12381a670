"""Creates, writes and reads one of the topics that MirrorMaker 2's clients use.

Such a topic has one partition and is compacted. MirrorMaker 2 and other mirrord daemons may also write to it. The
records are written by an idempotent producer without transactions. The Java clients do not need transactions, because
they also read uncommitted records.
"""

from collections.abc import AsyncGenerator, Sequence

from mirrord.config.flow_features import InternalFactor
from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client import internal_topics
from mirrord.kafka.client.topic_admin import KafkaTopicAdmin
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.list_offsets import EARLIEST, LATEST
from mirrord.kafka.rules.topic import BROKER_DEFAULT, TopicShape
from mirrord.ledger.store.partition_io import DivergingEpoch, KeyValue, OutOfRange, PartitionReader, PartitionWriter
from mirrord.ledger.store.topics import LedgerTopics
from mirrord.model.errors import EnvironmentFault

COMPACT = {"cleanup.policy": "compact"}
SMALL = COMPACT | {
    # The topic must remain small, because clients read the whole topic within a time limit. The segments are small,
    # because only closed segments are compacted.
    "segment.bytes": str(4 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "max.compaction.lag.ms": str(10 * 60_000),
}


class Mm2Topic(LedgerTopics):
    """One topic for MirrorMaker 2's clients on one cluster. An operation that fails raises EnvironmentFault."""

    def __init__(self, name: str, cluster: ClusterConfig, timeout_s: float) -> None:
        super().__init__("", cluster, timeout_s)
        self.ledger = self.state = name
        self._name = name
        self._admin = KafkaTopicAdmin(cluster, timeout_s)
        self._writer = self._new_writer()

    async def create(self, factor: InternalFactor, settings: dict[str, str]) -> bool:
        """Create the topic if it does not exist. Return whether it was created.

        If the cluster has fewer brokers than `factor`, the topic gets fewer replicas.
        """
        seen = await self._admin.describe([self._name])
        known = seen.topics.get(self._name)
        if known is not None:
            if known.partitions != 1:
                raise EnvironmentFault(f"the topic {self._name} has {known.partitions} partitions; it must have one")
            return False
        reason = seen.refused.get(self._name, "")
        if reason and reason != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
            raise EnvironmentFault(f"the topic {self._name} may not be used: {reason}")
        wanted = BROKER_DEFAULT if factor == "broker" else factor
        await internal_topics.create(self._admin, self._name, TopicShape(1, wanted, settings), seen.brokers)
        return True

    async def exists(self) -> bool:
        """Return whether the topic exists and mirrord is allowed to describe it."""
        return self._name in (await self._admin.describe([self._name])).topics

    async def write(self, records: Sequence[KeyValue]) -> None:
        """Append records. Return when all of them have been replicated.

        After an error, the topic may contain none of the records, only the first few of them, or all of them.
        """
        try:
            await self._writer.write(records)
        except EnvironmentFault:
            # The topic may have been deleted and re-created under the same name. A new writer can write to the new
            # topic.
            self._writer = self._new_writer()
            raise

    async def read_all(self) -> list[KeyValue]:
        """Return all records up to the current end of the topic."""
        start, end = await self._bounds()
        reader = PartitionReader(self, self._name, compacted=True)
        reader.seek(start)
        found: list[KeyValue] = []
        try:
            while reader.position < end:
                found += [(record.key, record.value) for record in await reader.take()]
        except (OutOfRange, DivergingEpoch):
            raise EnvironmentFault(f"{self._name} was truncated while it was being read") from None
        finally:
            reader.stop()
        return found

    async def follow(self) -> AsyncGenerator[list[KeyValue]]:
        """Yield the records that are appended from now on.

        The first list is empty and is yielded once the current end of the topic is known. All records that are appended
        after this end are yielded.
        """
        _, end = await self._bounds()
        reader = PartitionReader(self, self._name, compacted=True)
        reader.seek(end)
        try:
            yield []
            while True:
                yield [(record.key, record.value) for record in await reader.take()]
        except (OutOfRange, DivergingEpoch):
            raise EnvironmentFault(f"{self._name} was truncated while it was being read") from None
        finally:
            reader.stop()

    async def end(self) -> None:
        """Close the connections to the cluster."""
        self.close()
        await self._admin.close()

    def _new_writer(self) -> PartitionWriter:
        return PartitionWriter(self, self._name, self.timeout_s)

    async def _bounds(self) -> tuple[int, int]:
        async def ask() -> tuple[int, int]:
            found = await self._metadata((self._name,))
            start = await self._offsets(found, EARLIEST, (self._name,))
            end = await self._offsets(found, LATEST, (self._name,))
            return start[self._name].offset, end[self._name].offset

        return await self.asking(ask)
