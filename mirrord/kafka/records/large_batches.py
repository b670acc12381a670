"""Decodes and rebuilds large batches without holding up the event loop.

The work is done in steps (`mirrord.kafka.records.steps`), and other tasks run between two steps. What takes long and
needs no Python code runs in a thread: decompression and compression.

A large batch can take several times `limits.rebuild_bytes` of memory. Therefore, one event loop works on one large
batch at a time. The clusters take turns, so that a cluster with many large batches delays those of another cluster by
no more than one batch.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar, cast
from weakref import WeakKeyDictionary

from mirrord.kafka.protocol.crc32c import Bytes
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.records.record_decoding import reading
from mirrord.kafka.records.steps import AT_ONCE, Begun, Elsewhere, Steps, begin

T = TypeVar("T")


class LargeBatches:
    """Carries out the work on the large batches of one event loop."""

    def __init__(self) -> None:
        self._is_busy = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Work that waits, by cluster. The cluster whose turn is next comes first."""
        # With one thread, work whose task was cancelled ends before other work begins.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-batch")

    async def finish(self, begun: Begun[T], cluster: str) -> T:
        """Carry out the rest of the work, and return its result. `cluster` is the alias of the cluster that the batch
        is from. Raises the errors of the work."""
        async with self._turn(cluster):
            steps, work = begun.steps, begun.first
            try:
                while True:
                    go_on = partial(next, steps) if work is None else await self._carried_out(steps, work)
                    await asyncio.sleep(0)
                    work = go_on()
            except StopIteration as end:
                return end.value
            finally:
                steps.close()

    async def _carried_out(self, steps: Steps[T], work: Elsewhere) -> Callable[[], Elsewhere | None]:
        """Run a function in the thread. Return the call that passes its result or its error on. Raises RuntimeError if
        this process is ending."""
        running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return partial(steps.send, await running)
        except Exception as error:  # noqa: BLE001 -- raised where the work is done
            return partial(steps.throw, error)

    @asynccontextmanager
    async def _turn(self, cluster: str) -> AsyncGenerator[None]:
        if self._is_busy:
            place = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(cluster, deque()).append(place)
            try:
                await place
            except asyncio.CancelledError:
                if place.done() and not place.cancelled():
                    self._pass_on()  # its turn had just come
                raise
        self._is_busy = True
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Let the next work begin."""
        self._is_busy = False
        while self._waiting:
            cluster = next(iter(self._waiting))
            places = self._waiting.pop(cluster)
            place = places.popleft()
            if places:
                self._waiting[cluster] = places  # after the other clusters
            if not place.done():
                self._is_busy = True
                place.set_result(None)
                return


_BY_LOOP: WeakKeyDictionary[asyncio.AbstractEventLoop, LargeBatches] = WeakKeyDictionary()


def large_batches() -> LargeBatches:
    """Return the object for the running event loop."""
    return _BY_LOOP.setdefault(asyncio.get_running_loop(), LargeBatches())


async def run(steps: Steps[T], cluster: str) -> T:
    """Carry out the work, and return its result. Work on a small batch is done at once. `cluster` is the alias of the
    cluster that the batch is from. Raises the errors of the work."""
    begun = begin(steps)
    if isinstance(begun, Begun):
        return await large_batches().finish(cast(Begun[T], begun), cluster)
    return begun


async def in_parts(records: Sequence[DecodedRecord]) -> AsyncGenerator[Sequence[DecodedRecord]]:
    """Yield the records in parts. Other tasks run in between."""
    for at in range(0, len(records), AT_ONCE):
        if at:
            await asyncio.sleep(0)
        yield records[at : at + AT_ONCE]


async def decoded(
    buffer: Bytes, start: int, end: int, rebuild_bytes: int | None = None, cluster: str = ""
) -> list[DecodedRecord]:
    """Decode the records of a batch as `mirrord.kafka.records.record_decoding.decode` does, without holding up the
    event loop if the batch is large. `cluster` is the alias of the cluster that the batch is from."""
    return (await run(reading(buffer, start, end, rebuild_bytes), cluster)).records
