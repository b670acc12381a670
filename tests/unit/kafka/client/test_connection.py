"""Opening connections: what is used of aiokafka, and what a user reads if it does not work. Without a broker."""

import asyncio
import gc
import re
import resource
import ssl
import struct
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from aiokafka.conn import AIOKafkaConnection
from cryptography.hazmat.primitives import serialization as form

from mirrord.config.security import Secret, Security
from mirrord.kafka.client.connection import (
    PRIVATE_NAMES,
    AuthenticationFailed,
    Connection,
    ConnectionOptions,
    TlsFailed,
    Unreachable,
    connect,
)
from mirrord.kafka.client.credentials import client_options, tls_context
from mirrord.kafka.client.receive_buffers import BufferPool
from mirrord.kafka.client.request_pipeline import ConnectionLost
from mirrord.kafka.client.tls_diagnosis import tls_reason
from mirrord.kafka.protocol.api_versions import METADATA
from mirrord.kafka.protocol.errors import UnsupportedBroker
from mirrord.model.errors import EnvironmentFault

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
PATIENT = ConnectionOptions(connect_timeout_s=60)
SASL = Security("SASL_PLAINTEXT", "PLAIN", "mirrord", Secret.parse("env:MIRRORD_TEST_PASSWORD"))


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORD_TEST_PASSWORD", "swordfish")


@asynccontextmanager
async def server(serve: Serve, context: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    yield listening.sockets[0].getsockname()[1]
    listening.close()


def broker(
    sasl_error: int = 0, lifetime_ms: int = 0, metadata_versions: tuple[int, int] = (0, 13), sasl_version: int = 1
) -> Serve:
    """A broker that knows ApiVersions, the SASL requests, and echoes the rest."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            request = await reader.readexactly(size)
            api, _, correlation_id = struct.unpack_from(">hhi", request)
            if api == 18:
                versions = [(17, 0, sasl_version), (18, 0, 4), (36, 0, 1), (3, *metadata_versions)]
                body = struct.pack(">hi", 0, len(versions)) + b"".join(struct.pack(">hhh", *row) for row in versions)
            elif api == 17:
                body = struct.pack(">hih", 0, 1, 5) + b"PLAIN"
            elif api == 36:
                message = b"who are you?"
                body = struct.pack(">hh", sasl_error, len(message)) + message + struct.pack(">iq", 0, lifetime_ms)
            else:
                body = b"\0echo"
            writer.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)

    return serve


def scram_broker(first: str, final: bytes = b"v=AAAA") -> Serve:
    """A broker whose first SCRAM message ends with `first`, after the nonce, and whose last one is `final`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers = 0
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            request = await reader.readexactly(size)
            api, _, correlation_id = struct.unpack_from(">hhi", request)
            if api == 18:
                versions = [(17, 0, 1), (18, 0, 4), (36, 0, 1), (3, 0, 13)]
                body = struct.pack(">hi", 0, len(versions)) + b"".join(struct.pack(">hhh", *row) for row in versions)
            elif api == 17:
                body = struct.pack(">hih", 0, 1, 13) + b"SCRAM-SHA-512"
            else:
                nonce = request.rpartition(b",r=")[2]
                message = final if answers else b"r=" + nonce + b"x," + first.encode()
                answers += 1
                body = struct.pack(">hhi", 0, -1, len(message)) + message + struct.pack(">q", 0)
            writer.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)

    return serve


async def announces_two_gibibytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(4)
    writer.write(struct.pack(">i", (1 << 31) - 1))
    while True:
        writer.write(bytes(1 << 20))
        await writer.drain()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(4)


async def open_to(port: int, security: Security | None = None, host: str = "127.0.0.1") -> Connection:
    return await connect(host, port, security or Security(), BufferPool(), PATIENT)


async def test_what_is_used_of_aiokafka_is_there() -> None:
    connection = AIOKafkaConnection("127.0.0.1", 1)
    assert [name for name in PRIVATE_NAMES if not hasattr(connection, name)] == []


async def test_an_opened_connection_carries_requests() -> None:
    async with server(broker()) as port:
        connection = await open_to(port)
        assert connection.versions[3] == (0, 13)
        assert connection.version(METADATA) == 13
        assert connection.replace_before is None
        reader = await connection.call(METADATA, b"x", 13)
        assert bytes(reader.buffer[reader.position : reader.end]) == b"echo"
        connection.close()
        with pytest.raises(ConnectionLost, match="was lost: closed by this side"):
            await connection.call(METADATA, b"x", 13)


