"""The data source against real brokers: what it reads is what the clusters hold, in whatever pieces it is read."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from mirrord.kafka.protocol.record_batch import CONTROL
from mirrord.kafka.records.record_decoding import decode
from mirrord.lab.cluster import Cluster
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import SECONDS, Written, copy_of, ends, mirror, send, write, write_batches

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def read(spark: Any, cluster: Cluster, **options: str) -> list[Mapping[str, Any]]:
    reader = spark.read.format("kafka_batches").option("bootstrap", cluster.bootstrap)
    return [row.asDict(recursive=True) for row in reader.options(**options).load().collect()]


def in_order(rows: list[Mapping[str, Any]], by: str) -> list[Mapping[str, Any]]:
    return sorted(rows, key=lambda row: (row["partition"], row[by]))


def aborted(cluster: Cluster, topic: str) -> None:
    """A transaction of one record that is aborted: two offsets."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    send(producer, topic, Written(b"k", b"never"))
    producer.flush(SECONDS)
    before = ends(cluster, topic)[0]
    producer.abort_transaction(SECONDS)
    # The marker is written a little later.
    deadline = time.monotonic() + SECONDS
    while ends(cluster, topic)[0] < before + 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def test_a_topic_and_its_copy(spark: Any, lab_pair: LabPair) -> None:
    async with mirror(lab_pair.source, lab_pair.target) as flow:
        topic = flow.topic(partitions=2)
        for number, codec in enumerate(CODECS):
            records = [
                Written(b"key-%d" % at, b"value-%d-%d" % (number, at) * 20, ((f"h{at}", b"x"),), at % 2)
                for at in range(400)
            ]
            await asyncio.to_thread(write, flow.source, topic, records, compression_type=codec, batch_num_messages=50)
        await asyncio.to_thread(aborted, flow.source, topic)
        await asyncio.to_thread(write, flow.source, topic, [Written(None, None, partition=0)])
        await flow.caught_up(await flow.copying())
        originals = [await flow.batches(topic, partition) for partition in (0, 1)]

        whole = await asyncio.to_thread(read, spark, flow.source, topics=topic)
        copies = await asyncio.to_thread(read, spark, flow.target, topics=copy_of(topic))
        pieces = await asyncio.to_thread(read, spark, flow.source, topics=topic, split="64KiB")
        everything = await asyncio.to_thread(read, spark, flow.source, topics=topic, isolation="read_uncommitted")
        records = await asyncio.to_thread(read, spark, flow.source, topics=topic, records="true", split="64KiB")

    # The same record bytes have the same checksum, whatever their header.
    alike = ("partition", "record_count", "codec", "base_timestamp_ms", "records_crc")
    assert [[row[name] for name in alike] for row in in_order(whole, "base_offset")] == [
        [row[name] for name in alike] for row in in_order(copies, "base_offset")
    ]
    assert {row["codec"] for row in whole} == set(CODECS)
    assert in_order(pieces, "base_offset") == in_order(whole, "base_offset")

    # Header by header what the wire code of the copy sees.
    stored = [(partition, batch) for partition, (source, _) in enumerate(originals) for batch in source]
    assert [(row["partition"], row["base_offset"], row["crc"], row["records_crc"], row["size_bytes"]) for row in
            in_order(everything, "base_offset")] == [
        (partition, batch.header.base_offset, batch.header.crc & 0xFFFFFFFF, batch.records_crc, batch.end - batch.start)
        for partition, batch in stored
    ]  # fmt: skip
    assert sum(row["is_control"] for row in everything) == 1
    assert len(everything) == len(whole) + 2

    # Record by record, without the aborted one.
    wanted = [
        (partition, record.offset, record.time_ms, record.key, record.value, list(record.headers))
        for partition, batch in stored
        if not batch.header.attributes & CONTROL
        for record in decode(batch.buffer, batch.start, batch.end)
        if record.value != b"never"
    ]
    assert [
        (row["partition"], row["offset"], row["timestamp_ms"], row["key"], row["value"],
         [(header["key"], header["value"]) for header in row["headers"]])
        for row in in_order(records, "offset")
    ] == wanted  # fmt: skip


async def test_closed_ranges_and_what_cannot_be_read(spark: Any, lab_pair: LabPair) -> None:
    cluster = lab_pair.source
    async with mirror(lab_pair.source, lab_pair.target) as flow:
        topic = flow.topic()
        for first in range(0, 40, 10):
            await write_batches(cluster, topic, [Written(b"k", b"%d" % n) for n in range(first, first + 10)])

        def some(start: int, end: int, **options: str) -> list[Mapping[str, Any]]:
            return read(spark, cluster, ranges=json.dumps({topic: {"0": [start, end]}}), **options)

        def refused(**options: str) -> str:
            with pytest.raises(Exception, match=r"mirrord\.(model\.errors|kafka\.client\.bulk_log_reader)") as caught:
                read(spark, cluster, **options)
            return str(caught.value)

        # Batches that overlap the range are included; of records only those in the range.
        assert [row["base_offset"] for row in await asyncio.to_thread(some, 15, 30)] == [10, 20]
        assert [row["offset"] for row in await asyncio.to_thread(some, 15, 30, records="true")] == [*range(15, 30)]
        assert await asyncio.to_thread(some, 7, 7) == []

        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        gone = admin.delete_records([TopicPartition(topic, 0, 20)])
        await asyncio.to_thread(lambda: [future.result(SECONDS) for future in gone.values()])
        line = await asyncio.to_thread(refused, ranges=json.dumps({topic: {"0": [15, 30]}}))
        assert f"{topic}-0: the offsets 15 to 19 no longer exist; the log begins at 20" in line
        line = await asyncio.to_thread(refused, ranges=json.dumps({topic: {"0": [20, 50]}}))
        assert f"{topic}-0: the range ends at 50, but the log ends at 40" in line
        line = await asyncio.to_thread(refused, ranges=json.dumps({topic: {"4": [20, 50]}}))
        assert f"{topic}-4 does not exist: {topic} has the partitions 0 to 0" in line
        line = await asyncio.to_thread(refused, topics=topic[:-1])
        assert f'has no topic "{topic[:-1]}"; did you mean "{topic}"?' in line
        line = await asyncio.to_thread(refused, topics=topic, isolation="committed")
        assert 'isolation: found "committed"; allowed: "read_committed" or "read_uncommitted"' in line
