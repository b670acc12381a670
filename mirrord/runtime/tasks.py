"""Runs background tasks that no code awaits.

A failure of such a task must be logged when it happens. asyncio itself would log it only when the task object is
garbage-collected. Work that must never end is started again after a failure.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import structlog

AGAIN_S = 0.5
"""The first pause before work that has failed is started again."""
MOST_PAUSE_S = 60.0

log = structlog.get_logger()


def report_failure(event: str, **context: str) -> Callable[[asyncio.Task[Any]], None]:
    """Return a callback for `asyncio.Task.add_done_callback` that logs a failure of the task.

    `event` is the name of the log event, and `context` is logged with it.
    """

    def report(task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(event, exc_info=error, **context)

    return report


async def keep_running(work: Callable[[], Coroutine[Any, Any, None]], event: str, **context: str) -> None:
    """Run work that normally does not end, and return when it does.

    If it fails with an error that it does not expect, log the error under the name `event` with `context`, and start
    the work again after a pause. The pause doubles with each failure up to `MOST_PAUSE_S` seconds, and is short again
    after the work has run for longer than that.
    """
    loop = asyncio.get_running_loop()
    pause_s = 0.0
    while True:
        began = loop.time()
        try:
            await asyncio.sleep(pause_s)
            await work()
        except Exception as error:
            log.error(event, exc_info=error, **context)
            lasted = loop.time() - began > pause_s + MOST_PAUSE_S
            pause_s = AGAIN_S if lasted else min(max(2 * pause_s, AGAIN_S), MOST_PAUSE_S)
        else:
            return


async def run_together(*works: Coroutine[Any, Any, None]) -> None:
    """Run coroutines side by side until all have ended. If one of them fails, or this call is cancelled, cancel the
    others, wait for their end, and raise the error. `asyncio.gather` would leave the others running, and nobody would
    notice their end any more."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class BackgroundTasks:
    """The running background tasks of one owner.

    The event loop itself holds only weak references to tasks. Therefore this object holds a reference to each task
    until the task has ended.
    """

    def __init__(self, event: str, **context: str) -> None:
        """`event` is the name of the log event for a failure, and `context` is logged with it."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._event = event
        self._context = context

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(tuple(self._tasks))

    def start(self, work: Coroutine[Any, Any, Any], *, name: str | None = None, **context: str) -> asyncio.Task[Any]:
        """Run a coroutine in a new task with this name, and return the task. If the task fails, `context` is logged
        with the failure."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(report_failure(self._event, **self._context, **context))
        return task

    def keep(
        self, work: Callable[[], Coroutine[Any, Any, None]], *, name: str | None = None, **context: str
    ) -> asyncio.Task[None]:
        """Run work that must not end in a new task with this name, and return the task (see `keep_running`)."""
        return self.start(keep_running(work, self._event, **self._context, **context), name=name)

    def cancel(self) -> None:
        """Cancel all tasks, without waiting for them to end."""
        for task in self:
            task.cancel()

    async def end(self) -> None:
        """Cancel all tasks, and wait for them to end."""
        self.cancel()
        await asyncio.gather(*self, return_exceptions=True)
