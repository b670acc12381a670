"""Each of mirrord's own requests against a real broker, in each version that it offers."""

import time
from contextlib import closing

from aiokafka import AIOKafkaProducer

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.connection import Connection
from mirrord.kafka.client.log_offsets import LogOffsets, log_offsets, offsets_at
from mirrord.kafka.protocol import list_offsets, metadata, produce, producer_ids
from mirrord.kafka.protocol.api_versions import DESCRIBE_PRODUCERS, FETCH, LIST_OFFSETS, METADATA, PRODUCE
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.fetch_session import FetchSession
from mirrord.kafka.protocol.primitives import ZERO_UUID
from mirrord.kafka.protocol.record_batch import TRANSACTIONAL, scan
from mirrord.model.names import TopicId, TopicPartition
from tests.fixtures.lab import LabPair
from tests.fixtures.wire import (
    SECONDS,
    epoch_ends,
    fetch_once,
    linked,
    new_producer,
    own_batch,
    produce_one,
    security_of,
    topic_in,
    topic_key,
)


async def write_batches(
    connection: Connection, topic: metadata.TopicMetadata, partition: int, *counts: int
) -> list[bytes]:
    """Batches of this many records each, produced under a new producer id."""
    identity = await new_producer(connection)
    written: list[bytes] = []
    sequence = 0
    for count in counts:
        batch = own_batch(count, identity.producer_id, identity.producer_epoch, sequence)
        answer = await produce_one(connection, topic, partition, batch)
        assert answer.error == 0, answer
        written.append(batch)
        sequence += count
    return written


