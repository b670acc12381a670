"""What a marker with a higher epoch does at real brokers: late batches of a lane's producer are refused for good, and
nobody else notices anything."""

import asyncio
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, closing

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.protocol.api_versions import WRITE_TXN_MARKERS
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.transaction_markers import (
    AbortMarker,
    MarkedPartition,
    decode_markers,
    encode_abort_markers,
)
from mirrord.lab.cluster import Cluster
from mirrord.model.names import TopicId
from mirrord.operations.rules.required_acls import KAFKA_CLUSTER
from mirrord.supervision.failover import producer_fence
from mirrord.supervision.failover.producer_fence import FenceObstacle, fence_obstacle, fence_off
from mirrord.supervision.rules.producer_fence import (
    COORDINATOR_EPOCH,
    LAST_EPOCH,
    NEEDED,
    NOT_FENCED,
    FormerProducer,
)
from tests.fixtures.daemon import SECONDS
from tests.fixtures.lab import Allow, LabPair, client_settings
from tests.fixtures.lab_partition import LabTarget
from tests.fixtures.lab_transactions import LabTransactionalPartition
from tests.fixtures.mirror import config_of, ends
from tests.fixtures.wire import open_to, security_of, topic_in
from tests.sim.contract import OLD_MS, Answered, Batch

USER = "stranger"
FENCED = "late batches to 1 partitions are refused by the target"
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH


@asynccontextmanager
async def _brokers(cluster: Cluster) -> AsyncGenerator[LabTarget]:
    found = LabTarget(cluster, LabTransactionalPartition)
    try:
        yield found
    finally:
        await found.aclose()


@pytest.fixture
async def target(lab_pair: LabPair) -> AsyncGenerator[LabTarget]:
    async with _brokers(lab_pair.target) as found:
        yield found


@pytest.fixture
async def ticking(lab_ticking: Cluster) -> AsyncGenerator[LabTarget]:
    async with _brokers(lab_ticking) as found:
        yield found


async def partition_of(target: LabTarget) -> LabTransactionalPartition:
    partition = await target.topic()
    assert isinstance(partition, LabTransactionalPartition)
    return partition


def former(partition: LabTransactionalPartition, producer: int, epoch: int = 0) -> FormerProducer:
    return FormerProducer(MarkedPartition(producer, partition.name, 0), TopicId(partition.topic.id), epoch)


async def fence(partition: LabTransactionalPartition, producer: int, epoch: int = 0) -> str:
    return await fence_off("us", config_of(partition.cluster), [former(partition, producer, epoch)])


async def mark(partition: LabTransactionalPartition, markers: Sequence[AbortMarker]) -> dict[MarkedPartition, int]:
    connection = await partition.target.connection(partition.leader)
    body = encode_abort_markers(markers)
    return decode_markers(await connection.call(WRITE_TXN_MARKERS, body, WRITE_TXN_MARKERS.greatest))


async def test_late_batches_of_a_fenced_producer_are_refused(target: LabTarget) -> None:
    """The next batch, a repeat of the last one, and one of much later. A repetition of the fence takes one offset."""
    partition = await partition_of(target)
    first = Batch(await partition.producer(), 0)
    assert await partition.produce(first) == Answered(0, 0)
    for number in (1, 2):
        assert await fence(partition, first.producer) == FENCED
        for late in (first.next(), first, first.next().next()):
            assert (await partition.produce(late)).error == OLD_EPOCH
        assert (await partition.visible()).end == 10 + number
    (state,) = await partition.producers()
    assert (state.producer_epoch, state.coordinator_epoch, state.transaction_start_offset) == (1, COORDINATOR_EPOCH, -1)
    # A higher epoch is there already, for example from an operator.
    assert await fence(partition, first.producer, 5) == FENCED
    assert await fence(partition, first.producer, 2) == FENCED
    assert (await partition.visible()).end == 13


async def test_an_older_broker_fences_as_well(lab_old: Cluster) -> None:
    async with _brokers(lab_old) as target:
        partition = await partition_of(target)
        first = Batch(await partition.producer(), 0)
        assert await partition.produce(first) == Answered(0, 0)
        for _ in range(2):
            assert await fence(partition, first.producer) == FENCED
            assert (await partition.produce(first.next())).error == OLD_EPOCH
        assert await fence_obstacle("us", config_of(lab_old), SECONDS) is None


