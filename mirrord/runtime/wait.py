"""Waits for an asyncio event with a time limit."""

import asyncio
from contextlib import suppress


async def wait_for(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until the event is set or the time limit has passed. If `seconds` is None, there is no time limit.

    Unlike `asyncio.wait_for` in Python 3.11, this function never swallows a cancellation.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
