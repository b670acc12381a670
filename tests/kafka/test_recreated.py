"""Source topics that are deleted and created again: all new records arrive, none of the old twice."""

import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from mirrord.lab.cluster import Cluster
from tests.fixtures.daemon import SECONDS, Daemon, all_ends, conf, fill, unique
from tests.fixtures.lab import LabPair, client_settings
from tests.fixtures.mirror import create_topic, ends


def recreate(cluster: Cluster, topic: str, records: int, first: int) -> None:
    """Delete the topic and create it again, with other records."""
    admin = AdminClient(client_settings(cluster))
    admin.delete_topics([topic])[topic].result(SECONDS)
    deadline = time.monotonic() + SECONDS
    while topic in admin.list_topics(timeout=SECONDS).topics:
        assert time.monotonic() < deadline, f"{topic} stays"
        time.sleep(0.02)
    create_topic(cluster, topic)
    fill(cluster, topic, 1, records, first)


def keys(cluster: Cluster, topic: str) -> list[int]:
    """The keys of a partition's records, in order."""
    end = ends(cluster, topic)[0]
    consumer = Consumer({**client_settings(cluster), "group.id": "tests"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    try:
        while len(found) < end:
            found += [int(message.key() or b"") for message in consumer.consume(1_000, 1.0)]
    finally:
        consumer.close()
    return found


def test_a_topic_that_is_created_again(lab_pair: LabPair, tmp_path: Path) -> None:
    """With fewer records than before while mirrord copies, and with more while it is stopped."""
    source, target = lab_pair.source, lab_pair.target
    fewer, more = unique("fewer"), unique("more")
    path = conf(tmp_path, source, target, f"{fewer}|{more}", flow=unique("again"), flow_more='start = "latest"')
    for topic in (fewer, more):
        create_topic(source, topic)
    with Daemon(path) as daemon:
        daemon.until(lambda: {lane.state for lane in daemon.flow().lanes} == {"copying"})
        daemon.until(lambda: len(daemon.flow().lanes) == 2)
        for topic in (fewer, more):
            fill(source, topic, 1, 500)
        daemon.until_copied(all_ends(source, fewer, more))
        recreate(source, fewer, 200, first=1_000)
        daemon.until(lambda: ends(target, f"eu.{fewer}")[0] == 700)
        assert daemon.stop() == 0
    recreate(source, more, 800, first=1_000)
    with Daemon(path) as daemon:
        daemon.until(lambda: ends(target, f"eu.{more}")[0] == 1_300)
        daemon.until_copied(all_ends(source, fewer, more))
        assert daemon.stop() == 0
    assert keys(target, f"eu.{fewer}") == [*range(500), *range(1_000, 1_200)]
    assert keys(target, f"eu.{more}") == [*range(500), *range(1_000, 1_800)]
