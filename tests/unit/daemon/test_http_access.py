"""Who may send which request, over real sockets: an attacker's requests are sent as bytes."""

import asyncio
import base64
import hashlib
import ipaddress
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from msgspec import structs
from structlog.testing import capture_logs

from mirrord.config.http import HttpConfig, HttpToken
from mirrord.config.security import Secret
from mirrord.config.value_parsers import HostPort
from mirrord.control.command_proof import RequestLine, prove
from mirrord.control.command_sender import CommandRefused, CommandSender
from mirrord.control.local_token import control_directory, read_local_token
from mirrord.daemon.http_api import HttpServer
from mirrord.daemon.refused_requests import LOGGED_PER_MINUTE, RECORDED_PER_HOUR, RefusedRequests
from mirrord.ledger.standing_orders import Giver
from mirrord.runtime.clock import SystemClock
from tests.fixtures.clock import FakeClock
from tests.unit.daemon.test_http_api import Daemon, free_port

TOKENS = {"see": "the token of a viewer", "ops": "the token of an operator", "all": "the token of a master"}


class World(NamedTuple):
    """A server and the fake daemon behind it."""

    daemon: Daemon
    server: HttpServer
    address: HostPort
    folder: Path

    @property
    def authority(self) -> str:
        return str(self.address)


def settings(folder: Path, **more: object) -> HttpConfig:
    for name, token in TOKENS.items():
        (folder / name).write_text(token)
    roles = {"see": "view", "ops": "operate", "all": "configure"}
    tokens = tuple(HttpToken(name, role, Secret(f"file:{folder / name}")) for name, role in roles.items())  # pyright: ignore[reportArgumentType]
    return HttpConfig(listen=HostPort("127.0.0.1", free_port()), tokens=tokens, **more)  # pyright: ignore[reportArgumentType]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    daemon = Daemon()
    server = HttpServer(daemon, settings(tmp_path, names=("mirror.example:443",)), SystemClock())
    yield World(daemon, server, await server.start(), tmp_path)
    await server.close()


async def raw(world: World, text: bytes) -> tuple[int, dict[str, str]]:
    """Send these bytes, and return the status and the JSON document of the first answer."""
    reader, writer = await asyncio.open_connection(world.address.host, world.address.port)
    writer.write(text)
    try:
        async with asyncio.timeout(10):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            body = await reader.readexactly(length)
    finally:
        writer.close()
    return int(head.split()[1]), json.loads(body) if body.startswith(b"{") else {}


async def request(
    world: World, line: str, body: bytes = b"", host: str | None = None, /, **headers: str
) -> tuple[int, dict[str, str]]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{line} HTTP/1.1", f"Host: {world.authority if host is None else host}"]
    lines += [f"{name}: {value}" for name, value in named.items()]
    lines += [f"Content-Length: {len(body)}"] if line.startswith("POST") else []
    return await raw(world, "\r\n".join([*lines, "", ""]).encode("latin-1") + body)


async def nonce(world: World) -> str:
    return (await request(world, "GET /challenge"))[1]["nonce"]


async def proof(world: World, name: str, line: str, body: bytes = b"", token: str = "", host: str = "") -> str:
    method, target = line.split(" ")
    covered = RequestLine(host or world.authority, method, target)
    return prove(name, token or TOKENS[name], await nonce(world), covered, body).header()


async def test_an_order_needs_a_proof_also_on_loopback(world: World) -> None:
    for line in ("POST /stop", "POST /apply", "POST /order", "POST /handover"):
        status, answer = await request(world, line)
        assert (status, answer["error"]) == (401, "a token is needed: see docs/how-to/secure.md")
    for token in (*TOKENS.values(), ""):
        given = f"Bearer {token}"
        assert (await request(world, "POST /stop", Authorization=given))[0] in {401, 403}
    assert world.daemon.stopped == 0


@pytest.mark.parametrize(
    ("name", "line", "status"),
    [
        ("see", "GET /status", 200),
        ("see", "POST /order", 403),
        ("see", "POST /stop", 403),
        ("ops", "GET /status", 200),
        ("ops", "POST /order", 400),
        ("ops", "POST /stop", 403),
        ("ops", "POST /apply", 403),
        ("ops", "POST /handover", 403),
        ("all", "POST /order", 400),
        ("all", "POST /apply", 400),
        ("all", "POST /handover", 400),
        ("all", "POST /stop", 202),
    ],
)
async def test_roles(world: World, name: str, line: str, status: int) -> None:
    assert (await request(world, line, Authorization=await proof(world, name, line)))[0] == status
    assert world.daemon.stopped == (status == 202)