async def test_a_producer_that_the_target_does_not_know_is_fenced(target: LabTarget) -> None:
    """Nothing of it has arrived, but its first batch may be under way."""
    partition = await partition_of(target)
    first = Batch(await partition.producer(), 0)
    assert await fence(partition, first.producer) == FENCED
    for late in (first, first.next()):
        assert (await partition.produce(late)).error == OLD_EPOCH
    assert (await partition.visible()).end == 1


async def test_a_producer_that_was_forgotten_is_fenced(ticking: LabTarget) -> None:
    """Without the fence, the broker would append any batch of a lane that copies old records."""
    partition = await partition_of(ticking)
    first = Batch(await partition.producer(), 0, age_ms=OLD_MS)
    assert await partition.produce(first) == Answered(0, 0)
    await partition.tick(first.producer)
    assert await fence(partition, first.producer) == FENCED
    for late in (first, first.next(), first.next().next()):
        assert (await partition.produce(late)).error == OLD_EPOCH
    # The age of the marker counts, and not that of the records.
    other = Batch(await partition.producer(), 0, age_ms=OLD_MS)
    assert await partition.produce(other) == Answered(0, 11)
    await partition.tick(other.producer)
    assert (await partition.produce(first.next())).error == OLD_EPOCH


async def test_a_fence_outlives_the_broker(lab_ticking: Cluster, ticking: LabTarget) -> None:
    partition = await partition_of(ticking)
    first = Batch(await partition.producer(), 0)
    assert await partition.produce(first) == Answered(0, 0)
    assert await fence(partition, first.producer) == FENCED
    await ticking.restart()
    assert (await partition.produce(first.next())).error == OLD_EPOCH


async def test_others_do_not_notice_a_fence(target: LabTarget) -> None:
    """Other producers continue, with and without transactions. Consumers see the records and no more."""
    partition = await partition_of(target)
    first, other = Batch(await partition.producer(), 0), Batch(await partition.producer(), 0)
    for batch in (first, other):
        assert (await partition.produce(batch)).error == 0
    assert await fence(partition, first.producer) == FENCED
    assert await partition.produce(other.next()) == Answered(0, 21)
    producer = Producer({**client_settings(target.cluster), "transactional.id": partition.name})
    await asyncio.to_thread(producer.init_transactions, SECONDS)
    producer.begin_transaction()
    producer.produce(partition.name, b"in a transaction", partition=0)
    await asyncio.to_thread(producer.commit_transaction, SECONDS)
    offsets = [*range(20), *range(21, 31), 31]
    for isolation in ("read_committed", "read_uncommitted"):
        assert await asyncio.to_thread(_consumed, target.cluster, partition.name, isolation) == (offsets, 33)
    assert await partition.stable() == 33


