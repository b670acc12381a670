"""A connection to one broker for one purpose. It is opened when it is needed, and opened again after it was lost."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mirrord.kafka.client.connection import Connection
from mirrord.kafka.protocol.api_versions import Api
from mirrord.kafka.protocol.errors import WireError
from mirrord.kafka.protocol.primitives import Reader
from mirrord.model.errors import EnvironmentFault

T = TypeVar("T")

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
_LINGER_S = 60.0
"""Time that a replaced connection has to answer its pending requests, in seconds."""


class Backoff:
    """Pauses that double from attempt to attempt.

    Each is shortened at random by up to half, so that a thousand clients that lost the same broker do not all return at
    the same moment.
    """

    __slots__ = ("_chance", "_pause_s", "longest_s")

    def __init__(self, longest_s: float = LONGEST_PAUSE_S) -> None:
        self.longest_s = longest_s
        self._pause_s = FIRST_PAUSE_S
        self._chance = random.Random()  # noqa: S311 -- spreads load, protects nothing

    def next_s(self) -> float:
        """Return how long to wait before the next attempt, in seconds."""
        pause = self._pause_s * self._chance.uniform(0.5, 1.0)
        self._pause_s = min(self._pause_s * 2, self.longest_s)
        return pause

    def reset(self) -> None:
        """Start over with the shortest pause, after an attempt succeeded."""
        self._pause_s = FIRST_PAUSE_S


async def ask(connection: Connection, api: Api, body: bytes, version: int, decode: Callable[[Reader], T]) -> T:
    """Send a request and decode its answer. Raises ConnectionLost, and WireError, which closes the connection."""
    reader = await connection.call(api, body, version)
    try:
        return decode(reader)
    except WireError as error:
        connection.pipe.close(str(error), error)
        raise


class Link:
    """A provider of an open connection to one broker, which opens one if there is none.

    After a failed attempt there is a pause, in which every caller immediately gets the same error. Otherwise, many
    callers would make many attempts.
    """

    def __init__(self, opener: Callable[[], Awaitable[Connection]]) -> None:
        self._opener = opener
        self._loop = asyncio.get_running_loop()
        self._opening: asyncio.Task[Connection] | None = None
        self._backoff = Backoff()
        self._not_before = 0.0
        self._error: EnvironmentFault | None = None
        self._closed = False
        self.connection: Connection | None = None
        """The current connection, which may already be lost."""

    @property
    def live(self) -> Connection | None:
        """The current connection, if it can take requests and need not be replaced."""
        connection = self.connection
        if connection is None or connection.pipe.lost is not None or self.overdue(connection):
            return None
        return connection

    def overdue(self, connection: Connection) -> bool:
        """Return whether the connection's SASL session ends soon (KIP-368)."""
        return connection.replace_before is not None and self._loop.time() >= connection.replace_before

    async def get(self) -> Connection:
        """Return an open connection. Raises EnvironmentFault if connecting fails, and immediately during the pause
        after a failure."""
        connection = self.live
        if connection is not None:
            return connection
        if self._opening is None:
            if self._error is not None and self._loop.time() < self._not_before:
                raise self._error.with_traceback(None)
            self._opening = self._loop.create_task(self._open())
        return await asyncio.shield(self._opening)

    def close(self) -> None:
        """Close the connection, and do not open another one."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self.connection is not None:
            self.connection.close()

    async def _open(self) -> Connection:
        try:
            connection = await self._opener()
        except EnvironmentFault as error:
            self._error = error
            self._not_before = self._loop.time() + self._backoff.next_s()
            raise
        finally:
            self._opening = None
        self._backoff.reset()
        self._error = None
        former, self.connection = self.connection, connection
        if former is not None and former.pipe.lost is None:
            # It was replaced before its SASL session ends, so wait for the answers that are still pending.
            self._loop.call_later(_LINGER_S if former.pipe.in_flight else 0.0, former.close)
        if self._closed:
            connection.close()
        return connection
