"""The interface through which all code reads the time and waits. Tests replace the clock to control time."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A clock for all code that waits or reads the time. Times from two different clocks must not be compared."""

    def monotonic(self) -> float:
        """Return the number of seconds since an arbitrary point in time. The value never jumps, and it also advances
        while the machine is suspended."""
        ...

    def wall_ms(self) -> int:
        """Return the number of milliseconds since 1970. The value is meant only for display, because the wall clock may
        jump."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for this number of seconds."""
        ...


class SystemClock:
    """The machine's clocks.

    `monotonic` reads CLOCK_BOOTTIME. `time.monotonic` and the event loop's time are not used, because they stop while
    the machine is suspended. With such a clock, a lease that expired during a suspension would still seem to be valid.
    """

    def monotonic(self) -> float:
        """Return the number of seconds since the machine was booted."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_ms(self) -> int:
        """Return the number of milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Wait for this number of seconds on the event loop."""
        await asyncio.sleep(seconds)
