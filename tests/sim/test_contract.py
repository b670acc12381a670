"""The simulator's fake keeps the contract that real brokers keep."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from tests.sim import toy
from tests.sim.contract import (
    NOT_LEADER,
    Answered,
    Batch,
    BrokerContract,
    End,
    ForgettingContract,
    LeadershipContract,
    Partition,
    Stored,
    Target,
)
from tests.sim.epoch_contract import EpochContract
from tests.sim.target import FakeTarget

NOW_MS = 1_700_000_000_000


class Waiting(NamedTuple):
    """A batch that a broker has accepted, and that is not acknowledged yet."""

    at: int
    base: int
    end: int
    epoch: int
    answer: asyncio.Future[Answered]


class FakePartition(Partition):
    """Replication and elections take effect at once, except on a suspended broker."""

    def __init__(self, target: FakeTarget | None = None) -> None:
        self.target = target or FakeTarget()
        self.leader, self.follower = 0, 1
        self._producers = 500
        self._paused: set[int] = set()
        self._waiting: list[Waiting] = []

    def now_ms(self) -> int:
        return NOW_MS

    def build(self, batch: Batch) -> bytes:
        records = [(delta, batch.content * 10**9 + batch.sequence + delta) for delta in range(batch.count)]
        producer = (batch.producer, batch.epoch, batch.sequence)
        newest_ms = NOW_MS - batch.age_ms
        return bytes(toy.encode(0, batch.count - 1, records, newest_ms=newest_ms, producer=producer, leader_epoch=-1))

    async def begin(self, data: bytes, at: int | None = None) -> asyncio.Future[Answered]:
        at = self.leader if at is None else at
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        error, base = self.target.produce(at, data, NOW_MS)
        if error:
            answer.set_result(Answered(error, base))
        else:
            count = len(toy.records(data))
            self._waiting.append(Waiting(at, base, base + count, self.target.brokers[at].epoch, answer))
            self.spread()
        return answer

    async def producer(self) -> int:
        self._producers += 1
        return self._producers

    async def leader_epoch(self) -> int:
        return self.target.epoch

    async def end(self, epoch: int | None = None, at: int | None = None) -> End:
        answer = self.target.end_for(
            self.leader if at is None else at, await self.leader_epoch() if epoch is None else epoch
        )
        return End(answer[0], answer[2])

    async def end_of(self, epoch: int) -> tuple[int, int]:
        error, known, end = self.target.shared(self.leader, self.target.epoch, epoch)
        assert error == 0
        return known, end

    async def visible(self, epoch: int | None = None, at: int | None = None) -> End:
        answer = self.target.visible(
            self.leader if at is None else at, await self.leader_epoch() if epoch is None else epoch
        )
        return End(answer[0], answer[1])

    async def last(self, producer: int, at: int | None = None) -> tuple[int, int] | None:
        error, found = self.target.producers(self.leader if at is None else at, producer, NOW_MS)
        assert error == 0
        return (found[0], NOW_MS - found[1]) if found else None

    async def read(self) -> list[Stored]:
        found = self.target.read(0, self.target.high_watermark)
        return [Stored(each.base, each.count, each.producer, each.epoch, each.sequence) for each in found]

    async def reconnect(self) -> None:
        pass

    async def tick(self, producer: int) -> None:
        for broker in (0, 1):
            self.target.forget(broker, NOW_MS)
        assert await self.last(producer) is None

    async def delete_records(self, below: int) -> None:
        self.target.start = below

    async def delete_topic(self) -> None:
        self.target.exists = False

    async def create_topic(self) -> None:
        self.target = FakeTarget()

    async def elect(self) -> None:
        assert self.target.elect()
        self.leader, self.follower = self.follower, self.leader
        self.spread()

    async def elect_unclean(self, lost: Callable[[], Awaitable[None]]) -> None:
        self._paused.add(self.follower)
        self.target.in_sync = False
        await lost()
        self._paused.clear()
        await self.elect()

    async def pause(self, broker: int) -> None:
        self._paused.add(broker)

    async def resume(self, broker: int) -> None:
        self._paused.remove(broker)
        self.spread()

    def spread(self) -> None:
        """Let replication take effect."""
        if not self._paused:
            self.target.learn(NOW_MS)
            while self.target.replicate():
                pass
        for waiting in list(self._waiting):
            if self.target.committed(waiting.at, waiting.end, waiting.epoch):
                waiting.answer.set_result(Answered(0, waiting.base))
            elif self._paused:
                continue
            else:
                waiting.answer.set_result(Answered(NOT_LEADER, -1))
            self._waiting.remove(waiting)


class FakeCluster(Target):
    """A target in which every topic is a separate cluster."""

    def __init__(self, new: Callable[[], FakePartition] = FakePartition) -> None:
        self._new = new
        self._partitions: list[FakePartition] = []

    async def partition(self) -> FakePartition:
        self._partitions.append(self._new())
        return self._partitions[-1]

    async def restart(self) -> None:
        for partition in self._partitions:
            for broker in (0, 1):
                partition.target.reload(broker, NOW_MS)


@pytest.fixture
def target() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def ticking() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def two() -> FakeCluster:
    return FakeCluster()


class TestBroker(BrokerContract):
    pass


class TestForgetting(ForgettingContract):
    pass


class TestLeadership(LeadershipContract):
    pass


class TestEpochs(EpochContract):
    pass
