"""A worker under a lease: it joins, notices that the lease is lost, and ends in order."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from mirrord.config.schema import FlowConfig
from mirrord.ledger.facts.core import LeaseTaken
from mirrord.ledger.store.leased_worker import LeasedWorker
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.ledger.store.store import LedgerStore
from mirrord.runtime.clock import SystemClock
from mirrord.runtime.tasks import BackgroundTasks
from tests.fixtures.ledger import FLOW, HOLDER

DEADLINE_S = 10.0


class Log(MemoryLog):
    """A ledger that records how it was opened."""

    created: bool | None = None

    async def open(self, *, create: bool) -> None:
        self.created = create
        await super().open(create=create)


class Worker(LeasedWorker):
    """A worker with one task and one connection."""

    def __init__(self, log: MemoryLog) -> None:
        flow = FlowConfig(name="eu-us", source="eu", target="us", topics=(".*",))
        super().__init__("worker", flow, 60_000, log, BackgroundTasks("worker_task_failed"))
        self.ended: list[str] = []

    async def open(self) -> None:
        await self._join(1)
        started = asyncio.Event()
        self._tasks.start(self._work(started))
        await started.wait()

    async def close(self) -> None:
        await self._leave(self._close_connection)

    @property
    def may_write(self) -> bool:
        return self._may_write()

    @property
    def reads(self) -> bool:
        return self._store.failure is None

    async def _work(self, started: asyncio.Event) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append("task")

    async def _close_connection(self) -> None:
        assert self.reads, "what uses the ledger ends before it"
        self.ended.append("connection")


@pytest.fixture
def ledger() -> MemoryLedger:
    return MemoryLedger()


@pytest.fixture
async def daemon(ledger: MemoryLedger) -> AsyncGenerator[LedgerStore]:
    """The store of a daemon that has the lease."""
    store = LedgerStore(MemoryLog(ledger), SystemClock(), deadline_seconds=DEADLINE_S)
    await store.open()
    await store.append(0, [FLOW])
    await store.append(1, [LeaseTaken(1, HOLDER, 60_000)])
    yield store
    await store.close()


async def test_a_worker_writes_under_the_lease_until_another_daemon_takes_it(
    ledger: MemoryLedger, daemon: LedgerStore
) -> None:
    log = Log(ledger)
    worker = Worker(log)
    assert not worker.may_write
    await worker.open()
    assert log.created is False, "a worker does not make a ledger"
    assert worker.may_write
    lost = asyncio.create_task(worker.until_lost())
    await daemon.append(2, [LeaseTaken(2, HOLDER, 60_000)])
    async with asyncio.timeout(DEADLINE_S):
        await lost
    assert not worker.may_write
    await worker.close()
    assert worker.ended == ["task", "connection"]


async def test_a_worker_that_was_not_opened_can_be_closed(ledger: MemoryLedger) -> None:
    worker = Worker(Log(ledger))
    await worker.close()
    assert worker.ended == ["connection"]