async def test_the_user_of_the_daemon_needs_no_setting(world: World) -> None:
    sender = CommandSender(f"http://{world.authority}", HttpConfig(), 5.0)
    assert (await sender.send("POST", "/stop", b"", "configure")).status == 202
    (file,) = control_directory().glob("*.token")
    file.chmod(0o644)
    with pytest.raises(CommandRefused, match="this process knows no token for it"):
        await sender.send("POST", "/stop", b"", "configure")
    assert world.daemon.stopped == 1
    await world.server.close()
    assert not file.exists()


async def test_a_client_elsewhere_uses_the_least_token_that_is_enough(world: World) -> None:
    challenge = (await request(world, "GET /challenge"))[1]
    (control_directory() / f"{challenge['local']}.token").unlink()
    sender = CommandSender(f"http://{world.authority}", settings(world.folder), 5.0)
    assert (await sender.send("POST", "/order", b"", "operate")).status == 400
    (world.folder / "all").write_text("another token, on this machine only")
    (world.folder / "all").unlink()
    with pytest.raises(CommandRefused, match="this process knows no token for it"):
        await sender.send("POST", "/stop", b"", "configure")


async def test_a_proof_is_used_once(world: World) -> None:
    given = await proof(world, "all", "POST /stop")
    assert (await request(world, "POST /stop", Authorization=given))[0] == 202
    status, answer = await request(world, "POST /stop", Authorization=given)
    assert (status, answer["error"]) == (401, "the nonce has expired or was used before")
    assert world.daemon.stopped == 1


async def test_a_proof_covers_path_method_body_and_server(world: World) -> None:
    for line, other, body, host in (
        ("POST /order?dry_run", "POST /order", b"", None),
        ("POST /order", "POST /stop", b"", None),
        ("GET /stop", "POST /stop", b"", None),
        ("POST /stop", "POST /stop?", b"", None),
        ("POST /stop", "POST /stop", b"another body", None),
        ("POST /stop", "POST /stop", b"", f"localhost:{world.address.port}"),
        ("POST /stop", "POST /stop", b"", "mirror.example:443"),
    ):
        given = await proof(world, "all", line)
        assert (await request(world, other, body, host, Authorization=given))[0] == 401
    assert world.daemon.stopped == 0


async def test_a_proof_for_another_server_cannot_be_passed_on(world: World) -> None:
    """A forged ledger leads a client to an attacker's port, and the attacker passes on what the client sends."""
    there = f"127.0.0.1:{world.address.port + 1}"
    for host in (there, f"attacker.example:{world.address.port}", "127.0.0.1"):
        given = await proof(world, "all", "POST /stop", host=host)
        assert (await request(world, "POST /stop", b"", host, Authorization=given))[0] in {401, 403}
    given = await proof(world, "all", "POST /stop", host="mirror.example:443")
    assert (await request(world, "POST /stop", b"", "mirror.example:443", Authorization=given))[0] == 202


@pytest.mark.parametrize(
    "line",
    ["POST //stop", "POST /stop/", "POST /STOP", "POST /%2fstop", "POST /stop%00", "POST /./stop/.", "POST /x/../stop"],
)
async def test_variants_of_a_path_are_no_way_around(world: World, line: str) -> None:
    assert (await request(world, line))[0] in {400, 401, 404, 405}
    given = await proof(world, "ops", line)
    assert (await request(world, line, Authorization=given))[0] in {400, 401, 403, 404, 405}
    assert world.daemon.stopped == 0


async def test_an_encoded_path_needs_the_role_of_the_path(world: World) -> None:
    for line in ("POST /%73top", "POST /stop?x=/order", "POST http://127.0.0.1/stop"):
        given = await proof(world, "ops", line)
        assert (await request(world, line, Authorization=given))[0] in {400, 403, 404}
    assert world.daemon.stopped == 0


