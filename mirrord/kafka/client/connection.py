"""Connections to brokers. aiokafka opens and authenticates a connection, and then a `FramePipe` takes over its
transport.

aiokafka supports TLS and all of Kafka's SASL mechanisms, but uses too much CPU time when it sends requests. Therefore,
aiokafka is used only to open the connection, to authenticate, and to look up the API versions that the broker supports.
After that, the `FramePipe` replaces aiokafka's asyncio protocol, and aiokafka's connection object is no longer used.
"""

# pyright: reportMissingTypeStubs=false

import asyncio
import ssl
from contextlib import suppress
from typing import Any, cast

import msgspec
from aiokafka.errors import (
    AuthenticationFailedError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

from mirrord.config.security import Security
from mirrord.kafka.client.checked_connection import CheckedConnection
from mirrord.kafka.client.credentials import client_options
from mirrord.kafka.client.receive_buffers import FRAME_LIMIT, BufferPool, Frame
from mirrord.kafka.client.request_pipeline import ConnectionLost, FramePipe
from mirrord.kafka.client.socket_options import tune
from mirrord.kafka.client.tls_diagnosis import tls_reason
from mirrord.kafka.protocol.api_versions import Api, choose
from mirrord.kafka.protocol.primitives import Reader
from mirrord.model.errors import EnvironmentFault

PRIVATE_NAMES = (
    "_create_reader_task",
    "_handle_frame",
    "_reader",
    "_read_task",
    "_send_sasl_token",
    "_versions",
    "_writer",
)
"""The private attributes of aiokafka's AIOKafkaConnection that this module uses. A test checks that they exist in the
library."""


class Unreachable(EnvironmentFault):
    """Raised when no broker can be reached at an address."""


class AuthenticationFailed(EnvironmentFault):
    """Raised when the broker does not accept mirrord's credentials."""


class TlsFailed(EnvironmentFault):
    """Raised when no TLS session can be established. Either a certificate is untrusted or missing, or the peer does not
    use TLS."""


class ConnectionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a connection. Times are in seconds."""

    client_id: str = "mirrord"
    connect_timeout_s: float = 10.0
    """Total time limit for connecting, the TLS handshake, the version lookup and authentication."""
    request_timeout_s: float = 30.0
    """How long a request may remain unanswered before the connection is closed. This time must be longer than the
    `max_wait_ms` of every Fetch request."""
    user_timeout_s: float | None = None
    """The value of TCP_USER_TIMEOUT. None keeps the kernel's default."""
    reset_on_close: bool = False
    """Whether the connection is reset when it is closed or the process ends. The kernel then discards all bytes that
    the broker has not acknowledged."""
    frame_limit: int = FRAME_LIMIT
    socket_buffer_bytes: int | None = None
    unsent_bytes: int = 4 << 20
    """While this process holds more than this number of unsent bytes, `pipe.writable` is false."""


class Connection:
    """An authenticated connection to one broker."""

    __slots__ = ("host", "pipe", "port", "replace_before", "versions")

    def __init__(
        self, host: str, port: int, pipe: FramePipe, versions: dict[int, tuple[int, int]], replace_before: float | None
    ) -> None:
        self.host = host
        self.port = port
        self.pipe = pipe
        self.versions = versions
        """Maps each API key to the lowest and the highest version that the broker supports."""
        self.replace_before = replace_before
        """The time, on the event loop's clock, at which this connection must be replaced. Soon after that time, the
        broker ends the SASL session and closes the connection (KIP-368). None if the connection never has to be
        replaced."""

    def version(self, api: Api, at_most: int | None = None) -> int:
        """Return the newest version of this API that both mirrord and the broker support. If `at_most` is given, newer
        versions are not considered. Raises UnsupportedBroker if there is no such version."""
        return choose(api, self.versions, at_most)

    async def call(self, api: Api, body: bytes, version: int) -> Reader:
        """Send a request and wait for its response. Lanes send their Fetch and Produce requests with `pipe.request`
        instead. Raises ConnectionLost."""
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()

        def take(end: Frame | ConnectionLost) -> None:
            if answer.done():  # the caller was cancelled
                return
            if isinstance(end, Frame):
                answer.set_result(end)
            else:
                answer.set_exception(end)

        self.pipe.request(api, version, [body], len(body), take)
        return (await answer).reader()

    def close(self) -> None:
        """Close the connection immediately. Requests without a response fail with ConnectionLost."""
        self.pipe.close()


async def connect(
    host: str, port: int, security: Security, pool: BufferPool, options: ConnectionOptions | None = None
) -> Connection:
    """Open a connection to a broker and authenticate. Return the connection, which is ready for requests.

    Raises Unreachable, TlsFailed or AuthenticationFailed. Raises EnvironmentFault if a secret cannot be read.
    """
    options = options or ConnectionOptions()
    peer = f"{host}:{port}"
    opening = _Opening(
        host,
        port,
        client_id=options.client_id,
        request_timeout_ms=int(options.connect_timeout_s * 1000),
        **client_options(security),
    )
    try:
        async with asyncio.timeout(options.connect_timeout_s):
            await opening.connect()
    except TimeoutError:
        raise Unreachable(f"{peer} did not answer within {options.connect_timeout_s:g} s") from None
    # aiokafka raises many kinds of exceptions if a broker's answers are invalid, such as KeyError and OverflowError.
    except Exception as error:
        if (cause := _tls_error(error)) is not None:
            raise TlsFailed(f"no TLS session with {peer}: {await tls_reason(cause, host, port, security)}") from error
        raise _explain(error, peer, security) from error
    pipe = FramePipe(peer, options.client_id, pool, options.request_timeout_s, options.frame_limit)
    pipe.user_timeout_s = options.user_timeout_s
    replace_before = opening.replace_before
    versions = await opening.hand_over(pipe)
    transport = pipe.transport
    if transport is not None:
        buffers = (options.socket_buffer_bytes, options.unsent_bytes)
        tune(transport, options.user_timeout_s, *buffers, reset_on_close=options.reset_on_close)
    return Connection(host, port, pipe, versions, replace_before)


class _Opening(CheckedConnection):
    """aiokafka's connection while it is being opened."""

    async def hand_over(self, pipe: FramePipe) -> dict[int, tuple[int, int]]:
        """Hand the transport over to the `FramePipe`. Return the API versions that the broker supports."""
        private = cast(Any, self)
        writer, reading = private._writer, private._read_task
        # If aiokafka's object has no reader, it considers itself closed, and leaves the transport alone when it is
        # garbage-collected.
        private._reader = private._writer = private._read_task = None
        reading.cancel()
        with suppress(asyncio.CancelledError, OSError, EOFError):
            await reading
        pipe.adopt(writer.transport, keep=writer)
        return private._versions


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__
    return error


def _explain(error: Exception, peer: str, security: Security) -> EnvironmentFault:
    sasl = (SaslAuthenticationFailed, UnsupportedSaslMechanismError, IllegalSaslStateError, AuthenticationFailedError)
    if isinstance(error, ValueError):
        # The broker's messages in a SCRAM exchange are invalid.
        return AuthenticationFailed(f"{peer}: its answers in the {security.mechanism} exchange are invalid: {error}")
    if isinstance(error, sasl):
        who = f"{security.username!r}" if security.username else "the token"
        detail = f"{error.args[0]}" if error.args and isinstance(error.args[0], str) else type(error).__name__
        return AuthenticationFailed(f"{peer} refuses {who} by {security.mechanism}: {detail}")
    if isinstance(error, KafkaError):
        return Unreachable(f"{peer} closed the connection before it was ready; does this port use {security.protocol}?")
    if not isinstance(error, OSError):
        line = f"its answers are invalid ({type(error).__name__})"
        return AuthenticationFailed(f"{peer}: {line}") if security.mechanism else Unreachable(f"{peer}: {line}")
    reason = getattr(error, "strerror", None) or f"{error}" or "it closed the connection"
    return Unreachable(f"{peer} cannot be reached: {reason}")
