"""What many or slow clients of the HTTP API can use up, over real sockets."""

import asyncio
import gzip
import resource
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from mirrord.config.http import HttpConfig
from mirrord.config.value_parsers import HostPort
from mirrord.daemon import cached_answer, http_api, http_connections
from mirrord.daemon.cached_answer import CachedAnswer, SharedAnswers
from mirrord.daemon.http_api import HttpServer
from mirrord.model.group_status import GroupsReport
from mirrord.model.status import Status
from mirrord.runtime import descriptors
from mirrord.runtime.clock import SystemClock
from tests.fixtures.clock import FakeClock
from tests.fixtures.supervision import eventually
from tests.unit.daemon.test_http_access import World, proof, raw, request, settings
from tests.unit.daemon.test_http_api import Daemon, free_port

SHORT_S = 0.3


class Counting(Daemon):
    """Counts how often something is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.computed = {"status": 0, "metrics": 0, "groups": 0}
        self.at_once = 0
        self.gate = asyncio.Event()

    def status(self) -> Status:
        self.computed["status"] += 1
        return super().status()

    def metrics_text(self) -> bytes:
        self.computed["metrics"] += 1
        return super().metrics_text()

    async def groups(self, *, reverse: bool = False) -> list[GroupsReport]:
        self.computed["groups"] += 1
        self.at_once += 1
        assert self.at_once == 1
        await self.gate.wait()
        self.at_once -= 1
        return await super().groups(reverse=reverse)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(http_connections, "WHOLE_S", SHORT_S)
    monkeypatch.setattr(http_api, "WHOLE_S", SHORT_S)
    monkeypatch.setattr(http_connections, "MOST_CONNECTIONS", 20)
    server = HttpServer(daemon := Counting(), settings(tmp_path), SystemClock())
    yield World(daemon, server, await server.start(), tmp_path)
    await server.close()


async def until_closed(world: World, text: bytes, drip: bytes = b"") -> float:
    """Return after how many seconds the server closes a connection on which a client sends this slowly."""
    reader, writer = await asyncio.open_connection(world.address.host, world.address.port)
    writer.write(text)
    began = time.monotonic()
    try:
        while time.monotonic() < began + 10:
            try:
                async with asyncio.timeout(0.05):
                    if not await reader.read(4096):
                        break
            except TimeoutError:
                writer.write(drip)
            except ConnectionError:
                break
    finally:
        writer.close()
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("text", "drip"),
    [
        (b"", b""),
        (b"GET /status HT", b""),
        (b"GET /status HTTP/1.1\r\n", b"X: y\r\n"),
        (b"GET /status HTTP/1.1\r\nX: ", b"y"),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", b""),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nGET /livez HTTP/1.1\r\n", b"X: y\r\n"),
        (b"GET /no HTTP/1.1\r\nHost: localhost\r\n\r\n", b"x"),
    ],
)
async def test_a_client_has_a_while_for_a_whole_request(world: World, text: bytes, drip: bytes) -> None:
    assert await until_closed(world, text, drip) < 5 * SHORT_S + 3


async def test_a_slow_body_ends(world: World) -> None:
    given = await proof(world, "all", "POST /stop", b"x" * 1000)
    head = f"POST /stop HTTP/1.1\r\nHost: {world.authority}\r\nAuthorization: {given}\r\nContent-Length: 1000\r\n\r\n"
    assert await until_closed(world, head.encode(), b"x") < 5 * SHORT_S + 3
    assert world.daemon.stopped == 0


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/challenge", "/status"])
async def test_a_stranger_keeps_no_connection_busy_with_a_body(
    world: World, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy connection is not closed for a new one, so bodies that never arrive would keep all others out."""
    monkeypatch.setattr(http_api, "WHOLE_S", 60.0)
    head = f"GET {path} HTTP/1.1\r\nHost: {world.authority}\r\nContent-Length: 1\r\n\r\n"
    status, answer = await raw(world, head.encode())
    assert (status, answer["error"]) == (413, "at most 0 bytes are allowed")


