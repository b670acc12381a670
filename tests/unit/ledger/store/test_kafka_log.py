"""Reading the two topics of a ledger together."""

import asyncio
from collections.abc import Iterable

import pytest

from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.kafka.protocol.metadata import Broker, Metadata, Partition, TopicMetadata
from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.ledger.store.log_interface import LedgerRow
from mirrord.ledger.store.partition_io import LogRecord, PartitionReader, _LogRead
from mirrord.ledger.store.topics import AskAgain, LedgerTopics


async def test_another_broker_is_asked_for_the_leader_if_the_first_ones_metadata_is_outdated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Broker 1 is cut off from the controllers and always reports the former leader. Broker 2 never answers."""
    addresses = [("h", 1), ("h", 2), ("h", 3)]
    topics = LedgerTopics("eu-us", ClusterConfig(("h:1", "h:2", "h:3"), Security()), timeout_s=3.0)

    async def describe(_: LedgerTopics, address: tuple[str, int], names: Iterable[str]) -> Metadata:
        if address[1] == 2:
            await asyncio.Event().wait()
        epoch = 4 if address[1] == 1 else 5
        found = [TopicMetadata(0, name, name, False, [Partition(0, 0, 3, epoch, (), (), ())]) for name in names]
        return Metadata([Broker(node, *each, None) for node, each in enumerate(addresses, 1)], "us-id", 3, found, 0)

    async def fetch() -> int:
        leader = await topics.leader(topics.ledger)
        if leader.epoch < 5:
            raise AskAgain("FENCED_LEADER_EPOCH")
        return leader.epoch

    monkeypatch.setattr(LedgerTopics, "_describe", describe)
    assert await topics.asking(fetch, patient=True) == 5


async def test_a_slow_broker_has_all_the_time_if_it_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = LedgerTopics("eu-us", ClusterConfig(("h:1",), Security()), timeout_s=0.6)

    async def describe(_: LedgerTopics, address: tuple[str, int], names: Iterable[str]) -> Metadata:
        await asyncio.sleep(0.3)
        found = [TopicMetadata(0, name, name, False, [Partition(0, 0, 1, 5, (), (), ())]) for name in names]
        return Metadata([Broker(1, *address, None)], "us-id", 1, found, 0)

    monkeypatch.setattr(LedgerTopics, "_describe", describe)
    assert (await topics.asking(lambda: topics.leader(topics.ledger), patient=True)).epoch == 5


async def test_entries_are_not_lost_if_the_state_topic_fails_in_the_same_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = KafkaLog("eu-us", ClusterConfig(("127.0.0.1:1",), Security()))
    polled: list[str] = []

    async def poll(reader: PartitionReader) -> _LogRead:
        topic = reader._topic  # pyright: ignore[reportPrivateUsage]
        polled.append(topic)
        if topic == log.state_topic:
            raise LedgerUnavailable("the state topic cannot be read")
        if reader.position > 0:
            await asyncio.Event().wait()
        return _LogRead([LogRecord(0, None, b"entry", 3)], 1, 3)

    monkeypatch.setattr(PartitionReader, "_poll", poll)
    log.seek(0)
    tasks = [log._ledger.polling(), log._state.polling()]  # pyright: ignore[reportPrivateUsage]
    await asyncio.wait(tasks)
    assert await log.read() == [LedgerRow(0, b"entry", 3)]
    with pytest.raises(LedgerUnavailable, match="the state topic cannot be read"):
        await log.read()
    await log.close()
