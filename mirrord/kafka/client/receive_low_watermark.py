"""Controls how much data must arrive on a socket before the event loop wakes, so that large responses are received in
fewer, larger reads.

The kernel reports that a socket is readable when its low-water mark is reached (SO_RCVLOWAT, socket(7)), when the
connection ends, or when the socket has no room for more data. With the default mark, the event loop wakes about once
for every 100 KB of a large response.
"""

import socket

from mirrord.kafka.client.socket_options import Socketed, duplicate


class ReceiveLowWatermark:
    """The low-water mark of one connection. If the mark cannot be set, the event loop wakes as usual."""

    __slots__ = ("_bytes", "_socket")

    def __init__(self, transport: Socketed) -> None:
        self._bytes = 1
        self._socket: socket.socket | None = None
        # The mark is not set on an encrypted connection. On such a connection, the kernel counts encrypted bytes, and
        # the TLS layer may hold bytes that it has already read from the socket.
        if transport.get_extra_info("ssl_object") is None:
            self._socket = duplicate(transport)

    def set(self, size: int) -> None:
        """Set the low-water mark to `size` bytes, so that the event loop does not wake before this many bytes have
        arrived. Changing the mark takes one system call."""
        if size == self._bytes or self._socket is None:
            return
        self._bytes = size
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
        except OSError:
            self.close()

    def close(self) -> None:
        """Close this object's duplicate of the socket. Otherwise the duplicate would keep the connection open."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
