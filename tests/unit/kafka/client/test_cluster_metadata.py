"""The view of a cluster against a server that answers nothing but ApiVersions."""

import asyncio
import gc
import struct
import weakref
from collections.abc import Generator
from types import SimpleNamespace
from typing import cast

import pytest

from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.kafka.client import cluster_metadata, connection
from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.kafka.client.connection import Connection, ConnectionOptions
from mirrord.kafka.client.receive_buffers import BufferPool
from mirrord.kafka.client.request_pipeline import ConnectionLost, FramePipe
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.metadata import Broker, Metadata, Partition, TopicMetadata
from mirrord.model.names import ClusterId, TopicId
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


class Brokers:
    """Brokers 1 to 3 that can be connected to, and the leader epoch that each reports for the only partition."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *epochs: int) -> None:
        self.epochs = dict(enumerate(epochs, 1))
        """-1 if it does not know the topic."""
        self.asked: list[int] = []
        self.silent: set[int] = set()
        monkeypatch.setattr(cluster_metadata, "APIS", ())
        monkeypatch.setattr(cluster_metadata, "connect", self.connect)
        monkeypatch.setattr(cluster_metadata, "ask_metadata", self.answer)

    async def connect(self, host: str, port: int, *_: object) -> Connection:
        opened = SimpleNamespace(host=host, port=port, pipe=SimpleNamespace(lost=None), replace_before=None)
        opened.version, opened.close = lambda _: 12, lambda: None
        return cast(Connection, opened)

    async def answer(self, connection: Connection, *_: object) -> Metadata:
        self.asked.append(connection.port)
        brokers = [Broker(node, "h", node, None) for node in self.epochs]
        if connection.port in self.silent:
            await asyncio.Event().wait()
        epoch = self.epochs[connection.port]
        if epoch < 0:
            unknown = TopicMetadata(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "orders", "", False, [])
            return Metadata(brokers, "eu-id", 1, [unknown], 0)
        partition = Partition(0, 0, epoch % 3 + 1, epoch, (1, 2, 3), (1, 2, 3), ())
        return Metadata(brokers, "eu-id", 1, [TopicMetadata(0, "orders", "id", False, [partition])], 0)


async def test_a_broker_with_outdated_metadata_is_not_asked_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broker 1 is cut off from the controllers. It never learns of the new leader, and nothing in its answers shows
    this. Only the requests that go to the former leader fail, so that the leader is looked up again."""
    brokers = Brokers(monkeypatch, 4, 5, 5)
    config = ClusterConfig(("h:1",), Security())
    opened = ClusterView("eu", config, BufferPool(), ConnectionOptions(), ClusterId("eu-id"))
    opened.start()
    opened.watch("orders", TopicId("id"))
    partition = PartitionId("orders", TopicId("id"), 0)

    def is_known() -> bool:
        leader = opened.leader(partition)
        if leader is not None and leader.epoch < 5:
            opened.refresh()
        return leader is not None and leader.epoch == 5

    await eventually(is_known)
    assert brokers.asked[0] == 1
    await opened.close()


async def test_an_answer_with_an_older_epoch_is_followed_by_a_question_to_another_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(monkeypatch, 5, 5, 5)
    config = ClusterConfig(("h:1",), Security())
    opened = ClusterView("eu", config, BufferPool(), ConnectionOptions(), ClusterId("eu-id"))
    opened.start()
    opened.watch("orders", TopicId("id"))
    await eventually(lambda: opened.leader(PartitionId("orders", TopicId("id"), 0)))

    async def ask_until(broker: int) -> None:
        while broker not in brokers.asked:
            count = len(brokers.asked)
            opened.refresh()
            await eventually(lambda count=count: len(brokers.asked) > count)

    for broker in (2, 3):
        await ask_until(broker)
    brokers.epochs[2] = 4
    brokers.asked.clear()
    await ask_until(2)
    await eventually(lambda: brokers.asked[-1] != 2)
    await opened.close()


async def watched(opened: ClusterView) -> None:
    """Watch the topic, and let the view connect to all three brokers."""
    opened.start()
    opened.watch("orders", TopicId("id"))
    await eventually(lambda: opened.leader(PartitionId("orders", TopicId("id"), 0)))


async def ask_all(opened: ClusterView, brokers: Brokers) -> None:
    while set(brokers.asked) < {1, 2, 3}:
        count = len(brokers.asked)
        opened.refresh()
        await eventually(lambda count=count: len(brokers.asked) > count)


async def test_a_topic_that_one_broker_does_not_know_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broker 2 is cut off from the controllers, and the topic was created afterward."""
    brokers = Brokers(monkeypatch, 5, 5, 5)
    opened = ClusterView(
        "eu", ClusterConfig(("h:1",), Security()), BufferPool(), ConnectionOptions(), ClusterId("eu-id")
    )
    await watched(opened)
    await ask_all(opened, brokers)
    brokers.epochs[2] = -1
    brokers.asked.clear()
    news: list[bool] = []
    opened.on_change.append(lambda: news.append(opened.gone(TopicId("id"))))
    await ask_all(opened, brokers)
    assert not any(news)
    brokers.epochs = dict.fromkeys(brokers.epochs, -1)
    opened.refresh()
    await eventually(lambda: opened.gone(TopicId("id")))
    brokers.epochs = dict.fromkeys(brokers.epochs, 6)
    opened.refresh()
    await eventually(lambda: not opened.gone(TopicId("id")))
    await opened.close()


async def test_a_broker_that_does_not_answer_delays_a_refresh_by_a_third_of_the_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection to a suspended broker stays open."""
    brokers = Brokers(monkeypatch, 5, 5, 5)
    options = ConnectionOptions(connect_timeout_s=0.9, request_timeout_s=0.9)
    opened = ClusterView("eu", ClusterConfig(("h:1",), Security()), BufferPool(), options, ClusterId("eu-id"))
    await watched(opened)
    await ask_all(opened, brokers)
    brokers.epochs = dict.fromkeys(brokers.epochs, 6)
    for silent in (1, 2, 3):
        brokers.silent, brokers.asked = {silent}, []
        while silent not in brokers.asked:
            opened.refresh()
            await asyncio.sleep(0.05)
        await eventually(lambda silent=silent: brokers.asked[-1] != silent)
    await opened.close()


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
