"""Time, behind one door, so that tests can turn the clock."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What waits and what looks at the time asks a clock; a time of one clock means nothing to another."""

    def monotonic(self) -> float:
        """Seconds since some moment. It never jumps, and it goes on while the machine sleeps."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for people: the clock on the wall may jump."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clocks.

    `monotonic` is CLOCK_BOOTTIME. `time.monotonic` and the event loop's time stand still while the machine is
    suspended: by them a lease would seem to be valid afterwards.
    """

    def monotonic(self) -> float:
        """Seconds since the machine was started."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop."""
        await asyncio.sleep(seconds)
