"""A single interface for time, so that tests can control the clock."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The clock for all code that waits or reads the time. Times of different clocks cannot be compared."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment. The value never jumps, and it advances while the machine sleeps."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, for people: the wall clock may jump."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clocks.

    `monotonic` is CLOCK_BOOTTIME. `time.monotonic` and the event loop's time stop while the machine is suspended, so a
    lease would still seem to be valid after that.
    """

    def monotonic(self) -> float:
        """Return seconds since the machine was started."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_ms(self) -> int:
        """Return milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop."""
        await asyncio.sleep(seconds)
