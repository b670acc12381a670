"""Limits the connections to a daemon's HTTP server: how many there are, and how long a client may take to send a whole
request. Without limits, idle clients use up the descriptors that the daemon needs for its connections to brokers."""

import asyncio
import resource
from collections.abc import Callable
from typing import cast

import structlog

MOST_CONNECTIONS = 256
DESCRIPTORS_EACH = 8
"""The server uses at most one of this many descriptors that the process may have."""
WHOLE_S = 10.0
"""How long a client may take to send a whole request, counted from the connection or from the previous answer."""
LOGGED_EVERY_S = 60.0
"""Interval in seconds between lines in the log about too many connections."""
SENT_S = 60.0
"""How long a client may take to receive an answer."""

log = structlog.get_logger()


class ConnectionLimits:
    """The open connections of one server."""

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        usable = MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else soft // DESCRIPTORS_EACH
        self.most = max(1, min(MOST_CONNECTIONS, usable))
        """Maximum number of open connections."""
        self._logged = float("-inf")
        self._open: dict[asyncio.WriteTransport, GuardedConnection] = {}
        """The open connections by their transports, in the order in which they were opened."""

    def guarding(self, factory: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """Return a factory for connections that are handled by what `factory` makes, within the limits."""
        return lambda: GuardedConnection(factory(), self)

    def begin(self, transport: asyncio.WriteTransport | None) -> None:
        """Note that the head of a request has arrived, and that the server is answering it."""
        if transport is not None and (found := self._open.get(transport)) is not None:
            found.begin()

    def end(self, transport: asyncio.WriteTransport | None) -> None:
        """Note that the server has computed the answer."""
        if transport is not None and (found := self._open.get(transport)) is not None:
            found.end()

    def opened(self, transport: asyncio.Transport, connection: "GuardedConnection") -> None:
        """Count a new connection. If there are too many, close the one that has waited longest for a request."""
        if len(self._open) >= self.most:
            waiting = next((each for each, guard in self._open.items() if not guard.is_busy), transport)
            now = asyncio.get_running_loop().time()
            if now - self._logged >= LOGGED_EVERY_S:
                self._logged = now
                log.warning("too_many_connections", most=self.most)
            waiting.abort()
            self._open.pop(waiting, None)
        if not transport.is_closing():
            self._open[transport] = connection

    def closed(self, transport: asyncio.WriteTransport) -> None:
        """Stop counting a connection."""
        self._open.pop(transport, None)


class GuardedConnection(asyncio.Protocol):
    """One connection. It is closed if no whole request arrives in time."""

    def __init__(self, inner: asyncio.Protocol, limits: ConnectionLimits) -> None:
        self.is_busy = False
        """Whether the server is answering a request."""
        self._inner = inner
        self._limits = limits
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ended = 0.0

    def begin(self) -> None:
        """Stop the timer while the server is answering a request."""
        self.is_busy = True
        self._cancel()

    def end(self) -> None:
        """Start the timer for the next request."""
        self.is_busy = False
        self._ended = asyncio.get_running_loop().time()
        self._arm()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer for the first request."""
        self._transport = cast("asyncio.Transport", transport)  # it is a TCP connection, or TLS over one
        self._limits.opened(self._transport, self)
        self._inner.connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._cancel()
        if self._transport is not None:
            self._limits.closed(self._transport)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass on what the client has sent."""
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass on that the client sends nothing more."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """Pass on that the client does not keep up with the answer."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the client keeps up again."""
        self._inner.resume_writing()

    def _arm(self) -> None:
        self._cancel()
        self._timer = asyncio.get_running_loop().call_later(WHOLE_S, self._expire)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        if self._transport is None:
            return
        sending = self._transport.get_write_buffer_size() > 0
        if sending and asyncio.get_running_loop().time() - self._ended < SENT_S:
            self._arm()
        else:
            self._transport.abort()
