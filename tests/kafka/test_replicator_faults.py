"""A replicator while brokers die, other replicators race it, and the target has forgotten the producers."""

import asyncio
import logging
import random
import time
from collections.abc import Generator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs

from mirrord.config.schema import OnLoss
from mirrord.kafka.client.producer_expiry import producer_expiry_ms
from mirrord.kafka.protocol.record_batch import CODEC_MASK
from mirrord.lab.cluster import Cluster
from mirrord.lab.server_properties import LabOptions
from mirrord.ledger.facts.core import Holder, LeaseTaken, Verdict
from mirrord.model.runs import Run
from mirrord.replication.host.replicator import Replicator
from tests.fixtures.lab import LabPair, pair_of
from tests.fixtures.mirror import SECONDS, Mirror, Written, config_of, copy_of, ends, ids, mirror, until, write

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DAY_MS = 86_400_000
EXPIRY_MS = 3_600_000
KEPT = {"retention_ms": "-1"}
"""Records of ten days ago would be deleted at once."""


@pytest.fixture(scope="module")
def _pair() -> Generator[LabPair]:
    """A source that compacts at once, and a target that forgets producers at once."""
    source = LabOptions(properties={"log.cleaner.backoff.ms": "300"})
    target = LabOptions(
        properties={"producer.id.expiration.check.interval.ms": "2000", "producer.id.expiration.ms": str(EXPIRY_MS)}
    )
    with pair_of(source, target) as pair:
        yield pair


@pytest.fixture
def pair(_pair: LabPair) -> Generator[LabPair]:
    yield _pair
    _pair.source.mend()
    _pair.target.mend()


def numbered(count: int, age_ms: int = 0, partitions: int = 1) -> list[Written]:
    """Records that state their position, `age_ms` old (0: of now)."""
    time_ms = int(time.time() * 1000) - age_ms if age_ms else 0
    return [
        Written(b"%d" % number, b"value %d" % number, partition=number % partitions, time_ms=time_ms)
        for number in range(count)
    ]


async def copied(replicator: Replicator, records: int) -> None:
    """Wait until the replicator has copied this many records."""
    await until(lambda: sum(lane.copied_records for lane in replicator.report().lanes) >= records)


async def test_the_target_reports_how_long_it_remembers(pair: LabPair) -> None:
    assert await producer_expiry_ms(config_of(pair.target), 1, SECONDS) == EXPIRY_MS


async def test_holes_of_a_compacted_source(pair: LabPair) -> None:
    """With every codec, each in its own partition."""
    async with mirror(pair.source, pair.target) as flow:
        topic = flow.topic(
            len(CODECS),
            cleanup_policy="compact",
            segment_ms="200",
            min_cleanable_dirty_ratio="0.01",
            min_compaction_lag_ms="0",
        )
        for turn in range(4):
            for partition, codec in enumerate(CODECS):
                keys = [
                    Written(b"%d" % (number % 50), b"%d " % turn * 30, partition=partition) for number in range(500)
                ]
                write(flow.source, topic, keys, batch_num_messages=20, compression_type=codec)
            await asyncio.sleep(0.3)
        await until_compacted(flow, topic, below=1_500)
        reports = await flow.caught_up(await flow.copying())
        await flow.assert_same()
        await flow.store.read_to_end()
        assert len(reports) == len(CODECS)
        for report in reports:
            assert report.rebuilt["holes"] > 0
            assert flow.lane(report.partition).verdicts.counts["compacted"] > 500
            _, copies = await flow.batches(topic, report.partition)
            assert CODECS[report.partition] in {CODECS[batch.header.attributes & CODEC_MASK] for batch in copies}


async def until_compacted(flow: Mirror, topic: str, below: int) -> None:
    """Wait until each partition is compacted below its offset."""
    deadline = time.monotonic() + SECONDS
    left = set(range(len(CODECS)))
    while left:
        # Only a segment that is no longer written to is compacted.
        write(flow.source, topic, [Written(b"last", b"v", partition=partition) for partition in left])
        for partition in list(left):
            originals, _ = await flow.batches(topic, partition)
            if sum(batch.header.record_count for batch in originals) < below:
                left.remove(partition)
        assert time.monotonic() < deadline
        await asyncio.sleep(0.3)


