"""A replicator on real brokers: what arrives is what was written, byte by byte where possible."""

import asyncio
import itertools
import random
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from msgspec.structs import replace

from mirrord.kafka.client.range_reader import ReadBatch
from mirrord.kafka.protocol.record_batch import CODEC_MASK, HEADER_LENGTH
from mirrord.lab.cluster import Cluster
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import PATIENT, SECONDS, Written, copy_of, ends, ids, mirror, send, until, write

DAY_MS = 86_400_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def records(chance: random.Random, count: int, partitions: int = 1) -> Iterator[Written]:
    """Records of every unusual form."""
    for number in range(count):
        yield Written(
            key=chance.choice([None, b"", b"key-%d" % number]),
            value=chance.choice([None, b"", b"value " * chance.randrange(1, 100)]),
            headers=chance.choice([(), (("h", b"1"), ("h", None), ("", b""), ("h", b"1"))]),
            partition=number % partitions,
            time_ms=chance.choice([0, 1_700_000_000_000 + number, 1]),
        )


def stored(batch: ReadBatch) -> bytes:
    """The records of a batch as they are stored, compressed."""
    return bytes(memoryview(batch.buffer)[batch.start + HEADER_LENGTH : batch.end])


@pytest.mark.parametrize("codec", CODECS)
async def test_every_codec_goes_raw(lab_pair: LabPair, codec: str, seed: int) -> None:
    chance = random.Random(seed)
    async with mirror(lab_pair.source, lab_pair.target) as flow:
        topic = flow.topic(partitions=3)
        write(flow.source, topic, records(chance, 6_000, 3), compression_type=codec)
        replicator = await flow.copying()
        reports = await flow.caught_up(replicator)
        assert all(lane.raw_batches and not lane.rebuilt for lane in reports)
        await flow.assert_same(records=6_000)
        originals, copies = await flow.batches(topic, 1)
        assert [stored(batch) for batch in copies] == [stored(batch) for batch in originals]
        assert {CODECS[batch.header.attributes & CODEC_MASK] for batch in copies} >= {codec}
        lane = flow.lane(1)
        assert {batch.header.producer_id for batch in copies} == {lane.producer_id}


async def test_batches_of_one_record_and_of_a_megabyte(lab_pair: LabPair, seed: int) -> None:
    chance = random.Random(seed)
    async with mirror(lab_pair.source, lab_pair.target) as flow:
        topic = flow.topic(partitions=2, max_message_bytes="2000000", target_configs={"max_message_bytes": "2000000"})
        ones = [Written(None, b"%d" % number, partition=0) for number in range(2_000)]
        write(flow.source, topic, ones, batch_num_messages=1)
        large = [Written(b"k", chance.randbytes(1_000_000), partition=1) for _ in range(20)]
        write(flow.source, topic, large, message_max_bytes=2_000_000)
        await flow.caught_up(await flow.copying())
        await flow.assert_same(records=2_020)
        originals, copies = await flow.batches(topic, 0)
        assert len(originals) == len(copies) == 2_000


async def test_records_arrive_while_others_are_written(lab_pair: LabPair) -> None:
    async with mirror(lab_pair.source, lab_pair.target) as flow:
        topic = flow.topic(partitions=4)
        replicator = await flow.copying()
        for turn in range(5):
            write(flow.source, topic, [Written(None, b"%d" % turn, partition=each % 4) for each in range(400)])
            await flow.caught_up(replicator)
        await flow.assert_same(records=2_000)
        report = replicator.report()
        assert report.source_error == report.target_error == ""
        assert report.lease_valid_s > 0
        assert not report.lost


