"""Real brokers keep the contract that the simulator's fake keeps. Also: what else a lane meets at a target broker."""

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from dataclasses import replace

import pytest

from mirrord.kafka.protocol import fetch, produce
from mirrord.kafka.protocol.api_versions import PRODUCE, PRODUCE_BY_TOPIC_ID
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.primitives import INT32
from mirrord.kafka.protocol.record_batch import DELETE_HORIZON, LOG_APPEND_TIME, records_digest
from mirrord.lab.cluster import Cluster
from mirrord.lab.server_properties import LabOptions
from tests.fixtures.lab import LabPair
from tests.fixtures.lab_partition import LabPartition, LabTarget, lab_batch
from tests.fixtures.wire import produce_one, topic_key
from tests.sim.contract import (
    NOT_LEADER,
    OUT_OF_ORDER,
    Answered,
    Batch,
    BrokerContract,
    ForgettingContract,
    LeadershipContract,
    Target,
    altered,
)
from tests.sim.epoch_contract import EpochContract


@pytest.fixture(scope="module")
def lab_two() -> Generator[Cluster]:
    # The controller must not miss a suspended broker before a test has looked at what happens.
    with Cluster(LabOptions(brokers=2, properties={"broker.session.timeout.ms": "9000"})) as cluster:
        yield cluster


@pytest.fixture
async def target(lab_pair: LabPair) -> AsyncGenerator[LabTarget]:
    async with aclosing(LabTarget(lab_pair.target)) as found:
        yield found


@pytest.fixture
async def ticking(lab_ticking: Cluster) -> AsyncGenerator[LabTarget]:
    async with aclosing(LabTarget(lab_ticking)) as found:
        yield found


@pytest.fixture
async def two(lab_two: Cluster) -> AsyncGenerator[LabTarget]:
    async with aclosing(LabTarget(lab_two)) as found:
        yield found


class TestBroker(BrokerContract):
    pass


class TestForgetting(ForgettingContract):
    pass


class TestEpochs(EpochContract):
    pass


class TestLeadership(LeadershipContract):
    async def test_an_unclean_election_removes_acknowledged_batches(self, two: Target) -> None:
        await super().test_an_unclean_election_removes_acknowledged_batches(two)
        assert isinstance(two, LabTarget)
        await truncation_is_reported(two.partitions[-1])


async def truncation_is_reported(partition: LabPartition) -> None:
    """As a reader sees it that was at offset 40 when everything after offset 20 was lost; the log now ends at 30."""
    former = (await partition.batches())[0][0].leader_epoch
    current = await partition.leader_epoch()
    assert (await partition.epoch_end(current, former)).end == 20
    # Before the new end, at it, and after it.
    for offset in (25, 30, 40):
        answer, _ = await partition.fetch(fetch.FetchPosition(offset, current, former))
        assert (answer.error, answer.diverging_epoch, answer.diverging_end) == (0, former, 20)
        assert answer.records_start == answer.records_end
    answer, _ = await partition.fetch(fetch.FetchPosition(20, current, former))
    assert (answer.error, answer.diverging_epoch, answer.records_end > answer.records_start) == (0, -1, True)
    # A reader that does not state the epoch it read last gets other records as if nothing had happened.
    answer, _ = await partition.fetch(fetch.FetchPosition(25))
    assert (answer.error, answer.diverging_epoch, answer.records_end > answer.records_start) == (0, -1, True)
    answer, _ = await partition.fetch(fetch.FetchPosition(40))
    assert answer.error == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_fetch_in_another_epoch_is_refused(two: LabTarget) -> None:
    partition = await two.topic()
    await partition.fill(Batch(await partition.producer(), 0), 2)
    epoch = await partition.leader_epoch()
    await partition.elect()
    current = await partition.leader_epoch()
    answer, _ = await partition.fetch(fetch.FetchPosition(0, epoch))
    assert answer.error == ErrorCode.FENCED_LEADER_EPOCH
    answer, _ = await partition.fetch(fetch.FetchPosition(0, current + 1))
    assert answer.error == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_follower_answers_a_fetch(two: LabTarget) -> None:
    """KIP-392: a reader of the end of a log must know that it reads from the leader."""
    partition = await two.topic()
    await partition.fill(Batch(await partition.producer(), 0), 2)
    answer, _ = await partition.fetch(fetch.FetchPosition(0, await partition.leader_epoch()), partition.follower)
    assert answer.error == 0
    assert answer.records_end > answer.records_start


