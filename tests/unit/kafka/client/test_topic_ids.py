"""Clusters that report topics without topic ids are refused, and their views are not changed."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.kafka.client import topic_admin as module
from mirrord.kafka.client.admin_requests import Asker
from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.kafka.client.connection import ConnectionOptions
from mirrord.kafka.client.receive_buffers import BufferPool
from mirrord.kafka.client.topic_admin import KafkaTopicAdmin, NoTopicIds
from mirrord.kafka.protocol.metadata import Broker, Metadata, Partition, TopicMetadata
from mirrord.kafka.protocol.primitives import (
    INT16,
    INT32,
    NO_TAGS,
    NULL,
    ZERO_UUID,
    Reader,
    compact_array,
    compact_nullable_string,
    compact_string,
    uuid_bytes,
)
from mirrord.model.names import ClusterId, TopicId

ID = "qfk1s3R6Trm5VqWZp1addg"
CLUSTER = ClusterConfig(("h:9092",), Security())
VERSION = 12


def answer(topics: Mapping[str, str]) -> bytes:
    """A Metadata response, version 12, with topics of one partition each, by name and id."""
    partition = INT16.pack(0) + b"".join(INT32.pack(number) for number in (0, 1, 0))
    partition += compact_array([INT32.pack(1)]) * 2 + compact_array([]) + NO_TAGS
    entries = [
        INT16.pack(0) + compact_nullable_string(name) + uuid_bytes(topic_id) + b"\x00" + compact_array([partition])
        + INT32.pack(-(1 << 31)) + NO_TAGS
        for name, topic_id in topics.items()
    ]  # fmt: skip
    broker = INT32.pack(1) + compact_string("h") + INT32.pack(9092) + NULL + NO_TAGS
    body = compact_array([broker]) + compact_nullable_string("cluster-id") + INT32.pack(1) + compact_array(entries)
    return INT32.pack(0) + body + NO_TAGS


class FakeAsker(Asker):
    """Answers with the topics that the test has set."""

    topics: Mapping[str, str] = {}

    def __init__(self, *_: object) -> None:
        self.brokers: tuple[tuple[str, int], ...] = ()

    async def ask(
        self, api: object, encode: Callable[[int], bytes], decode: Callable[[int, Reader], Any], at: object = None
    ) -> Any:
        del api, at
        encode(VERSION)
        return decode(VERSION, Reader(answer(self.topics)))


@pytest.mark.parametrize(
    ("topics", "named"),
    [
        ({"a": ZERO_UUID, "b": ZERO_UUID}, "its topics have no topic id (a, b)"),
        ({"a": ID, "b": ZERO_UUID}, "1 of its 2 topics have no topic id (b)"),
        (dict.fromkeys("dcba", ZERO_UUID), "its topics have no topic id (a, b, c, ...)"),
    ],
)
async def test_a_cluster_without_topic_ids_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, topics: Mapping[str, str], named: str
) -> None:
    monkeypatch.setattr(module, "Asker", FakeAsker)
    monkeypatch.setattr(FakeAsker, "topics", topics)
    admin = KafkaTopicAdmin(CLUSTER, 1.0, "eu")
    for _ in range(2):  # the second answer equals the first byte for byte
        with pytest.raises(NoTopicIds) as fault:
            await admin.describe()
        line = str(fault.value)
        assert line.startswith("cluster eu (id cluster-id) cannot be used: ")
        assert named in line
        assert "inter.broker.protocol.version=2.8" in line
        assert "\n" not in line


async def test_an_answer_without_ids_does_not_hide_behind_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Asker", FakeAsker)
    monkeypatch.setattr(FakeAsker, "topics", {"a": ID})
    admin = KafkaTopicAdmin(CLUSTER, 1.0, "eu")
    assert (await admin.describe()).topics["a"].topic_id == ID
    monkeypatch.setattr(FakeAsker, "topics", {"a": ZERO_UUID})
    for _ in range(2):
        with pytest.raises(NoTopicIds):
            await admin.describe()
    monkeypatch.setattr(FakeAsker, "topics", {"a": ID})
    assert (await admin.describe()).topics["a"].topic_id == ID


async def test_topics_with_invalid_names_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Asker", FakeAsker)
    bad = {"a b": ID, "\x1b[2Jx": ID, "..": ZERO_UUID, "x" * 250: ID, "ü": ID, "": ID, "a\n": ID}
    monkeypatch.setattr(FakeAsker, "topics", {"a": ID, **bad})
    seen = await KafkaTopicAdmin(CLUSTER, 1.0, "eu").describe()
    assert list(seen.topics) == ["a"]
    assert seen.invalid == ("", "..", "?[2Jx", "a b", "a?", "x" * 100, "ü")


async def test_a_view_keeps_the_leader_it_knows_when_a_broker_does_not_know_ids() -> None:
    view = ClusterView("eu", CLUSTER, BufferPool(), ConnectionOptions(), ClusterId("c"))
    view.watch("a", TopicId(ID))

    def seen(topic_id: str, leader: int) -> Metadata:
        partition = Partition(0, 0, leader, leader, (leader,), (leader,), ())
        topic = TopicMetadata(0, "a", topic_id, internal=False, partitions=[partition])
        return Metadata([Broker(1, "h", 1, None), Broker(2, "h", 2, None)], "c", 1, [topic], 0)

    await view._take(seen(ID, 1))  # pyright: ignore[reportPrivateUsage]
    await view._take(seen(ZERO_UUID, 2))  # pyright: ignore[reportPrivateUsage]
    leader = view.leader(PartitionId("a", TopicId(ID), 0))
    assert leader is not None
    assert (leader.node, view.gone(TopicId(ID))) == (1, False)
