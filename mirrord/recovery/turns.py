"""Divides a long computation into turns, so that the other tasks of the event loop can run in between."""

import asyncio
import time
from collections.abc import Awaitable, Iterable
from typing import TypeVar

TURN_ITEMS = 200
"""Number of items that are computed in one turn."""

T = TypeVar("T")


class Turns:
    """The turns of one computation, and the CPU time that they have used."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        """CPU time in seconds, without the turns of other tasks and without the current turn."""
        self._began = time.thread_time()

    async def pause(self) -> None:
        """End the current turn, and begin the next one after the other tasks have run."""
        await self.outside(asyncio.sleep(0))

    async def outside(self, work: Awaitable[T]) -> T:
        """Wait for work whose CPU time is not counted, such as requests."""
        self.spent_s += time.thread_time() - self._began
        try:
            return await work
        finally:
            self._began = time.thread_time()

    async def collect(self, items: Iterable[T]) -> list[T]:
        """Return the items of a generator, with pauses."""
        found: list[T] = []
        for each in items:
            found.append(each)
            if len(found) % TURN_ITEMS == 0:
                await self.pause()
        return found
