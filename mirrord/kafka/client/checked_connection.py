"""Connections of aiokafka that check what a broker answers.

aiokafka reads answers of up to 2 GiB, and computes as many iterations of SCRAM as the broker asks for. A broker, or
a process that answers in its place, could therefore exhaust the memory of this process, or occupy a thread for hours.
Importing this module makes aiokafka's admin client and producer open checked connections as well.
"""

# pyright: reportMissingTypeStubs=false

import asyncio
import weakref
from typing import Any, cast

from aiokafka import client
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError, KafkaError, SaslAuthenticationFailed
from aiokafka.protocol.admin import SaslAuthenticateRequest

from mirrord.kafka.client.receive_buffers import FRAME_LIMIT

REPLACED = "create_conn"
"""The function of aiokafka's `client` module that is replaced. A test checks that it exists."""
_REPLACE_AT = 0.85
"""After this share of a SASL session's lifetime, mirrord opens a new connection and uses it instead of the old one.
Kafka's own client waits for at least the same share before it reauthenticates (SaslClientAuthenticator)."""
OPENING_FRAME_LIMIT = 1 << 15
"""Maximum size in bytes of a response before the connection is open. Brokers send less than 2 KiB. aiokafka decodes
ApiVersions with Python, so a response of 1 MiB would hold up the event loop for half a second."""
_ITERATIONS = (4_096, 1_000_000)
_LONGEST_REASON = 100


class CheckedConnection(AIOKafkaConnection):
    """A connection that limits the size of answers and checks the SASL exchange."""

    replace_before: float | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        cast(Any, super()).__init__(*arguments, **options)
        is_sasl = str(options.get("security_protocol", "")).startswith("SASL")
        self.mechanism: str = (options.get("sasl_mechanism") or "") if is_sasl else ""
        """The SASL mechanism, or an empty string if SASL is not used."""
        self.frame_limit = OPENING_FRAME_LIMIT

    def _create_reader_task(self) -> Any:
        private = cast(Any, self)
        private._reader = _BoundedReader(private._reader, self)
        return cast(Any, super())._create_reader_task()

    def _handle_frame(self, resp: bytes) -> None:
        """Pass an answer to the request that waits for it. An invalid answer closes the connection.

        For any other error than an OSError, aiokafka would log a traceback. A broker could thus fill the log with the
        tracebacks of all attempts to connect.
        """
        try:
            cast(Any, super())._handle_frame(resp)
        except Exception as error:
            raise OSError(f"its answers are invalid ({type(error).__name__})") from error

    async def send(self, request: Any, expect_response: bool = True) -> Any:
        """Send a request as aiokafka does. If it is a SaslAuthenticate request, also check the response.

        aiokafka ignores three parts of this response: the lifetime of the SASL session, the refusal of an OAUTHBEARER
        token, and whether the number of iterations of SCRAM is acceptable. The broker initially reports a refused token
        without an error code, in the SASL data of the response (RFC 7628 §3.2.3).
        """
        send = cast(Any, super()).send
        started = asyncio.get_running_loop().time()
        answer = await send(request, expect_response)
        if not isinstance(request, SaslAuthenticateRequest):
            return answer
        if self.mechanism.startswith("SCRAM") and answer.error_code == 0:
            check_scram(answer.sasl_auth_bytes)
        if self.mechanism == "OAUTHBEARER" and answer.error_code == 0 and answer.sasl_auth_bytes:
            answer = await send(SaslAuthenticateRequest(b"\x01"))
            if answer.error_code == 0:
                raise SaslAuthenticationFailed("the broker refuses the token")
        lifetime_ms: int = getattr(answer, "session_lifetime_ms", 0)  # sent from version 1 on; 0 means no limit
        if lifetime_ms > 0:
            self.replace_before = started + lifetime_ms / 1000 * _REPLACE_AT
        return answer

    def _send_sasl_token(self, payload: bytes, expect_response: bool = True) -> Any:
        """Refuse to send SASL messages without a header, as Kafka did before version 1.0.

        aiokafka sends them so if the broker names no newer version of SaslHandshake. Their answers would bypass the
        checks in `send`.
        """
        del payload, expect_response
        raise SaslAuthenticationFailed("the broker has no SaslAuthenticate request, so it is older than Kafka 1.0")


class _BoundedReader:
    """The stream of a checked connection. A broker can announce an answer of 2 GiB, and aiokafka would keep in memory
    what arrives of it."""

    def __init__(self, stream: asyncio.StreamReader, connection: CheckedConnection) -> None:
        self._stream = stream
        self._connection = weakref.ref(connection)

    async def readexactly(self, count: int) -> bytes:
        """Read this number of bytes."""
        connection = self._connection()
        limit = OPENING_FRAME_LIMIT if connection is None else connection.frame_limit
        if not 0 <= count <= limit:
            raise OSError(f"it announced an answer of {count} bytes")
        return await self._stream.readexactly(count)

    def at_eof(self) -> bool:
        """Return whether the peer has closed the connection and all bytes have been read."""
        return self._stream.at_eof()


def check_scram(message: bytes) -> None:
    """Check a message of a broker in a SCRAM exchange (RFC 5802 §5.1). Raises SaslAuthenticationFailed if the broker
    refuses the user, asks for too few or too many iterations, or sends neither a challenge nor a signature.

    With few iterations, a server that poses as the broker could guess the password from the proof of the client.
    Kafka's own client accepts no fewer (ScramMechanism.minIterations). With many iterations, computing the proof would
    occupy a thread for hours.
    """
    parts = (part.partition("=") for part in message.decode("utf-8", "replace").split(","))
    fields = {key: value for key, _, value in parts}
    if "e" in fields:
        raise SaslAuthenticationFailed(f"the broker refuses the user: {fields['e'][:_LONGEST_REASON]!r}")
    if "v" not in fields and not fields.keys() >= {"r", "s", "i"}:
        raise SaslAuthenticationFailed("the broker's SCRAM message has neither a challenge nor a signature")
    if "i" in fields:
        text, (low, high) = fields["i"], _ITERATIONS
        # The length comes first: aiokafka would use all digits of a number with many leading zeros.
        is_number = len(text) <= len(f"{high}") and text.isascii() and text.isdigit()
        if not is_number or not low <= int(text) <= high:
            shown = text[:_LONGEST_REASON]
            raise SaslAuthenticationFailed(f"the broker asks for {shown!r} iterations; allowed: {low:,} to {high:,}")


async def _create(host: str, port: int, **options: Any) -> CheckedConnection:
    """Open a connection for a client of aiokafka, as its own function does. The client expects no other errors than
    those of the network and of Kafka, but invalid answers also cause others, such as KeyError."""
    made = CheckedConnection(host, port, **options)
    try:
        await cast(Any, made).connect()
    except (OSError, TimeoutError, KafkaError):
        raise
    except Exception as error:
        raise KafkaConnectionError(f"{host}:{port}: its answers are invalid ({type(error).__name__})") from error
    made.frame_limit = FRAME_LIMIT
    return made


setattr(client, REPLACED, _create)
