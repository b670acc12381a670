"""Handles SIGHUP: the daemon reads its configuration file again and applies the changes. A daemon that was started from
a terminal stops instead, because SIGHUP then means that the terminal has been closed."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable

import structlog

from mirrord.config.changes import ConfigChanges
from mirrord.model.errors import MirrordError

log = structlog.get_logger()


def reload_on_hangup(reload: Callable[[], Awaitable[ConfigChanges]], stop: Callable[[], Awaitable[None]]) -> None:
    """Install the SIGHUP handler in the running event loop. `reload` makes the daemon read its file again."""
    tasks: set[asyncio.Task[None]] = set()

    def begin() -> None:
        task = asyncio.create_task(_stop(stop) if sys.stdin.isatty() else _reload(reload))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, begin)


async def _stop(stop: Callable[[], Awaitable[None]]) -> None:
    await stop()


async def _reload(reload: Callable[[], Awaitable[ConfigChanges]]) -> None:
    """Make the daemon read its file again. If the file cannot be applied, nothing changes, and the reason is
    logged."""
    try:
        refused = (await reload()).refused
    except MirrordError as fault:
        refused = (str(fault),)
    if refused:
        log.error("configuration_not_taken", reason="\n".join(refused))
