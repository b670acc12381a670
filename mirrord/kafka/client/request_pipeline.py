"""Pipelines requests on one connection: requests are sent without waiting for answers, and answers arrive in the order
of the requests.

Kafka answers the requests on a connection one after another (the protocol guide, "Network"). Therefore each answer
belongs to the oldest unanswered request. The parts of a request are passed to the transport as they are, and uvloop
writes them without copying them into one buffer.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import cast

from mirrord.kafka.client.receive_buffers import FRAME_LIMIT, BufferPool, Frame, FrameReceiver
from mirrord.kafka.client.socket_options import set_user_timeout
from mirrord.kafka.protocol.api_versions import Api
from mirrord.kafka.protocol.crc32c import Bytes
from mirrord.kafka.protocol.errors import Malformed, WireError
from mirrord.kafka.protocol.primitives import NO_TAGS, nullable_string
from mirrord.model.errors import EnvironmentFault

_SIZE = Struct(">i")
_REQUEST = Struct(">ihhi")
_RESPONSE = Struct(">i")
_LAST_CORRELATION_ID = 2**31 - 1


class ConnectionLost(EnvironmentFault):
    """Raised when the connection has ended. It is then unknown whether the broker has processed the unanswered
    requests. `__cause__` is the underlying error, if there is one."""


FrameCallback = Callable[[Frame | ConnectionLost], None]


class FramePipe(FrameReceiver):
    """An asyncio protocol that sends requests, and passes each answer to the callback of its request.

    The pipe calls each callback exactly once: when the answer is received, or when the connection is closed. If a
    callback raises an exception, the connection is closed.

    The connection is also closed if the oldest request remains unanswered for `timeout_s`, because a broker may
    disappear without closing its connections. If the broker throttles the connection, the throttle time does not count
    (see `throttled`).
    """

    def __init__(
        self,
        peer: str,
        client_id: str,
        pool: BufferPool,
        timeout_s: float = 30.0,
        frame_limit: int = FRAME_LIMIT,
    ) -> None:
        super().__init__(pool, frame_limit)
        self.peer = peer
        """Name of the broker, for messages to operators."""
        self.writable = True
        """False while the transport holds more unsent bytes than its limit. Requests can still be sent."""
        self.on_writable: Callable[[], None] | None = None
        """Called when `writable` becomes true again."""
        self.on_read: Callable[[], None] | None = None
        """Called after the callbacks of all answers that have arrived together."""
        self.on_lost: Callable[[ConnectionLost], None] | None = None
        """Called once when the connection is lost, after the callbacks of all unanswered requests."""
        self.user_timeout_s: float | None = None
        """The TCP_USER_TIMEOUT of the connection in seconds. While the broker is throttling the connection, the
        throttle time is added. None keeps the kernel's default."""
        self.lost: ConnectionLost | None = None
        """Why the connection was lost. None while it is open."""
        self._loop = asyncio.get_running_loop()
        # Request header version 2 consists of the fixed fields, the client id as a plain string, and an empty set of
        # tagged fields.
        self._header_tail = nullable_string(client_id) + NO_TAGS
        self._header_length = _REQUEST.size - _SIZE.size + len(self._header_tail)
        self._timeout_s = timeout_s
        self._keep: object = None
        self._pending: deque[tuple[int, float, str, FrameCallback]] = deque()
        self._throttled_until = 0.0
        self._correlation_id = 0
        self._held: list[Bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def in_flight(self) -> int:
        """Number of unanswered requests."""
        return len(self._pending)

    def request(self, api: Api, version: int, parts: Sequence[Bytes], size: int, callback: FrameCallback) -> None:
        """Send a request. The body consists of `parts`, and has `size` bytes in total. The first part must be `bytes`.

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
        """Record that the broker reads nothing from this connection for this time, because a quota was exceeded
        (KIP-219)."""
        self._throttled_until = max(self._throttled_until, self._loop.time() + seconds)
        # The broker's receive buffer may fill up during that time. The broker's kernel then does not acknowledge sent
        # bytes.
        self._extend_user_timeout(seconds)

    def _extend_user_timeout(self, seconds: float) -> None:
        if self.user_timeout_s is not None and self._transport is not None and self.lost is None:
            set_user_timeout(self._transport, self.user_timeout_s + seconds)

    def hold(self) -> None:
        """Collect requests until `send_held` is called. This saves system calls, because uvloop makes one system call
        for every write."""
        self._held = []

    def send_held(self) -> None:
        """Send the collected requests with one write."""
        held, self._held = self._held, None
        if held and self._transport is not None and self.lost is None:
            self._transport.writelines(held)

    def close(self, reason: str = "closed by this side", cause: BaseException | None = None) -> None:
        """Close the connection now. Unsent bytes are dropped, and the callbacks of all unanswered requests receive a
        ConnectionLost error."""
        self._lose(reason, cause)
        if self._transport is not None:
            self._transport.abort()

    @property
    def transport(self) -> asyncio.Transport | None:
        """The transport that the pipe uses. None until the pipe has a connection."""
        return self._transport

    def adopt(self, transport: asyncio.Transport, keep: object) -> None:
        """Take over an open transport from another protocol. All requests of that protocol must have been answered.

        The pipe keeps a reference to `keep`, so that the object is not garbage-collected. A StreamWriter, for example,
        would otherwise close the transport.
        """
        self._keep = keep
        transport.set_protocol(self)
        self.connection_made(transport)
        if transport.is_closing():
            self.connection_lost(None)
        elif not transport.is_reading():
            transport.resume_reading()

    # Methods of asyncio.BufferedProtocol, which the transport calls.

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

    def buffer_updated(self, nbytes: int) -> None:
        if self.lost is not None:
            return
        try:
            self._received(nbytes)
        except WireError as error:
            self.close(f"{error}", error)
        if self.on_read is not None and self._large is None:
            self.on_read()

    # Receiving answers.

    def _deliver(self, frame: Frame) -> None:
        """Skip the response header (version 1), and pass the frame to the callback of its request. Raises Malformed if
        the answer does not belong to the oldest unanswered request."""
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

    # Ending the connection.

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
        self.lost = lost = ConnectionLost(f"the connection to {self.peer} was lost: {reason}")
        lost.__cause__ = cause
        self.writable = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._stop_receiving()
        while self._pending:
            self._pending.popleft()[3](lost)
        if self.on_lost is not None:
            self.on_lost(lost)
