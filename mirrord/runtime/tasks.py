"""Background tasks that no code awaits. A failure of such a task must be reported, even while a reference to the task
still exists."""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger()


def tell_failure(event: str, **context: str) -> Callable[[asyncio.Task[Any]], None]:
    """Return a callback for `add_done_callback` that logs a failure of the task. `event` is the name of the log event,
    and `context` is added to it."""

    def tell(task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(event, exc_info=error, **context)

    return tell
