"""Topics that are deleted and recreated. On the source: all new records arrive, none of the old ones twice. At the
target: what was there is copied again."""

import json
import re
import time
import urllib.request
from pathlib import Path

from confluent_kafka.admin import AdminClient

from mirrord.lab.cluster import Cluster
from tests.fixtures.daemon import SECONDS, Daemon, all_ends, conf, fill, mirrord, unique
from tests.fixtures.groups import commit, committed
from tests.fixtures.lab import LabPair, client_settings
from tests.fixtures.mirror import create_topic, ends, messages


def recreate(cluster: Cluster, topic: str, records: int, first: int) -> None:
    """Delete the topic and recreate it, with other records."""
    delete(cluster, topic)
    create_topic(cluster, topic)
    fill(cluster, topic, 1, records, first)


def delete(cluster: Cluster, topic: str) -> None:
    """Delete the topic and wait until it is gone."""
    admin = AdminClient(client_settings(cluster))
    admin.delete_topics([topic])[topic].result(SECONDS)
    deadline = time.monotonic() + SECONDS
    while topic in admin.list_topics(timeout=SECONDS).topics:
        assert time.monotonic() < deadline, f"{topic} stays"
        time.sleep(0.02)


def keys(cluster: Cluster, topic: str) -> list[int]:
    """The keys of a partition's records, in order."""
    return [int(message.key() or b"") for message in messages(cluster, topic, 0)]


def stands(daemon: Daemon, group: str) -> tuple[str, int | None]:
    """The target topic in which a group is followed, and its position there; none unless that is where it should be."""
    with urllib.request.urlopen(f"{daemon.http()}/groups", timeout=SECONDS) as answer:
        (flow,) = json.load(answer)["flows"]
    groups = [each for each in flow["groups"] if each["group"] == group and each["state"] == "in step"]
    return (groups[0]["target_topic"], groups[0]["target_offset"]) if groups else ("", None)


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


def test_a_topic_that_is_created_again_several_times_in_a_row(lab_pair: LabPair, tmp_path: Path) -> None:
    """While mirrord copies and while it is stopped, with one target topic for all and with one for each: the last one
    arrives complete and once, whatever was seen of those in between."""
    source, target = lab_pair.source, lab_pair.target
    one, each = unique("one"), unique("each")
    heartbeats, records = '{ emit = "off", replicate = false }', '{ checkpoints = false, offset_syncs = "off" }'
    quiet = f"heartbeats = {heartbeats}\nmm2_records = {records}\n"
    apart = f"""
[[flows]]
name = "{each}"
from = "eu"
to = "us"
topics = ["{each}"]
start = "latest"
on_recreated = "fresh"
refresh = "500ms"
{quiet}"""
    path = conf(tmp_path, source, target, one, flow=one, flow_more=f'start = "latest"\n{quiet}{apart}')
    for topic in (one, each):
        create_topic(source, topic)

    def again(number: int) -> None:
        for topic in (one, each):
            recreate(source, topic, 5, first=10 * number)

    def copies(daemon: Daemon) -> dict[str, str]:
        return {lane.topic: lane.target_topic for flow in daemon.status().flows for lane in flow.lanes}

    def arrived(daemon: Daemon, number: int) -> bool:
        last = [*range(10 * number, 10 * number + 5)]
        there = copies(daemon)
        return len(there) == 2 and all(
            ends(target, copy) and keys(target, copy)[-5:] == last for copy in there.values()
        )

    with Daemon(path) as daemon:
        daemon.until(lambda: [lane.state for flow in daemon.status().flows for lane in flow.lanes] == ["copying"] * 2)
        for number in range(1, 5):
            again(number)
        daemon.until(lambda: arrived(daemon, 4))
        assert daemon.stop() == 0
    for number in range(5, 8):
        again(number)
    with Daemon(path) as daemon:
        daemon.until(lambda: arrived(daemon, 7))
        names = copies(daemon)
        assert daemon.stop() == 0
    assert names[one] == f"eu.{one}"
    assert keys(target, names[each]) == [70, 71, 72, 73, 74], "alone in its copy"
    copied = keys(target, f"eu.{one}")
    assert copied == sorted(set(copied)), "none twice, in the order of the topics"
    # On a slow machine, a topic can be deleted after the daemon has found it and before it is copied.
    audited = mirrord("audit", path, "--level", "ledger")
    lost = [(int(count), reason) for count, reason in re.findall(r"lost: (\d+) (\w+)", audited.stdout)]
    assert all(reason == "recreated" and len(copied) + count <= 35 for count, reason in lost), audited.stdout
    assert audited.returncode == (3 if lost else 0), audited.stdout


