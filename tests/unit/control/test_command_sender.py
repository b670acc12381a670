"""What a client sends to an address that only the ledger names."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from mirrord.config.http import HttpConfig, HttpToken
from mirrord.config.schema import ClusterConfig, Config, FlowConfig
from mirrord.config.security import Secret, Security
from mirrord.config.value_parsers import HostPort
from mirrord.control import command_sender
from mirrord.control.command_sender import CommandRefused, CommandSender, NoAnswer
from mirrord.supervision.daemon_http_client import ask_status, order_stop
from mirrord.supervision.standby_config_check import StandbyLook
from tests.fixtures.supervision import eventually

NOBODY = 65534
TOKEN = "the token that must not leave"
CLUSTER = ClusterConfig(("127.0.0.1:1",), Security())
FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",))
Reply = Callable[[bytes], bytes]


def reply(status: int, document: object = None, more: str = "") -> bytes:
    body = json.dumps(document or {}).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{more}Connection: close\r\n\r\n".encode() + body


@asynccontextmanager
async def rogue(answer: Reply) -> AsyncIterator[tuple[HostPort, list[bytes]]]:
    """A server that keeps all that it is sent."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0)
        heard.append(head + await reader.readexactly(length))
        writer.write(answer(head))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield HostPort("127.0.0.1", server.sockets[0].getsockname()[1]), heard


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORD_TEST_TOKEN", TOKEN)


def settings(listen: HostPort | None = None, advertised: HostPort | None = None) -> HttpConfig:
    secret = Secret("env:MIRRORD_TEST_TOKEN")
    return HttpConfig(listen, advertised, token=secret, tokens=(HttpToken("see", "view", secret),))


def config(http: HttpConfig) -> Config:
    return Config(clusters={"eu": CLUSTER, "us": CLUSTER}, flows=(FLOW,), http=http)


def accepting(head: bytes) -> bytes:
    if head.startswith(b"GET /challenge"):
        return reply(200, {"nonce": "1.ab.cd", "local": "../../secret"})
    return reply(202, {"stopping": True})


def silent(head: bytes) -> bytes:
    return reply(404 if head.startswith(b"GET /challenge") else 202)


async def test_no_token_travels_to_an_address_of_the_ledger() -> None:
    """Once, each `mirrord stop` and each standby sent the token to whoever had forged a lease."""
    async with rogue(accepting) as (address, heard):
        http = f"http://{address}"
        await order_stop(http, config(settings()))
        with pytest.raises(NoAnswer):
            await ask_status(http, config(settings()))
        look = StandbyLook(lambda: config(settings()), lambda: {"eu-us": http})
        task = asyncio.create_task(look.run())
        await eventually(lambda: len(heard) >= 4)
        task.cancel()
    assert heard
    assert TOKEN.encode() not in b"".join(heard)
    assert b"env:" not in b"".join(heard), "nor what the configuration says"


async def test_a_daemon_that_asks_for_a_token_to_read_gets_a_proof() -> None:
    def answer(head: bytes) -> bytes:
        if head.startswith(b"GET /challenge"):
            return reply(200, {"nonce": "1.ab.cd"})
        return reply(200 if b"Mirrord name=token" in head else 401, {"error": "a token is needed"})

    async with rogue(answer) as (address, heard):
        sender = CommandSender(f"http://{address}", settings(), 2.0)
        assert (await sender.read("/status")).status == 200
    assert [head.split()[1] for head in heard] == [b"/status", b"/challenge", b"/status"]
    assert TOKEN.encode() not in b"".join(heard)


async def test_a_refusal_names_the_reason() -> None:
    def answer(head: bytes) -> bytes:
        return reply(200, {"nonce": "1.a"}) if b"/challenge" in head else reply(403, {"error": "the role is view"})

    async with rogue(answer) as (address, _):
        with pytest.raises(CommandRefused, match=f"http://{address} does not accept this request: the role is view"):
            await CommandSender(f"http://{address}", settings(), 2.0).send("POST", "/stop", b"", "configure")


