"""A target that cannot accept records for a while: nothing is lost or duplicated, other lanes continue, lanes say
why."""

import asyncio
import random
import resource
from struct import Struct

from confluent_kafka.admin import AdminClient, NewTopic

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.range_reader import Stretches
from mirrord.kafka.client.topic_admin import KafkaTopicAdmin
from mirrord.kafka.protocol.api_versions import Api
from mirrord.kafka.protocol.primitives import NO_TAGS, NULL, compact_array, compact_string
from mirrord.lab.cluster import Cluster
from mirrord.replication.host.replicator import Replicator
from tests.fixtures.lab import LabPair, client_settings
from tests.fixtures.lab_partition import LabTarget
from tests.fixtures.mirror import (
    SECONDS,
    Mirror,
    Written,
    config_of,
    copy_of,
    create_topic,
    mirror,
    until,
    until_ends,
    viewing,
    write,
)

MB = 1 << 20
FILE_LIMIT = 11 * MB
"""Just above the 10 MB that a broker gives the index files of a new segment."""
QUOTA_BYTES = 200_000.0
READING = "consumer_byte_rate"
ALTER_CLIENT_QUOTAS = Api(49, "AlterClientQuotas", 1, 1)
_FLOAT64 = Struct(">d")
_TRUE, _FALSE = b"\x01", b"\x00"


async def placed(flow: Mirror, replicas: list[int], **configs: str) -> str:
    """A source topic, and its target topic on these brokers, led by the first."""
    topic = create_topic(flow.source, f"placed-{len(flow.topics)}-{flow.setup.flow.name}")
    dotted = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
    copy = NewTopic(copy_of(topic), 1, replica_assignment=[replicas], config=dotted)
    admin = AdminClient(client_settings(flow.target))
    for future in admin.create_topics([copy]).values():
        await asyncio.to_thread(future.result, SECONDS)
    flow.topics.append(topic)
    return topic


def hundred(word: str) -> list[Written]:
    return [Written(b"%d" % number, word.encode()) for number in range(100)]


def blobs(chance: random.Random, megabytes: int) -> list[Written]:
    """Records that no codec makes smaller."""
    return [Written(b"%d" % number, chance.randbytes(100_000)) for number in range(10 * megabytes)]


def in_sync(cluster: Cluster, topic: str) -> list[int]:
    admin = AdminClient(client_settings(cluster))
    return list(admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions[0].isrs)


def notes(replicator: Replicator) -> dict[str, str]:
    return {lane.source_topic: lane.note for lane in replicator.report().lanes}


async def test_a_full_disk_and_too_few_replicas_in_sync(lab_pair: LabPair, lab_three: Cluster, seed: int) -> None:
    """The disk of a broker is full: simulated by a limit on the size of its files, so that an append fails amid a batch
    (EFBIG), Kafka gives up its only log dir, and ends. Other topics then lack its replica. The operator makes room and
    starts it again."""
    async with mirror(lab_pair.source, lab_three, request_timeout_ms=2_000, lease_ttl_ms=60_000) as flow:
        full = await placed(flow, [2])
        short, later = [await placed(flow, [1, 2], min_insync_replicas="2") for _ in range(2)]
        other = await placed(flow, [3])
        replicator = await flow.copying()
        for topic in flow.topics:
            await asyncio.to_thread(write, flow.source, topic, hundred("before"))
        await flow.caught_up(replicator)
        resource.prlimit(lab_three.pid(2), resource.RLIMIT_FSIZE, (FILE_LIMIT, resource.RLIM_INFINITY))
        chance = random.Random(seed)
        await asyncio.to_thread(write, flow.source, full, blobs(chance, 14))
        await until(lambda: len(lab_three.pids) == 3)  # the controller and two brokers
        for topic in (short, other):
            await asyncio.to_thread(write, flow.source, topic, hundred("meanwhile"))
        await until_ends(flow.target, copy_of(other), {0: 200})
        # Batches from before the replica counted as lost are on the leader alone; later ones are refused. On a slow
        # machine the former may be all of them.
        alone, refused = "fewer replicas than required", "is retried: NOT_ENOUGH_REPLICAS"
        await until(lambda: any(line in notes(replicator)[short] for line in (alone, refused)))
        await until(lambda: in_sync(lab_three, copy_of(later)) == [1])
        await asyncio.to_thread(write, flow.source, later, hundred("later"))
        await until(lambda: refused in notes(replicator)[later])
        await until(lambda: "the target currently accepts nothing; the batch is retried: " in notes(replicator)[full])
        await until(lambda: notes(replicator)[other] == "")
        await asyncio.to_thread(lab_three.restart, 2)
        await flow.caught_up(replicator, seconds=2 * SECONDS)
        await flow.assert_same(records=4 * 100 + 140 + 3 * 100)
        await until(lambda: set(notes(replicator).values()) == {""})


