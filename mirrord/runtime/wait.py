"""Waiting for something to happen, but not for ever."""

import asyncio
from contextlib import suppress


async def wait_for(event: asyncio.Event, seconds: float | None) -> None:
    """Until the event is set, or so long; None: for ever.

    Unlike `asyncio.wait_for` of Python 3.11 it never swallows a cancellation.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