async def test_a_page_of_another_site_gives_no_orders(world: World) -> None:
    for origin in ("http://evil.example", "null", f"http://{world.authority}"):
        given = await proof(world, "all", "POST /stop")
        assert (await request(world, "POST /stop", Authorization=given, Origin=origin))[0] == 403
    basic = base64.b64encode(b"all:" + TOKENS["all"].encode()).decode()
    assert (await request(world, "POST /stop", Authorization=f"Basic {basic}"))[0] == 403
    assert world.daemon.stopped == 0


@pytest.mark.parametrize("path", ["/", "/status", "/metrics", "/groups", "/configuration", "/translate", "/challenge"])
async def test_a_name_that_a_page_chooses_is_refused(world: World, path: str) -> None:
    """DNS rebinding: a page gives its own name the address 127.0.0.1."""
    for host in ("evil.example", f"evil.example:{world.address.port}", "", "localhost, evil.example"):
        assert (await request(world, f"GET {path}", b"", host))[0] in {400, 403}
    two = f"GET {path} HTTP/1.1\r\nHost: {world.authority}\r\nHost: evil.example\r\n\r\n"
    assert (await raw(world, two.encode()))[0] == 400


async def test_a_page_of_another_site_makes_no_requests(world: World) -> None:
    """A page cannot read the answer, but it could make the daemon ask the brokers for all groups."""
    for site in ("cross-site", "same-site"):
        given = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "empty"}
        assert (await request(world, "GET /groups", **given))[0] == 403
        assert (await request(world, "GET /", **given | {"Sec_Fetch_Dest": "iframe"}))[0] == 403
        assert (await request(world, "GET /", **given | {"Sec_Fetch_Dest": "document"}))[0] == 200
    for site in ("same-origin", "none"):
        assert (await request(world, "GET /groups", Sec_Fetch_Site=site, Sec_Fetch_Dest="empty"))[0] == 200


PROXIED = [
    {"X_Forwarded_For": "192.0.2.1"},
    {"Forwarded": "for=192.0.2.1"},
    {"X_Real_IP": "192.0.2.1"},
    {"X_Forwarded_Proto": "https"},
    {"Via": "1.1 proxy"},
]


@pytest.mark.parametrize("headers", PROXIED, ids=lambda each: next(iter(each)))
async def test_reading_is_open_on_loopback_and_needs_a_token_elsewhere(world: World, headers: dict[str, str]) -> None:
    for path in ("/", "/status", "/metrics", "/groups", "/configuration", "/readiness"):
        assert (await request(world, f"GET {path}"))[0] == 200
        assert (await request(world, f"GET {path}", **headers))[0] == 401
    for token, scheme, status in (
        (TOKENS["see"], "Bearer", 200),
        (base64.b64encode(f"see:{TOKENS['see']}".encode()).decode(), "Basic", 200),
        (base64.b64encode(f"ops:{TOKENS['see']}".encode()).decode(), "Basic", 401),
        (base64.b64encode(b"see:").decode(), "Basic", 401),
        ("\xff", "Bearer", 401),
        ("\xff", "Basic", 401),
        ("", "Bearer", 401),
        ("", "Basic", 401),
        (TOKENS["ops"], "Bearer", 403),
        (TOKENS["all"], "Bearer", 403),
        (TOKENS["see"], "bearer", 401),
        (TOKENS["see"], "Digest", 401),
    ):
        given = await request(world, "GET /status", Authorization=f"{scheme} {token}", **headers)
        assert given[0] == status, (scheme, given)
    proved = await proof(world, "see", "GET /status")
    assert (await request(world, "GET /status", Authorization=proved, **headers))[0] == 200


async def test_a_health_check_of_a_stranger_learns_yes_or_no(world: World) -> None:
    world.daemon.reasons = ["the ledger of eu-us is not read yet"]
    assert "reasons" in (await request(world, "GET /readyz"))[1]
    for host, headers in (("10.1.2.3:8182", {}), (world.authority, {"X_Forwarded_For": "192.0.2.1"})):
        assert await request(world, "GET /readyz", b"", host, **headers) == (503, {"ready": False})
        assert await request(world, "GET /livez", b"", host, **headers) == (200, {"alive": True})


async def test_challenges_use_no_memory(world: World) -> None:
    spent = world.server._access._challenges._spent  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
    given = await proof(world, "all", "POST /stop")
    for _ in range(50):
        await nonce(world)
        await request(world, "POST /stop", Authorization=given.replace("name=all", "name=ops"))
    assert not spent
    assert (await request(world, "POST /stop", Authorization=given))[0] == 202