async def set_quota(cluster: Cluster, bytes_per_s: float | None, name: str = "producer_byte_rate") -> None:
    """How many bytes a second each client without a quota of its own may write to, or read from, each broker
    (KIP-13)."""
    entity = compact_array([compact_string("client-id") + NULL + NO_TAGS])
    removed = _FLOAT64.pack(bytes_per_s or 0.0) + (_TRUE if bytes_per_s is None else _FALSE)
    change = compact_array([compact_string(name) + removed + NO_TAGS])
    body = compact_array([entity + change + NO_TAGS]) + _FALSE + NO_TAGS
    target = LabTarget(cluster)
    try:
        connection = await target.connection(cluster.options.broker_ids[0])
        reader = await connection.call(ALTER_CLIENT_QUOTAS, body, ALTER_CLIENT_QUOTAS.greatest)
        reader.int32()  # throttle time
        assert reader.compact_array(lambda entry: entry.int16()) == [0]
    finally:
        await target.aclose()


async def test_a_quota_of_the_target_and_of_the_source(lab_pair: LabPair, lab_three: Cluster, seed: int) -> None:
    """A broker answers and then reads nothing more for a while (KIP-219). Lanes to other brokers continue."""
    async with mirror(lab_pair.source, lab_three, request_timeout_ms=1_000, lease_ttl_ms=60_000) as flow:
        slow, other = await placed(flow, [1]), await placed(flow, [3])
        replicator = await flow.copying()
        await flow.caught_up(replicator)
        await set_quota(lab_three, QUOTA_BYTES)
        try:
            await asyncio.to_thread(write, flow.source, slow, blobs(random.Random(seed), 5))
            await until(lambda: "quota" in notes(replicator)[slow])
            await asyncio.to_thread(write, flow.source, other, hundred("meanwhile"))
            await until_ends(flow.target, copy_of(other), {0: 100})
            await until(lambda: notes(replicator)[other] == "")
        finally:
            await set_quota(lab_three, None)
        await flow.caught_up(replicator)
        await flow.assert_same(records=150)
        # It was throttled for longer than a request may take, and no connection was given up for that.
        (produces,) = [each for each in replicator.report().requests if each.api == "produce"]
        assert produces.throttled_s > 1
        assert produces.errors == {}
        await set_quota(lab_pair.source, QUOTA_BYTES, READING)
        try:
            await asyncio.to_thread(write, flow.source, slow, blobs(random.Random(seed), 4))
            await until(lambda: "returns nothing" in notes(replicator)[slow])
        finally:
            await set_quota(lab_pair.source, None, READING)
        await flow.caught_up(replicator)


async def test_a_read_of_a_long_range_survives_a_quota(lab_pair: LabPair, seed: int) -> None:
    """The broker throttles the reader for longer than the reader waits for a batch. A throttled response contains no
    partitions."""
    source = lab_pair.source
    topic = create_topic(source, "read-with-a-quota")
    written = blobs(random.Random(seed), 6)
    await asyncio.to_thread(write, source, topic, written)
    admin = KafkaTopicAdmin(config_of(source), SECONDS)
    where = PartitionId(topic, (await admin.describe([topic])).topics[topic].topic_id, 0)
    await admin.close()
    await set_quota(source, QUOTA_BYTES, READING)
    try:
        async with viewing(source) as view:
            view.watch(where.topic, where.topic_id)
            await until(lambda: view.leader(where) is not None)
            reading = Stretches(view, 0.2).read(where, 0, len(written))
            found = [batch.header.record_count async for batch in reading]
            assert sum(found) == len(written)
            assert view.fetches.status().throttled_s > 1
    finally:
        await set_quota(source, None, READING)
