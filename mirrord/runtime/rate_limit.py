"""So many bytes a second at most, over some seconds."""

import asyncio
import time

LEAST_WAIT_S = 0.05
"""Shorter waits are put together."""


class Pace:
    """For one reader; None: as fast as it goes."""

    def __init__(self, bytes_per_s: float | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    async def took(self, size_bytes: int) -> None:
        """So much was read: wait until more may be."""
        if self._bytes_per_s is None:
            return
        now = time.monotonic()
        self._free_at = max(now, self._free_at) + size_bytes / self._bytes_per_s
        if self._free_at - now > LEAST_WAIT_S:
            await asyncio.sleep(self._free_at - now)
