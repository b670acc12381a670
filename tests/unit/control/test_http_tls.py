"""TLS for the HTTP API, with the server and the client as they are."""

import asyncio
import base64
import re
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
import trustme
import uvloop
from msgspec.structs import replace

from mirrord.config.http import HttpConfig, HttpTls, HttpToken
from mirrord.config.security import Secret
from mirrord.config.value_parsers import HostPort
from mirrord.control.address import url
from mirrord.control.command_sender import CommandSender, NoAnswer
from mirrord.daemon import http_api, http_connections
from mirrord.daemon.http_api import HttpServer
from mirrord.model.errors import EnvironmentFault
from mirrord.runtime.clock import SystemClock
from tests.fixtures.supervision import eventually
from tests.unit.daemon.test_http_api import Daemon, free_port

TOKEN = "the token of an operator"


class World(NamedTuple):
    """A server with TLS."""

    daemon: Daemon
    http: HttpConfig
    address: HostPort
    folder: Path
    authority: trustme.CA


def issue(authority: trustme.CA, folder: Path, name: str, *hosts: str) -> None:
    made = authority.issue_cert(*hosts)
    (folder / f"{name}.pem").write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    (folder / f"{name}.key").write_bytes(made.private_key_pem.bytes())


def settings(folder: Path, **more: object) -> HttpConfig:
    secrets = {name: Secret(f"file:{folder / file}") for name, file in FILES.items()}
    tls = HttpTls(**secrets)
    token = HttpToken("ops", "operate", Secret(f"file:{folder / 'token'}"))
    return HttpConfig(listen=HostPort("127.0.0.1", free_port()), tokens=(token,), tls=replace(tls, **more))


FILES = {"certificate": "server.pem", "key": "server.key", "ca": "ca.pem"}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issue(authority, tmp_path, "server", "127.0.0.1")
    (tmp_path / "token").write_text(TOKEN)
    http = settings(tmp_path)
    server = HttpServer(daemon := Daemon(), http, SystemClock())
    address = await server.start()
    yield World(daemon, http, address, tmp_path, authority)
    await server.close()


async def test_a_client_that_trusts_the_authority_gives_orders(world: World) -> None:
    sender = CommandSender(url(world.http, world.address), world.http, 5.0)
    assert (await sender.send("POST", "/stop", b"", "configure")).status == 202
    assert (await sender.read("/status")).status == 200


async def test_a_server_of_another_authority_is_no_daemon(world: World) -> None:
    other = trustme.CA()
    other.cert_pem.write_to_path(world.folder / "other.pem")
    for tls in (
        replace(world.http.tls, ca=Secret(f"file:{world.folder / 'other.pem'}")),
        replace(world.http.tls, ca=None),
    ):
        sender = CommandSender(url(world.http, world.address), replace(world.http, tls=tls), 5.0)
        with pytest.raises(NoAnswer, match=r"(?i)certificate"):
            await sender.send("POST", "/stop", b"", "configure")
    assert world.daemon.stopped == 0


async def test_there_is_nothing_without_tls(world: World) -> None:
    with pytest.raises(NoAnswer):
        await CommandSender(f"http://{world.address}", world.http, 5.0).read("/status")


async def test_with_tls_a_token_may_be_sent_as_it_is(world: World) -> None:
    context = ssl.create_default_context(cafile=str(world.folder / "ca.pem"))
    basic = base64.b64encode(f"ops:{TOKEN}".encode()).decode()
    base = url(world.http, world.address)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        for method, path, given, status in (
            ("GET", "/status", f"Bearer {TOKEN}", 200),
            ("GET", "/status", f"Basic {basic}", 200),
            ("POST", "/order", f"Bearer {TOKEN}", 400),
            ("POST", "/order", f"Basic {basic}", 403),
            ("POST", "/stop", f"Bearer {TOKEN}", 403),
        ):
            headers = {"Authorization": given, "X-Forwarded-For": "192.0.2.1"}
            async with session.request(method, f"{base}{path}", headers=headers) as answer:
                assert answer.status == status, (method, path, given)


