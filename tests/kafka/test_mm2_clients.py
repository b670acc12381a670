"""MirrorMaker 2's own Java clients, and Kafka's formatters, read what mirrord writes for them."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from mirrord.config.flow_features import HeartbeatsConfig, Mm2RecordsConfig
from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.kafka.protocol.mm2_records import Checkpoint, Heartbeat, OffsetSync
from mirrord.lab.cluster import Cluster
from mirrord.ledger.state import FlowState
from mirrord.mm2.checkpoints import Checkpoints
from mirrord.mm2.cluster_clock import ClusterClock
from mirrord.mm2.heartbeats import Heartbeats
from mirrord.mm2.offset_syncs import OffsetSyncs
from mirrord.mm2.rules.heartbeat_latency import SentBeats
from mirrord.model.group_status import TranslatedPosition
from mirrord.model.status import LatencyStatus
from mirrord.runtime.clock import SystemClock
from tests.fixtures.daemon import Daemon, all_ends, fill, unique
from tests.fixtures.groups import commit
from tests.fixtures.java_clients import JavaClients, java_clients
from tests.fixtures.lab import LabFactory, LabPair, client_settings
from tests.fixtures.mirror import Written, config_of, create_topic, write
from tests.fixtures.wire import security_of

SECONDS = 60.0
LIMIT_S = 10.0
Record = tuple[bytes, bytes]
IDENTITY = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}


@pytest.fixture(scope="module")
def java() -> Generator[JavaClients]:
    with java_clients() as clients:
        yield clients


def records(cluster: Cluster, topic: str) -> list[Record]:
    """All records of partition 0."""
    consumer = Consumer({**client_settings(cluster), "group.id": "nobody", "enable.auto.commit": False})
    try:
        where = TopicPartition(topic, 0)
        first, end = consumer.get_watermark_offsets(where, timeout=SECONDS)
        consumer.assign([TopicPartition(topic, 0, first)])
        found: list[Record] = []
        while end and consumer.position([where])[0].offset < end:
            for message in consumer.consume(1_000, timeout=1.0):
                assert message.error() is None
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                assert isinstance(value, bytes), "a tombstone breaks the Java readers"
                found.append((key, value))
        return found
    finally:
        consumer.close()


def topics(cluster: Cluster) -> set[str]:
    return set(AdminClient(client_settings(cluster)).list_topics(timeout=SECONDS).topics)


class Mirror:
    """A daemon between clusters whose aliases no other test has, so that their topics belong to this test alone."""

    def __init__(self, folder: Path, pair: LabPair, flow_more: str, topic: str) -> None:
        self.source, self.target, self.flow = unique("eu"), unique("us"), unique("beats")
        path = folder / f"{self.flow}.toml"
        path.write_text(
            f"""
[clusters.{self.source}]
bootstrap = "{pair.source.bootstrap}"
[clusters.{self.target}]
bootstrap = "{pair.target.bootstrap}"
[[flows]]
name = "{self.flow}"
from = "{self.source}"
to = "{self.target}"
topics = ['{topic}']
refresh = "500ms"
{flow_more}
[runtime]
engine = "process"
lease_ttl = "3s"
[logs]
dir = "{folder / "logs"}"
"""
        )
        self.daemon = Daemon(path)


def latency(daemon: Daemon) -> LatencyStatus:
    return daemon.flow().latency or LatencyStatus()


def test_heartbeats_show_the_flow_and_its_latency(java: JavaClients, lab_cluster: LabFactory, tmp_path: Path) -> None:
    lab_pair = LabPair(lab_cluster(), lab_cluster())  # of this test alone: other flows would copy the heartbeats, too
    topic = create_topic(lab_pair.source, unique("orders"), 2)
    fill(lab_pair.source, topic, 2, 100)
    mirror = Mirror(tmp_path, lab_pair, 'heartbeats = { emit = "both", every = "100ms" }', topic)
    with mirror.daemon as daemon:
        daemon.until_copied(all_ends(lab_pair.source, topic))
        daemon.until(lambda: latency(daemon).latency_ms is not None and latency(daemon).clock_offset_ms is not None)
        measured = latency(daemon)
        assert measured.latency_error_ms == 0, "this daemon wrote the beats itself"
        assert measured.clock_offset_ms is not None
        assert measured.clock_error_ms is not None
        assert abs(measured.clock_offset_ms) <= measured.clock_error_ms, "both clusters run on this machine"
        copies = f"{mirror.source}.heartbeats"
        with java.mirror_client(lab_pair.target, {}) as client:
            assert client.replicationHops(mirror.source) == 1
            assert mirror.source in set(client.upstreamClusters())
            assert {"heartbeats", copies} <= set(client.heartbeatTopics())
            assert set(client.remoteTopics(mirror.source)) == {f"{mirror.source}.{topic}", copies}
        assert daemon.stop() == 0
    at_target = records(lab_pair.target, "heartbeats")
    ours = [each for each in at_target if Heartbeat.decode(*each).source == mirror.source]
    assert {(beat.source, beat.target) for beat in (Heartbeat.decode(*each) for each in ours)} == {
        (mirror.source, mirror.target)
    }
    carried = [each for each in records(lab_pair.target, copies) if Heartbeat.decode(*each).target == mirror.source]
    beat = Heartbeat.decode(*carried[-1])
    assert beat.source == mirror.target, "on the source beats name the opposite direction"
    assert java.formatted("HeartbeatFormatter", carried[-1:]) == [
        f"Heartbeat{{sourceClusterAlias={beat.source}, targetClusterAlias={beat.target}, "
        f"timestamp={beat.timestamp_ms}}}"
    ]


@pytest.mark.parametrize("where", ["target", "source"])
def test_offset_syncs_are_pairs_of_copied_records(
    java: JavaClients, lab_pair: LabPair, where: str, tmp_path: Path
) -> None:
    topic = create_topic(lab_pair.source, unique("orders"), 2)
    fill(lab_pair.source, topic, 2, 1_000)
    more = (
        'heartbeats = { emit = "off", replicate = false }\n'
        f'mm2_records = {{ offset_syncs = "{where}", separator = "_", offset_lag_max = 10 }}'
    )
    mirror = Mirror(tmp_path, lab_pair, more, topic)
    cluster, other = (lab_pair.source, mirror.target) if where == "source" else (lab_pair.target, mirror.source)
    name = f"mm2-offset-syncs_{other}_internal"

    def newest() -> dict[tuple[str, int], tuple[int, int]]:
        if name not in topics(cluster):
            return {}
        syncs = [OffsetSync.decode(*each) for each in records(cluster, name)]
        return {(sync.topic, sync.partition): (sync.upstream, sync.downstream) for sync in syncs}

    with mirror.daemon as daemon:
        daemon.until(lambda: newest() == {(topic, 0): (499, 499), (topic, 1): (499, 499)})
        fill(lab_pair.source, topic, 2, 3)
        daemon.until(lambda: newest() == {(topic, 0): (501, 501), (topic, 1): (500, 500)})
        assert daemon.stop() == 0
    found = records(cluster, name)
    lines = java.formatted("OffsetSyncFormatter", found)
    assert lines == [
        f"OffsetSync{{topicPartition={sync.topic}-{sync.partition}, upstreamOffset={sync.upstream}, "
        f"downstreamOffset={sync.downstream}}}"
        for sync in (OffsetSync.decode(*each) for each in found)
    ]


def test_groups_of_a_daemon_are_translated(java: JavaClients, lab_pair: LabPair, tmp_path: Path) -> None:
    topic, group = create_topic(lab_pair.source, unique("orders"), 2), unique("billing")
    fill(lab_pair.source, topic, 2, 1_000)
    commit(lab_pair.source, group, topic, {0: 137, 1: 500}, "kept")
    more = (
        'heartbeats = { emit = "off", replicate = false }\n'
        f'groups = {{ match = ["{group}"], refresh = "500ms" }}\n'
        'mm2_records = { offset_syncs = "off", checkpoints_every = "200ms" }'
    )
    mirror = Mirror(tmp_path, lab_pair, more, topic)
    copy = create_topic(lab_pair.target, f"{mirror.source}.{topic}", 2)
    # Foreign records: offsets on the target are different ones.
    write(lab_pair.target, copy, (Written(b"foreign", b"foreign") for _ in range(7)))

    def translated() -> dict[tuple[str, int], int]:
        checkpoints = f"{mirror.source}.checkpoints.internal"
        return (
            java.translate_offsets(lab_pair.target, mirror.source, group, {})
            if checkpoints in topics(lab_pair.target)
            else {}
        )

    with mirror.daemon as daemon:
        daemon.until(lambda: translated() == {(copy, 0): 144, (copy, 1): 500})
        commit(lab_pair.source, group, topic, {0: 100})
        daemon.until(lambda: translated() == {(copy, 0): 107, (copy, 1): 500})
        assert daemon.stop() == 0


@asynccontextmanager
async def writing(target: Cluster, source: str, separator: str = ".") -> AsyncGenerator[Checkpoints]:
    """The writer of checkpoints by itself."""
    more = Mm2RecordsConfig(checkpoints_every_ms=100, separator=separator, checkpoints_replication_factor=3)
    flow = FlowConfig(name="made-up", source=source, target="us", topics=(".*",), mm2_records=more)
    config = ClusterConfig(tuple(target.bootstrap.split(",")), security_of(target, "admin"))
    made = Checkpoints(flow, config, LIMIT_S)
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(condition: Callable[[], object]) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SECONDS
    while not await asyncio.to_thread(condition):  # the writer runs on this loop
        assert loop.time() < deadline, "it never came true"
        await asyncio.sleep(0.05)


def positions(group: str, topic: str, *pairs: tuple[int, int]) -> Iterable[TranslatedPosition]:
    return (TranslatedPosition(group, "-", topic, partition, *pair, "") for partition, pair in enumerate(pairs))


async def test_remote_cluster_utils_translate(java: JavaClients, lab_pair: LabPair) -> None:
    source, target = unique("eu"), lab_pair.target
    name, topic = f"{source}.checkpoints.internal", f"{source}.orders"

    async def translated(group: str) -> dict[tuple[str, int], int]:
        return await asyncio.to_thread(java.translate_offsets, target, source, group, {})

    def written() -> int:
        return len(records(target, name)) if name in topics(target) else 0

    async with writing(target, source) as checkpoints:
        checkpoints.record(positions("billing", topic, (1_234, 1_231), (0, 0)))
        checkpoints.record(positions("audit", topic, (7, 5)))
        await until(lambda: written() == 3)
        assert await translated("billing") == {(topic, 0): 1_231, (topic, 1): 0}
        assert await translated("audit") == {(topic, 0): 5}
        assert await translated("nobody") == {}
        checkpoints.record(positions("billing", topic, (2_000, 1_900)))
        await until(lambda: written() == 4)
    async with writing(target, source) as checkpoints:
        # Another holder of the flow: it reads first, so nothing goes back and nothing is reported twice.
        checkpoints.record(positions("billing", topic, (2_000, 1_900), (0, 0)))
        checkpoints.record(positions("audit", topic, (9, 4)))
        checkpoints.record(positions("later", topic, (1, 1)))
        await until(lambda: written() == 5)
        assert await translated("billing") == {(topic, 0): 1_900, (topic, 1): 0}
        assert await translated("audit") == {(topic, 0): 5}
        # A group that went back on the source takes its checkpoint along.
        checkpoints.record(positions("billing", topic, (1_000, 990)))
        await until(lambda: written() == 6)
        assert await translated("billing") == {(topic, 0): 990, (topic, 1): 0}
    with java.mirror_client(target, {}) as client:
        assert name in set(client.checkpointTopics())
    newest = records(target, name)[-1]
    assert java.formatted("CheckpointFormatter", [newest]) == [
        f"Checkpoint{{consumerGroupId=billing, topicPartition={topic}-0, upstreamOffset=1000, downstreamOffset=990, "
        "metadata=}"
    ]


@pytest.mark.parametrize("policy", [{}, IDENTITY], ids=["prefix", "identity"])
async def test_readers_with_another_separator_and_policy(
    java: JavaClients, lab_pair: LabPair, policy: dict[str, str]
) -> None:
    source = unique("eu")
    topic = "orders" if policy else f"{source}__orders"
    async with writing(lab_pair.target, source, "__") as checkpoints:
        checkpoints.record(positions("billing", topic, (10, 8)))
        name = f"{source}__checkpoints__internal"
        await until(lambda: name in topics(lab_pair.target) and records(lab_pair.target, name))
    settings = {"replication.policy.separator": "__", **policy}
    assert java.translate_offsets(lab_pair.target, source, "billing", settings) == {(topic, 0): 8}
    (record,) = records(lab_pair.target, name)
    assert Checkpoint.decode(*record) == Checkpoint("billing", topic, 0, 10, 8)


async def test_what_others_wrote_is_respected(lab_pair: LabPair) -> None:
    """The topic may hold checkpoints of MirrorMaker 2, and records that are no checkpoints."""
    source = unique("eu")
    name = create_topic(lab_pair.target, f"{source}.checkpoints.internal", 1, cleanup_policy="compact")
    left = Checkpoint("billing", f"{source}.orders", 0, 500, 480)
    found = [(left.key, left.value), (b"\x00", b"?"), (b"\x00\x09?", b"")]
    write(lab_pair.target, name, (Written(*each, partition=0) for each in found))
    async with writing(lab_pair.target, source) as checkpoints:
        checkpoints.record(positions("billing", left.topic, (500, 470)))
        checkpoints.record(positions("audit", left.topic, (1, 1)))
        await until(lambda: len(records(lab_pair.target, name)) == 4)
        assert Checkpoint.decode(*records(lab_pair.target, name)[-1]).group == "audit"
        checkpoints.record(positions("billing", left.topic, (510, 490)))
        await until(lambda: len(records(lab_pair.target, name)) == 5)
        assert Checkpoint.decode(*records(lab_pair.target, name)[-1]).downstream == 490


async def test_a_topic_that_cannot_be_used_is_reported(lab_pair: LabPair) -> None:
    source = unique("eu")
    create_topic(lab_pair.target, f"{source}.checkpoints.internal", 2)
    async with writing(lab_pair.target, source) as checkpoints:
        await until(lambda: checkpoints.remarks)
        assert re.fullmatch(
            r"checkpoints are not written: the topic .* has 2 partitions; it must have one", checkpoints.remarks[0]
        )


async def test_a_missing_permission_is_reported(lab_sasl: Cluster) -> None:
    user = ClusterConfig(tuple(lab_sasl.bootstrap.split(",")), security_of(lab_sasl, "mirrord"))
    source = unique("eu")
    flow = FlowConfig(name="made-up", source=source, target="us", topics=(".*",))
    clusters = {source: user, "us": user}
    checkpoints, syncs = Checkpoints(flow, user, LIMIT_S), OffsetSyncs(flow, clusters, LIMIT_S)
    heartbeats = Heartbeats(flow, clusters, LIMIT_S, SystemClock(), SentBeats())
    running = [asyncio.create_task(each) for each in (checkpoints.run(), syncs.run(FlowState), heartbeats.run())]
    try:
        await until(lambda: checkpoints.remarks and syncs.remarks and heartbeats.remarks)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    assert checkpoints.remarks == [
        f"checkpoints are not written: the topic {source}.checkpoints.internal may not be used: "
        "TOPIC_AUTHORIZATION_FAILED"
    ]
    assert syncs.remarks[0].startswith("offset syncs are not written to us: the topic mm2-offset-syncs.")
    assert heartbeats.remarks[0].startswith("heartbeats are not written to us: the topic heartbeats may not be used")
    clock = ClusterClock("us", user, LIMIT_S, SystemClock())
    await clock.measure()
    assert clock.ahead is None
    assert clock.why_unknown == (
        "the clock of us is not known: CLUSTER_AUTHORIZATION_FAILED; DESCRIBE on the cluster is missing"
    )
    clock.close()


async def test_an_old_brokers_clock(lab_old: Cluster) -> None:
    config = ClusterConfig(tuple(lab_old.bootstrap.split(",")), security_of(lab_old, "admin"))
    clock = ClusterClock("old", config, LIMIT_S, SystemClock())
    await clock.measure()
    assert clock.ahead is not None
    assert abs(clock.ahead.offset_ms) <= clock.ahead.error_ms, "it runs on this machine"
    clock.close()


async def test_heartbeats_of_others_are_corrected_by_the_sources_clock(lab_pair: LabPair) -> None:
    copy = create_topic(lab_pair.target, unique("eu.heartbeats"), 1)
    clusters = {"eu": config_of(lab_pair.source), "us": config_of(lab_pair.target)}
    flow = FlowConfig(name="made-up", source="eu", target="us", topics=(".*",), heartbeats=HeartbeatsConfig(emit="off"))
    heartbeats = Heartbeats(flow, clusters, LIMIT_S, SystemClock(), SentBeats())
    heartbeats.carry(copy)
    running = asyncio.create_task(heartbeats.run())

    def measured() -> LatencyStatus:
        beat = Heartbeat("us", "eu", SystemClock().wall_ms() - 5_000)
        write(lab_pair.target, copy, [Written(b"other", b"bytes"), Written(beat.key, beat.value)])
        return heartbeats.status() or LatencyStatus()

    try:
        await until(lambda: measured().latency_ms is not None)
        status = heartbeats.status()
        assert status is not None
        assert status.latency_ms is not None
        assert status.latency_error_ms is not None
        assert status.latency_ms + status.latency_error_ms >= 5_000
        assert status.latency_error_ms > 0
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