async def test_a_changed_token_applies_at_once(world: World) -> None:
    (world.folder / "all").write_text("a new token of the master")
    assert (await request(world, "POST /stop", Authorization=await proof(world, "all", "POST /stop")))[0] == 401
    given = await proof(world, "all", "POST /stop", token="a new token of the master")
    assert (await request(world, "POST /stop", Authorization=given))[0] == 202


async def test_a_body_is_read_only_after_the_proof(world: World) -> None:
    """A client without a token cannot make the daemon keep megabytes."""
    head = f"POST /stop HTTP/1.1\r\nHost: {world.authority}\r\nContent-Length: 60000\r\n\r\n"
    assert (await raw(world, head.encode() + b"x" * 1000))[0] == 401


async def test_the_digest_of_the_body_is_checked(world: World) -> None:
    body = b'{"sha256":"ab"}'
    given = await proof(world, "all", "POST /apply", body)
    assert (await request(world, "POST /apply", body.replace(b"a", b"c"), Authorization=given))[0] == 401
    other = given.replace(hashlib.sha256(body).hexdigest(), hashlib.sha256(body.replace(b"a", b"c")).hexdigest())
    assert (await request(world, "POST /apply", body.replace(b"a", b"c"), Authorization=other))[0] == 401
    assert world.daemon.applied == []


async def test_two_daemons_on_one_machine_have_different_keys(world: World, tmp_path: Path) -> None:
    second = HttpServer(Daemon(), HttpConfig(listen=HostPort("127.0.0.1", free_port())), SystemClock())
    address = await second.start()
    challenge = (await request(world, "GET /challenge"))[1]
    token = read_local_token(control_directory(), challenge["local"])
    assert token is not None
    there = World(Daemon(), second, address, tmp_path)
    given = await proof(there, "local", "POST /stop", token=token)
    assert (await request(there, "POST /stop", Authorization=given))[0] == 401
    await second.close()


async def test_each_command_comes_with_its_client_and_peer(world: World) -> None:
    body = b'{"by":"ada@host\\u001b[2J' + b"x" * 500 + b'"}'
    assert (await request(world, "POST /stop", body, Authorization=await proof(world, "all", "POST /stop", body)))[
        0
    ] == 202
    order = b'{"verb":"pause","name":"orders","by":"ada@host"}'
    given = await proof(world, "ops", "POST /order", order)
    assert (await request(world, "POST /order", order, Authorization=given))[0] == 200
    assert world.daemon.givers == [Giver("all", "127.0.0.1"), Giver("ops", "127.0.0.1")]
    (name,) = world.daemon.names
    assert name.startswith("ada@host?[2Jxxx")
    assert len(name) == 300


async def test_refusals_are_counted_and_logged_with_the_peer(world: World) -> None:
    with capture_logs() as logs:
        await request(world, "POST /stop")
        await request(world, "POST /stop", Authorization=await proof(world, "see", "POST /stop"))
        await request(world, "POST /stop", Authorization=(await proof(world, "all", "GET /stop")))
        await request(world, "GET /status", b"", "evil.example")
        await request(world, "POST /stop?%0a%1b[31m" + "x" * 1000)
        for _ in range(100):
            await request(world, "POST /stop")
    refused = [each for each in logs if each["event"] == "request_refused"]
    assert [(each["status"], each["claimed"]) for each in refused[:4]] == [
        (401, ""),
        (403, "see"),
        (401, "all"),
        (403, ""),
    ]
    assert {(each["peer"], each["log_level"]) for each in refused} == {("127.0.0.1", "warning")}
    assert all(text.isprintable() and len(text) <= 200 for each in refused for text in (each["path"], each["method"]))
    assert len(refused) == LOGGED_PER_MINUTE, "a client cannot fill the log"
    assert world.server.refused.counts == {"401": 103, "403": 2}


def test_a_minute_later_refusals_are_logged_again() -> None:
    clock = FakeClock()
    refused = RefusedRequests(clock)
    with capture_logs() as logs:
        for _ in range(3):
            for _ in range(2 * LOGGED_PER_MINUTE):
                refused.add(status=401, reason="no", method="POST", path="/\nforged", peer="::1", claimed="a\x1b")
            clock.now += 61
    lines = [each for each in logs if each["event"] == "request_refused"]
    assert len(lines) == 3 * LOGGED_PER_MINUTE
    assert (lines[0]["path"], lines[0]["claimed"]) == ("/?forged", "a?")
    assert refused.counts == {"401": 6 * LOGGED_PER_MINUTE}


