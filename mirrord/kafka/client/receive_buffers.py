"""Receives responses from a broker and manages the buffers that hold them. A response with its length prefix is called
a frame.

Small frames are copied out of one shared receive buffer. If a large frame has arrived only in part, it gets a separate
buffer, and the kernel writes the rest directly into that buffer.
"""

import asyncio
import ctypes
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from struct import Struct

from mirrord.kafka.client.receive_low_watermark import ReceiveLowWatermark
from mirrord.kafka.protocol.errors import Malformed, Oversize
from mirrord.kafka.protocol.primitives import Reader

RECEIVE_BYTES = 128 * 1024
DIRECT_BYTES = 16 * 1024
"""A frame of at least this size gets a separate buffer if it has arrived only in part."""
WAKE_BYTES = 1 << 20
"""While a frame of more than twice this size is being received, the event loop wakes only once for every
`WAKE_BYTES` that arrive."""
FRAME_LIMIT = 128 << 20
"""Maximum size of a response. This size is far larger than the limits in fetch requests, because a broker returns a
whole batch even if the batch exceeds these limits (KIP-74)."""

_SIZE = Struct(">i")
_LEAST_FRAME = 5
_GRAIN = 64 * 1024
_STOPPED_BYTES = 1024
"""Size of the receive buffer of a connection that is closed."""
_APART_BYTES = 256 * 1024
_M_MMAP_THRESHOLD = -3
"""The number of mallopt's parameter M_MMAP_THRESHOLD (malloc.h of the GNU C library)."""