def write_in_transactions(cluster: Cluster, topic: str, partition: int, codec: str) -> None:
    """20 transactions of 50 records, of which 13 are aborted; and a record after them, because verdicts travel with the
    run that follows."""
    settings = {"transactional.id": f"{topic}-{partition}", "linger.ms": 5, "compression.type": codec}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    producer.init_transactions(30)
    for turn in range(20):
        producer.begin_transaction()
        for number in range(50):
            send(producer, topic, Written(b"%d" % turn, b"%d " % number * 20, partition=partition))
        if turn % 3:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    # The last marker is written a little later.
    deadline = time.monotonic() + SECONDS
    while ends(cluster, topic)[partition] < 20 * 51:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    write(cluster, topic, [Written(None, b"the end", partition=partition)])


async def test_aborted_transactions_never_arrive(lab_pair: LabPair) -> None:
    """With every codec."""
    async with mirror(lab_pair.source, lab_pair.target) as flow:
        topic = flow.topic(len(CODECS))
        for partition, codec in enumerate(CODECS):
            await asyncio.to_thread(write_in_transactions, flow.source, topic, partition, codec)
        await flow.caught_up(await flow.copying())
        await flow.assert_same(records=len(CODECS) * (7 * 50 + 1))
        await flow.store.read_to_end()
        for partition, codec in enumerate(CODECS):
            assert flow.lane(partition).verdicts.counts == {"aborted": 13 * 50, "control": 20}
            _, copies = await flow.batches(topic, partition)
            assert not any(batch.header.attributes & ~CODEC_MASK for batch in copies)
            assert {CODECS[batch.header.attributes] for batch in copies} >= {codec}


async def test_an_open_transaction_is_waited_for_and_named(lab_pair: LabPair) -> None:
    async with mirror(lab_pair.source, lab_pair.target, transaction_alarm_ms=200) as flow:
        topic = flow.topic()
        producer = Producer({"bootstrap.servers": flow.source.bootstrap, "transactional.id": topic})
        producer.init_transactions(30)
        producer.begin_transaction()
        send(producer, topic, Written(None, b"in a transaction"))
        producer.flush(30)
        write(flow.source, topic, [Written(None, b"beside it")])
        replicator = await flow.copying()
        await until(lambda: (now := replicator.report().lanes[0].open_transaction) is not None and now.state != "")
        held = replicator.report().lanes[0].open_transaction
        assert held is not None
        assert (held.first_offset, held.transactional_id, held.state, held.trouble) == (0, topic, "Ongoing", "")
        assert (held.producer_id >= 0, held.producer_epoch >= 0) == (True, True)
        assert ends(flow.target, copy_of(topic)) == {0: 0}
        producer.commit_transaction(30)
        await flow.caught_up(replicator)
        await until(lambda: replicator.report().lanes[0].open_transaction is None)
        await flow.assert_same(records=2)


async def test_append_times_stay_what_readers_see(lab_pair: LabPair) -> None:
    async with mirror(lab_pair.source, lab_pair.target) as flow:
        topic = flow.topic(message_timestamp_type="LogAppendTime")
        write(flow.source, topic, [Written(b"k", b"%d" % number, time_ms=1) for number in range(500)])
        (lane,) = await flow.caught_up(await flow.copying())
        assert lane.raw_batches == 0
        assert set(lane.rebuilt) == {"attributes"}
        await flow.assert_same(records=500)


async def test_a_start_by_time_may_lie_inside_a_batch(lab_pair: LabPair) -> None:
    begin_ms = 1_700_000_000_000
    async with mirror(lab_pair.source, lab_pair.target, start=begin_ms + 250) as flow:
        topic = flow.topic()
        times = [Written(None, b"%d" % number, time_ms=begin_ms + number) for number in range(400)]
        write(flow.source, topic, times, linger_ms=500, compression_type="zstd")
        originals, _ = await flow.batches(topic)
        assert len(originals) == 1
        (lane,) = await flow.caught_up(await flow.copying())
        assert lane.rebuilt == {"inside-batch": 1}
        _, copies = await flow.batches(topic)
        assert [(batch.header.record_count, batch.header.base_timestamp) for batch in copies] == [(150, begin_ms + 250)]
        assert flow.lane().source_runs.offset_of(0) == 250