def test_each_topic_of_a_name_in_a_copy_of_its_own(lab_pair: LabPair, tmp_path: Path) -> None:
    """Recreated twice while mirrord copies, which learns by `apply` to keep them apart: groups continue in the new
    target topic, and keep their position in the former one."""
    source, target = lab_pair.source, lab_pair.target
    topic, group = unique("apart"), unique("group")
    copies = [f"eu.{topic}", f"eu.{topic}.2", f"eu.{topic}.3"]
    settings = f'groups = {{ match = ["{group}"], refresh = "300ms", every = "300ms" }}'
    path = conf(tmp_path, source, target, topic, flow=unique("fresh"), flow_more=settings)
    create_topic(source, topic)
    with Daemon(path) as daemon:
        for number, copy in enumerate(copies):
            if number == 1:
                path.write_text(path.read_text().replace("[[flows]]", '[[flows]]\non_recreated = "fresh"'))
                assert mirrord("apply", path).returncode == 0
            if number:
                delete(source, topic)
                create_topic(source, topic)
            fill(source, topic, 1, 300 - 50 * number, first=1_000 * number)
            daemon.until(lambda copy=copy: [lane.target_topic for lane in daemon.flow().lanes] == [copy])
            daemon.until_copied(all_ends(source, topic))
            place = 200 - 70 * number
            commit(source, group, topic, {0: place})
            daemon.until(lambda copy=copy, place=place: stands(daemon, group) == (copy, place))
        assert [committed(target, group, copy)[0] for copy in copies] == [200, 130, 60]
        assert daemon.stop() == 0
    expected = [list(range(1_000 * number, 1_000 * number + 300 - 50 * number)) for number in range(3)]
    assert [keys(target, copy) for copy in copies] == expected
    (flow,) = json.loads(mirrord("topics", path, "--json").stdout)["flows"]
    assert [(each["target"], each["state"]) for each in flow["topics"] if each["source"] == topic] == [
        (copies[2], "copied")
    ]
    assert mirrord("gaps", path).returncode == 0
    audited = mirrord("audit", path, "--level", "ledger")
    assert audited.returncode == 0, audited.stdout


def test_a_copy_that_somebody_deletes_and_creates_again(lab_pair: LabPair, tmp_path: Path) -> None:
    """While mirrord copies and while it is stopped; the first records are copied again although `start` is the end.

    And another client writes into the target topic: the offsets are named.
    """
    source, target = lab_pair.source, lab_pair.target
    topic, settings = unique("lost"), 'start = "latest"\non_deleted_copy = "halt"'
    copy = f"eu.{topic}"
    path = conf(tmp_path, source, target, topic, flow=unique("copy"), flow_more=settings)
    create_topic(source, topic)
    fill(source, topic, 1, 100, first=10_000)
    with Daemon(path) as daemon:
        daemon.until(lambda: {lane.state for lane in daemon.flow().lanes} == {"copying"})
        daemon.until(lambda: len(daemon.flow().lanes) == 1)
        fill(source, topic, 1, 300)
        daemon.until(lambda: ends(target, copy)[0] == 300)
        delete(target, copy)
        fault = f"the target topic {copy} was deleted, and on_deleted_copy = "
        daemon.until(lambda: any(fault in line for each in daemon.flow().topics for line in each.faults))
        assert copy not in AdminClient(client_settings(target)).list_topics(timeout=SECONDS).topics
        create_topic(target, copy)
        daemon.until(lambda: ends(target, copy)[0] == 300)
        fill(target, copy, 1, 5, first=20_000)
        fill(source, topic, 1, 100, first=300)
        daemon.until_copied(all_ends(source, topic))
        daemon.until(lambda: daemon.flow().totals.foreign_offsets == 5)
        assert daemon.stop() == 0
    assert keys(target, copy) == [*range(300), *range(20_000, 20_005), *range(300, 400)]
    foreign = json.loads(mirrord("gaps", path, "--foreign", "--json").stdout)["foreign"]
    assert [(each["target_topic"], each["start"], each["end"]) for each in foreign] == [(copy, 300, 305)]
    delete(target, copy)
    create_topic(target, copy)
    with Daemon(path) as daemon:
        daemon.until(lambda: ends(target, copy)[0] == 400)
        daemon.until_copied(all_ends(source, topic))
        assert daemon.stop() == 0
    assert keys(target, copy) == [*range(400)]
