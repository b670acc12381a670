"""Checks whether the hooks of a failover could run. They are not run, and nothing is sent."""

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from mirrord.config.recovery import is_url, shown_hook

CONNECT_S = 5.0
_PORTS = {"https": 443, "http": 80}


async def hook_findings(hooks: Iterable[str]) -> list[str]:
    """Return one line for each hook that could not run: a program that this user cannot execute, or a server to which
    no connection can be opened."""
    chosen = list(dict.fromkeys(hooks))
    answers = await asyncio.gather(
        *(_server(hook) if is_url(hook) else asyncio.to_thread(_program, hook) for hook in chosen)
    )
    return [f"hook {shown_hook(hook)}: {why}" for hook, why in zip(chosen, answers, strict=True) if why]


def _program(hook: str) -> str:
    try:
        is_there = Path(hook).is_file()
    except OSError as error:
        return f"it cannot be found: {error.strerror}"
    if not is_there:
        return "there is no such program"
    return "" if os.access(hook, os.X_OK) else "this user may not execute the program"


async def _server(hook: str) -> str:
    parts = urlsplit(hook)
    port = parts.port or _PORTS[parts.scheme]
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except TimeoutError:
        return f"no connection to {parts.hostname}:{port} within {CONNECT_S:g} s"
    except (OSError, ValueError) as error:
        return f"no connection to {parts.hostname}:{port}: {getattr(error, 'strerror', None) or error}"
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return ""