async def test_too_many_connections_close_the_ones_that_wait_longest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half-open requests once took all descriptors, also those for connections to brokers."""
    monkeypatch.setattr(http_connections, "WHOLE_S", 60.0)
    idle = [await asyncio.open_connection(world.address.host, world.address.port) for _ in range(50)]
    limits = world.server._limits  # pyright: ignore[reportPrivateUsage]
    await eventually(lambda: len(limits._open) == 20)  # pyright: ignore[reportPrivateUsage]
    assert (await request(world, "GET /livez"))[0] == 200
    assert len(limits._open) <= 20  # pyright: ignore[reportPrivateUsage]
    for _, writer in idle:
        writer.close()


async def test_few_descriptors_leave_some_for_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    assert http_connections.ConnectionLimits().most == 256 // http_connections.DESCRIPTORS_EACH


def test_the_limit_of_descriptors_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1024, 524_288)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.append(wanted))
    assert descriptors.raise_descriptor_limit() == descriptors.WANTED
    limits.append((1024, 4096))
    assert descriptors.raise_descriptor_limit() == 4096
    limits.append((200_000, 524_288))
    assert descriptors.raise_descriptor_limit() == 200_000


@pytest.mark.parametrize(
    ("text", "statuses"),
    [
        (b"GET /livez?" + b"x" * 5000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 5000 + b"\r\n\r\n", {400}),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 100 + b"\r\n", {400}),
        (b"POST /stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n", {413}),
        (b"POST /handover HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000000\r\n\r\n", {413}),
        (b"POST /stop HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {411}),
        (
            b"POST /stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"0\r\n\r\nGET /status HTTP/1.1\r\nHost: localhost\r\n\r\n",
            {400, 411},
        ),
        (b"POST /stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd", {400}),
        (b"POST /stop HTTP/1.1\r\nHost: localhost\r\nContent-Length : 4\r\n\r\nabcd", {400}),
        (b"POST /stop HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n", {400, 411}),
    ],
)
async def test_long_and_ambiguous_requests_are_refused(world: World, text: bytes, statuses: set[int]) -> None:
    reader, writer = await asyncio.open_connection(world.address.host, world.address.port)
    writer.write(text)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    assert int(answer.split()[1]) in statuses
    assert answer.count(b"HTTP/1.") == 1, "what follows is not taken for another request"
    assert world.daemon.stopped == 0


async def test_a_refused_body_is_not_the_next_request(world: World) -> None:
    inner = f"POST /stop HTTP/1.1\r\nHost: {world.authority}\r\n\r\n".encode()
    head = f"POST /order HTTP/1.1\r\nHost: {world.authority}\r\nContent-Length: {len(inner)}\r\n\r\n".encode()
    assert (await raw(world, head + inner))[0] == 401
    assert world.daemon.stopped == 0


async def test_many_viewers_cost_as_much_as_one(world: World) -> None:
    for _ in range(10):
        assert (await request(world, "GET /status"))[0] == 200
        assert (await request(world, "GET /metrics"))[0] == 200
        assert (await request(world, "GET /readyz"))[0] == 200
    assert isinstance(world.daemon, Counting)
    assert world.daemon.computed["status"] <= 3
    assert world.daemon.computed["metrics"] <= 3


async def test_after_an_order_the_status_is_new(world: World) -> None:
    await request(world, "GET /status")
    assert isinstance(world.daemon, Counting)
    before = world.daemon.computed["status"]
    await request(world, "POST /stop", Authorization=await proof(world, "all", "POST /stop"))
    await request(world, "GET /status")
    assert world.daemon.computed["status"] == before + 1


async def test_one_report_of_groups_is_computed_at_a_time(world: World) -> None:
    assert isinstance(world.daemon, Counting)
    asked = [asyncio.create_task(request(world, "GET /groups")) for _ in range(8)]
    asked += [asyncio.create_task(request(world, "GET /groups?reverse")) for _ in range(8)]
    await eventually(lambda: world.daemon.computed["groups"] == 1)  # pyright: ignore[reportAttributeAccessIssue]
    asked[0].cancel()
    world.daemon.gate.set()
    answers = await asyncio.gather(*asked[1:])
    assert {status for status, _ in answers} == {200}
    assert world.daemon.computed["groups"] <= 3


async def test_few_clients_wait_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_answer, "MOST_WAITING", 3)
    assert isinstance(world.daemon, Counting)
    counting = world.daemon
    asked = [asyncio.create_task(request(world, "GET /groups")) for _ in range(5)]
    await eventually(lambda: counting.computed["groups"] == 1)
    await eventually(lambda: sum(each.done() for each in asked) == 2)
    counting.gate.set()
    assert sorted([status for status, _ in await asyncio.gather(*asked)]) == [200, 200, 200, 503, 503]


def test_an_answer_that_takes_long_is_kept_long() -> None:
    clock, computed = FakeClock(), list[float]()

    def compute() -> int:
        computed.append(clock.now)
        clock.now += 0.2
        return len(computed)

    cached = CachedAnswer(compute, clock)
    assert [cached.get(), cached.get()] == [1, 1]
    clock.now += 3.9
    assert cached.get() == 1
    clock.now += 0.2
    assert cached.get() == 2
    cached.drop()
    assert cached.get() == 3


async def test_a_failed_answer_is_not_kept() -> None:
    answers = SharedAnswers[int]()

    async def fail() -> int:
        raise ValueError("no")

    async def work() -> int:
        return 1

    with pytest.raises(ValueError, match="no"):
        await answers.get(True, fail)
    assert await answers.get(True, work) == 1


async def test_a_closed_server_listens_no_more() -> None:
    server = HttpServer(Daemon(), HttpConfig(listen=HostPort("127.0.0.1", free_port())), SystemClock())
    address = await server.start()
    await server.close()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection(address.host, address.port)


async def test_an_error_inside_is_told_without_its_details(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Status:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr(world.daemon, "status", fail)
    monkeypatch.setattr(world.server._status_document, "_compute", fail)  # pyright: ignore[reportPrivateUsage]
    status, answer = await request(world, "GET /status")
    assert (status, answer["error"]) == (500, "internal error; the log of the daemon has the details")


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("Content-Encoding: gzip\r\nContent-Length: 4", b"abcd"),
        ("Content-Encoding: gzip\r\nContent-Length: 30604", gzip.compress(b"\0" * (30 << 20)).ljust(30604)),
        ("Content-Length: 40", b"abcd"),
        ("Content-Length: 1", b"a"),
    ],
)
async def test_bodies_of_strangers_fill_no_log(world: World, head: str, body: bytes) -> None:
    """A health check answers every client, so none may cause a traceback by its body."""
    with capture_logs() as logs:
        for _ in range(3):
            _, writer = await asyncio.open_connection(world.address.host, world.address.port)
            writer.write(f"GET /livez HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n".encode() + body)
            writer.write_eof()
            await writer.drain()
            writer.close()
        await eventually(lambda: sum(world.server.refused.counts.values()) == 3)
    assert {each["event"] for each in logs} == {"request_refused"}


@pytest.mark.parametrize("path", ["/stop", "/apply", "/order", "/handover"])
@pytest.mark.parametrize(
    "body",
    [b'{"x":' + b"[" * 30000 + b"]" * 30000 + b"}", b'{"by":"\xff","verb":"\xff","flow":"\xff"}', b"[" * 30000, b"nul"],
    ids=["deep", "not UTF-8", "open", "cut"],
)
async def test_no_body_of_a_command_is_an_error_inside(world: World, path: str, body: bytes) -> None:
    given = await proof(world, "all", f"POST {path}", body)
    status, answer = await request(world, f"POST {path}", body, Authorization=given)
    assert status == 400
    assert answer["error"].startswith("not a command of this version of mirrord: ")


async def test_refused_requests_do_not_make_answers_be_computed(world: World) -> None:
    """Any client could otherwise make the status be computed as often as it likes, which delays leases."""
    assert isinstance(world.daemon, Counting)
    for path in ("/order", "/stop", "/apply", "/handover") * 5:
        assert (await request(world, "GET /metrics"))[0] == 200
        assert (await request(world, "GET /status"))[0] == 200
        assert (await request(world, f"POST {path}"))[0] == 401
        given = await proof(world, "see", f"POST {path}")
        assert (await request(world, f"POST {path}", Authorization=given))[0] == 403
    assert world.daemon.computed["metrics"] <= 3
    assert world.daemon.computed["status"] <= 3


async def test_an_order_that_takes_long_did_arrive(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(*, reverse: bool = False) -> list[GroupsReport]:
        raise TimeoutError(str(reverse))

    monkeypatch.setattr(world.daemon, "groups", late)
    assert (await request(world, "GET /groups"))[0] == 500
    assert not world.server.refused.counts


@pytest.mark.parametrize(
    ("line", "status"), [("GET /no", 404), ("DELETE /status", 405), ("OPTIONS *", 404), ("GET /<script>", 404)]
)
async def test_every_error_is_json(world: World, line: str, status: int) -> None:
    found, answer = await request(world, line)
    assert found == status
    assert answer["error"]