async def test_the_opening_leaves_nothing_behind_that_closes_the_connection() -> None:
    async with server(broker()) as port:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            connection = await open_to(port)
            pipe = connection.pipe
            del connection
            gc.collect()
        assert pipe.lost is None
        pipe.close()


async def test_a_cancelled_call_does_not_disturb_the_next() -> None:
    async with server(broker()) as port:
        connection = await open_to(port)
        first = asyncio.create_task(connection.call(METADATA, b"x", 13))
        await asyncio.sleep(0)
        first.cancel()
        assert (await connection.call(METADATA, b"x", 13)).remaining == 4
        connection.close()


async def test_a_limited_sasl_session_says_when_to_be_replaced() -> None:
    async with server(broker(lifetime_ms=100_000)) as port:
        before = asyncio.get_running_loop().time()
        connection = await open_to(port, SASL)
        assert connection.replace_before is not None
        assert before + 85 <= connection.replace_before <= asyncio.get_running_loop().time() + 85
        connection.close()


async def test_a_refused_user_is_reported_in_the_brokers_words() -> None:
    async with server(broker(sasl_error=58)) as port:
        with pytest.raises(AuthenticationFailed) as refused:
            await open_to(port, SASL)
    assert str(refused.value) == f"127.0.0.1:{port} refuses 'mirrord' by PLAIN: who are you?"
    assert "swordfish" not in repr(refused.value)


async def test_a_mechanism_that_the_broker_does_not_have() -> None:
    scram = Security("SASL_PLAINTEXT", "SCRAM-SHA-512", "mirrord", SASL.password)
    async with server(broker()) as port:
        with pytest.raises(AuthenticationFailed, match=r"by SCRAM-SHA-512: .*Enabled mechanisms are: \['PLAIN'\]"):
            await open_to(port, scram)


async def test_a_sasl_exchange_without_checks_is_refused() -> None:
    """In version 0 of SaslHandshake, the messages of the exchange have no headers, and nothing would check them."""
    async with server(broker(sasl_version=0)) as port:
        with pytest.raises(AuthenticationFailed, match=r"refuses 'mirrord' by PLAIN: .* older than Kafka 1\.0"):
            await open_to(port, SASL)


@pytest.mark.parametrize(
    ("first", "final", "line"),
    [
        ("s=c2FsdA==,i=4095", b"", "the broker asks for '4095' iterations; allowed: 4,096 to 1,000,000"),
        ("s=c2FsdA==,i=1", b"", "the broker asks for '1' iterations"),
        ("s=c2FsdA==,i=1000001", b"", "the broker asks for '1000001' iterations"),
        ("s=c2FsdA==,i=2147483647", b"", "the broker asks for '2147483647' iterations"),
        (f"s=c2FsdA==,i={1 << 32}", b"", "the broker asks for '4294967296' iterations"),
        ("s=c2FsdA==,i=" + "9" * 5_000, b"", "iterations; allowed"),
        ("s=c2FsdA==,i=" + "0" * 96 + "4096" + "00000", b"", "iterations; allowed"),
        ("s=c2FsdA==,i=-5000", b"", "the broker asks for '-5000' iterations"),
        ("s=c2FsdA==,i=\x1b[2J", b"", r"the broker asks for '\x1b[2J' iterations"),
        ("e=unknown-user", b"", "the broker refuses the user: 'unknown-user'"),
        ("s=c2FsdA==,i=4096", b"e=other-error", "the broker refuses the user: 'other-error'"),
        ("s=c2FsdA==,i=4096", b"v=AAAA", "exchange are invalid: Server sent wrong signature"),
        ("s=c2FsdA==,i=4096", b"", "neither a challenge nor a signature"),
        ("s=c2FsdA==,i=4096", b"nothing", "neither a challenge nor a signature"),
        ("s=***,i=4096", b"v=AAAA", "wrong signature"),
        ("s=A,i=4096", b"v=AAAA", "exchange are invalid"),
        ("i=4096", b"v=AAAA", "neither a challenge nor a signature"),
        ("s=c2FsdA==", b"v=AAAA", "neither a challenge nor a signature"),
    ],
)
async def test_an_odd_scram_exchange_is_one_clear_error(first: str, final: bytes, line: str) -> None:
    scram = Security("SASL_PLAINTEXT", "SCRAM-SHA-512", "mirrord", SASL.password)
    async with server(scram_broker(first, final)) as port:
        with pytest.raises(AuthenticationFailed, match=re.escape(line)) as refused:
            await open_to(port, scram)
    assert "swordfish" not in str(refused.value)


