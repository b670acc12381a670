"""Limits a rate in bytes per second, averaged over a few seconds."""

import asyncio
import time

LEAST_WAIT_S = 0.05
"""Shorter waits are postponed until they add up to this number of seconds."""


class Pace:
    """The rate limit of one reader. If the limit is None, `took` never waits."""

    def __init__(self, bytes_per_s: float | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    async def took(self, size_bytes: int) -> None:
        """Record that this many bytes have been read, and wait until the reader may read more."""
        if self._bytes_per_s is None:
            return
        now = time.monotonic()
        self._free_at = max(now, self._free_at) + size_bytes / self._bytes_per_s
        if self._free_at - now > LEAST_WAIT_S:
            await asyncio.sleep(self._free_at - now)
