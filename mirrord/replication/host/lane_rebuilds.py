"""Rebuilds the large batches of lanes without holding up the event loop.

A lane rebuilds a small batch at once, within its step. If a batch is large, its first step ends early
(`mirrord.kafka.records.steps`). The lane then interrupts the chunk before this batch, and requests `RebuildLater`. The
rest of the work is done while other lanes continue. Afterwards, the lane gets the rest of the chunk, and finds the
result here. The lane has one chunk at a time, so its records stay in order. If the lane no longer needs the chunk, it
cancels the request (`StopFetch`), or does not expect the answer.

Small batches can add up: a fetch may return thousands of them. Therefore, the rest of a chunk is also delivered later
if the lane has been rebuilding batches for `TURN_S` seconds.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from mirrord.kafka.records.large_batches import large_batches
from mirrord.kafka.records.steps import Begun, begin
from mirrord.replication.host.record_policies import Rebuilding
from mirrord.replication.lane.second_path import PolicyRefused, Postponed, RebuildRequest, RebuiltBatch
from mirrord.replication.lane.signals import Chunk, RebuildLater

TURN_S = 0.005
"""How long, in seconds, a lane may rebuild small batches before the event loop does other work."""
_NEVER = float("inf")


class _Rest(NamedTuple):
    """The work that is left of a request."""

    request: RebuildRequest
    begun: Begun[RebuiltBatch | None]


class ChunkTaker(Protocol):
    """Takes the rest of a chunk. Implemented by `HostedLane`."""

    @property
    def tell(self) -> Callable[[Chunk], None]:
        """The function to call with the chunk."""
        ...


class LaneRebuilds:
    """Rebuilds the batches of one lane. The object is the lane's `Rebuilder`."""

    def __init__(self, steps: Rebuilding, cluster: str, now: Callable[[], float] = time.perf_counter) -> None:
        """`steps` rebuilds a batch in steps, and `cluster` is the alias of the source cluster."""
        self._steps = steps
        self._cluster = cluster
        self._now = now
        self._until = _NEVER
        self._batch = -1
        """The position in the chunk of the batch that was last requested."""
        self._done: list[tuple[RebuildRequest, RebuiltBatch | Exception | None]] = []
        """The results that the lane has not used yet."""
        self._question = -1
        """The lane's open request, or -1 if there is none."""
        self._task: asyncio.Task[Any] | None = None

    def __call__(self, request: RebuildRequest) -> RebuiltBatch | None:
        """Rebuild a small batch, or return the result for a large one. Raises Postponed if there is none yet."""
        for known, result in self._done:
            if known.buffer is request.buffer and known == request:
                if isinstance(result, Exception):
                    raise result
                return result
        # The lane may rebuild pieces of a batch several times, and begins again with the batch after a pause. It would
        # never finish a batch that takes longer than a turn, so a turn ends only between two batches.
        is_same, self._batch = request.start == self._batch, request.start
        if self._until == _NEVER:
            self._until = self._now() + TURN_S
        elif not is_same and self._now() > self._until:
            raise Postponed(None)
        begun = begin(self._steps(request))
        if isinstance(begun, Begun):
            raise Postponed(_Rest(request, begun))
        return begun

    def new_chunk(self) -> None:
        """Note that the lane has processed its chunk."""
        self._until, self._batch = _NEVER, -1
        self._done.clear()

    def stop(self) -> None:
        """Cancel the work on a batch, because the lane no longer needs the chunk."""
        self._question = -1
        if self._task is not None:
            self._task.cancel()
        self.new_chunk()

    def later(self, effect: RebuildLater, hosted: ChunkTaker) -> Coroutine[Any, Any, None]:
        """Return the work on a batch as a coroutine. At its end, it delivers the rest of the chunk, unless the lane no
        longer needs it."""
        self._question = effect.question
        return self._later(effect, hosted)

    async def _later(self, effect: RebuildLater, hosted: ChunkTaker) -> None:
        if self._question != effect.question:
            return
        self._task = asyncio.current_task()
        try:
            if isinstance(effect.work, _Rest):
                await self._finish(effect.work)
            else:
                await asyncio.sleep(0)
        finally:
            self._task = None
        self._until = _NEVER
        if self._question == effect.question:
            hosted.tell(replace(effect.chunk, question=effect.question))

    async def _finish(self, work: _Rest) -> None:
        wanted = work.request
        result: RebuiltBatch | Exception | None
        try:
            result = await large_batches().finish(work.begun, self._cluster)
        except (PolicyRefused, ValueError) as error:
            result = error.with_traceback(None)  # the traceback would keep the records of the batch in memory
            result.__cause__ = result.__context__ = None
        # A batch may be rebuilt in several pieces, and a piece more than once with fewer records.
        self._done = [each for each in self._done if each[0].from_offset == wanted.from_offset]
        self._done.append((wanted, result))
