"""Answers that are computed at most about once a second, however often clients ask for them. Computing the status of
thousands of lanes takes long enough to delay the renewal of leases."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from mirrord.runtime.clock import Clock

KEPT_S = 1.0
LONGEST_KEPT_S = 10.0
SHARE = 0.05
"""The greatest share of a CPU core that computing one answer may use."""

MOST_WAITING = 32
"""Maximum number of clients that wait for shared answers at a time."""

T = TypeVar("T")


class TooManyWait(Exception):
    """Raised when too many clients are already waiting for an answer."""


class CachedAnswer(Generic[T]):
    """An answer that is computed when it is asked for, and then kept for a while."""

    def __init__(self, compute: Callable[[], T], clock: Clock) -> None:
        self._compute = compute
        self._clock = clock
        self._kept: T | None = None
        self._until = float("-inf")

    def get(self) -> T:
        """Return the answer."""
        began = self._clock.monotonic()
        if self._kept is None or began >= self._until:
            self._kept = self._compute()
            took_s = self._clock.monotonic() - began
            self._until = began + took_s + min(max(KEPT_S, took_s / SHARE), LONGEST_KEPT_S)
        return self._kept

    def drop(self) -> None:
        """Compute the answer again when it is next asked for, because something has changed."""
        self._until = float("-inf")


class SharedAnswers(Generic[T]):
    """Answers that need requests to other servers. Only one is computed at a time; clients that ask for the same one in
    the meantime share it."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._pending: dict[Hashable, asyncio.Task[T]] = {}
        self._waiting = 0

    async def get(self, key: Hashable, compute: Callable[[], Awaitable[T]]) -> T:
        """Return the answer with this key. Raises TooManyWait."""
        if self._waiting >= MOST_WAITING:
            raise TooManyWait(f"{MOST_WAITING} clients are already waiting for this; try again")
        task = self._pending.get(key)
        if task is None:
            task = self._pending[key] = asyncio.create_task(self._computed(key, compute))
        self._waiting += 1
        try:
            # A client that goes away must not take the answer from the others.
            return await asyncio.shield(task)
        finally:
            self._waiting -= 1

    async def _computed(self, key: Hashable, compute: Callable[[], Awaitable[T]]) -> T:
        try:
            async with self._turn:
                return await compute()
        finally:
            del self._pending[key]
