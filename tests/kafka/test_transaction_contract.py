"""Real brokers do about transactions of other clients what the simulator's fake does."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import pytest

from mirrord.kafka.protocol.api_versions import Api
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.primitives import INT16, INT32, INT64, NO_TAGS, compact_array, compact_string
from mirrord.lab.cluster import Cluster
from mirrord.lab.server_properties import LabOptions
from tests.fixtures.lab import LabPair
from tests.fixtures.lab_partition import LabTarget
from tests.fixtures.lab_transactions import LabTransactionalPartition
from tests.sim.contract import Answered, Batch
from tests.sim.transaction_contract import IdleContract, TransactionContract, TransferContract


@pytest.fixture(scope="module")
def lab_two() -> Generator[Cluster]:
    with Cluster(LabOptions(brokers=2)) as cluster:
        yield cluster


@asynccontextmanager
async def _with_clients(cluster: Cluster) -> AsyncGenerator[LabTarget]:
    found = LabTarget(cluster, LabTransactionalPartition)
    try:
        yield found
    finally:
        for each in found.partitions:
            assert isinstance(each, LabTransactionalPartition)
            await each.close_clients()
        await found.aclose()


@pytest.fixture
async def target(lab_pair: LabPair) -> AsyncGenerator[LabTarget]:
    async with _with_clients(lab_pair.target) as found:
        yield found


@pytest.fixture
async def ticking(lab_ticking: Cluster) -> AsyncGenerator[LabTarget]:
    async with _with_clients(lab_ticking) as found:
        yield found


@pytest.fixture
async def two(lab_two: Cluster) -> AsyncGenerator[LabTarget]:
    async with _with_clients(lab_two) as found:
        yield found


class TestTransactions(TransactionContract):
    pass


class TestIdle(IdleContract):
    pass


class TestTransfer(TransferContract):
    pass


WRITE_TXN_MARKERS = Api(27, "WriteTxnMarkers", 1, 1)


async def test_a_marker_for_the_lanes_producer_changes_nothing(target: LabTarget) -> None:
    """An operator may write a marker for any producer id (`kafka-transactions.sh abort --producer-id`)."""
    partition = await target.topic()
    assert isinstance(partition, LabTransactionalPartition)
    first = Batch(await partition.producer(), 0)
    assert await partition.produce(first) == Answered(0, 0)
    topic = compact_string(partition.name) + compact_array([INT32.pack(0)]) + NO_TAGS
    marker = INT64.pack(first.producer) + INT16.pack(0) + b"\0" + compact_array([topic]) + INT32.pack(0) + NO_TAGS
    connection = await target.connection(partition.leader)
    await connection.call(WRITE_TXN_MARKERS, compact_array([marker]) + NO_TAGS, WRITE_TXN_MARKERS.greatest)
    await partition.marked(11)
    assert await partition.last_sequence(first.producer) == 9
    assert await partition.produce(first.next()) == Answered(0, 11)
    assert [(each.base, each.producer, each.sequence) for each in await partition.read_all()] == [
        (0, first.producer, 0),
        (10, first.producer, -1),
        (11, first.producer, 10),
    ]


async def test_a_marker_with_a_higher_epoch_fences_the_lanes_producer(target: LabTarget) -> None:
    """Late batches of the lane, with the epoch that it has used, are refused from then on."""
    partition = await target.topic()
    assert isinstance(partition, LabTransactionalPartition)
    first = Batch(await partition.producer(), 0)
    assert await partition.produce(first) == Answered(0, 0)
    topic = compact_string(partition.name) + compact_array([INT32.pack(0)]) + NO_TAGS
    marker = INT64.pack(first.producer) + INT16.pack(1) + b"\0" + compact_array([topic]) + INT32.pack(0) + NO_TAGS
    connection = await target.connection(partition.leader)
    await connection.call(WRITE_TXN_MARKERS, compact_array([marker]) + NO_TAGS, WRITE_TXN_MARKERS.greatest)
    await partition.marked(11)
    assert (await partition.produce(first.next())).error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert [(each.base, each.sequence) for each in await partition.read_all()] == [(0, 0), (10, -1)]
