"""Readers of the fake logs, in place of those that the product reads logs with. Its own code can then answer the
questions of lanes in the simulation.

Like the real ones, they know if a log has no more batches below the requested end: the cleaner has removed the last
records, and an election those that followed. A real reader first lets the leader confirm this.
"""

import asyncio
from asyncio import events
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import lru_cache
from typing import Any, TypeVar

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.range_reader import ReadBatch, ReadFailed
from mirrord.kafka.protocol.record_batch import HEADER, Header, records_digest
from mirrord.model.names import TopicId
from tests.sim import toy
from tests.sim.source import OUT_OF_RANGE, FakeSource, SourceBatch
from tests.sim.target import FakeTarget, Stored
from tests.sim.transactions import InTransaction, aborted, last_stable

PARTITION = PartitionId("orders", TopicId("S" * 22), 0)
"""The fake logs have no other partition, so they ignore its name."""
TIMED_OUT = 7
"""The log cannot be read up to the requested end yet."""
ResultT = TypeVar("ResultT")


class SourceReader:
    """Reads the source, as `Stretches` and `Asks` do."""

    def __init__(self, source: FakeSource) -> None:
        self._source = source

    async def read(
        self, _partition: PartitionId, start: int, end: int, *, committed: bool = False
    ) -> AsyncGenerator[ReadBatch, None]:
        """`Stretches.read`."""
        source = self._source
        if start >= end:
            return
        if not source.start <= start <= source.end:
            raise ReadFailed(OUT_OF_RANGE)
        visible = source.last_stable if committed else source.end
        for batch in source.from_offset(start):
            if batch.last < visible and batch.base < end:
                yield _read(batch.encoded(source.keys), aborted=committed and self._is_aborted(batch))
        if end > visible:
            raise ReadFailed(TIMED_OUT)

    def _is_aborted(self, batch: SourceBatch) -> bool:
        transactions = self._source.aborted
        return any(batch.producer == who and first <= batch.base < marker for who, first, marker in transactions)

    def bounds(self, _partition: PartitionId, _leader_epoch: int, report: Callable[[int, int, int], None]) -> None:
        """`Asks.bounds`."""
        report(0, self._source.end, self._source.start)

    def end(self, _partition: PartitionId, report: Callable[[int, int, int], None]) -> None:
        """`Asks.end`."""
        report(0, self._source.epochs[-1][0], self._source.end)

    def last_stable(self, _partition: PartitionId, report: Callable[[int, int], None]) -> None:
        """`Asks.last_stable`."""
        report(0, self._source.last_stable)


class TargetReader:
    """Reads the log of the target's leader, as `Stretches` and `Asks` do."""

    def __init__(self, log: FakeTarget) -> None:
        self._target = log

    async def read(
        self, _partition: PartitionId, start: int, end: int, *, committed: bool = False
    ) -> AsyncGenerator[ReadBatch, None]:
        """`Stretches.read`."""
        log = self._target
        if start >= end:
            return
        if log.unreadable:
            raise ReadFailed(TIMED_OUT)
        if not log.start <= start <= log.end:
            raise ReadFailed(OUT_OF_RANGE)
        visible = last_stable(log) if committed else log.high_watermark
        gone = aborted(log) if committed else ()
        for stored in log.read(start, end):
            if stored.end <= visible:
                yield _read(_bytes(stored, log.keys), aborted=stored.id in gone)
        if end > visible:
            raise ReadFailed(TIMED_OUT)

    def bounds(self, _partition: PartitionId, _leader_epoch: int, report: Callable[[int, int, int], None]) -> None:
        """`Asks.bounds`."""
        report(*self._target.visible(self._target.leader, self._target.epoch))

    def last_stable(self, partition: PartitionId, report: Callable[[int, int], None]) -> None:
        """`Asks.last_stable`."""
        self.bounds(partition, -1, lambda error, end, _: report(error, min(end, last_stable(self._target))))


class _Batch(ReadBatch):
    """A batch that is read many times."""

    @property
    def records_crc(self) -> int:
        return _digest(bytes(self.buffer))


@lru_cache(1000)
def _digest(data: bytes) -> int:
    return records_digest(data, 0)


@lru_cache(1000)
def _read(data: bytes, *, aborted: bool = False) -> ReadBatch:
    return _Batch(Header(*HEADER.unpack_from(data)), data, 0, len(data), aborted)


@lru_cache(1000)
def _bytes(stored: Stored, keys: int) -> bytes:
    """A batch of the target. The cleaner has removed the records with the number 0."""
    if isinstance(stored, InTransaction):
        return stored.encoded(keys)
    data = toy.encode(
        stored.base,
        stored.end - 1,
        [(offset, number) for offset, number in enumerate(stored.numbers, stored.base) if number],
        newest_ms=stored.newest_ms,
        leader_epoch=stored.leader_epoch,
        producer=(stored.producer, stored.epoch, stored.sequence),
        keys=keys,
    )
    return bytes(data)


class _StandingLoop(asyncio.AbstractEventLoop):
    """An event loop for code that has nothing to wait for: it only provides futures."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def get_debug(self) -> bool:
        return False


_LOOP = _StandingLoop()


def at_once(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a coroutine that has nothing to wait for, in one step of the simulation."""
    outer = events._get_running_loop()
    events._set_running_loop(_LOOP)
    try:
        while True:
            waits_for = work.send(None)
            assert waits_for is None, f"this would wait for {waits_for}"
    except StopIteration as end:
        return end.value
    finally:
        events._set_running_loop(outer)
