"""Limits a rate, such as bytes or seconds of CPU time per second, averaged over a few seconds."""

import asyncio
import time

LEAST_WAIT_S = 0.05
"""Shorter waits are postponed until they add up to this number of seconds."""


class Pace:
    """The rate limit of one reader or task. If the limit is None, `took` never waits."""

    def __init__(self, units_per_s: float | None) -> None:
        self._units_per_s = units_per_s
        self._free_at = 0.0

    async def took(self, units: float) -> None:
        """Record that this much has been used, and wait until more may be used."""
        if self._units_per_s is None:
            return
        now = time.monotonic()
        self._free_at = max(now, self._free_at) + units / self._units_per_s
        if self._free_at - now > LEAST_WAIT_S:
            await asyncio.sleep(self._free_at - now)