async def test_a_replaced_certificate_applies_to_the_next_connection(world: World) -> None:
    newer = trustme.CA()
    newer.cert_pem.write_to_path(world.folder / "ca.pem")
    issue(newer, world.folder, "server", "127.0.0.1")
    sender = CommandSender(url(world.http, world.address), world.http, 5.0)
    assert (await sender.read("/status")).status == 200
    (world.folder / "server.key").write_text("half a ke")
    assert (await sender.read("/status")).status == 200, "the former certificate is kept"


async def test_clients_without_a_certificate_are_refused(world: World) -> None:
    http = settings(world.folder, client_ca=Secret(f"file:{world.folder / 'ca.pem'}"))
    server = HttpServer(Daemon(), http, SystemClock())
    address = await server.start()
    assert (await CommandSender(url(http, address), http, 5.0).read("/status")).status == 200
    bare = replace(http, tls=replace(http.tls, client_ca=None))
    with pytest.raises(NoAnswer):
        await CommandSender(url(http, address), bare, 5.0).read("/status")
    await server.close()


async def test_a_withdrawn_authority_of_clients_is_not_trusted_any_more(world: World) -> None:
    client_ca = world.folder / "clients.pem"
    world.authority.cert_pem.write_to_path(client_ca)
    http = settings(world.folder, client_ca=Secret(f"file:{client_ca}"))
    server = HttpServer(Daemon(), http, SystemClock())
    address = await server.start()
    assert (await CommandSender(url(http, address), http, 5.0).read("/status")).status == 200
    trustme.CA().cert_pem.write_to_path(client_ca)
    with pytest.raises(NoAnswer):
        await CommandSender(url(http, address), http, 5.0).read("/status")
    await server.close()


async def test_an_address_without_tls_in_the_ledger_is_not_used_with_tls(world: World) -> None:
    with pytest.raises(NoAnswer, match=re.escape("http://192.0.2.1:8182 has no TLS, although [http.tls] is set")):
        CommandSender("http://192.0.2.1:8182", world.http, 5.0)


async def test_a_certificate_that_cannot_be_used_keeps_a_daemon_from_starting(world: World) -> None:
    (world.folder / "server.pem").write_text("no certificate")
    with pytest.raises(EnvironmentFault, match=r"http\.tls\.certificate, key and key_password"):
        await HttpServer(Daemon(), settings(world.folder), SystemClock()).start()


def test_the_event_loop_of_the_daemon_can_do_all_that(tmp_path: Path) -> None:
    """`mirrord start` runs on uvloop, whose transports are other classes."""

    async def all_of_it() -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        issue(authority, tmp_path, "server", "127.0.0.1")
        (tmp_path / "token").write_text(TOKEN)
        for http in (settings(tmp_path), replace(settings(tmp_path), tls=HttpTls())):
            server = HttpServer(daemon := Daemon(), http, SystemClock())
            address = await server.start()
            sender = CommandSender(url(http, address), http, 5.0)
            assert (await sender.read("/status")).status == 200
            assert (await sender.send("POST", "/stop", b"", "configure")).status == 202
            assert daemon.stopped == 1
            await server.close()

    uvloop.run(all_of_it())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_clients_without_a_handshake_use_up_few_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[[Coroutine[None, None, None]], None]
) -> None:
    """They once counted as open connections only after the handshake, so they could take all descriptors."""
    monkeypatch.setattr(http_connections, "MOST_CONNECTIONS", 20)
    monkeypatch.setattr(http_api, "WHOLE_S", 600.0)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issue(authority, tmp_path, "server", "127.0.0.1")
    (tmp_path / "token").write_text(TOKEN)

    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def attack() -> None:
        http = settings(tmp_path)
        server = HttpServer(Daemon(), http, SystemClock())
        address = await server.start()
        before = descriptors()
        idle = [await asyncio.open_connection(address.host, address.port) for _ in range(100)]
        await eventually(lambda: descriptors() - before <= 100 + 21)
        assert (await CommandSender(url(http, address), http, 5.0).read("/status")).status == 200
        assert descriptors() - before <= 100 + 21
        idle[0][1].close()
        closed = [reader for reader, _ in idle[1:] if reader.at_eof()]
        assert len(closed) >= 70
        await server.close()
        for _, writer in idle:
            writer.close()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection(address.host, address.port)

    run(attack())
