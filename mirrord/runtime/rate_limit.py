"""Limits the number of bytes per second, averaged over some seconds."""

import asyncio
import time

LEAST_WAIT_S = 0.05
"""Shorter waits are combined."""


class Pace:
    """The rate limit of one reader. None means no limit."""

    def __init__(self, bytes_per_s: float | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    async def took(self, size_bytes: int) -> None:
        """Account for bytes that were read, and wait until more may be read."""
        if self._bytes_per_s is None:
            return
        now = time.monotonic()
        self._free_at = max(now, self._free_at) + size_bytes / self._bytes_per_s
        if self._free_at - now > LEAST_WAIT_S:
            await asyncio.sleep(self._free_at - now)
