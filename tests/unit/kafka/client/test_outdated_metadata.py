"""A topic is missing only if no broker that can be asked knows it: one broker's metadata may be outdated."""

from collections.abc import Collection
from types import SimpleNamespace

import pytest

from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
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
            TopicMetadata(0, name, ID, False, [partition])
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
