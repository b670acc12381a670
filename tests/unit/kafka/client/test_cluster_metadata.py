"""The view of a cluster against a server that answers nothing but ApiVersions."""

import asyncio
import gc
import struct
import weakref
from collections.abc import Generator

import pytest

from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.kafka.client import cluster_metadata, connection
from mirrord.kafka.client.cluster_metadata import ClusterView
from mirrord.kafka.client.connection import Connection, ConnectionOptions
from mirrord.kafka.client.receive_buffers import BufferPool
from mirrord.kafka.client.request_pipeline import ConnectionLost, FramePipe
from mirrord.kafka.protocol.metadata import Broker, Metadata
from mirrord.model.names import ClusterId
from tests.fixtures.supervision import eventually
from tests.unit.kafka.client.test_connection import server


@pytest.fixture
def pipes(monkeypatch: pytest.MonkeyPatch) -> Generator[list["weakref.ref[FramePipe]"]]:
    """Switch the garbage collector off, and yield all pipes that are made."""
    made: list[weakref.ref[FramePipe]] = []

    class Pipe(FramePipe):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            made.append(weakref.ref(self))

    monkeypatch.setattr(connection, "FramePipe", Pipe)
    monkeypatch.setattr(cluster_metadata, "APIS", ())
    gc.collect()
    gc.disable()
    yield made
    gc.enable()


async def opening_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the request that opens a connection, and no others."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    _, _, correlation_id = struct.unpack_from(">hhi", await reader.readexactly(size))
    body = struct.pack(">hihhh", 0, 1, 3, 0, 13)
    writer.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)
    await reader.read()


def view(port: int) -> ClusterView:
    config = ClusterConfig((f"127.0.0.1:{port}",), Security())
    return ClusterView("eu", config, BufferPool(), ConnectionOptions(), ClusterId("eu-id"))


async def take(opened: ClusterView, port: int) -> None:
    """Let the view know one broker."""
    await opened._take(Metadata([Broker(1, "127.0.0.1", port, None)], "eu-id", 1, [], 0))  # pyright: ignore[reportPrivateUsage]


async def test_a_closed_view_is_freed_without_the_garbage_collector(pipes: list["weakref.ref[FramePipe]"]) -> None:
    async with server(opening_only) as port:
        opened = view(port)
        opened.start()
        await take(opened, port)
        for purpose in ("ask", "read"):
            await opened.link(1, purpose).get()
        await opened.any_broker()
        await opened.close()
        ended = weakref.ref(opened)
        del opened
        await eventually(lambda: ended() is None and not any(pipe() for pipe in pipes))
        assert len(pipes) >= 2


async def test_a_closed_view_opens_no_connection_that_stays(pipes: list["weakref.ref[FramePipe]"]) -> None:
    async with server(opening_only) as port:
        opened = view(port)
        opened.start()
        await take(opened, port)
        await opened.close()
        late = await opened.link(1, "late").get()
        assert isinstance(late.pipe.lost, ConnectionLost)
        await asyncio.sleep(0)
        assert all(pipe() is None or pipe() is late.pipe for pipe in pipes)


async def test_no_odd_answer_ends_the_task_that_follows_the_leaders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of the error is shown, and the task goes on: it asks again."""
    asked: list[int] = []

    async def odd(self: ClusterView) -> Connection:
        asked.append(1)
        raise KeyError("v")

    monkeypatch.setattr(ClusterView, "any_broker", odd)
    opened = view(1)
    opened.start()
    await eventually(lambda: len(asked) >= 3, 30)
    assert opened.error == "internal error: KeyError('v')"
    await opened.close()