async def test_a_follower_names_the_leader(two: LabTarget) -> None:
    partition = await two.topic()
    connection = await two.connection(partition.follower)
    batch = lab_batch(Batch(await partition.producer(), 0), partition.now_ms())
    answer = await produce_one(connection, partition.topic, 0, batch)
    assert (answer.error, answer.leader, answer.leader_epoch) == (
        NOT_LEADER,
        partition.leader,
        await partition.leader_epoch(),
    )


async def test_of_two_batches_in_one_request_one_is_lost(target: LabTarget) -> None:
    """This is why `produce.encode` refuses to encode such a request."""
    partition = await target.topic()
    first = Batch(await partition.producer(), 0)
    second = Batch(await partition.producer(), 0)
    connection = await target.connection(partition.leader)
    version = connection.version(PRODUCE)
    key = (topic_key(connection, PRODUCE, partition.topic), 0)
    with pytest.raises(ValueError, match="two batches"):
        produce.encode(version, 10_000, [(*key, partition.build(first)), (*key, partition.build(second))])
    parts, _ = produce.encode(version, 10_000, [(*key, partition.build(first)), (key[0], 1, partition.build(second))])
    # Between the two batches is the number of the second one's partition.
    body = b"".join([*parts[:2], bytes(parts[2]).replace(INT32.pack(1), INT32.pack(0)), *parts[3:]])
    (answer,) = produce.decode(version, await connection.call(PRODUCE, body, version)).partitions
    assert (answer.error, answer.base_offset) == (0, 0)
    (stored,) = await partition.read()
    assert stored.producer in {first.producer, second.producer}


async def test_an_old_topic_id_is_refused(target: LabTarget) -> None:
    """A request that names a topic by its id never reaches the successor; a request that names it by its name does."""
    partition = await target.topic()
    first = Batch(await partition.producer(), 0)
    former = partition.topic
    await partition.delete_topic()
    await partition.create_topic()
    assert partition.topic.id != former.id
    connection = await target.connection(partition.leader)
    answer = await produce_one(connection, former, 0, partition.build(first))
    assert answer.error == ErrorCode.UNKNOWN_TOPIC_ID
    answer = await produce_one(connection, former, 0, partition.build(first), PRODUCE_BY_TOPIC_ID - 1)
    assert (answer.error, answer.base_offset) == (0, 0)


async def test_a_record_without_key_is_refused_by_a_compacted_topic(target: LabTarget) -> None:
    partition = await target.topic({"cleanup.policy": "compact"})
    batch = Batch(await partition.producer(), 0)
    answer = await partition.append(lab_batch(batch, partition.now_ms(), key=None))
    assert answer == Answered(ErrorCode.INVALID_RECORD, -1)
    assert await partition.produce(batch) == Answered(0, 0)


async def test_a_batch_that_is_too_large_lets_the_next_one_in(target: LabTarget) -> None:
    partition = await target.topic({"max.message.bytes": "2000"})
    large = Batch(await partition.producer(), 0, count=1000)
    assert await partition.produce(large) == Answered(ErrorCode.MESSAGE_TOO_LARGE, -1)
    assert await partition.produce(large.next(count=1)) == Answered(0, 0)


async def test_attributes_that_a_broker_keeps_and_one_that_it_clears(target: LabTarget) -> None:
    partition = await target.topic()
    batch = Batch(await partition.producer(), 0)
    unknown = 0x0100
    for attributes, stored in ((DELETE_HORIZON, DELETE_HORIZON), (unknown, unknown), (LOG_APPEND_TIME, 0)):
        assert (await partition.append(altered(partition.build(batch), attributes=attributes))).error == 0
        header, _ = (await partition.batches())[-1]
        assert header.attributes == stored
        batch = batch.next()


async def test_a_broker_that_compresses_keeps_the_sequences_alone(target: LabTarget) -> None:
    kept, compressed = await target.topic(), await target.topic({"compression.type": "zstd"})
    batch = Batch(await kept.producer(), 5, count=50)
    sent = kept.build(batch)
    for partition in (kept, compressed):
        assert await partition.append(sent) == Answered(0, 0)
        (header, data) = (await partition.batches())[0]
        assert (header.producer_id, header.base_sequence, header.record_count) == (batch.producer, 5, 50)
        same = records_digest(data, 0) == records_digest(sent, 0)
        assert same == (partition is kept)
        assert (len(data) == len(sent)) == (partition is kept)
        assert await partition.produce(batch) == Answered(0, 0)
        assert await partition.produce(replace(batch, sequence=10)) == Answered(OUT_OF_ORDER, -1)