def _consumed(cluster: Cluster, topic: str, isolation: str) -> tuple[list[int], int]:
    """Return the offsets that a consumer reads, and its position at the end."""
    settings = {"group.id": topic, "isolation.level": isolation, "enable.partition.eof": True}
    consumer = Consumer({**client_settings(cluster), **settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    read: list[int] = []
    try:
        while (message := consumer.poll(SECONDS)) is not None and message.error() is None:
            offset = message.offset()
            assert offset is not None
            read.append(offset)
        assert message is not None, "no end"
        end = message.offset()
        assert end is not None
        return read, end
    finally:
        consumer.close()


async def test_many_producers_are_fenced_with_one_request(target: LabTarget) -> None:
    partition = await partition_of(target)
    markers = [AbortMarker(MarkedPartition(2**40 + each, partition.name, 0), 1, 0) for each in range(2_000)]
    assert set((await mark(partition, markers)).values()) == {0}
    assert (await partition.visible()).end == len(markers)


async def test_which_epochs_a_marker_may_have(target: LabTarget) -> None:
    partition = await partition_of(target)
    first = Batch(await partition.producer(), 0, epoch=LAST_EPOCH - 1)
    assert await partition.produce(first) == Answered(0, 0)
    where = MarkedPartition(first.producer, partition.name, 0)
    assert await mark(partition, [AbortMarker(where, LAST_EPOCH - 2, 0)]) == {where: OLD_EPOCH}
    assert await mark(partition, [AbortMarker(where, LAST_EPOCH, 7)]) == {where: 0}
    assert await mark(partition, [AbortMarker(where, LAST_EPOCH, 6)]) == {
        where: ErrorCode.TRANSACTION_COORDINATOR_FENCED
    }
    assert await mark(partition, [AbortMarker(where, LAST_EPOCH, COORDINATOR_EPOCH)]) == {where: 0}
    assert (await partition.produce(first.next())).error == OLD_EPOCH
    # A lane that has the highest epoch cannot be fenced, and the operator is told.
    line = await fence(partition, first.producer, LAST_EPOCH)
    assert line.endswith(f"to {partition.name}-0: {LAST_EPOCH} is the highest producer epoch")
    assert (await partition.visible()).end == 12


async def test_a_follower_refuses_a_marker(lab_three: Cluster) -> None:
    async with _brokers(lab_three) as target:
        partition = await partition_of(target)
        first = Batch(await partition.producer(), 0)
        assert await partition.produce(first) == Answered(0, 0)
        where = MarkedPartition(first.producer, partition.name, 0)
        connection = await target.connection(partition.follower)
        body = encode_abort_markers([AbortMarker(where, 1, 0)])
        answer = decode_markers(await connection.call(WRITE_TXN_MARKERS, body, WRITE_TXN_MARKERS.greatest))
        assert answer == {where: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert await fence(partition, first.producer) == FENCED
        await partition.elect()
        assert (await partition.produce(first.next())).error == OLD_EPOCH


class OnCluster:
    """The only ACL of a user on the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._admin = AdminClient(client_settings(cluster))

    def only(self, operation: AclOperation | None) -> None:
        """Allow only this operation, and wait until the broker knows it."""
        kind, literal, some = ResourceType.BROKER, ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        head = (kind, KAFKA_CLUSTER, literal, f"User:{USER}", "*")
        every = AclBindingFilter(*head, AclOperation.ANY, some)
        for done in self._admin.delete_acls([every]).values():
            done.result(SECONDS)
        if operation is not None:
            for done in self._admin.create_acls([AclBinding(*head, operation, some)]).values():
                done.result(SECONDS)
        wanted = [] if operation is None else [operation]
        deadline = time.monotonic() + SECONDS
        while [each.operation for each in self._admin.describe_acls(every).result(SECONDS)] != wanted:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture
def on_cluster(lab_sasl: Cluster) -> Generator[OnCluster]:
    acls = OnCluster(lab_sasl)
    yield acls
    acls.only(None)


async def test_which_permission_the_fence_needs(lab_sasl: Cluster, allow: Allow, on_cluster: OnCluster) -> None:
    """ALTER or CLUSTER_ACTION on the cluster. Without either, the failover continues, and says what is missing."""
    with closing(await open_to(lab_sasl)) as connection:
        topic = await topic_in(lab_sasl, connection)
    allow(USER, AclOperation.DESCRIBE, topic.name or "")
    user = ClusterConfig((lab_sasl.bootstrap,), security_of(lab_sasl, USER))
    producer = FormerProducer(MarkedPartition(2**40, topic.name or "", 0), TopicId(topic.id), 0)
    for operation in (None, AclOperation.ALTER, AclOperation.CREATE, AclOperation.CLUSTER_ACTION):
        await asyncio.to_thread(on_cluster.only, operation)
        obstacle, line = await fence_obstacle("us", user, SECONDS), await fence_off("us", user, [producer])
        if operation in {AclOperation.ALTER, AclOperation.CLUSTER_ACTION}:
            assert (obstacle, line) == (None, FENCED)
        else:
            why = f"us: CLUSTER_AUTHORIZATION_FAILED: {NEEDED}"
            assert obstacle == FenceObstacle(True, why)
            assert line == f"{NOT_FENCED} to {topic.name}-0: {why}"
    assert await asyncio.to_thread(ends, lab_sasl, topic.name or "") == {0: 2}


class TestFence:
    """What mirrord itself decides about partitions."""

    async def test_partitions_that_are_gone_or_have_no_leader(
        self, target: LabTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(producer_fence, "PATIENCE_S", 0.3)
        partition = await partition_of(target)
        producer = await partition.producer()
        known = former(partition, producer)
        cluster = config_of(target.cluster)
        # The partition is unknown to the broker, as after it has moved to another one.
        absent = known._replace(where=known.where._replace(partition=9))
        line = await fence_off("us", cluster, [known, absent])
        assert line == f"{FENCED}; {NOT_FENCED} to {partition.name}-9: it has no leader"
        nothing = "no partition can receive late batches"
        assert await fence_off("us", cluster, []) == nothing
        assert await fence_off("us", cluster, [known._replace(topic_id=TopicId("another"))]) == nothing
        await partition.delete_topic()
        assert await fence_off("us", cluster, [known]) == nothing
