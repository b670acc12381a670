"""An event loop in the time of the simulation."""

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from heapq import heappop, heappush
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class VirtualLoop(asyncio.AbstractEventLoop):
    """The event loop of one process. Nothing runs until `run` is called, and timers never elapse by themselves."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` returns the time of the simulation."""
        self._now = now
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._number = 0
        self._runs = False
        self.faults: list[BaseException] = []
        """Exceptions that no task has handled."""

    def run(self) -> None:
        """Run everything that is due, until all tasks wait for something. Do nothing if it runs already."""
        if self._runs:
            return
        outer, self._runs = events._get_running_loop(), True
        events._set_running_loop(self)
        try:
            while True:
                while self._timers and self._timers[0][0] <= self._now():
                    self._ready.append(heappop(self._timers)[2])
                if not self._ready:
                    return
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            events._set_running_loop(outer)
            self._runs = False

    @property
    def next_at(self) -> float | None:
        """When the next timer elapses, or None if there is none."""
        while self._timers and self._timers[0][2].cancelled():
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    # The interface of an event loop, as far as tasks, futures and timeouts use it

    def time(self) -> float:
        return self._now()

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, ResultT] | Generator[Any, None, ResultT],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[ResultT]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._number += 1
        heappush(self._timers, (when, self._number, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called for each timer that is cancelled. `run` and `next_at` leave these out."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.faults.append(context.get("exception") or RuntimeError(str(context.get("message"))))
