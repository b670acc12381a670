"""Real brokers do about transactions of other clients what the simulator's fake does."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import pytest

from mirrord.lab.cluster import Cluster
from mirrord.lab.server_properties import LabOptions
from tests.fixtures.lab import LabPair
from tests.fixtures.lab_partition import LabTarget
from tests.fixtures.lab_transactions import LabTransactionalPartition
from tests.sim.transaction_contract import IdleContract, TransactionContract, TransferContract


@pytest.fixture(scope="module")
def lab_ticking() -> Generator[Cluster]:
    with Cluster(LabOptions(properties={"producer.id.expiration.check.interval.ms": "1000"})) as cluster:
        yield cluster


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
