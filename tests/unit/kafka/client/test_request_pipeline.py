"""The frame pipe against a server that speaks frames, on both event loops, plain and over TLS."""

import asyncio
import random
import ssl
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
import trustme
import uvloop

from mirrord.kafka.client.receive_buffers import DIRECT_BYTES, RECEIVE_BYTES, WAKE_BYTES, BufferPool, Frame
from mirrord.kafka.client.request_pipeline import ConnectionLost, FramePipe
from mirrord.kafka.client.socket_options import tune
from mirrord.kafka.protocol.api_versions import FETCH, METADATA
from mirrord.kafka.protocol.errors import Malformed, Oversize, Truncated
from tests.fixtures.supervision import eventually

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Run = Callable[[Coroutine[Any, Any, None]], None]
HEADER_LENGTH = 4 + 2 + 2 + 4 + 2 + len("tester") + 1


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def go(test: Coroutine[Any, Any, None]) -> None:
        async def limited() -> None:
            async with asyncio.timeout(20):
                await test

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(limited())

    return go


@dataclass
class Link:
    """How a client and its server are connected."""

    server: ssl.SSLContext | None
    client: ssl.SSLContext | None

    @asynccontextmanager
    async def pipe(self, serve: Serve, **options: Any) -> AsyncGenerator[FramePipe]:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await serve(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=self.server)
        port = server.sockets[0].getsockname()[1]
        options = {"pool": BufferPool()} | options
        pipe = FramePipe("the server", "tester", **options)
        hostname = "localhost" if self.client else None
        await asyncio.get_running_loop().create_connection(
            lambda: pipe, "127.0.0.1", port, ssl=self.client, server_hostname=hostname
        )
        try:
            yield pipe
        finally:
            pipe.close()
            server.close()


@pytest.fixture(scope="module")
def tls() -> Link:
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    return Link(server, client)


@pytest.fixture(params=["plain", "tls"])
def link(request: pytest.FixtureRequest, tls: Link) -> Link:
    return tls if request.param == "tls" else Link(None, None)


@pytest.fixture
def plain() -> Link:
    return Link(None, None)


async def read_request(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Correlation id and body of the next request."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    data = await reader.readexactly(size)
    return struct.unpack_from(">i", data, 4)[0], data[HEADER_LENGTH - 4 :]


def answer(correlation_id: int, body: bytes, tags: bytes = b"\0") -> bytes:
    return struct.pack(">ii", 4 + len(tags) + len(body), correlation_id) + tags + body


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        correlation_id, body = await read_request(reader)
        writer.write(answer(correlation_id, body))
        await writer.drain()


def ask(pipe: FramePipe, *parts: bytes | memoryview) -> "asyncio.Future[Frame | ConnectionLost]":
    future: asyncio.Future[Frame | ConnectionLost] = asyncio.get_running_loop().create_future()
    pipe.request(METADATA, 12, parts, sum(map(len, parts)), future.set_result)
    return future


async def body_of(future: "asyncio.Future[Frame | ConnectionLost]") -> bytes:
    frame = await future
    assert isinstance(frame, Frame), frame
    return bytes(frame.buffer[frame.start : frame.end])


async def loss_of(future: "asyncio.Future[Frame | ConnectionLost]") -> ConnectionLost:
    lost = await future
    assert isinstance(lost, ConnectionLost)
    return lost


def test_requests_look_as_the_protocol_wants_them(run: Run, plain: Link) -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readexactly(HEADER_LENGTH + 6))
        writer.write(answer(1, b"done"))
        await reader.read()

    async def test() -> None:
        async with plain.pipe(serve) as pipe:
            future: asyncio.Future[Frame | ConnectionLost] = asyncio.get_running_loop().create_future()
            pipe.request(FETCH, 17, [b"abc", memoryview(b"def")], 6, future.set_result)
            assert await body_of(future) == b"done"
        assert seen == [struct.pack(">ihhih", HEADER_LENGTH - 4 + 6, 1, 17, 1, 6) + b"tester\0abcdef"]

    run(test())


