"""A request pipeline on a transport: requests go out, and frames come in in the same order.

Kafka answers the requests of a connection one after the other (the protocol guide, "Network"), so each answer belongs
to the oldest waiting request. Small frames are copied out of one receive buffer. A large frame that has arrived only in
part gets a separate buffer, and the kernel writes the rest directly into it. The parts of a request are passed to the
transport unchanged; uvloop writes them without joining them.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import cast

from mirrord.kafka.client.receive_buffers import BufferPool, Frame
from mirrord.kafka.client.receive_low_watermark import ReceiveLowWatermark, duplicate
from mirrord.kafka.protocol.api_versions import Api
from mirrord.kafka.protocol.crc32c import Bytes
from mirrord.kafka.protocol.errors import Malformed, Oversize, WireError
from mirrord.kafka.protocol.primitives import NO_TAGS, nullable_string
from mirrord.model.errors import EnvironmentFault

RECEIVE_BYTES = 128 * 1024
DIRECT_BYTES = 16 * 1024
"""Size from which an incomplete frame is worth a separate buffer."""
WAKE_BYTES = 1 << 20
"""While a much larger frame is being received, the event loop wakes only once for this many bytes."""
FRAME_LIMIT = 128 << 20
"""Far more than a fetch asks for, because a broker returns a batch whole even if it exceeds the limits (KIP-74)."""

_SIZE = Struct(">i")
_REQUEST = Struct(">ihhi")
_RESPONSE = Struct(">i")
_LINGER = Struct("ii")
"""The C structure `struct linger`, in the machine's byte order."""
_LEAST_FRAME = 5
_LAST_CORRELATION_ID = 2**31 - 1


class ConnectionLost(EnvironmentFault):
    """The connection ended, so the outcome of its unanswered requests is unknown. `__cause__` is the cause, if any."""


FrameCallback = Callable[[Frame | ConnectionLost], None]


