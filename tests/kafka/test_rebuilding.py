"""Another holder wrote from another view of the source: both logs are read, and the map becomes correct again."""

import asyncio
from collections.abc import Sequence

import pytest
from confluent_kafka import Producer

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.range_reader import ReadBatch
from mirrord.kafka.protocol.metadata import TopicMetadata
from mirrord.kafka.protocol.record_batch import HEADER, patch
from mirrord.kafka.records.record_decoding import decode
from mirrord.ledger.state import LaneState
from mirrord.model.runs import Run
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import Mirror, Written, copy_of, ends, ids, mirror, send, until, viewing, write
from tests.fixtures.wire import produce_one

COPIED, WRITTEN = 10, 16


def numbered(first: int, end: int) -> list[Written]:
    return [Written(b"k", b"%d" % number) for number in range(first, end)]


async def inject(flow: Mirror, topic: str, batches: Sequence[ReadBatch], first: int) -> None:
    """Write these batches to the target as the lane would, beginning with this ordinal."""
    lane = flow.lane()
    async with viewing(flow.target) as view:
        (assigned,) = await flow.lanes()
        where = PartitionId(copy_of(topic), assigned.key.target_topic_id, 0)
        view.watch(where.topic, where.topic_id)
        await until(lambda: view.leader(where) is not None)
        leader = view.leader(where)
        assert leader is not None
        connection = await view.link(leader.node, "test").get()
        for ordinal, batch in enumerate(batches, first):
            data = bytearray(memoryview(batch.buffer)[batch.start : batch.end])
            patch(data, 0, HEADER.unpack_from(data, 0), lane.producer_id, lane.producer_epoch, ordinal)
            named = TopicMetadata(0, where.topic, where.topic_id, internal=False, partitions=[])
            answer = await produce_one(connection, named, 0, bytes(data))
            assert (answer.error, answer.base_offset) == (0, ordinal)


def abort(flow: Mirror, topic: str) -> None:
    """A transaction of one record that is aborted: two offsets."""
    producer = Producer({"bootstrap.servers": flow.source.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    send(producer, topic, Written(b"k", b"-1"))
    producer.flush(30)
    producer.abort_transaction(30)


async def taken_over(flow: Mirror, written: Sequence[int], *, aborted: bool = False) -> LaneState:
    """A lane of single records ends after the first ten; another holder writes others; and the lane is taken over."""
    topic = flow.topic()
    await asyncio.to_thread(write, flow.source, topic, numbered(0, COPIED), batch_num_messages=1)
    first = await flow.copying()
    await flow.caught_up(first)
    lanes = await flow.lanes()
    assert await first.release(ids(lanes), 10) == dict.fromkeys(ids(lanes), True)
    if aborted:
        await asyncio.to_thread(abort, flow, topic)
        # The marker is written a little later.
        await until(lambda: ends(flow.source, topic)[0] == COPIED + 2)
    await asyncio.to_thread(write, flow.source, topic, numbered(COPIED, WRITTEN), batch_num_messages=1)
    await flow.store.read_to_end()
    originals, _ = await flow.batches(topic)
    await inject(flow, topic, [originals[number] for number in written], COPIED)
    await flow.copying("left")
    return flow.lane()


async def values(flow: Mirror) -> list[int]:
    _, copies = await flow.batches(flow.topics[0])
    records = [record for batch in copies for record in decode(batch.buffer, batch.start, batch.end)]
    return [int(record.value or b"") for record in records]


async def corrected(flow: Mirror) -> LaneState:
    await flow.caught_up(flow.replicators[-1])
    await flow.store.read_to_end()
    lane = flow.lane()
    assert lane.halted is None
    assert lane.last_check is None or lane.last_check.outcome == "equal"
    return lane


async def test_what_another_holder_left_out_follows(lab_pair: LabPair) -> None:
    async with mirror(lab_pair.source, lab_pair.target) as flow:
        await taken_over(flow, [11, 12, 13])
        lane = await corrected(flow)
        assert list(lane.source_runs) == [Run(0, 0), Run(10, 11), Run(13, 10), Run(14, 14)]
        assert lane.verdicts.counts == {}
        assert await values(flow) == [*range(10), 11, 12, 13, 10, 14, 15]


async def test_what_another_holder_wrote_again_is_named(lab_pair: LabPair) -> None:
    async with mirror(lab_pair.source, lab_pair.target) as flow:
        await taken_over(flow, [8, 9, 10])
        lane = await corrected(flow)
        assert list(lane.source_runs) == [Run(0, 0), Run(10, 8)]
        assert lane.verdicts.counts == {"doubled": 2}
        assert await values(flow) == [*range(10), *range(8, 16)]


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "all"])
async def test_an_aborted_record_is_missing_only_where_it_would_be_copied(lab_pair: LabPair, committed: bool) -> None:
    isolation = "read_committed" if committed else "read_uncommitted"
    async with mirror(lab_pair.source, lab_pair.target, isolation=isolation) as flow:
        # After the first ten follow the aborted record and its marker, then the record 10, then 11.
        await taken_over(flow, [13], aborted=True)
        lane = await corrected(flow)
        # The holder that wrote the record 11 has recorded nothing.
        assert lane.verdicts.counts == ({"aborted": 1, "control": 1} if committed else {"control": 1})
        missing = [10] if committed else [-1, 10]
        assert await values(flow) == [*range(10), 11, *missing, *range(12, 16)]


async def test_what_the_source_never_had_keeps_the_lane_halted(lab_pair: LabPair) -> None:
    async with mirror(lab_pair.source, lab_pair.target) as flow:
        other = flow.topic()
        await asyncio.to_thread(write, flow.source, other, [Written(b"k", b"999")])
        strange, _ = await flow.batches(other)
        flow.topics.clear()
        topic = flow.topic()
        await asyncio.to_thread(write, flow.source, topic, numbered(0, COPIED), batch_num_messages=1)
        first = await flow.copying()
        await flow.caught_up(first)
        lanes = await flow.lanes()
        await first.release(ids(lanes), 10)
        await asyncio.to_thread(write, flow.source, topic, numbered(COPIED, WRITTEN), batch_num_messages=1)
        await flow.store.read_to_end()
        await inject(flow, topic, strange, COPIED)
        for former in ("left", "left"):
            replicator = await flow.copying(former)
            await until(lambda replicator=replicator: replicator.report().lanes[0].phase == "halted")
            (lane,) = replicator.report().lanes
            assert "the map cannot be rebuilt" in lane.note
            await flow.store.read_to_end()
            assert flow.lane().halted is not None
            await replicator.release(ids(lanes), 10)
        assert await values(flow) == [*range(10), 999]
