"""Groups with various lags, older than the mirror: they continue at exactly the same record.

By content: the record at the target position is the one that comes next on the source, and as many records follow.
"""

import asyncio
import time
from collections.abc import Generator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from mirrord.config.flow_features import GroupsConfig
from mirrord.lab.cluster import Cluster
from mirrord.lab.server_properties import LabOptions
from tests.fixtures.daemon import unique
from tests.fixtures.groups import commit, committed, following
from tests.fixtures.lab import LabPair, client_settings, pair_of
from tests.fixtures.mirror import SECONDS, Mirror, Written, copy_of, ends, mirror, send, write

LAGS = (0, 1, 137, 10_000, 1_000_000)
COMPACTED = 13_000
"""The compacted topic has at most this number of records when the mirror begins."""
RECORDS = 1_000_200
TRANSACTION = 2_000


@pytest.fixture(scope="module")
def pair() -> Generator[LabPair]:
    """A source that compacts at once."""
    with pair_of(LabOptions(properties={"log.cleaner.backoff.ms": "300"}), LabOptions()) as pair:
        yield pair


def write_transactions(cluster: Cluster, topic: str) -> None:
    """Every sixth is aborted; the last few are small."""
    settings = {"transactional.id": topic, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
    producer = Producer({**client_settings(cluster), **settings})
    producer.init_transactions(SECONDS)
    written = number = 0
    while written < RECORDS:
        number += 1
        count = min(TRANSACTION if RECORDS - written > 300 else 20, RECORDS - written)
        producer.begin_transaction()
        for record in range(count):
            send(producer, topic, Written(None, b"%d of %d" % (record, number)))
        if number % 6 == 0:
            producer.flush(SECONDS)  # unsent records would not be aborted
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)
            written += count


def write_plain(cluster: Cluster, topic: str) -> None:
    write(cluster, topic, (Written(None, b"%d" % number) for number in range(10_300)))


async def write_compacted(flow: Mirror, topic: str) -> None:
    """Twice the same 11,000 keys, of which the first are compacted away, and a last segment that never is."""
    for turn in range(2):
        keys = [Written(b"%d" % key, b"%d in turn %d" % (key, turn)) for key in range(11_000)]
        await asyncio.to_thread(write, flow.source, topic, keys, batch_num_messages=50)
        await asyncio.sleep(0.3)
    deadline, last = time.monotonic() + SECONDS, 0
    while len(await asyncio.to_thread(offsets, flow.source, topic)) > COMPACTED:
        # Only a segment that is no longer written to is compacted.
        await asyncio.to_thread(write, flow.source, topic, [Written(b"last", b"the last one, %d" % last)])
        last += 1
        assert time.monotonic() < deadline


def write_foreign(cluster: Cluster, topic: str, what: bytes) -> None:
    write(cluster, topic, [Written(b"k", b"foreign %d, %b" % (number, what)) for number in range(7)])


def offsets(cluster: Cluster, topic: str, first: int = 0) -> list[int]:
    """The offsets of all records that a committed reader gets, except for the foreign ones."""
    found: list[int] = []
    with_end = {"group.id": "tests", "enable.auto.commit": False, "fetch.max.bytes": 32 << 20}
    consumer = Consumer({**client_settings(cluster), **with_end})
    place = TopicPartition(topic, 0, first)
    consumer.assign([place])
    end, deadline = ends(cluster, topic)[0], time.monotonic() + SECONDS
    try:
        while consumer.position([place])[0].offset < end and first < end:
            found += [
                message.offset() or 0
                for message in consumer.consume(50_000, 0.2)
                if message.error() is None and not (message.value() or b"").startswith(b"foreign")
            ]
            assert time.monotonic() < deadline
        return found
    finally:
        consumer.close()


def record_at(cluster: Cluster, topic: str, offset: int) -> bytes | None:
    """The record at exactly this offset."""
    if offset >= ends(cluster, topic)[0]:
        return None
    consumer = Consumer({**client_settings(cluster), "group.id": "tests", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        deadline = time.monotonic() + SECONDS
        while (message := consumer.poll(0.1)) is None or message.error():
            assert time.monotonic() < deadline
        assert message.offset() == offset
        return message.value()
    finally:
        consumer.close()


def commit_behind(cluster: Cluster, group: str, topic: str, known: list[int]) -> dict[int, int]:
    """For each lag that the topic is long enough for, what a consumer commits that has read all earlier records: the
    offset after the last one, whatever is there. The result maps each lag to the offset of the next record."""
    wanted: dict[int, int] = {}
    for lag in LAGS:
        if lag < len(known):
            commit(cluster, f"{group}-{lag}", topic, {0: known[-lag - 1] + 1})
            wanted[lag] = known[-lag] if lag else ends(cluster, topic)[0]
    return wanted


async def test_groups_that_lag_by_up_to_a_million_records(pair: LabPair) -> None:
    group = unique("lag")
    groups = GroupsConfig(match=(f"{group}.*",), refresh_ms=300, every_ms=300)
    async with mirror(pair.source, pair.target, groups=groups) as flow:
        transactional, plain = flow.topic(), flow.topic()
        compacted = flow.topic(
            cleanup_policy="compact", segment_ms="200", min_cleanable_dirty_ratio="0.01", min_compaction_lag_ms="0"
        )
        await asyncio.to_thread(write_transactions, flow.source, transactional)
        await asyncio.to_thread(write_plain, flow.source, plain)
        await write_compacted(flow, compacted)
        wanted: dict[str, dict[int, int]] = {}
        known: list[int] = []
        for topic in flow.topics:
            known = await asyncio.to_thread(offsets, flow.source, topic)
            wanted[topic] = await asyncio.to_thread(commit_behind, flow.source, group, topic, known)
            await asyncio.to_thread(write_foreign, flow.target, copy_of(topic), b"first")
        assert [len(each) for each in wanted.values()] == [5, 4, 4]
        assert len(known) <= COMPACTED, f"{len(known)} records of the compacted topic, the first at {known[0]}"
        # Only now is there a mirror, and another client writes into the target topics while it copies.
        await flow.copying()
        for turn in range(3):
            for topic in flow.topics:
                await asyncio.to_thread(write_foreign, flow.target, copy_of(topic), b"meanwhile, %d" % turn)
        await flow.caught_up()
        async with following(flow) as follower:
            for topic, lags in wanted.items():
                for lag in lags:
                    deadline = time.monotonic() + SECONDS
                    while True:
                        status = await follower.status(f"{group}-{lag}", 0, topic)
                        if status is not None and status.state == "in step":
                            break
                        assert time.monotonic() < deadline, await follower.report()
                        await asyncio.sleep(0.1)
                    await asyncio.to_thread(assert_same_record, flow, f"{group}-{lag}", topic, lag, lags[lag])
        found = {lane.source_topic: list(lane.verdicts.recent) for lane in flow.state.lanes.values()}
        reasons = {verdict.reason for verdicts in found.values() for verdict in verdicts}
        assert reasons >= {"control", "aborted", "compacted"}, (found[compacted], known[0])


def assert_same_record(flow: Mirror, group: str, topic: str, lag: int, next_record: int) -> None:
    """The group reads next on the target what it would have read next on the source, and so do all later reads."""
    position = committed(flow.target, group, copy_of(topic))[0]
    assert position is not None
    following = offsets(flow.target, copy_of(topic), position)
    assert len(following) == lag, (topic, lag, position)
    if lag:
        here, there = record_at(flow.source, topic, next_record), record_at(flow.target, copy_of(topic), position)
        assert here == there is not None, (topic, lag, position)