async def test_a_health_check_is_no_unseen_way_to_guess_a_token(world: World) -> None:
    """The answer to a health check says more if the token is right."""
    with capture_logs() as logs:
        assert (await request(world, "GET /readyz", Authorization="Bearer a guess of a token"))[0] == 200
        assert (await request(world, "GET /readyz", Authorization=await proof(world, "see", "GET /livez")))[0] == 200
        assert (await request(world, "GET /readyz", X_Forwarded_For="10.0.0.1"))[0] == 200
    assert world.server.refused.counts == {"401": 2}
    assert [(each["event"], each["path"]) for each in logs] == [("request_refused", "/readyz")] * 2


async def test_a_head_is_a_way_of_reading(world: World) -> None:
    basic = base64.b64encode(b"see:" + TOKENS["see"].encode()).decode()
    for headers in ({}, {"Authorization": f"Basic {basic}"}, {"Authorization": f"Bearer {TOKENS['see']}"}):
        reader, writer = await asyncio.open_connection(world.address.host, world.address.port)
        lines = [f"HEAD /status HTTP/1.1\r\nHost: {world.authority}", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        assert (await reader.readuntil(b"\r\n")).split()[1] == b"200"
        writer.close()


async def test_a_proof_for_localhost_of_another_machine_cannot_be_passed_on(tmp_path: Path) -> None:
    """A forged address in the ledger may lead a client to a program on the client's own machine."""
    own = next((each for each in own_addresses() if not each.is_loopback), None)
    if own is None:
        pytest.skip("this machine has only loopback addresses")
    daemon, port = Daemon(), free_port()
    http = settings(tmp_path)
    server = HttpServer(daemon, structs.replace(http, listen=HostPort("0.0.0.0", port)), SystemClock())
    await server.start()
    world = World(daemon, server, HostPort(str(own), port), tmp_path)
    for host in (f"localhost:{port}", f"127.0.0.1:{port}"):
        given = await proof(world, "all", "POST /stop", host=host)
        status, answer = await request(world, "POST /stop", b"", host, Authorization=given)
        assert (status, answer["error"].partition(";")[0]) == (401, "the proof is for another server")
    assert daemon.stopped == 0
    given = await proof(world, "all", "POST /stop")
    assert (await request(world, "POST /stop", Authorization=given))[0] == 202
    await server.close()


def own_addresses() -> Iterator[ipaddress.IPv4Address]:
    for addresses in psutil.net_if_addrs().values():
        yield from (ipaddress.IPv4Address(each.address) for each in addresses if each.family == socket.AF_INET)


async def test_a_command_beyond_the_role_of_a_token_is_passed_on_to_be_recorded(world: World) -> None:
    for name, line in (
        ("see", "POST /order"),
        ("ops", "POST /apply"),
        ("ops", "POST /stop"),
        ("see", "POST /handover"),
    ):
        assert (await request(world, line, Authorization=await proof(world, name, line)))[0] == 403
    assert [(refused.command, giver) for refused, giver in world.daemon.refused] == [
        ("order", Giver("see", "127.0.0.1")),
        ("apply", Giver("ops", "127.0.0.1")),
        ("stop", Giver("ops", "127.0.0.1")),
        ("upgrade", Giver("see", "127.0.0.1")),
    ]
    assert world.daemon.refused[0][0].reason == 'the token "see" has the role view; needed: operate'
    await request(world, "POST /stop")
    await request(world, "POST /stop", Authorization=await proof(world, "all", "POST /stop", token="another"))
    await request(world, "POST /stop", Authorization=f"Bearer {TOKENS['see']}", Origin="http://localhost")
    assert len(world.daemon.refused) == 4, "who knows no token leaves nothing in the ledger"


def test_few_refused_commands_of_a_token_are_recorded_in_an_hour() -> None:
    refused = RefusedRequests(clock := FakeClock())
    assert [refused.omitted("see") for _ in range(RECORDED_PER_HOUR + 5)] == [0] * RECORDED_PER_HOUR + [None] * 5
    assert refused.omitted("ops") == 0
    clock.now += 3601
    assert [refused.omitted("see"), refused.omitted("see")] == [5, 0]
