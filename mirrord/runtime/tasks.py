"""Tasks that nobody waits for: what goes wrong in one must not stay unknown because somebody still holds it."""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger()


def tell_failure(event: str, **context: str) -> Callable[[asyncio.Task[Any]], None]:
    """For `add_done_callback`: should the task fail, the log says so. `event` is what the log calls it; `context`
    stands beside it."""

    def tell(task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(event, exc_info=error, **context)

    return tell