class BufferPool:
    """A pool of large receive buffers, which are reused.

    Reuse saves time, because the kernel zeroes the pages of a new buffer. Zeroing takes about 0.16 ms per MiB, which is
    about as long as copying the data takes. Buffers are never resized. All pipes of an event loop share one pool, which
    holds at most `limit_bytes` of idle buffers.
    """

    def __init__(self, limit_bytes: int = 64 << 20) -> None:
        self.limit_bytes = limit_bytes
        self.idle_bytes = 0
        self._idle: deque[bytearray] = deque()

    def acquire(self, size: int) -> bytearray:
        """Return a buffer of at least `size` bytes. Its content is arbitrary."""
        idle = self._idle
        for at in range(len(idle) - 1, -1, -1):  # the buffer that was released last may still be in the CPU cache
            if size <= len(idle[at]) <= 2 * size + _GRAIN:
                buffer = idle[at]
                del idle[at]
                self.idle_bytes -= len(buffer)
                return buffer
        # The size is rounded up by at most an eighth, so that the buffer can be reused for a frame of a different
        # length.
        grain = max(_GRAIN, 1 << max(size.bit_length() - 4, 0))
        return bytearray(-(-size // grain) * grain)

    def release(self, buffer: bytearray) -> None:
        """Take back a buffer that is no longer used.

        If the idle buffers hold too many bytes, the buffers that have been idle the longest are freed.
        """
        self._idle.append(buffer)
        self.idle_bytes += len(buffer)
        self.keep_within(self.limit_bytes)

    def keep_within(self, size: int) -> None:
        """Free the buffers that have been idle the longest until the remaining idle buffers hold at most `size` bytes
        in total."""
        while self.idle_bytes > size and self._idle:
            self.idle_bytes -= len(self._idle.popleft())


class Frame:
    """One response of a broker. The body is buffer[start:end], without the response header.

    The receiver of a frame owns the frame's buffer. The receiver calls `release` once neither the receiver itself nor a
    transport still refers to the bytes. If a frame is never released, its buffer is garbage-collected.
    """

    __slots__ = ("_pool", "buffer", "end", "start")

    def __init__(self, buffer: bytearray, start: int, end: int, pool: BufferPool | None = None) -> None:
        self.buffer = buffer
        self.start = start
        self.end = end
        self._pool = pool

    @property
    def pool(self) -> BufferPool | None:
        """The pool to which `release` returns the buffer. None if the buffer has been released or does not belong to a
        pool."""
        return self._pool

    def reader(self) -> Reader:
        return Reader(self.buffer, self.start, self.end)

    def release(self) -> None:
        """Return the buffer to its pool. A second call does nothing."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.release(self.buffer)


class FrameReceiver(asyncio.BufferedProtocol, ABC):
    """The receiving side of a connection. It splits the arriving bytes into frames and passes each frame to
    `_deliver`."""

    def __init__(self, pool: BufferPool, frame_limit: int) -> None:
        self._pool = pool
        self._frame_limit = frame_limit
        self._transport: asyncio.Transport | None = None
        self._stopped = False
        # The buffer for small frames. The memory view prevents the buffer from being resized while the connection
        # exists.
        self._receive = bytearray(RECEIVE_BYTES)
        self._receive_view = memoryview(self._receive)
        self._filled = 0
        # The buffer of the large frame that is currently being received.
        self._large: bytearray | None = None
        self._large_view = memoryview(b"")
        self._large_size = 0
        self._large_filled = 0
        self._low_watermark: ReceiveLowWatermark | None = None
        self._wakes_late = False

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- asyncio's signature
        if self._large is not None:
            return self._large_view[self._large_filled : self._large_size]
        return self._receive_view[self._filled :]

    def wake_for(self, size: int) -> None:
        """Let the event loop wake only when this many bytes have arrived. `size` must not exceed the number of bytes
        that are still to come."""
        if self._low_watermark is None:
            assert self._transport is not None  # noqa: S101
            self._low_watermark = ReceiveLowWatermark(self._transport)
        self._low_watermark.set(size)

    @abstractmethod
    def _deliver(self, frame: Frame) -> None:
        """Process a complete frame."""

    def _received(self, nbytes: int) -> None:
        """Process `nbytes` bytes that have arrived in the buffer. Raises WireError."""
        if self._large is None:
            self._filled += nbytes
            self._cut_frames()
        else:
            self._large_filled += nbytes
            if self._wakes_late and self._large_size - self._large_filled < WAKE_BYTES:
                self._wake_for(1)
            if self._large_filled == self._large_size:
                self._finish_large(self._large)

    def _stop_receiving(self) -> None:
        """Stop delivering frames, and drop the buffers."""
        self._stopped = True
        # The transport has not been stopped yet and may still write into the buffer of a large frame. Therefore that
        # buffer is not returned to the pool.
        self._large = None
        self._large_view = memoryview(b"")
        # The owner of a closed connection may be part of a reference cycle, which the garbage collector may find only
        # half an hour later. Until then, each such connection would take the whole receive buffer.
        self._receive = bytearray(_STOPPED_BYTES)
        self._receive_view = memoryview(self._receive)
        self._filled = 0
        if self._low_watermark is not None:
            self._low_watermark.close()

    def _cut_frames(self) -> None:
        receive, filled = self._receive, self._filled
        position = 0
        while filled - position >= 4:
            (size,) = _SIZE.unpack_from(receive, position)
            if not _LEAST_FRAME <= size <= self._frame_limit:
                self._refuse_size(size)
            start = position + 4
            end = start + size
            if end > filled:
                if size >= DIRECT_BYTES:
                    self._begin_large(size, start, filled)
                    return
                break
            # The frame is copied, so that the receive buffer can be reused while the frame still exists.
            self._deliver(Frame(receive[start:end], 0, size))
            if self._stopped:
                return
            position = end
        if position:
            rest = filled - position
            self._receive_view[:rest] = self._receive_view[position:filled]
            self._filled = rest

    def _begin_large(self, size: int, start: int, end: int) -> None:
        self._large = self._pool.acquire(size)
        self._large_view = memoryview(self._large)
        self._large_size = size
        self._large_filled = end - start
        self._large_view[: end - start] = self._receive_view[start:end]
        self._filled = 0
        if size > 2 * WAKE_BYTES:
            self._wake_for(WAKE_BYTES)

    def _wake_for(self, size: int) -> None:
        self._wakes_late = size > 1
        self.wake_for(size)

    def _finish_large(self, buffer: bytearray) -> None:
        self._large = None
        self._large_view = memoryview(b"")
        self._deliver(Frame(buffer, 0, self._large_size, self._pool))

    def _refuse_size(self, size: int) -> None:
        if size > self._frame_limit:
            raise Oversize(f"a frame of {size} bytes, but {self._frame_limit} are allowed")
        raise Malformed(f"a frame of {size} bytes")


def keep_large_memory_apart() -> None:
    """Give each large buffer a separate memory mapping, so that its memory returns to the kernel when it is freed.

    By default, once a large buffer has been freed, the GNU C library may allocate later buffers of up to 32 MiB on the
    heap (mallopt(3)). The memory of a freed buffer then returns to the kernel only if no other allocation is above it
    on the heap. Without this function, a process was observed to use one and a half times its memory limit. With a
    different C library, this function does nothing.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _APART_BYTES)
