"""Unclean elections on real brokers: acknowledged records are lost, and their offsets are used again."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing

import pytest

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.range_reader import LogDiverged, Stretches
from mirrord.kafka.records.record_decoding import decode
from mirrord.lab.cluster import Cluster
from mirrord.lab.server_properties import LabOptions
from mirrord.ledger.errors import LedgerWentBack
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import SourceRun, Verdict
from mirrord.ledger.facts.seeks import LaneSought
from mirrord.ledger.offset_map import CopiedPosition, LaneMap
from mirrord.ledger.store.job_lease import append_under_current_lease
from mirrord.model.names import TopicId
from mirrord.model.runs import Run
from mirrord.replication.lane.limits import NEVER
from tests.fixtures.lab import LabPair
from tests.fixtures.lab_partition import LabPartition, LabTarget, lab_batch
from tests.fixtures.ledger import plain
from tests.fixtures.ledger_contract import LANE
from tests.fixtures.ledger_readers import Readers
from tests.fixtures.mirror import (
    SECONDS,
    Mirror,
    Written,
    copy_of,
    create_topic,
    mirror,
    until,
    until_ends,
    viewing,
    write,
)
from tests.sim.contract import Batch


@pytest.fixture(scope="module")
def lab_unclean() -> Generator[Cluster]:
    with Cluster(LabOptions(brokers=2, heap_mb=256)) as cluster:
        yield cluster


@pytest.fixture
async def two(lab_unclean: Cluster) -> AsyncGenerator[LabTarget]:
    async with aclosing(LabTarget(lab_unclean)) as found:
        yield found
    lab_unclean.mend()


@pytest.fixture
async def readers(two: LabTarget, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Readers]:
    found = Readers(two, monkeypatch)
    yield found
    await found.close()


def numbered(word: str, count: int) -> list[Written]:
    return [Written(b"%d" % number, f"{word} {number}".encode()) for number in range(count)]


async def source_of(two: LabTarget, flow: Mirror) -> LabPartition:
    """A source topic with two replicas, and its target topic."""
    partition = await two.topic()
    create_topic(flow.target, copy_of(partition.name))
    flow.topics.append(partition.name)
    return partition


async def values(flow: Mirror, topic: str) -> list[bytes]:
    """The values in the target topic, in order."""
    _, copies = await flow.batches(topic)
    return [
        record.value or b""
        for batch in copies
        for record in decode(batch.buffer, batch.start, batch.end)
    ]  # fmt: skip


async def test_the_source_loses_what_was_copied(lab_pair: LabPair, two: LabTarget) -> None:
    """The range is named, the new records at the same offsets arrive, and positions lead to those."""
    async with mirror(two.cluster, lab_pair.target) as flow:
        partition = await source_of(two, flow)
        write(flow.source, partition.name, numbered("kept", 20))
        replicator = await flow.copying()
        await flow.caught_up(replicator)

        async def lost() -> None:
            await asyncio.to_thread(write, flow.source, partition.name, numbered("lost", 20))
            await until_ends(flow.target, copy_of(partition.name), {0: 40})

        await partition.elect_unclean(lost)
        # More than before: the old position is within the new records.
        await asyncio.to_thread(write, flow.source, partition.name, numbered("new", 30))
        await until_ends(flow.target, copy_of(partition.name), {0: 70})
        await flow.caught_up(replicator)
        await flow.store.read_to_end()
        lane = flow.lane()
        assert list(lane.verdicts.recent) == [Verdict(20, 40, "truncated")]
        assert list(lane.source_runs) == [Run(0, 0), Run(40, 20)]
        wanted = [*numbered("kept", 20), *numbered("lost", 20), *numbered("new", 30)]
        assert await values(flow, partition.name) == [each.value for each in wanted]
        translation = LaneMap(lane, CopiedPosition(70, 70, 50)).to_target(25)
        assert (translation.kind, translation.offset) == ("exact", 45)
        epochs = [header.leader_epoch for header, _ in await partition.batches()]
        before, after = epochs[0], epochs[-1]
        (assigned,) = await flow.lanes()
        async with viewing(flow.source) as view:
            where = PartitionId(partition.name, assigned.key.source_topic_id, 0)
            view.watch(where.topic, where.topic_id)
            await until(lambda: view.leader(where) is not None)
            source = Stretches(view, SECONDS)
            leader = view.leader(where)
            assert leader is not None
            assert await source.parting(where, 40, before) == (before, 20, leader.epoch)
            assert await source.parting(where, 20, before) == (-1, -1, leader.epoch)
            assert await source.parting(where, 50, after) == (-1, -1, leader.epoch)
            # This is how the epochs of records that a seek skips are found (`EpochSearch`).
            assert await source.parting(where, NEVER, after) == (after, 50, leader.epoch)
            assert await source.parting(where, NEVER, after - 1) == (before, 20, leader.epoch)


async def test_the_source_loses_what_was_copied_before_a_leap(lab_pair: LabPair, two: LabTarget) -> None:
    """No fetch after the jump shows it, because no epoch is known there: the lane asks."""
    async with mirror(two.cluster, lab_pair.target) as flow:
        partition = await source_of(two, flow)
        write(flow.source, partition.name, numbered("kept", 20))
        replicator = await flow.copying()
        await flow.caught_up(replicator)
        ids = [each.lane for each in await flow.lanes()]
        left = await flow.lanes("left")

        async def lost() -> None:
            await asyncio.to_thread(write, flow.source, partition.name, numbered("lost", 20))
            await until_ends(flow.target, copy_of(partition.name), {0: 40})
            await replicator.release(ids, SECONDS)
            await asyncio.to_thread(write, flow.source, partition.name, numbered("left out", 10))
            await flow.store.read_to_end()
            (lane,) = ids
            assert await append_under_current_lease(
                flow.store, LaneSought(lane, 40, 50, 0, Origin("ada@host", "broken records", 0))
            )
            await replicator.assign(left)
            async with asyncio.timeout(SECONDS):
                while not all(each.done for each in flow.lane().seeks):
                    await asyncio.sleep(0.05)
                    await flow.store.read_to_end()
            await replicator.release(ids, SECONDS)

        await partition.elect_unclean(lost)
        # More than before: the position after the jump is within the new records.
        await asyncio.to_thread(write, flow.source, partition.name, numbered("new", 40))
        await replicator.assign(left)
        await until_ends(flow.target, copy_of(partition.name), {0: 80})
        await flow.caught_up(replicator)
        await flow.store.read_to_end()
        lane = flow.lane()
        # Offsets 20 to 39 were copied, and 40 to 49 skipped.
        assert [each for each in lane.verdicts.recent if each.reason == "truncated"] == [Verdict(20, 50, "truncated")]
        wanted = [*numbered("kept", 20), *numbered("lost", 20), *numbered("new", 40)]
        assert await values(flow, partition.name) == [each.value for each in wanted]


async def test_the_target_loses_what_it_had_acknowledged(lab_pair: LabPair, two: LabTarget) -> None:
    """It is copied again, in order, and what comes after it follows."""
    # The ledger is on the brokers that go away, and no other daemon wants the lease meanwhile.
    async with mirror(lab_pair.source, two.cluster, lease_ttl_ms=300_000) as flow:
        topic = f"t-{uuid.uuid4().hex[:8]}"
        create_topic(flow.source, topic)
        partition = await two.topic(name=copy_of(topic))
        flow.topics.append(topic)
        write(flow.source, topic, numbered("kept", 20))
        replicator = await flow.copying()
        await flow.caught_up(replicator)

        async def lost() -> None:
            await asyncio.to_thread(write, flow.source, topic, numbered("lost", 20))
            await until_ends(flow.target, partition.name, {0: 40})

        await partition.elect_unclean(lost)
        await asyncio.to_thread(write, flow.source, topic, numbered("new", 30))
        await flow.caught_up(replicator)
        wanted = [*numbered("kept", 20), *numbered("lost", 20), *numbered("new", 30)]
        assert await values(flow, topic) == [each.value for each in wanted]
        epochs = {header.leader_epoch: header.base_offset for header, _ in reversed(await partition.batches())}
        assert sorted(epochs.values())[:2] == [0, 20], "the election took nothing away"
        await flow.store.read_to_end()
        assert not flow.lane().verdicts.counts


async def test_a_ledger_that_lost_its_end_and_grew_again_is_folded_by_nobody(readers: Readers) -> None:
    partition, store, keeper = await readers.start()
    kept = store.state.next_offset

    async def lost() -> None:
        for ordinal in (10, 20):
            assert await store.append(1, [SourceRun(LANE, 0, (Run(ordinal, 2 * ordinal),))]) == (True,)
        await readers.all_read(kept + 2)
        readers.gate.clear()

    await partition.elect_unclean(lost)
    await readers.append_raw(30, 31, 32)
    readers.gate.set()
    for reader in readers.stores:
        await until(lambda reader=reader: isinstance(reader.failure, LedgerWentBack))
    await until(lambda: not keeper.is_valid)
    assert keeper.lost.is_set()

    async def is_refused() -> bool:
        try:
            await readers.open()
        except LedgerWentBack as error:
            return "`mirrord rebuild`" in str(error)
        return False

    # The finder of the loss saves what proves it, which takes a moment.
    deadline = time.monotonic() + SECONDS
    while not await is_refused():
        assert time.monotonic() < deadline
    await keeper.close()


async def test_another_leader_without_a_loss_is_not_noticed(readers: Readers) -> None:
    partition, store, keeper = await readers.start()
    before = keeper.valid_until
    await partition.elect()
    assert await store.append(1, [SourceRun(LANE, 0, (Run(10, 20),))]) == (True,)
    await keeper._renew()
    assert keeper.valid_until > before
    await readers.all_read(store.state.next_offset)
    for reader in (*readers.stores, await readers.open()):
        await reader.read_to_end()
        assert reader.failure is None
        assert plain(reader.state) == plain(store.state)
    await keeper.close()


async def test_a_read_does_not_mix_what_two_leaders_hold(two: LabTarget) -> None:
    """The new leader has lost batch 1, which was read, and has other batches at its offset and above. A read that
    continues after a leader change without a loss succeeds."""
    partition = await two.topic()

    async def append(count: int) -> None:
        for _ in range(count):
            answer = await (await partition.begin(lab_batch(Batch(-1, -1, 1, -1), int(time.time() * 1000))))
            assert answer.error == 0

    await append(1)
    async with viewing(two.cluster) as view:
        where = PartitionId(partition.name, TopicId(partition.topic.id), 0)
        view.watch(where.topic, where.topic_id)
        await until(lambda: view.leader(where) is not None)
        lost, kept = (Stretches(view, SECONDS).read(where, start, 3) for start in range(2))
        assert (await anext(lost)).header.base_offset == 0
        epoch = await partition.leader_epoch()

        async def begin() -> None:
            await append(1)
            assert (await anext(lost)).header.base_offset == 1

        await partition.elect_unclean(begin)
        await append(1)
        view.refresh()
        await until(lambda: (leader := view.leader(where)) is not None and leader.epoch > epoch)
        with pytest.raises(LogDiverged):
            await anext(lost)
        assert (await anext(kept)).header.base_offset == 1
        epoch = await partition.leader_epoch()
        await partition.elect()
        await append(1)
        view.refresh()
        await until(lambda: (leader := view.leader(where)) is not None and leader.epoch > epoch)
        assert [each.header.base_offset async for each in kept] == [2]