async def test_a_start_at_the_end_copies_what_comes_later(lab_pair: LabPair) -> None:
    async with mirror(lab_pair.source, lab_pair.target, start="latest") as flow:
        topic = flow.topic()
        write(flow.source, topic, [Written(None, b"before")] * 10)
        replicator = await flow.copying()
        await flow.caught_up(replicator)
        write(flow.source, topic, [Written(None, b"after")] * 5)
        await flow.caught_up(replicator)
        assert ends(flow.target, copy_of(topic)) == {0: 5}


async def test_a_time_after_all_records_is_the_end(lab_pair: LabPair) -> None:
    async with mirror(lab_pair.source, lab_pair.target, start=int(time.time() * 1000) + DAY_MS) as flow:
        topic = flow.topic()
        write(flow.source, topic, [Written(None, b"before")] * 10)
        await flow.caught_up(await flow.copying())
        assert ends(flow.target, copy_of(topic)) == {0: 0}


async def test_a_lane_moves_without_a_trace(lab_pair: LabPair) -> None:
    async with mirror(lab_pair.source, lab_pair.target, **PATIENT) as flow:
        topic = flow.topic(partitions=2)
        lanes = await flow.lanes()
        one, other = await flow.replicator(), await flow.replicator()
        await one.assign(lanes)
        hosts = itertools.cycle([one, other])
        host = next(hosts)
        for turn in range(6):
            write(flow.source, topic, [Written(None, b"%d" % turn, partition=each % 2) for each in range(100)])
            await flow.caught_up(host)
            left = await flow.lanes("left")
            if turn % 2:
                partings = await host.part_with(ids(lanes), 10)
                assert all(parting.clean for parting in partings.values())
                left = [replace(each, word=partings[each.lane].word) for each in left]
            else:
                assert await host.release(ids(lanes), 10) == dict.fromkeys(ids(lanes), True)
                await flow.store.read_to_end()
                assert {mark.state for mark in flow.state.progress.values()} == {"drained"}
            assert host.report().lanes == ()
            host = next(hosts)
            await host.assign(left)
            await until(lambda host=host: {lane.phase for lane in host.report().lanes} == {"copying"})
            assert host._host is not None
            hosted = [host._host.hosted(lane) for lane in ids(lanes)]
            # A holder that continues on a handover begins no round of questions.
            assert {each.lane.round for each in hosted if each is not None} == ({0} if turn % 2 else {1})
        await flow.assert_same(records=600)


async def test_an_idle_lane_that_comes_back_knows_its_lag(lab_pair: LabPair) -> None:
    async with mirror(lab_pair.source, lab_pair.target, **PATIENT) as flow:
        topic = flow.topic(partitions=2)
        write(flow.source, topic, [Written(None, b"v", partition=each % 2) for each in range(10)])
        replicator = await flow.copying()
        await flow.caught_up(replicator)
        for _ in range(3):
            # Its fetch session has reported how far the source reaches, and does not report it twice.
            assert await replicator.release(ids(await flow.lanes()), 10)
            await replicator.assign(await flow.lanes("left"))
            reports = await flow.caught_up(replicator)
            assert {report.source_end - report.source_offset for report in reports} == {0}
        await flow.assert_same(records=10)


async def test_what_is_hosted_is_not_assigned_twice(lab_pair: LabPair) -> None:
    async with mirror(lab_pair.source, lab_pair.target) as flow:
        topic = flow.topic()
        write(flow.source, topic, [Written(None, b"v")] * 10)
        replicator = await flow.copying()
        await replicator.assign(await flow.lanes())
        await flow.caught_up(replicator)
        await replicator.assign(await flow.lanes("unknown"))
        assert len(replicator.report().lanes) == 1
        await flow.store.read_to_end()
        assert flow.lane().grant == 1