class FramePipe(asyncio.BufferedProtocol):
    """A protocol that sends requests and passes each answer to the callback of its request.

    Callbacks run inside the event loop's read event, or while the connection is being closed. Each is called exactly
    once. The connection is closed if a callback raises an exception. It is also closed when the oldest request has had
    no answer for `timeout_s`, because the other end may have disappeared silently. The time for which the other end has
    announced that it reads nothing (`throttled`) does not count.
    """

    def __init__(
        self,
        peer: str,
        client_id: str,
        pool: BufferPool,
        timeout_s: float = 30.0,
        frame_limit: int = FRAME_LIMIT,
    ) -> None:
        self.peer = peer
        """Name of the other end, for messages."""
        self.writable = True
        """False while the transport holds more unsent bytes than its limit; requests can still be sent."""
        self.on_writable: Callable[[], None] | None = None
        """Called when `writable` becomes true again."""
        self.on_read: Callable[[], None] | None = None
        """Called after the callbacks of all answers that arrived together."""
        self.on_lost: Callable[[ConnectionLost], None] | None = None
        """Called once, after the callbacks of all unanswered requests."""
        self.user_timeout_s: float | None = None
        """The connection's TCP_USER_TIMEOUT while it is not throttled."""
        self.lost: ConnectionLost | None = None
        """Why the connection was lost; None while it is open."""
        self._loop = asyncio.get_running_loop()
        # Request header version 2: the fixed fields, then the client id as a plain string, then no tagged fields.
        self._header_tail = nullable_string(client_id) + NO_TAGS
        self._header_length = _REQUEST.size - _SIZE.size + len(self._header_tail)
        self._pool = pool
        self._timeout_s = timeout_s
        self._frame_limit = frame_limit
        self._transport: asyncio.Transport | None = None
        self._keep: object = None
        self._pending: deque[tuple[int, float, str, FrameCallback]] = deque()
        self._throttled_until = 0.0
        self._correlation_id = 0
        self._held: list[Bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None
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

    @property
    def in_flight(self) -> int:
        """Number of requests without an answer."""
        return len(self._pending)

    def request(self, api: Api, version: int, parts: Sequence[Bytes], size: int, callback: FrameCallback) -> None:
        """Send a request whose body is `parts`, `size` bytes in all; the first part is `bytes`.

        If the connection is lost, the callback is called immediately.
        """
        transport = self._transport
        if self.lost is not None or transport is None:
            callback(self.lost or ConnectionLost(f"no connection to {self.peer} yet"))
            return
        correlation_id = self._correlation_id = self._correlation_id + 1 & _LAST_CORRELATION_ID
        header = _REQUEST.pack(self._header_length + size, api.key, version, correlation_id) + self._header_tail
        now = self._loop.time()
        self._pending.append((correlation_id, now + self._timeout_s, api.name, callback))
        if self._timer is None:
            self._timer = self._loop.call_at(now + self._timeout_s, self._check_deadline)
        held = self._held
        if held is not None:
            held.append(header + parts[0])
            held += parts[1:]
        elif len(parts) == 1:
            transport.write(header + parts[0])
        else:
            transport.writelines([header + parts[0], *parts[1:]])

    def throttled(self, seconds: float) -> None:
        """Record that the other end reads nothing for this long, because a quota is used up (KIP-219)."""
        self._throttled_until = max(self._throttled_until, self._loop.time() + seconds)
        # Its receive buffer may fill up in the meantime, and then it acknowledges no sent bytes.
        self._extend_user_timeout(seconds)

    def _extend_user_timeout(self, seconds: float) -> None:
        if self.user_timeout_s is not None and self._transport is not None and self.lost is None:
            set_user_timeout(self._transport, self.user_timeout_s + seconds)

    def hold(self) -> None:
        """Collect requests from now on until `send_held`, because uvloop makes a system call for every single write."""
        self._held = []

    def send_held(self) -> None:
        """Send the collected requests with one write."""
        held, self._held = self._held, None
        if held and self._transport is not None and self.lost is None:
            self._transport.writelines(held)

    def close(self, reason: str = "closed by this side", cause: BaseException | None = None) -> None:
        """Close the connection now. Unsent bytes are dropped, and all unanswered requests get their callback."""
        self._lose(reason, cause)
        if self._transport is not None:
            self._transport.abort()

    @property
    def transport(self) -> asyncio.Transport | None:
        """The transport that the pipe runs on; None before a connection was made."""
        return self._transport

    def adopt(self, transport: asyncio.Transport, keep: object) -> None:
        """Take over an open transport from another protocol that has no outstanding answers.

        `keep` is kept alive as long as the pipe: a StreamWriter would close its transport when it is collected.
        """
        self._keep = keep
        transport.set_protocol(self)
        self.connection_made(transport)
        if transport.is_closing():
            self.connection_lost(None)
        elif not transport.is_reading():
            transport.resume_reading()

    # asyncio.BufferedProtocol, called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._lose(f"{type(exc).__name__}: {exc}" if exc else "closed by the broker", exc)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self.on_writable is not None:
            self.on_writable()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- asyncio's signature
        if self._large is not None:
            return self._large_view[self._large_filled : self._large_size]
        return self._receive_view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self.lost is not None:
            return
        try:
            if self._large is None:
                self._filled += nbytes
                self._cut_frames()
            else:
                self._large_filled += nbytes
                if self._wakes_late and self._large_size - self._large_filled < WAKE_BYTES:
                    self._wake_for(1)
                if self._large_filled == self._large_size:
                    self._finish_large(self._large)
        except WireError as error:
            self.close(f"{error}", error)
        if self.on_read is not None and self._large is None:
            self.on_read()

    # receiving

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
            if self.lost is not None:
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

    def wake_for(self, size: int) -> None:
        """Wake only when this many bytes have arrived. The caller must not ask for more than is still to come."""
        if self._low_watermark is None:
            assert self._transport is not None  # noqa: S101
            self._low_watermark = ReceiveLowWatermark(self._transport)
        self._low_watermark.set(size)

    def _finish_large(self, buffer: bytearray) -> None:
        self._large = None
        self._large_view = memoryview(b"")
        self._deliver(Frame(buffer, 0, self._large_size, self._pool))

    def _deliver(self, frame: Frame) -> None:
        """Skip the response header, version 1, and pass the frame to the callback of the request that it answers."""
        buffer = frame.buffer
        (correlation_id,) = _RESPONSE.unpack_from(buffer)
        if not self._pending or self._pending[0][0] != correlation_id:
            expected = self._pending[0][0] if self._pending else "none"
            raise Malformed(f"an answer to request {correlation_id}, but the next one to be answered is {expected}")
        if buffer[4] == 0:
            frame.start = 5
        else:
            reader = frame.reader()
            reader.advance(4)
            reader.skip_tags()
            frame.start = reader.position
        self._pending.popleft()[3](frame)

    def _refuse_size(self, size: int) -> None:
        if size > self._frame_limit:
            raise Oversize(f"a frame of {size} bytes, but {self._frame_limit} are allowed")
        raise Malformed(f"a frame of {size} bytes")

    # ending

    def _check_deadline(self) -> None:
        self._timer = None
        if not self._pending:
            return
        _, deadline, name, _ = self._pending[0]
        if self._throttled_until:
            deadline = max(deadline, self._throttled_until + self._timeout_s)
            if self._loop.time() >= self._throttled_until + self._timeout_s:
                self._throttled_until = 0.0
                self._extend_user_timeout(0.0)
        if self._loop.time() >= deadline:
            self.close(f"no answer to {name} within {self._timeout_s:g} s")
        else:
            self._timer = self._loop.call_at(deadline, self._check_deadline)

    def _lose(self, reason: str, cause: BaseException | None) -> None:
        if self.lost is not None:
            return
        self.lost = lost = ConnectionLost(f"the connection to {self.peer} is lost: {reason}")
        lost.__cause__ = cause
        self.writable = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # The transport has not been stopped yet and may still write into the buffer of a large frame, so that buffer is
        # not reused.
        self._large = None
        if self._low_watermark is not None:
            self._low_watermark.close()
        while self._pending:
            self._pending.popleft()[3](lost)
        if self.on_lost is not None:
            self.on_lost(lost)


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

    `user_timeout_s` is how long sent bytes may stay unacknowledged before the kernel gives up the connection
    (TCP_USER_TIMEOUT, tcp(7)). `buffer_bytes` is the size of the kernel's buffers; by default the kernel sizes them
    itself. The transport asks for a pause when the process itself holds more than `unsent_bytes`.

    With `reset_on_close`, the kernel discards all bytes that the other end has not acknowledged and resets the
    connection when it is closed or the process ends in any way (SO_LINGER with a time of 0, socket(7)). Otherwise the
    kernel keeps delivering these bytes after the process is gone, for as long as the other end accepts some of them.
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
