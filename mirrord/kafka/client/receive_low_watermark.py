"""Controls how much data must arrive before the event loop wakes. This gives fewer, larger reads of an answer that is
useful only as a whole.

The kernel reports that a socket is readable when its low-water mark is reached (SO_RCVLOWAT, socket(7)), when the
connection ends, or when the socket has no room for more data. Without the mark, a large answer costs a wake-up for
about every 100 KB.
"""

import socket

from mirrord.kafka.client.socket_options import Socketed, duplicate


class ReceiveLowWatermark:
    """The low-water mark of one connection. If it cannot be set, reads work as usual."""

    __slots__ = ("_bytes", "_socket")

    def __init__(self, transport: Socketed) -> None:
        self._bytes = 1
        self._socket: socket.socket | None = None
        # On an encrypted connection, the kernel counts encrypted bytes, and the TLS layer may hold some that it has
        # already read. So the mark is not set there.
        if transport.get_extra_info("ssl_object") is None:
            self._socket = duplicate(transport)

    def set(self, size: int) -> None:
        """Let the event loop wake when this number of bytes has arrived. A change costs one system call."""
        if size == self._bytes or self._socket is None:
            return
        self._bytes = size
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
        except OSError:
            self.close()

    def close(self) -> None:
        """Close the duplicate socket when the connection ends, so that it does not keep the connection open."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