@pytest.mark.parametrize(("side", "age_ms"), [("source", 0), ("target", 0), ("target", 10 * DAY_MS)])
async def test_a_broker_is_killed(pair: LabPair, side: str, age_ms: int) -> None:
    async with mirror(pair.source, pair.target, request_timeout_ms=2_000, lease_ttl_ms=3_000) as flow:
        topic = flow.topic(2, KEPT, **KEPT)
        await asyncio.to_thread(write, flow.source, topic, numbered(40_000, age_ms, 2), batch_num_messages=10)
        replicator = await flow.copying()
        victim = flow.source if side == "source" else flow.target
        await copied(replicator, 10_000)
        await asyncio.to_thread(victim.kill)
        await asyncio.to_thread(victim.restart)
        await flow.caught_up(replicator)
        await flow.assert_same(records=40_000)


@pytest.mark.parametrize("age_ms", [0, 10 * DAY_MS], ids=["fresh", "ten-days-old"])
async def test_two_replicators_race(pair: LabPair, age_ms: int, seed: int) -> None:
    chance = random.Random(seed)
    async with mirror(pair.source, pair.target, request_timeout_ms=1_000, lease_ttl_ms=1_500) as flow:
        topic = flow.topic(2, KEPT, **KEPT)
        await asyncio.to_thread(write, flow.source, topic, numbered(30_000, age_ms, 2), batch_num_messages=10)
        lanes = await flow.lanes("unknown")
        one, other = await flow.replicator(), await flow.replicator()
        await one.assign(lanes)
        for turn in range(4):
            await asyncio.sleep(chance.uniform(0.0, 0.5))
            # Neither is told of the other: the ledger alone decides which of them has the lane.
            await (other, one)[turn % 2].assign(lanes)
        await flow.caught_up(one, other, seconds=120)
        await flow.assert_same(records=30_000)


async def test_a_replicator_that_died_is_followed(pair: LabPair) -> None:
    async with mirror(pair.source, pair.target, request_timeout_ms=1_000, lease_ttl_ms=2_000) as flow:
        topic = flow.topic(1, KEPT, **KEPT)
        await asyncio.to_thread(write, flow.source, topic, numbered(50_000, 10 * DAY_MS), batch_num_messages=5)
        former = await flow.copying()
        for _ in range(3):
            await copied(former, 5_000)
            await former.close(0)
            former = await flow.copying("dead")
        await flow.caught_up(former)
        await flow.assert_same(records=50_000)
        await flow.store.read_to_end()
        check = flow.lane().last_check
        assert check is None or check.outcome == "equal"


async def test_topics_that_are_only_just_being_created(pair: LabPair) -> None:
    async with mirror(pair.source, pair.target) as flow:
        for _ in range(4):
            topic = flow.topic(partitions=3)
            write(flow.source, topic, numbered(300, partitions=3), batch_num_messages=1)
        await flow.caught_up(await flow.copying())
        await flow.assert_same(records=1_200)


async def test_a_source_that_comes_later(pair: LabPair) -> None:
    async with mirror(pair.source, pair.target) as flow:
        topic = flow.topic()
        write(flow.source, topic, numbered(100))
        lanes = await flow.lanes()
        await asyncio.to_thread(flow.source.kill)
        replicator = await flow.replicator()
        await replicator.assign(lanes)
        await until(lambda: replicator.report().source_error != "")
        assert replicator.report().target_error == ""
        await asyncio.to_thread(flow.source.restart)
        await flow.caught_up(replicator)
        await until(lambda: replicator.report().source_error == "")
        await flow.assert_same(records=100)


