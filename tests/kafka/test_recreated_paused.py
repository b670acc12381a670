"""Topics that are recreated several times in a row, while partitions of them are paused: each loss is named."""

import json
from pathlib import Path

import pytest

from mirrord.lab.cluster import Cluster
from tests.fixtures.daemon import Daemon, all_ends, conf, fill, mirrord, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic, ends, messages
from tests.kafka.test_known_losses import gaps, lag, order
from tests.kafka.test_recreated import delete, keys, recreate


def again(cluster: Cluster, topic: str, records: int, first: int) -> None:
    """Delete the topic of two partitions and recreate it, with other records: the even ones in partition 0."""
    delete(cluster, topic)
    create_topic(cluster, topic, 2)
    fill(cluster, topic, 2, records, first)


def lanes_are(daemon: Daemon, state: str) -> bool:
    return {lane.state for lane in daemon.flow().lanes} == {state}


def lags(daemon: Daemon, topic: str) -> dict[int, tuple[str, int | None]]:
    """State and known end of each partition."""
    return {lane.partition: (lane.state, lane.source_end) for lane in daemon.flow().lanes if lane.topic == topic}


@pytest.mark.parametrize(("naming", "on_recreated"), [("prefix", "keep"), ("identity", "fresh")])
def test_each_of_several_topics_of_a_paused_name_is_a_loss(
    lab_pair: LabPair, tmp_path: Path, naming: str, on_recreated: str
) -> None:
    """The daemon is killed after the topic has been re-created twice. The third topic of this name is copied in part,
    and the fourth one completely."""
    source, target = lab_pair.source, lab_pair.target
    topic = unique("paused")
    settings = f'naming = "{naming}"\non_recreated = "{on_recreated}"'
    path = conf(tmp_path, source, target, topic, flow=unique("row"), flow_more=settings)
    create_topic(source, topic)
    fill(source, topic, 1, 10)
    first = topic if naming == "identity" else f"eu.{topic}"
    copies = [first, *(f"{first}.{number}" for number in range(2, 6))] if on_recreated == "fresh" else [first] * 5
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        order(path, "pause", topic)
        daemon.until(lambda: lanes_are(daemon, "paused"))
        fill(source, topic, 1, 10, first=10)
        daemon.until(lambda: lag(daemon, topic) == (20, 10))
        for number in (1, 2):
            recreate(source, topic, 2 + number, first=100 * number)
            daemon.until(lambda number=number: lag(daemon, topic)[0] == 2 + number)
        daemon.kill()
    with Daemon(path) as daemon:
        recreate(source, topic, 5, first=300)
        daemon.until(lambda: lag(daemon, topic)[0] == 5)
        order(path, "resume", topic)
        daemon.until_copied(all_ends(source, topic))
        order(path, "pause", topic)
        daemon.until(lambda: lanes_are(daemon, "paused"))
        fill(source, topic, 1, 6, first=305)
        daemon.until(lambda: lag(daemon, topic) == (11, 6))
        recreate(source, topic, 7, first=400)
        daemon.until(lambda: lag(daemon, topic)[0] == 7)
        order(path, "resume", topic)
        daemon.until_copied(all_ends(source, topic))
        (flow,) = json.loads(mirrord("topics", path, "--json").stdout)["flows"]
        assert [each["target"] for each in flow["topics"] if each["source"] == topic] == [copies[-1]]
        status = daemon.flow()
        assert sum(each.offsets for each in status.losses if each.topic == topic) == 10 + 3 + 4 + 6
        assert daemon.stop() == 0
    assert gaps(path) == (3, {(topic, start, end, "recreated") for start, end in ((10, 20), (0, 3), (0, 4), (5, 11))})
    keys_by_copy = {0: [*range(10)], 3: [*range(300, 305)], 4: [*range(400, 407)]}
    for copy in set(copies):
        wanted = [key for at, some in keys_by_copy.items() if copies[at] == copy for key in some]
        assert (keys(target, copy) if wanted else ends(target, copy)) == (wanted or {0: 0}), copy


def test_a_paused_partition_next_to_one_that_is_copied(lab_pair: LabPair, tmp_path: Path) -> None:
    """Each topic has a target topic of its own. Partition 0 is paused until the last topic is there."""
    source, target = lab_pair.source, lab_pair.target
    topic = unique("half")
    settings = 'naming = "identity"\non_recreated = "fresh"'
    path = conf(tmp_path, source, target, topic, flow=unique("half"), flow_more=settings)
    copies = [topic, f"{topic}.2", f"{topic}.3"]
    create_topic(source, topic, 2)
    fill(source, topic, 2, 20)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        order(path, "pause", f"{topic}-0")
        daemon.until(lambda: lags(daemon, topic) == {0: ("paused", 10), 1: ("copying", 10)})
        fill(source, topic, 2, 10, first=20)
        daemon.until(lambda: lags(daemon, topic) == {0: ("paused", 15), 1: ("copying", 15)})
        daemon.until_copied({(topic, 1): 15})
        for number, copy in enumerate(copies[1:], 1):
            again(source, topic, 4 * number, first=100 * number)
            half = 2 * number
            daemon.until(lambda half=half: lags(daemon, topic) == {0: ("paused", half), 1: ("copying", half)})
            daemon.until_copied({(topic, 1): half})
            assert ends(target, copy) == {0: 0, 1: half}
        order(path, "resume", f"{topic}-0")
        daemon.until_copied(all_ends(source, topic))
        assert {lane.target_topic for lane in daemon.flow().lanes if lane.topic == topic} == {copies[-1]}
        assert daemon.stop() == 0
    assert gaps(path) == (3, {(topic, 10, 15, "recreated"), (topic, 0, 2, "recreated")})
    assert ends(target, copies[0]) == {0: 10, 1: 15}
    assert ends(target, copies[1]) == {0: 0, 1: 2}
    last = {int(each.key() or b""): each.partition() for each in messages(target, copies[2])}
    assert last == {number: number % 2 for number in range(200, 208)}
