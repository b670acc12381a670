"""A topic is missing only if no broker that can be asked knows it: one broker's metadata may be outdated."""

import asyncio
from collections.abc import Collection
from types import SimpleNamespace

import pytest

from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.kafka.client import admin_requests
from mirrord.kafka.client.admin_requests import Asker, BrokerAddress
from mirrord.kafka.client.config_and_acl_admin import KafkaUpkeepAdmin
from mirrord.kafka.client.connection import Unreachable
from mirrord.kafka.client.topic_admin import KafkaTopicAdmin
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.metadata import Broker, Metadata, Partition, TopicMetadata

CLUSTER = ClusterConfig(("h:1",), Security())
ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class Brokers:
    """Three brokers; `known` are the topics that each of them knows, or None if it does not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *known: set[str] | None) -> None:
        self.known = known
        self.cluster_ids = ["eu-id"] * 3
        self.error = ErrorCode.NONE
        """The error that every broker reports for a topic that it knows."""
        self.asked: list[int] = []
        monkeypatch.setattr(Asker, "ask_metadata", self.ask_metadata)

    async def ask_metadata(self, names: Collection[str], at: BrokerAddress | None = None) -> Metadata:
        number = 1 if at is None else at[1]
        self.asked.append(number)
        known = self.known[number - 1]
        if known is None:
            raise Unreachable("it is gone")
        partition = Partition(0, 0, 1, 1, (1,), (1,), ())
        topics = [
            TopicMetadata(int(self.error), name, ID, False, [partition])
            if name in known
            else TopicMetadata(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, "", False, [])
            for name in names
        ]
        return Metadata(
            [Broker(node, "h", node, None) for node in (1, 2, 3)], self.cluster_ids[number - 1], 1, topics, 0
        )


def connect(asker: Asker) -> None:
    """Pretend that the first broker has answered."""
    asker._connection = SimpleNamespace(host="h", port=1, close=lambda: None)  # type: ignore[assignment]


async def test_a_topic_that_another_broker_knows_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, {"a"}, None, {"a", "b"})
    admin = KafkaUpkeepAdmin(CLUSTER, 1.0)
    connect(admin._asker)  # pyright: ignore[reportPrivateUsage]
    assert await admin.missing(["a", "b", "c"]) == {"c"}
    assert brokers.asked == [1, 2, 3]
    brokers.asked.clear()
    assert await admin.missing(["a"]) == frozenset()
    assert brokers.asked == [1], "nothing is missing, so nobody else is asked"


async def test_a_broker_of_another_cluster_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, set(), {"a"}, {"b"})
    brokers.cluster_ids[1] = "us-id"
    admin = KafkaUpkeepAdmin(CLUSTER, 1.0)
    connect(admin._asker)  # pyright: ignore[reportPrivateUsage]
    assert await admin.missing(["a", "b"]) == {"a"}


async def test_a_topic_that_another_broker_knows_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, {"a"}, {"b"}, None)
    admin = KafkaTopicAdmin(CLUSTER, 1.0)
    connect(admin._asker)  # pyright: ignore[reportPrivateUsage]

    async def metadata(names: list[str], *, rights: bool) -> Metadata:
        assert not rights
        return await brokers.ask_metadata(names)

    monkeypatch.setattr(admin, "_metadata", metadata)
    seen = await admin.describe(["a", "b", "c"])
    assert set(seen.topics) == {"a", "b"}
    assert seen.refused == {"c": "UNKNOWN_TOPIC_OR_PARTITION"}


async def test_a_topic_without_a_leader_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other broker knows the topic, but answers with an error."""
    brokers = Brokers(monkeypatch, set(), {"a"}, set())
    brokers.error = ErrorCode.LEADER_NOT_AVAILABLE
    admin = KafkaUpkeepAdmin(CLUSTER, 1.0)
    connect(admin._asker)  # pyright: ignore[reportPrivateUsage]
    assert await admin.missing(["a"]) == frozenset()


async def test_two_other_brokers_are_asked_if_the_configured_address_is_not_an_advertised_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(monkeypatch, set(), set(), {"a"})
    admin = KafkaUpkeepAdmin(CLUSTER, 1.0)
    asker = admin._asker  # pyright: ignore[reportPrivateUsage]
    asker._connection = SimpleNamespace(host="bootstrap", port=9, close=lambda: None)  # type: ignore[assignment]
    assert await admin.missing(["a"]) == frozenset()
    assert brokers.asked[1:] == [1, 2, 3]


async def test_the_connection_stays_with_its_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection went to the last broker that was asked, and the next list of topics was that broker's. The
    connections to the others are kept as well, and a broker that never answers delays the others once."""
    opened: list[int] = []
    closed: list[int] = []

    async def connecting(host: str, port: int, *_: object) -> SimpleNamespace:
        assert host == "h"
        opened.append(port)
        if port == 2:
            await asyncio.Event().wait()

        async def call(*_: object) -> int:
            return port

        pipe = SimpleNamespace(lost=None)
        connection = SimpleNamespace(host=host, port=port, pipe=pipe, call=call, version=lambda _: 12)
        connection.close = lambda: closed.append(port)
        return connection

    async def decoded(_: int, port: object, _names: object) -> Metadata:
        known = TopicMetadata(0 if port == 3 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "a", ID, False, [])
        return Metadata([Broker(node, "h", node, None) for node in (1, 2, 3)], "eu-id", 1, [known], 0)

    monkeypatch.setattr(admin_requests, "connect", connecting)
    monkeypatch.setattr(admin_requests, "encoded_answer", lambda reader: reader)
    monkeypatch.setattr(admin_requests, "decode_in_steps", decoded)
    asker = Asker(CLUSTER, 0.1)
    asker.brokers = (("h", 1), ("h", 2), ("h", 3))
    for _ in range(2):
        await asker.ask_metadata(["a"])
        assert set(await asker.known_elsewhere(["a"], "eu-id")) == {"a"}
    assert (opened, closed) == ([1, 2, 3, 2], [])
    asker.close()
    assert sorted(closed) == [1, 3]