@pytest.mark.parametrize("on_loss", ["continue", "halt"])
async def test_records_that_the_source_deleted_before_they_were_copied(pair: LabPair, on_loss: OnLoss) -> None:
    async with mirror(pair.source, pair.target, on_loss=on_loss) as flow:
        topic = flow.topic(partitions=2)
        write(flow.source, topic, numbered(200, partitions=2))
        replicator = await flow.copying()
        await flow.caught_up(replicator)
        lanes = await flow.lanes("left")
        await replicator.release(ids(lanes), 10)
        write(flow.source, topic, numbered(200, partitions=2))
        await delete_below(flow.source, topic, 150)
        await replicator.assign(lanes)
        await until(lambda: ends(flow.target, copy_of(topic))[1] == 200)
        if on_loss == "halt":
            await until(lambda: any(lane.phase == "halted" for lane in replicator.report().lanes))
            notes = {lane.partition: lane.note for lane in replicator.report().lanes}
            assert "offsets [100, 150) were deleted before they were copied" in notes[0]
            assert notes[1] == ""
            assert ends(flow.target, copy_of(topic))[0] == 100
            return
        await flow.caught_up(replicator)
        await flow.store.read_to_end()
        (lost,) = [lane for lane in flow.store.state.lanes.values() if lane.partition == 0]
        assert list(lost.verdicts.recent) == [Verdict(100, 150, "expired")]
        assert list(lost.source_runs) == [Run(0, 0), Run(100, 150)]
        assert ends(flow.target, copy_of(topic)) == {0: 150, 1: 200}
        assert value_at(flow.target, copy_of(topic), 99) == b"value 198"
        assert value_at(flow.target, copy_of(topic), 100) == value_at(flow.source, topic, 150) == b"value 100"


def value_at(cluster: Cluster, topic: str, offset: int) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "tests"})
    consumer.assign([TopicPartition(topic, 0, offset)])
    try:
        message = consumer.poll(SECONDS)
        return None if message is None else message.value()
    finally:
        consumer.close()


async def delete_below(cluster: Cluster, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        await asyncio.to_thread(future.result)


async def test_another_lease_stops_every_lane(pair: LabPair) -> None:
    async with mirror(pair.source, pair.target) as flow:
        topic = flow.topic(partitions=3)
        replicator = await flow.copying()
        write(flow.source, topic, numbered(90, partitions=3))
        await flow.caught_up(replicator)
        epoch = flow.setup.lease_epoch + 1
        await flow.store.append(epoch, [LeaseTaken(epoch, Holder("other", 1, "", ""), 6_000)])
        await until(lambda: replicator.report().lost)
        assert replicator.report().lease_valid_s == 0
        # The lanes learn a moment later that the lease is lost, and this test blocks their event loop.
        write(flow.source, topic, numbered(90, partitions=3))
        await until(lambda: {lane.phase for lane in replicator.report().lanes} == {"gone"})
        assert ends(flow.target, copy_of(topic)) == {0: 30, 1: 30, 2: 30}


async def test_leaders_change(lab_pair: LabPair, lab_three: Cluster) -> None:
    """The target has three brokers, two replicas of each partition, and loses one broker after the other."""
    async with mirror(lab_pair.source, lab_three, request_timeout_ms=2_000, lease_ttl_ms=3_000) as flow:
        topic = flow.topic(6, KEPT, **KEPT)
        await asyncio.to_thread(write, flow.source, topic, numbered(30_000, partitions=6), batch_num_messages=10)
        replicator = await flow.copying()
        for broker, share in ((1, 0.2), (2, 0.6)):
            await copied(replicator, int(30_000 * share))
            await asyncio.to_thread(lab_three.kill, broker)
            await asyncio.to_thread(lab_three.restart, broker)
        await flow.caught_up(replicator)
        await flow.assert_same(records=30_000)


async def test_sessions_that_end_are_replaced(lab_sessions: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """SASL sessions last for two seconds (KIP-368), and records flow for longer: no lane notices, nothing is logged."""
    cluster = lab_sessions
    with capture_logs() as events:
        async with mirror(cluster, cluster) as flow:
            topic = flow.topic(partitions=2)
            replicator = await flow.copying()
            begun = time.monotonic()
            count = 0
            while time.monotonic() < begun + 8:
                await asyncio.to_thread(write, cluster, topic, numbered(20, partitions=2))
                count += 20
                await flow.caught_up(replicator)
                assert replicator.report().lease_valid_s > 0
            assert replicator.report().target_error == replicator.report().source_error == ""
            assert sum(lane.copied_records for lane in replicator.report().lanes) == count
            await flow.store.read_to_end()
            assert {lane.grant for lane in flow.state.lanes.values()} == {1}
    assert [event for event in events if event["log_level"] != "info"] == []
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []
