"""Received frames, and the large buffers that they are received into."""

import ctypes
from collections import deque
from contextlib import suppress

from mirrord.kafka.protocol.primitives import Reader

_GRAIN = 64 * 1024
_APART_BYTES = 256 * 1024
_M_MMAP_THRESHOLD = -3
"""A constant from malloc.h of the GNU C library."""


class BufferPool:
    """Large receive buffers that are reused.

    A fresh buffer costs about 0.16 ms per MiB (zeroing, page faults), as much as copying that much. Buffers are never
    resized. One pool serves all pipes of an event loop; it holds at most `limit_bytes` of idle buffers.
    """

    def __init__(self, limit_bytes: int = 64 << 20) -> None:
        self.limit_bytes = limit_bytes
        self.idle_bytes = 0
        self._idle: deque[bytearray] = deque()

    def acquire(self, size: int) -> bytearray:
        """Return a buffer of at least `size` bytes with arbitrary content."""
        idle = self._idle
        for at in range(len(idle) - 1, -1, -1):  # the last one released is the warmest
            if size <= len(idle[at]) <= 2 * size + _GRAIN:
                buffer = idle[at]
                del idle[at]
                self.idle_bytes -= len(buffer)
                return buffer
        # The size is rounded up by at most an eighth, so that the next frame, which has another length, also fits.
        grain = max(_GRAIN, 1 << max(size.bit_length() - 4, 0))
        return bytearray(-(-size // grain) * grain)

    def release(self, buffer: bytearray) -> None:
        """Take back a buffer that is no longer read.

        If there are too many idle buffers, those that were idle longest are freed.
        """
        self._idle.append(buffer)
        self.idle_bytes += len(buffer)
        self.keep_within(self.limit_bytes)

    def keep_within(self, size: int) -> None:
        """Hold at most this number of bytes of idle buffers for now; those that were idle longest are freed."""
        while self.idle_bytes > size and self._idle:
            self.idle_bytes -= len(self._idle.popleft())


class Frame:
    """One response: the body is buffer[start:end], after the response header.

    The receiver of a frame owns its buffer. `release` returns it once nothing refers to its bytes any more, neither the
    owner nor a transport. A frame that is never released is simply freed.
    """

    __slots__ = ("_pool", "buffer", "end", "start")

    def __init__(self, buffer: bytearray, start: int, end: int, pool: BufferPool | None = None) -> None:
        self.buffer = buffer
        self.start = start
        self.end = end
        self._pool = pool

    @property
    def pool(self) -> BufferPool | None:
        """The pool that the buffer returns to."""
        return self._pool

    def reader(self) -> Reader:
        return Reader(self.buffer, self.start, self.end)

    def release(self) -> None:
        """Return the buffer to its pool; a second call does nothing."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.release(self.buffer)


def keep_large_memory_apart() -> None:
    """Give each large buffer a separate memory mapping, which returns to the kernel when the buffer is freed.

    The GNU C library takes buffers of up to 32 MiB from the heap once it has seen one freed (mallopt(3)). Memory that
    is freed below another allocation stays with the process; one and a half times the limit was observed. With another
    C library, this function does nothing.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _APART_BYTES)
