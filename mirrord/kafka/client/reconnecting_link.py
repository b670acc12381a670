"""Keeps a connection to one broker for one purpose. The connection is opened when it is needed and reopened after it
has been lost."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from mirrord.kafka.client.connection import Connection
from mirrord.kafka.protocol.api_versions import Api
from mirrord.kafka.protocol.errors import WireError
from mirrord.kafka.protocol.primitives import Reader
from mirrord.model.errors import EnvironmentFault, internal_error

T = TypeVar("T")
log = structlog.get_logger()

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
_LINGER_S = 60.0
"""How long, in seconds, a connection stays open for pending answers after a new connection has replaced it."""


class Backoff:
    """Computes pauses that double with each attempt.

    Each pause is shortened by a random amount, at most by half. Otherwise a thousand clients that have lost their
    connections to the same broker would all reconnect at the same moment.
    """

    __slots__ = ("_chance", "_pause_s", "longest_s")

    def __init__(self, longest_s: float = LONGEST_PAUSE_S) -> None:
        self.longest_s = longest_s
        self._pause_s = FIRST_PAUSE_S
        self._chance = random.Random()  # noqa: S311 -- only spreads load, so it need not be secure

    def next_s(self) -> float:
        """Return how many seconds to wait before the next attempt."""
        pause = self._pause_s * self._chance.uniform(0.5, 1.0)
        self._pause_s = min(self._pause_s * 2, self.longest_s)
        return pause

    def reset(self) -> None:
        """Start again with the shortest pause, after an attempt has succeeded."""
        self._pause_s = FIRST_PAUSE_S


async def ask(connection: Connection, api: Api, body: bytes, version: int, decode: Callable[[Reader], T]) -> T:
    """Send a request and return its decoded answer. Raises ConnectionLost. If the answer cannot be decoded, closes the
    connection and raises WireError."""
    reader = await connection.call(api, body, version)
    try:
        return decode(reader)
    except WireError as error:
        connection.pipe.close(str(error), error)
        raise


class Link:
    """Provides a connection to one broker and opens a new connection if there is none.

    After a failed attempt there is a pause. During the pause, every caller immediately gets the error of that attempt.
    Otherwise, many callers would start many attempts.
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
        """The newest connection, which may already be lost. None if no connection has been opened yet."""

    @property
    def live(self) -> Connection | None:
        """The current connection, or None if it is lost or must be replaced."""
        connection = self.connection
        if connection is None or connection.pipe.lost is not None or self.overdue(connection):
            return None
        return connection

    def overdue(self, connection: Connection) -> bool:
        """Return whether the connection must be replaced because its SASL session ends soon (KIP-368)."""
        return connection.replace_before is not None and self._loop.time() >= connection.replace_before

    async def get(self) -> Connection:
        """Return an open connection. Raises EnvironmentFault if no connection can be opened. During the pause after a
        failure, the error is raised immediately."""
        connection = self.live
        if connection is not None:
            return connection
        if self._opening is None:
            if self._error is not None and self._loop.time() < self._not_before:
                raise self._error.with_traceback(None)
            self._opening = self._loop.create_task(self._open())
        return await asyncio.shield(self._opening)

    def close(self) -> None:
        """Close the connection. Afterward, no new connection can be opened."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self.connection is not None:
            self.connection.close()

    async def _open(self) -> Connection:
        try:
            connection = await self._opener()
        except Exception as error:
            fault = error if isinstance(error, EnvironmentFault) else EnvironmentFault(internal_error(error))
            if fault is not error:
                log.error("connection_failed", exc_info=error)
            self._error = fault
            self._not_before = self._loop.time() + self._backoff.next_s()
            raise fault from (None if fault is error else error)
        finally:
            self._opening = None
        self._backoff.reset()
        self._error = None
        former, self.connection = self.connection, connection
        if former is not None and former.pipe.lost is None:
            # The former connection is replaced before its SASL session ends, so pending answers can still arrive on it.
            self._loop.call_later(_LINGER_S if former.pipe.in_flight else 0.0, former.close)
        if self._closed:
            connection.close()
        return connection
