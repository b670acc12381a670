"""Accepts TLS connections, and limits how many of them are still in their handshake.

A connection that `asyncio` accepts reaches its protocol only after the handshake. Clients that never begin a handshake
would therefore not count as open connections, but use up the descriptors that the daemon needs for brokers.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial

from mirrord.config.value_parsers import HostPort
from mirrord.runtime.tasks import keep_running, report_failure

ACCEPT_AGAIN_S = 1.0
"""Interval in seconds until the next attempt after a connection could not be accepted, for lack of descriptors."""
BACKLOG = 100


class TlsListener:
    """Listens on one address until `close` is called."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        context: ssl.SSLContext,
        factory: Callable[[], asyncio.Protocol],
        most: int,
        handshake_s: float,
    ) -> None:
        """`factory` makes the protocol of a connection whose handshake has ended. At most `most` connections are in
        their handshake, each for at most `handshake_s` seconds."""
        self._context = context
        self._factory = factory
        self._most = most
        self._handshake_s = handshake_s
        self._handshakes: dict[asyncio.Task[None], None] = {}
        """The connections in their handshake, in the order in which they were opened."""
        self._tasks = [asyncio.create_task(self._listen(each), name="tls_listener") for each in sockets]

    def close(self) -> None:
        """Stop listening, and close the connections in their handshake."""
        for task in (*self._tasks, *self._handshakes):
            task.cancel()

    async def _listen(self, listening: socket.socket) -> None:
        with listening:
            await keep_running(partial(self._accept, listening), "http_listener_failed")

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            if len(self._handshakes) >= self._most:
                # A client that means to connect ends its handshake soon, so the oldest one is the least likely to.
                oldest = next(iter(self._handshakes))
                self._forget(oldest)
                oldest.cancel()
            task = asyncio.create_task(self._shake_hands(connection), name="tls_handshake")
            self._handshakes[task] = None
            task.add_done_callback(self._forget)
            task.add_done_callback(report_failure("http_handshake_failed"))
            # Accepting a waiting connection does not let other tasks run.
            await asyncio.sleep(0)

    async def _shake_hands(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._factory, connection, ssl=self._context, ssl_handshake_timeout=self._handshake_s
            )
        except OSError:
            return  # the client has gone away, is too slow, or does not speak TLS

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)


async def listening_sockets(address: HostPort) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, place in dict.fromkeys(found):
            sockets.append(socket.create_server(place, family=family, backlog=BACKLOG))
            sockets[-1].setblocking(False)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets
