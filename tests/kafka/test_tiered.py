"""Sources with tiered storage: remote records are copied, compared and audited while live lanes keep moving."""

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest

from mirrord.kafka.client.bulk_log_reader import open_logs
from mirrord.lab.cluster import Cluster
from mirrord.lab.jars import KAFKA_VERSION
from mirrord.model.names import TopicPartition
from mirrord.replication.host.replicator import Replicator
from tests.fixtures.daemon import Daemon, all_ends, assert_same, conf, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import Written, config_of, copy_of, create_topic, ends, mirror, until, write
from tests.fixtures.tiered import OLD_TIERED, local_start, tiered_clusters, tiered_topic

DELAY_MS = 700
"""Longer than any request of a lane waits, unless for remote storage alone."""
SEGMENTS = 4


@pytest.fixture(scope="module")
def both() -> Generator[dict[str, Cluster]]:
    """A cluster of each version, started at the same time."""
    with tiered_clusters(DELAY_MS, KAFKA_VERSION, OLD_TIERED) as clusters:
        yield clusters


@pytest.fixture
def newest(both: dict[str, Cluster]) -> Cluster:
    return both[KAFKA_VERSION]


@pytest.fixture(scope="module")
def older(both: dict[str, Cluster]) -> tuple[Cluster, str, int]:
    """A cluster of Kafka 3.7, a topic of it with remote records, and their number."""
    topic = unique("remote")
    return both[OLD_TIERED], topic, tiered_topic(both[OLD_TIERED], topic, SEGMENTS)


def copied(replicator: Replicator, topic: str) -> int:
    """The source offset up to which a topic of one partition is copied."""
    lanes = replicator.report().lanes
    return next((lane.source_offset for lane in lanes if lane.source_topic == topic and lane.phase == "copying"), 0)


async def test_live_lanes_keep_moving_next_to_a_remote_backlog(newest: Cluster, lab_pair: LabPair) -> None:
    """Each live record is written when the one before it is copied. If each waited for remote storage, there would be
    no more of them than remote reads."""
    async with mirror(newest, lab_pair.target, request_timeout_ms=8_000) as flow:
        live = flow.topic()
        replicator = await flow.copying()
        backlog = unique("backlog")
        records = await asyncio.to_thread(tiered_topic, newest, backlog, SEGMENTS)
        create_topic(lab_pair.target, copy_of(backlog))
        flow.topics.append(backlog)
        await replicator.assign([lane for lane in await flow.lanes() if lane.source_topic == backlog])
        trips = 0
        while copied(replicator, backlog) < records:
            await asyncio.to_thread(write, newest, live, [Written(None, b"live")], linger_ms=0)
            trips += 1
            await until(lambda trips=trips: copied(replicator, live) >= trips)
        assert trips > 4 * SEGMENTS
        await flow.assert_same()


def test_a_daemon_killed_in_a_remote_backlog_takes_over(
    older: tuple[Cluster, str, int], lab_pair: LabPair, tmp_path: Path
) -> None:
    source, topic, records = older
    # The daemon creates the target topic: a target without tiered storage would reject those configs of the source.
    target, copy = lab_pair.target, f"eu.{topic}"
    path = conf(tmp_path, source, target, topic, flow=unique("tiered"))
    with Daemon(path) as daemon:
        daemon.until(lambda: ends(target, copy)[0] > 0)
        daemon.kill()
    assert ends(target, copy)[0] < records
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        assert daemon.stop() == 0
    assert_same(source, target, [topic], records)


def test_a_broker_killed_under_a_remote_backlog_of_many_partitions(
    newest: Cluster, lab_pair: LabPair, tmp_path: Path
) -> None:
    """More partitions than remote reads at a time; each loses its reads and its leader in the middle of the backlog."""
    topic = unique("many")
    records = tiered_topic(newest, topic, 2, 6)
    path = conf(tmp_path, newest, lab_pair.target, topic, flow=unique("tiered"))
    with Daemon(path) as daemon:
        daemon.until(lambda: sum(ends(lab_pair.target, f"eu.{topic}").values()) > 0)
        newest.kill()
        assert sum(ends(lab_pair.target, f"eu.{topic}").values()) < records
        newest.restart()
        daemon.until_copied(all_ends(newest, topic))
        assert daemon.stop() == 0
    assert_same(newest, lab_pair.target, [topic], records)


async def test_the_audits_reader_reads_remote_storage(older: tuple[Cluster, str, int]) -> None:
    source, topic, records = older
    assert local_start(source, topic) > 0
    async with open_logs("eu", config_of(source), [topic]) as logs:
        named = TopicPartition(topic, 0)
        start, end = await logs.bounds(named, committed=True)
        assert (start, end) == (0, records)
        read = [batch async for batch in logs.read(named, start, end, committed=True)]
    assert sum(batch.header.record_count for batch in read) == records
