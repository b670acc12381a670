"""Runs background tasks that no code awaits.

A failure of such a task must be logged when it happens. asyncio itself would log it only when the task object is
garbage-collected.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import structlog

log = structlog.get_logger()


def report_failure(event: str, **context: str) -> Callable[[asyncio.Task[Any]], None]:
    """Return a callback for `asyncio.Task.add_done_callback` that logs a failure of the task.

    `event` is the name of the log event, and `context` is logged with it.
    """

    def report(task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(event, exc_info=error, **context)

    return report


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

    def cancel(self) -> None:
        """Cancel all tasks, without waiting for them to end."""
        for task in self:
            task.cancel()

    async def end(self) -> None:
        """Cancel all tasks, and wait for them to end."""
        self.cancel()
        await asyncio.gather(*self, return_exceptions=True)
