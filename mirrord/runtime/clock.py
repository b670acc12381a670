"""The interface through which all code reads the time and waits, so that tests can control both."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The clock for all code that waits or reads the time. Times from two different clocks cannot be compared."""

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary moment. The value never jumps, and it advances while the machine is
        suspended."""
        ...

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970. The value is for people, because the wall clock may jump."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for this number of seconds."""
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
        """Wait for this number of seconds, on the event loop."""
        await asyncio.sleep(seconds)
