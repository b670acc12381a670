"""The simulator's fake does about transactions of other clients what real brokers do."""

import pytest

from tests.sim.contract import End, Stored
from tests.sim.stored import Stored as InLog
from tests.sim.test_contract import NOW_MS, FakeCluster, FakePartition
from tests.sim.transaction_contract import (
    Described,
    IdleContract,
    TransactionalClient,
    TransactionalPartition,
    TransactionContract,
    TransferContract,
)
from tests.sim.transactions import Client, InTransaction, TransactionalTarget, producer_id


class FakeClient(TransactionalClient):
    """Its coordinator writes its marker at once."""

    def __init__(self, partition: "FakeWithClients", client: Client) -> None:
        self.producer = producer_id(client.producer)
        self._partition, self._client = partition, client

    async def write(self, count: int, *, age_ms: int = 0) -> None:
        self._partition.log.write_in_transaction(self._client, count, NOW_MS - age_ms)
        self._partition.spread()

    async def end(self, *, commit: bool) -> None:
        self._partition.log.end_transaction(self._client, "commit" if commit else "abort", NOW_MS)
        self._partition.spread()
        self._partition.log.write_marker(self._client, NOW_MS)  # it is acknowledged


class FakeWithClients(FakePartition, TransactionalPartition):
    """A partition with two other clients."""

    def __init__(self) -> None:
        self.log = TransactionalTarget(clients=2)
        super().__init__(self.log)
        self._clients = iter(self.log.clients)

    async def client(self) -> FakeClient:
        return FakeClient(self, next(self._clients))

    async def stable(self) -> int:
        return self.log.last_stable(self.leader)

    async def described(self, producer: int, at: int | None = None) -> Described | None:
        at = self.leader if at is None else at
        for client in self.log.clients:
            if producer_id(client.producer) == producer:
                known = self.log.described(client.producer, at)
                return None if known is None else Described(known.newest_ms, known.begun)
        found = await self.last(producer, at)
        return Described(found[1], -1) if found else None

    async def marked(self, end: int) -> None:
        assert await self.visible() == End(0, end)

    async def read_all(self) -> list[Stored]:
        return [_stored(each) for each in self.log.read(0, self.log.high_watermark)]

    async def read_committed(self) -> list[Stored]:
        stable, gone = self.log.last_stable(), self.log.aborted()
        found = [each for each in self.log.read(0, stable) if each.id not in gone and each.end <= stable]
        return [_stored(each) for each in found if not (isinstance(each, InTransaction) and each.ending)]


def _stored(each: InLog) -> Stored:
    producer = producer_id(each.producer) if isinstance(each, InTransaction) else each.producer
    return Stored(each.base, each.count, producer, each.epoch, each.sequence)


@pytest.fixture
def target() -> FakeCluster:
    return FakeCluster(FakeWithClients)


@pytest.fixture
def ticking() -> FakeCluster:
    return FakeCluster(FakeWithClients)


@pytest.fixture
def two() -> FakeCluster:
    return FakeCluster(FakeWithClients)


class TestTransactions(TransactionContract):
    pass


class TestIdle(IdleContract):
    pass


class TestTransfer(TransferContract):
    pass