async def test_an_answer_of_two_gibibytes_is_not_read() -> None:
    async with server(announces_two_gibibytes) as port:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(Unreachable, match="before it was ready"):
            await open_to(port)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10


async def test_an_old_broker_is_reported() -> None:
    async with server(broker(metadata_versions=(0, 8))) as port:
        connection = await open_to(port)
        with pytest.raises(UnsupportedBroker, match=r"Metadata in versions 0 to 8, .* Kafka 2\.8 or newer is needed"):
            connection.version(METADATA)
        connection.close()


async def test_nobody_there() -> None:
    async with server(silent) as port:
        pass
    with pytest.raises(Unreachable, match=rf"^127\.0\.0\.1:{port} cannot be reached: "):
        await open_to(port)
    with pytest.raises(Unreachable, match=r"^no-such-host\.invalid:9092 cannot be reached: "):
        await open_to(9092, host="no-such-host.invalid")


async def test_somebody_silent() -> None:
    async with server(silent) as port:
        with pytest.raises(Unreachable, match=r"did not answer within 0\.3 s$"):
            await connect("127.0.0.1", port, Security(), BufferPool(), ConnectionOptions(connect_timeout_s=0.3))


async def test_somebody_who_hangs_up() -> None:
    async with server(hang_up) as port:
        with pytest.raises(
            Unreachable, match="closed the connection before it was ready; does this port use PLAINTEXT"
        ):
            await open_to(port)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def tls_server(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def trusting(authority: trustme.CA, folder: Path, check_hostname: bool = True) -> Security:
    path = folder / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return Security("SSL", ca=Secret.parse(f"file:{path}"), check_hostname=check_hostname)


async def test_tls_with_a_ca_of_ones_own(authority: trustme.CA, tmp_path: Path) -> None:
    async with server(broker(), tls_server(authority, "127.0.0.1")) as port:
        connection = await open_to(port, trusting(authority, tmp_path))
        assert (await connection.call(METADATA, b"x", 13)).remaining == 4
        connection.close()


async def test_tls_failures_say_what_is_wrong(authority: trustme.CA, tmp_path: Path) -> None:
    async with server(broker(), tls_server(authority, "elsewhere.example")) as port:
        with pytest.raises(
            TlsFailed, match=r"its certificate is not accepted: .*mismatch.* is for elsewhere.example, not"
        ):
            await open_to(port, trusting(authority, tmp_path))
        other = trustme.CA(organization_name="Other")
        with pytest.raises(TlsFailed, match=r"issued by .*, which is not among those of ca: .*O=Other") as raised:
            await open_to(port, trusting(other, tmp_path))
        assert "accepted: unable to get local issuer certificate; " in str(raised.value)
        with pytest.raises(TlsFailed, match=r"which is not among the authorities of this machine; specify others"):
            await open_to(port, Security("SSL"))
        connection = await open_to(port, trusting(authority, tmp_path, check_hostname=False))
        connection.close()


async def test_an_expired_certificate_says_so(authority: trustme.CA, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", not_after=datetime(2001, 1, 1, tzinfo=UTC)).configure_cert(context)
    async with server(broker(), context) as port:
        with pytest.raises(TlsFailed, match=r"certificate has expired; .* is valid from .* to 2001-01-01 00:00:00 UTC"):
            await open_to(port, trusting(authority, tmp_path))


async def test_a_client_certificate_that_is_not_trusted_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    client = trustme.CA(organization_name="Other").issue_cert("client.example")
    monkeypatch.setenv("MIRRORD_TEST_CERTIFICATE", client.cert_chain_pems[0].bytes().decode())
    monkeypatch.setenv("MIRRORD_TEST_KEY", client.private_key_pem.bytes().decode())
    certificate, key = Secret.parse("env:MIRRORD_TEST_CERTIFICATE"), Secret.parse("env:MIRRORD_TEST_KEY")
    for reason in ("TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_BAD_CERTIFICATE", "TLSV13_ALERT_CERTIFICATE_REQUIRED"):
        error = ssl.SSLError(1, "")
        error.reason = reason
        why = await tls_reason(error, "127.0.0.1", 9, Security("SSL", certificate=certificate, key=key))
        assert why.startswith("the broker wants a client certificate that it trusts (")
        assert re.search(r"; ours is \".*\", issued by \".*O=Other\", valid from ", why)
        assert "; none is configured (" in await tls_reason(error, "127.0.0.1", 9, Security("SSL"))


def test_a_client_certificate_never_touches_a_disk(authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    client = authority.issue_cert("client.example")
    monkeypatch.setenv("MIRRORD_TEST_CERTIFICATE", client.cert_chain_pems[0].bytes().decode())
    monkeypatch.setenv("MIRRORD_TEST_KEY", client.private_key_pem.bytes().decode())
    monkeypatch.setenv("MIRRORD_TEST_CA", authority.cert_pem.bytes().decode())
    ca, certificate, key = (Secret.parse(f"env:MIRRORD_TEST_{name}") for name in ("CA", "CERTIFICATE", "KEY"))
    security = Security("SSL", ca=ca, certificate=certificate, key=key)
    assert tls_context(security).cert_store_stats()["x509_ca"] == 1


def test_an_encrypted_key_needs_its_password(authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    client = authority.issue_cert("client.example")
    unlocked = form.load_pem_private_key(client.private_key_pem.bytes(), password=None)
    encryption = form.BestAvailableEncryption(b"swordfish")
    locked = unlocked.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, encryption)
    monkeypatch.setenv("MIRRORD_TEST_CERTIFICATE", client.cert_chain_pems[0].bytes().decode())
    monkeypatch.setenv("MIRRORD_TEST_KEY", locked.decode())
    certificate, key = Secret.parse("env:MIRRORD_TEST_CERTIFICATE"), Secret.parse("env:MIRRORD_TEST_KEY")
    tls_context(Security("SSL", certificate=certificate, key=key, key_password=SASL.password))
    # And no one is asked for it at the terminal.
    with pytest.raises(EnvironmentFault, match="TLS cannot use certificate, key and key_password: "):
        tls_context(Security("SSL", certificate=certificate, key=key))


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("ca", "TLS cannot use ca: "),
        ("certificate", "TLS cannot use certificate, key and key_password: "),
    ],
)
def test_what_is_no_pem_is_reported_without_being_shown(key: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORD_TEST_PEM", "no pem at all")
    pem = Secret.parse("env:MIRRORD_TEST_PEM")
    security = Security("SSL", ca=pem) if key == "ca" else Security("SSL", certificate=pem, key=pem)
    with pytest.raises(EnvironmentFault, match=what) as fault:
        tls_context(security)
    assert "no pem at all" not in str(fault.value)


async def test_an_oauth_token_is_read_when_it_is_needed(tmp_path: Path) -> None:
    token = tmp_path / "token"
    security = Security("SASL_PLAINTEXT", "OAUTHBEARER", password=Secret.parse(f"file:{token}"))
    provider = client_options(security).get("sasl_oauth_token_provider")
    assert provider is not None
    for text in ("first", "second"):
        token.write_text(text)
        assert await provider.token() == text


def test_a_secret_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MIRRORD_TEST_PASSWORD")
    with pytest.raises(EnvironmentFault, match="the environment variable MIRRORD_TEST_PASSWORD is not set"):
        client_options(SASL)


@pytest.mark.parametrize(
    "answer",
    [
        struct.pack(">i", 0),
        struct.pack(">ih", 2, 1),
        struct.pack(">iihi", 10, 1, 0, 1_000),
        struct.pack(">iihi", 10, 1, 0, 0) * 2,
    ],
    ids=["empty", "no correlation id", "cut off", "not asked for"],
)
async def test_an_invalid_answer_to_the_first_request_logs_no_traceback(
    answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(answer)
        await reader.read()

    async with server(serve) as port:
        with suppress(EnvironmentFault):
            (await connect("127.0.0.1", port, Security(), BufferPool(), PATIENT)).close()
    assert [record.getMessage() for record in caplog.records if record.name.startswith("aiokafka")] == []