def test_frames_of_every_size(run: Run, link: Link, seed: int) -> None:
    chance = random.Random(seed)
    edges = [DIRECT_BYTES, RECEIVE_BYTES]
    sizes = [0, 1, 100, *(edge + near for edge in edges for near in (-10, -9, -5, -4, 0, 1)), 3_000_000, 50]
    bodies = [chance.randbytes(size) for size in sizes]

    async def test() -> None:
        async with link.pipe(echo) as pipe:
            for body in bodies:
                assert await body_of(ask(pipe, body)) == body
            futures = [ask(pipe, body[: len(body) // 2], memoryview(body)[len(body) // 2 :]) for body in bodies]
            assert [await body_of(future) for future in futures] == bodies
            assert pipe.in_flight == 0

    run(test())


def test_frames_cut_anywhere(run: Run, plain: Link, seed: int) -> None:
    chance = random.Random(seed)
    bodies = [chance.randbytes(chance.choice([0, 3, 50, DIRECT_BYTES + 7])) for _ in range(60)]
    stream = b"".join(answer(number, body) for number, body in enumerate(bodies, 1))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in bodies:
            await read_request(reader)
        position = 0
        while position < len(stream):
            step = chance.choice([1, 2, 3, 5, 40, 1000, 20_000])
            writer.write(stream[position : position + step])
            await writer.drain()
            await asyncio.sleep(0)  # so that the pieces travel one by one
            position += step
        await reader.read()

    async def test() -> None:
        async with plain.pipe(serve) as pipe:
            futures = [ask(pipe, b"x") for _ in bodies]
            assert [await body_of(future) for future in futures] == bodies

    run(test())


def test_many_frames_in_one_piece(run: Run, link: Link) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join([answer((await read_request(reader))[0], b"%d" % number) for number in range(5000)]))
        await reader.read()

    async def test() -> None:
        async with link.pipe(serve) as pipe:
            futures = [ask(pipe, b"x") for _ in range(5000)]
            assert [await body_of(future) for future in futures] == [b"%d" % number for number in range(5000)]

    run(test())


def test_tagged_fields_of_the_header_are_stepped_over(run: Run, plain: Link) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(1, b"body", tags=b"\x01\x07\x03xyz"))
        await reader.read()

    async def test() -> None:
        async with plain.pipe(serve) as pipe:
            assert await body_of(ask(pipe, b"x")) == b"body"

    run(test())


@pytest.mark.parametrize(
    ("sent", "cause", "reason"),
    [
        (struct.pack(">i", 2_000_001), Oversize, "a frame of 2000001 bytes, but 2000000 are allowed"),
        (struct.pack(">i", -1), Malformed, "a frame of -1 bytes"),
        (struct.pack(">i", 4) + bytes(4), Malformed, "a frame of 4 bytes"),
        (answer(7, b"x"), Malformed, "an answer to request 7, but the next one to be answered is 1"),
        (answer(1, b"x") + answer(1, b"x"), Malformed, "an answer to request 1, but the next one .* is 2"),
        (answer(1, b"x") + answer(2, b"x") + answer(3, b"x"), Malformed, "request 3, but .* is none"),
        (answer(1, b"", tags=b"\x01\x07\x09x"), Truncated, "9 bytes wanted"),
        (struct.pack(">i", 1000) + bytes(100), type(None), "closed by the broker"),
        (struct.pack(">i", 1_000_000) + bytes(100), type(None), "closed by the broker"),
    ],
)
def test_wrong_bytes_end_that_connection_alone(
    run: Run, plain: Link, sent: bytes, cause: type[Exception], reason: str
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await read_request(reader)
        writer.write(sent)

    async def test() -> None:
        losses: list[ConnectionLost] = []
        async with plain.pipe(echo) as other, plain.pipe(serve, frame_limit=2_000_000) as pipe:
            ended = asyncio.Event()

            def on_lost(lost: ConnectionLost) -> None:
                losses.append(lost)
                ended.set()

            pipe.on_lost = on_lost
            futures = [ask(pipe, b"x"), ask(pipe, b"y")]
            await ended.wait()
            ends = [await future for future in futures]
            assert all(end is losses[0] or isinstance(end, Frame) for end in ends)
            assert pipe.lost is losses[0]
            assert isinstance(losses[0].__cause__, cause)
            with pytest.raises(ConnectionLost, match=f"^the connection to the server was lost: .*{reason}"):
                raise losses[0]
            assert await loss_of(ask(pipe, b"z")) is losses[0]
            assert await body_of(ask(other, b"still there")) == b"still there"
        assert len(losses) == 1

    run(test())


def test_a_connection_that_ends_fails_every_request(run: Run, link: Link) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer((await read_request(reader))[0], b"first"))
        await read_request(reader)

    async def test() -> None:
        async with link.pipe(serve) as pipe:
            futures = [ask(pipe, b"x") for _ in range(10)]
            assert await body_of(futures[0]) == b"first"
            assert {await loss_of(future) for future in futures[1:]} == {pipe.lost}
            assert pipe.in_flight == 0

    run(test())


def test_a_peer_that_throttles_is_waited_for(run: Run, link: Link) -> None:
    """The time that it has announced does not count, and after that the timeout is as before."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await read_request(reader)
        await asyncio.sleep(0.4)
        writer.write(answer(first[0], b"late"))
        await reader.read()

    async def test() -> None:
        async with link.pipe(serve, timeout_s=0.1) as pipe:
            futures = [ask(pipe, b"x"), ask(pipe, b"y")]
            pipe.throttled(0.8)
            assert await body_of(futures[0]) == b"late"
            assert str(await loss_of(futures[1])).endswith("no answer to Metadata within 0.1 s")

    run(test())


def test_a_peer_that_says_nothing_is_given_up(run: Run, link: Link) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer((await read_request(reader))[0], b"first"))
        await reader.read()

    async def test() -> None:
        async with link.pipe(serve, timeout_s=0.2) as pipe:
            assert await body_of(ask(pipe, b"x")) == b"first"
            futures = [ask(pipe, b"y"), ask(pipe, b"z")]
            lost = await loss_of(futures[0])
            assert str(lost) == "the connection to the server was lost: no answer to Metadata within 0.2 s"
            assert await loss_of(futures[1]) is lost

    run(test())


def test_an_idle_connection_is_not_given_up(run: Run, plain: Link) -> None:
    async def test() -> None:
        async with plain.pipe(echo, timeout_s=0.1) as pipe:
            assert await body_of(ask(pipe, b"x")) == b"x"
            # Longer than the limit, so that the timer of the answered request fires.
            await asyncio.sleep(0.25)
            assert await body_of(ask(pipe, b"y")) == b"y"

    run(test())


def test_a_full_connection_asks_for_a_pause(run: Run, link: Link) -> None:
    go = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        await echo(reader, writer)

    async def test() -> None:
        async with link.pipe(serve) as pipe:
            transport = pipe._transport
            assert transport is not None
            tune(transport, user_timeout_s=5, buffer_bytes=1 << 16, unsent_bytes=1 << 20)
            body = bytes(1 << 20)
            futures: list[asyncio.Future[Frame | ConnectionLost]] = []
            while pipe.writable and len(futures) < 100:
                futures.append(ask(pipe, body))
                await asyncio.sleep(0)
            assert not pipe.writable
            again = asyncio.Event()
            pipe.on_writable = again.set
            go.set()
            await again.wait()
            assert pipe.writable
            for future in futures:
                assert len(await body_of(future)) == len(body)

    run(test())


def test_closing_inside_of_a_callback_stops_at_once(run: Run, plain: Link) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            await read_request(reader)
        writer.write(answer(1, b"a") + answer(2, b"b") + answer(3, b"c"))
        await reader.read()

    async def test() -> None:
        ends: list[object] = []
        async with plain.pipe(serve) as pipe:
            closed = asyncio.Event()
            pipe.on_lost = ends.append

            def first(end: object) -> None:
                ends.append(end)
                pipe.close("enough")
                closed.set()

            for callback in (first, ends.append, ends.append):
                pipe.request(METADATA, 12, [b"x"], 1, callback)
            await closed.wait()
            assert isinstance(ends[0], Frame)
            assert ends[1:] == [pipe.lost] * 3
            assert str(pipe.lost) == "the connection to the server was lost: enough"

    run(test())


def test_a_callback_that_fails_ends_the_connection(run: Run, plain: Link) -> None:
    async def test() -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

        def fail(_: object) -> None:
            raise ZeroDivisionError

        async with plain.pipe(echo) as pipe:
            pipe.request(METADATA, 12, [b"x"], 1, fail)
            lost = await loss_of(ask(pipe, b"y"))
            assert isinstance(lost.__cause__, ZeroDivisionError)
        assert any(isinstance(context.get("exception"), ZeroDivisionError) for context in reported)

    run(test())


def test_very_large_answers_come_whole_however_they_come(run: Run, link: Link) -> None:
    """The event loop sleeps until much of such an answer has arrived, but never for more than is to come."""
    sizes = [5 * WAKE_BYTES, 2 * WAKE_BYTES + 1, 3 * WAKE_BYTES - 4, 10]

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for size in sizes:
            correlation_id, _ = await read_request(reader)
            whole = answer(correlation_id, bytes(size))
            cuts = [0, 1, 60_000, 300_000, size - 70_000, size - 1]
            for begin, end in pairwise([*(cut for cut in cuts if 0 <= cut < len(whole)), len(whole)]):
                writer.write(whole[begin:end])
                await writer.drain()
                await asyncio.sleep(0)
        await reader.read()

    async def test() -> None:
        async with link.pipe(drip) as pipe:
            for size in sizes:
                frame = await ask(pipe, b"")
                assert isinstance(frame, Frame)
                assert frame.end - frame.start == size
                frame.release()

    run(test())


def test_a_connection_that_ends_within_a_very_large_answer_is_lost_at_once(run: Run, link: Link) -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        correlation_id, _ = await read_request(reader)
        writer.write(answer(correlation_id, bytes(4 * WAKE_BYTES))[:-1_000])
        await writer.drain()

    async def test() -> None:
        async with link.pipe(half, timeout_s=60.0) as pipe:
            assert isinstance(await ask(pipe, b""), ConnectionLost)

    run(test())


def test_large_buffers_are_used_again_once_released(run: Run, link: Link) -> None:
    async def test() -> None:
        pool = BufferPool()
        async with link.pipe(echo, pool=pool) as pipe:
            buffers: set[int] = set()
            kept: list[Frame] = []
            for size in (2_000_000, 1_900_000, 2_050_000):
                frame = await ask(pipe, bytes(size))
                assert isinstance(frame, Frame)
                buffers.add(id(frame.buffer))
                kept.append(frame)
                frame.release()
                frame.release()
            assert len(buffers) == 1
            assert pool.idle_bytes == len(kept[0].buffer)

    run(test())


def test_the_pool_keeps_no_more_than_its_limit() -> None:
    pool = BufferPool(limit_bytes=1 << 20)
    sizes = [300_000, 400_000, 500_000, 5_000_000]
    buffers = [pool.acquire(size) for size in sizes]
    assert all(size <= len(buffer) <= size * 9 // 8 + 65536 for size, buffer in zip(sizes, buffers, strict=True))
    for buffer in buffers[:3]:
        pool.release(buffer)
    assert pool.idle_bytes == sum(map(len, buffers[1:3])) <= 1 << 20
    pool.release(buffers[3])
    assert pool.idle_bytes == 0
    pool.release(buffers[1])
    assert pool.acquire(100_000) is not buffers[1], "far too large for it"
    assert pool.acquire(390_000) is buffers[1]


def buffer_sizes(pipe: FramePipe) -> list[int]:
    return [len(each) for each in vars(pipe).values() if isinstance(each, bytearray | memoryview)]


def test_a_closed_pipe_keeps_no_large_buffer(run: Run, link: Link) -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        correlation_id, _ = await read_request(reader)
        writer.write(answer(correlation_id, bytes(DIRECT_BYTES + RECEIVE_BYTES))[:-1])
        await reader.read()

    async def test() -> None:
        async with link.pipe(half) as pipe:
            asked = ask(pipe, b"x")
            await eventually(lambda: max(buffer_sizes(pipe)) > RECEIVE_BYTES)
            pipe.close()
            await loss_of(asked)
            assert sum(buffer_sizes(pipe)) < DIRECT_BYTES

    run(test())