async def test_metadata_of_every_version(lab_pair: LabPair) -> None:
    async with linked(lab_pair.source) as connection:
        topic = await topic_in(lab_pair.source, connection, partitions=3)
        for version in range(METADATA.least, METADATA.greatest + 1):

            async def ask(body: bytes, version: int = version) -> metadata.Metadata:
                return metadata.decode(version, await connection.call(METADATA, body, version))

            response = await ask(metadata.encode(version, [str(topic.name), "no-such-topic"]))
            found = {entry.name: entry for entry in response.topics}
            assert found[topic.name] == topic
            assert found["no-such-topic"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert found["no-such-topic"].id == ZERO_UUID
            assert [broker.node for broker in response.brokers] == [1]
            assert response.cluster_id
            assert topic in (await ask(metadata.encode(version, None))).topics
            assert (await ask(metadata.encode(version, []))).topics == []
            if version >= metadata.TOPIC_BY_ID:
                assert (await ask(metadata.encode(version, [], [topic.id]))).topics == [topic]
        assert [part.partition for part in sorted(topic.partitions, key=lambda part: part.partition)] == [0, 1, 2]
        assert all(part.replicas == part.in_sync == (1,) and part.offline == () for part in topic.partitions)


async def test_produce_and_fetch_of_every_version(lab_pair: LabPair) -> None:
    async with linked(lab_pair.source) as connection:
        topic = await topic_in(lab_pair.source, connection)
        identity = await new_producer(connection)
        versions = range(PRODUCE.least, PRODUCE.greatest + 1)
        for sequence, version in enumerate(versions):
            batch = own_batch(1, identity.producer_id, identity.producer_epoch, sequence)
            answer = await produce_one(connection, topic, 0, batch, version)
            assert (answer.error, answer.base_offset, answer.log_append_ms) == (0, sequence, -1)
        for version in range(FETCH.least, FETCH.greatest + 1):
            key = (topic_key(connection, FETCH, topic, version), 0)
            response, frame = await fetch_once(connection, FetchSession(), {key: 0}, version)
            (found,) = response.partitions
            assert (found.topic, found.partition, found.error) == (*key, 0)
            assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (
                *(len(versions),) * 2,
                0,
            )
            batches, end = scan(frame.buffer, found.records_start, found.records_end)
            assert [base for _, _, base, *_ in batches] == list(range(len(versions)))
            assert end == found.records_end


async def test_produce_reports_the_error(lab_pair: LabPair) -> None:
    async with linked(lab_pair.source) as connection:
        topic = await topic_in(lab_pair.source, connection)
        compacted = await topic_in(lab_pair.source, connection, configs={"cleanup.policy": "compact"})
        identity = await new_producer(connection)

        async def outcome(batch: bytes, where: metadata.TopicMetadata = topic) -> produce.ProducedPartition:
            return await produce_one(connection, where, 0, batch)

        def batch(sequence: int) -> bytes:
            return own_batch(2, identity.producer_id, identity.producer_epoch, sequence)

        assert (await outcome(batch(0))).error == 0
        repeated = await outcome(batch(0))
        assert (repeated.error, repeated.base_offset) == (0, 0)
        assert (await outcome(batch(4))).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        damaged = bytearray(batch(2))
        damaged[-1] ^= 1
        assert (await outcome(bytes(damaged))).error == ErrorCode.CORRUPT_MESSAGE
        keyless = await outcome(batch(0), compacted)
        assert keyless.error == ErrorCode.INVALID_RECORD
        assert "record 0: " in keyless.message
        missing = metadata.TopicMetadata(0, "no-such-topic", "AQIDBAUGBwgJCgsMDQ4PEA", False, [])
        assert (await outcome(batch(0), missing)).error in {
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }


async def test_several_partitions_and_topics_in_one_request(lab_pair: LabPair) -> None:
    async with linked(lab_pair.source) as connection:
        first, second = [await topic_in(lab_pair.source, connection, partitions=2) for _ in range(2)]
        identity = await new_producer(connection)
        version = connection.version(PRODUCE)
        batch = own_batch(3, identity.producer_id, identity.producer_epoch, 0)
        keys = [(topic_key(connection, PRODUCE, topic), partition) for topic in (first, second) for partition in (0, 1)]
        parts, size = produce.encode(version, 10_000, [(*key, batch) for key in keys])
        reader = await connection.call(PRODUCE, b"".join(parts), version)
        assert size == sum(map(len, parts))
        answers = produce.decode(version, reader).partitions
        assert sorted((answer.topic, answer.partition) for answer in answers) == sorted(keys)
        assert {(answer.error, answer.base_offset) for answer in answers} == {(0, 0)}


async def test_a_fetch_session_reports_only_differences(lab_pair: LabPair) -> None:
    async with linked(lab_pair.source) as connection:
        topic = await topic_in(lab_pair.source, connection, partitions=3)
        await write_batches(connection, topic, 0, 5)
        await write_batches(connection, topic, 1, 7)
        key = topic_key(connection, FETCH, topic)
        session = FetchSession()

        async def ask(**wanted: int) -> dict[int, tuple[int, int]]:
            """Partition to (first offset, records) of the answer."""
            response, frame = await fetch_once(
                connection, session, {(key, int(name[1:])): offset for name, offset in wanted.items()}
            )
            assert session.answered(response)
            assert session.open
            came: dict[int, tuple[int, int]] = {}
            for found in response.partitions:
                assert found.error == 0
                batches, _ = scan(frame.buffer, found.records_start, found.records_end)
                if batches:
                    came[found.partition] = (batches[0][2], sum(count for _, _, _, _, count, _, _ in batches))
            return came

        assert await ask(p0=0, p1=0, p2=0) == {0: (0, 5), 1: (0, 7)}
        assert await ask(p0=5, p1=0, p2=0) == {1: (0, 7)}, "a position that does not move on is delivered again"
        assert await ask(p0=5, p2=0) == {}, "what is forgotten is not"
        await write_batches(connection, topic, 2, 1)
        assert await ask(p0=5, p2=0) == {2: (0, 1)}, "and what is new comes without being asked for again"
        assert await ask(p0=5, p1=7, p2=1) == {}


async def test_a_lost_fetch_session_is_opened_again(lab_pair: LabPair) -> None:
    async with linked(lab_pair.source) as connection:
        topic = await topic_in(lab_pair.source, connection)
        await write_batches(connection, topic, 0, 5)
        key = (topic_key(connection, FETCH, topic), 0)
        for field, strange, error in (
            ("_id", 4711, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            ("_epoch", 17, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ):
            session = FetchSession()
            response, _ = await fetch_once(connection, session, {key: 0})
            assert session.answered(response)
            setattr(session, field, strange)
            response, _ = await fetch_once(connection, session, {key: 0})
            assert response.error == error
            assert not session.answered(response)
            response, _ = await fetch_once(connection, session, {key: 0})
            assert session.answered(response)
            assert session.open
            assert [found.error for found in response.partitions] == [0]


async def test_fetch_reports_aborted_transactions(lab_pair: LabPair) -> None:
    async with linked(lab_pair.source) as connection:
        topic = await topic_in(lab_pair.source, connection)
        name = str(topic.name)
        producer = AIOKafkaProducer(bootstrap_servers=lab_pair.source.bootstrap, transactional_id=name)
        await producer.start()
        for commit in (True, False):
            await producer.begin_transaction()
            await producer.send_and_wait(name, b"value")
            await (producer.commit_transaction() if commit else producer.abort_transaction())
        await producer.stop()
        deadline = time.monotonic() + SECONDS
        while True:
            wanted = {(topic_key(connection, FETCH, topic), 0): 0}
            response, frame = await fetch_once(connection, FetchSession(), wanted)
            (found,) = response.partitions
            if found.last_stable_offset == 4:
                break
            assert time.monotonic() < deadline, "the second transaction does not end"
        batches, _ = scan(frame.buffer, found.records_start, found.records_end)
        # Two records at 0 and 2, their markers at 1 and 3.
        assert [base for _, _, base, *_ in batches] == [0, 1, 2, 3]
        assert all(attributes & TRANSACTIONAL for _, _, _, _, _, attributes, _ in batches)
        assert [first for _, first in found.aborted] == [2]


async def test_where_a_log_begins_and_ends(lab_pair: LabPair) -> None:
    async with linked(lab_pair.source) as connection:
        topic = await topic_in(lab_pair.source, connection)
        name = str(topic.name)
        before = int(time.time() * 1000)
        await write_batches(connection, topic, 0, 5, 2)
        for version in range(LIST_OFFSETS.least, LIST_OFFSETS.greatest + 1):
            for when, offset in (
                (list_offsets.EARLIEST, 0),
                (list_offsets.LATEST, 7),
                (before, 0),
                (before + 10**9, -1),
            ):
                body = list_offsets.encode_list_offsets(
                    [list_offsets.OffsetQuestion(name, 0, when)], read_committed=True
                )
                (listed,) = list_offsets.decode_list_offsets(await connection.call(LIST_OFFSETS, body, version))
                assert (listed.error, listed.offset) == (0, offset)
        epoch = topic.partitions[0].leader_epoch
        (end,) = await epoch_ends(connection, list_offsets.EpochQuestion(name, 0, epoch, epoch))
        assert end == list_offsets.EpochEnd(name, 0, 0, epoch, 7)
        (end,) = await epoch_ends(connection, list_offsets.EpochQuestion(name, 0, epoch + 1, epoch))
        assert end.error == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_what_a_partition_remembers_of_a_producer(lab_pair: LabPair) -> None:
    async with linked(lab_pair.source) as connection:
        topic = await topic_in(lab_pair.source, connection, partitions=2)
        name = str(topic.name)
        identity = await new_producer(connection)
        batch = own_batch(3, identity.producer_id, identity.producer_epoch, 2**31 - 2)
        assert (await produce_one(connection, topic, 1, batch)).error == 0
        body = producer_ids.encode_describe_producers({name: [0, 1], "no-such-topic": [0]})
        version = connection.version(DESCRIBE_PRODUCERS)
        described = producer_ids.decode_describe_producers(await connection.call(DESCRIBE_PRODUCERS, body, version))
        found = {(answer.topic, answer.partition): answer for answer in described}
        assert found[name, 0].producers == []
        (producer,) = found[name, 1].producers
        assert (producer.producer_id, producer.producer_epoch) == (identity.producer_id, identity.producer_epoch)
        assert producer.last_sequence == 0, "after 2^31-1 comes 0"
        assert producer.transaction_start_offset == -1
        assert found["no-such-topic", 0].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_where_many_logs_end(lab_pair: LabPair) -> None:
    """The high watermark counts an open transaction, the last stable offset does not."""
    cluster = ClusterConfig((lab_pair.source.bootstrap,), security_of(lab_pair.source))
    async with linked(lab_pair.source) as connection:
        topic = await topic_in(lab_pair.source, connection, partitions=2)
        name = str(topic.name)
        await write_batches(connection, topic, 0, 5, 2)
    first, second, missing = (TopicPartition(name, partition) for partition in (0, 1, 2))
    producer = AIOKafkaProducer(bootstrap_servers=lab_pair.source.bootstrap, transactional_id=name)
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(name, b"value", partition=1)
    asked = [first, second, missing, TopicPartition("no-such-topic", 0)]
    assert await log_offsets(cluster, asked, "end") == {first: 7, second: 1}
    assert await log_offsets(cluster, asked, "start") == {first: 0, second: 0}
    found = await offsets_at(cluster, asked, 1)
    assert found.keys() == {first, second}
    assert all(each is not None and each[0] == 0 and each[1] > 1 for each in found.values())
    assert await offsets_at(cluster, [first], int(time.time() * 1000) + 10**9) == {first: None}
    with closing(LogOffsets(cluster)) as client:
        known, former = PartitionId(name, TopicId(topic.id), 0), PartitionId(name, TopicId(ZERO_UUID), 1)
        assert await client.high_watermarks([known, former]) == {known: 7}
        assert await client.high_watermarks([known]) == {known: 7}, "over connections that are open"
    await producer.abort_transaction()
    await producer.stop()
