"""Sets the socket options of a connection."""

import asyncio
import os
import socket
from struct import Struct
from typing import Protocol, cast

_LINGER = Struct("ii")
"""The C structure `struct linger`, in the machine's byte order."""


class Socketed(Protocol):
    """A transport that can return its socket."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        """See `asyncio.BaseTransport.get_extra_info`."""
        ...


class _Descriptor(Protocol):
    def fileno(self) -> int: ...


def set_user_timeout(transport: asyncio.Transport, seconds: float) -> None:
    """Set the TCP_USER_TIMEOUT of a connection."""
    second = duplicate(transport)
    if second is not None:
        with second:
            second.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))


def tune(
    transport: asyncio.Transport,
    user_timeout_s: float | None = None,
    buffer_bytes: int | None = None,
    unsent_bytes: int = 4 << 20,
    *,
    reset_on_close: bool = False,
) -> None:
    """Set a connection's socket options.

    `user_timeout_s` is how long sent bytes may remain unacknowledged before the kernel drops the connection
    (TCP_USER_TIMEOUT, tcp(7)). `buffer_bytes` is the size of the kernel's buffers. If it is None, the kernel chooses
    the size. If the process itself holds more than `unsent_bytes` of data that the kernel has not accepted yet, the
    transport asks its protocol to pause.

    If `reset_on_close` is set, the connection is reset when it is closed or when the process exits for any reason
    (SO_LINGER with a time of 0, socket(7)). The kernel then discards all bytes that the other end has not acknowledged.
    Otherwise the kernel continues to deliver these bytes after the process has exited, as long as the other end still
    accepts data.
    """
    transport.set_write_buffer_limits(high=unsent_bytes)
    second = duplicate(transport)
    if second is None:
        return
    with second:
        second.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if user_timeout_s is not None:
            second.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(user_timeout_s * 1000))
        if reset_on_close:
            second.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.pack(1, 0))
        if buffer_bytes is not None:
            second.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
            second.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)


def duplicate(transport: Socketed) -> socket.socket | None:
    """Return a second descriptor for a transport's socket, or None if the transport has no socket. Options that are set
    on the result also apply to the transport.

    A duplicate is needed because the socket object of uvloop has no `setsockopt`.
    """
    own = cast(_Descriptor | None, transport.get_extra_info("socket"))
    descriptor = -1 if own is None else own.fileno()
    return socket.socket(fileno=os.dup(descriptor)) if descriptor >= 0 else None
