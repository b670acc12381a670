"""How much has to arrive before the event loop wakes: fewer, larger reads of an answer that is only of use as a whole.

The kernel says that a socket can be read when its low-water mark is reached (SO_RCVLOWAT, socket(7)), when the
connection ends, or when it has no room for more. Without it a large answer costs a wake-up for each 100 KB or so.
"""

import os
import socket
from typing import Protocol, cast


class Socketed(Protocol):
    """A transport."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        """`asyncio.BaseTransport`'s."""
        ...


class _Descriptor(Protocol):
    def fileno(self) -> int: ...


class LowMark:
    """Of one connection. Where it cannot be set, reads are as they always are."""

    __slots__ = ("_bytes", "_socket")

    def __init__(self, transport: Socketed) -> None:
        self._bytes = 1
        self._socket: socket.socket | None = None
        # Of an encrypted connection the kernel counts other bytes than the protocol, some of which were read before.
        if transport.get_extra_info("ssl_object") is None:
            self._socket = duplicate(transport)

    def set(self, size: int) -> None:
        """Wake when so many bytes are there. One system call where that is a change."""
        if size == self._bytes or self._socket is None:
            return
        self._bytes = size
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
        except OSError:
            self.close()

    def close(self) -> None:
        """The connection ends: it must not be kept open by this."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def duplicate(transport: Socketed) -> socket.socket | None:
    """A second descriptor of a transport's socket, with the same options: uvloop shows its own without setsockopt."""
    own = cast(_Descriptor | None, transport.get_extra_info("socket"))
    descriptor = -1 if own is None else own.fileno()
    return socket.socket(fileno=os.dup(descriptor)) if descriptor >= 0 else None