@pytest.mark.parametrize(
    "http",
    [
        "",
        "127.0.0.1:8182",
        "ftp://127.0.0.1:8182",
        "http://127.0.0.1",
        "http://127.0.0.1:8182/path",
        "http://user:word@127.0.0.1:8182",
        "http://127.0.0.1:8182?x",
        "http://127.0.0.1:8182\r\nX: y",
        "file:///etc/passwd",
    ],
)
async def test_a_lease_can_name_only_an_address(http: str) -> None:
    with pytest.raises(NoAnswer, match="is not the address of a daemon"):
        await order_stop(http, config(settings()))


async def test_a_redirection_is_not_followed() -> None:
    async with rogue(accepting) as (inner, heard):
        leading = reply(307, more=f"Location: http://{inner}/stop\r\n")
        async with rogue(lambda _: leading) as (address, _):
            with pytest.raises(NoAnswer, match="answers with 307"):
                await order_stop(f"http://{address}", config(settings()))
        assert heard == []


async def test_an_endless_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_sender, "LONGEST_ANSWER_BYTES", 1000)
    async with rogue(lambda _: reply(200, ["x" * 2000])) as (address, _):
        with pytest.raises(NoAnswer, match="more than 1000 bytes"):
            await ask_status(f"http://{address}", config(settings()))


async def test_a_daemon_of_a_former_version_is_commanded_from_its_own_machine() -> None:
    """It knows no challenges. From its own machine it needs no token, so none is sent to an address of the ledger."""
    async with rogue(silent) as (address, heard):
        await order_stop(f"http://{address}", config(settings()))
    assert heard[-1].startswith(b"POST /stop")
    assert TOKEN.encode() not in b"".join(heard)


@pytest.mark.parametrize("advertises", [False, True])
async def test_only_the_address_of_the_configuration_on_this_machine_gets_the_token_itself(advertises: bool) -> None:
    async with rogue(silent) as (address, heard):
        named = settings(address) if not advertises else settings(HostPort("0.0.0.0", address.port), address)
        await order_stop(f"http://{address}", config(named))
    assert f"Authorization: Bearer {TOKEN}".encode() in heard[-1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_a_process_of_another_user_at_the_configured_address_does_not_get_the_token() -> None:
    """While no daemon is running, each user of the machine can listen on its port, and know no challenges."""
    program = f"""
import os, socket
os.setuid({NOBODY})
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
for _ in range(2):
    with listening.accept()[0] as client:
        heard = client.recv(65536)
        print(heard, flush=True)
        status = 404 if b"/challenge" in heard else 202
        client.sendall(b"HTTP/1.1 %d X\\r\\nContent-Length: 2\\r\\n\\r\\n{{}}" % status)
"""
    other = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    address = HostPort("127.0.0.1", int(other.stdout.readline()))
    asyncio.run(order_stop(f"http://{address}", config(settings(address))))
    heard = other.communicate(timeout=10)[0]
    assert "POST /stop" in heard
    assert TOKEN not in heard


def test_a_port_that_nobody_uses_is_of_no_user() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert command_sender._is_port_of_this_user(port)  # pyright: ignore[reportPrivateUsage]
    assert not command_sender._is_port_of_this_user(port)  # pyright: ignore[reportPrivateUsage]


async def test_a_former_version_elsewhere_is_not_sent_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    async def elsewhere(_: str) -> bool:
        return False

    monkeypatch.setattr(command_sender, "_is_of_this_machine", elsewhere)
    async with rogue(silent) as (address, heard):
        with pytest.raises(CommandRefused, match="give the command on the daemon's machine"):
            await order_stop(f"http://{address}", config(settings(address)))
    assert [head.split()[1] for head in heard] == [b"/challenge"]


@pytest.mark.parametrize(
    ("host", "own"), [("127.0.0.1", True), ("localhost", True), ("192.0.2.1", False), ("no-such-host.invalid", False)]
)
async def test_addresses_of_this_machine(host: str, own: bool) -> None:
    assert await command_sender._is_of_this_machine(host) is own  # pyright: ignore[reportPrivateUsage]


async def test_the_name_of_this_machine_is_of_this_machine() -> None:
    try:
        socket.getaddrinfo(socket.gethostname(), 0)
    except OSError:
        pytest.skip("this machine does not know its own name")
    assert await command_sender._is_of_this_machine(socket.gethostname())  # pyright: ignore[reportPrivateUsage]
