"""Receives the responses of a broker (frames), and manages the buffers that hold them.

Small frames are copied out of one receive buffer. A large frame that has arrived only in part gets a separate buffer,
and the kernel writes the rest directly into it.
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
"""An incomplete frame of at least this size gets a separate buffer."""
WAKE_BYTES = 1 << 20
"""While a much larger frame is being received, the event loop wakes only once for this many bytes."""
FRAME_LIMIT = 128 << 20
"""Largest size of a response. It is far larger than a fetch requests, because a broker returns a whole batch even if
that exceeds the limits (KIP-74)."""

_SIZE = Struct(">i")
_LEAST_FRAME = 5
_GRAIN = 64 * 1024
_APART_BYTES = 256 * 1024
_M_MMAP_THRESHOLD = -3
"""A constant from malloc.h of the GNU C library."""


class BufferPool:
    """Large receive buffers that are reused.

    A new buffer costs about 0.16 ms per MiB (zeroing, page faults), as much as copying 1 MiB. Buffers are never
    resized. One pool serves all pipes of an event loop; it holds at most `limit_bytes` of idle buffers.
    """

    def __init__(self, limit_bytes: int = 64 << 20) -> None:
        self.limit_bytes = limit_bytes
        self.idle_bytes = 0
        self._idle: deque[bytearray] = deque()

    def acquire(self, size: int) -> bytearray:
        """Return a buffer of at least `size` bytes with arbitrary content."""
        idle = self._idle
        for at in range(len(idle) - 1, -1, -1):  # the last one released may still be in the CPU cache
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

    The receiver of a frame owns its buffer. It calls `release` when nothing refers to the bytes any more, neither the
    receiver nor a transport. The buffer of a frame that is never released is garbage-collected.
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


class FrameReceiver(asyncio.BufferedProtocol, ABC):
    """The receiving side of a connection: it cuts arriving bytes into frames, and gives each of them to `_deliver`."""

    def __init__(self, pool: BufferPool, frame_limit: int) -> None:
        self._pool = pool
        self._frame_limit = frame_limit
        self._transport: asyncio.Transport | None = None
        self._stopped = False
        # Small frames. The view prevents the buffer from being resized during the pipe's lifetime.
        self._receive = bytearray(RECEIVE_BYTES)
        self._receive_view = memoryview(self._receive)
        self._filled = 0
        # The large frame that is currently being received.
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
        """Let the event loop wake only when this many bytes have arrived. The number must not exceed what is still to
        come."""
        if self._low_watermark is None:
            assert self._transport is not None  # noqa: S101
            self._low_watermark = ReceiveLowWatermark(self._transport)
        self._low_watermark.set(size)

    @abstractmethod
    def _deliver(self, frame: Frame) -> None:
        """Handle a complete frame."""

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
        """Deliver no further frames."""
        self._stopped = True
        # The transport has not been stopped yet and may still write into the buffer of a large frame, so that buffer is
        # not reused.
        self._large = None
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
            # The frame is copied, so that the receive buffer is free again whatever the owner does with the frame.
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
    """Give each large buffer a separate memory mapping, which returns to the kernel when the buffer is freed.

    The GNU C library takes buffers of up to 32 MiB from the heap once it has seen one freed (mallopt(3)). Memory that
    is freed below another allocation is not returned to the kernel; a process was observed to hold one and a half times
    its limit. With another C library, this function does nothing.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _APART_BYTES)
