"""Records that were known to wait on the source and are lost there get verdicts, whatever their lanes did meanwhile."""

import json
import os
import re
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from mirrord.lab.cluster import Cluster
from tests.fixtures.daemon import SECONDS, Daemon, Load, all_ends, conf, fill, mirrord, unique
from tests.fixtures.lab import LabPair, client_settings
from tests.fixtures.mirror import Written, create_topic, ends, write
from tests.kafka.test_recreated import delete, keys, recreate


def expire(cluster: Cluster, topic: str, below: int) -> None:
    """DeleteRecords of partition 0."""
    admin = AdminClient(client_settings(cluster))
    for future in admin.delete_records([TopicPartition(topic, 0, below)]).values():
        future.result(SECONDS)


def gaps(path: Path) -> tuple[int, set[tuple[str, int, int, str]]]:
    """The exit code of `mirrord gaps`, and what it lists."""
    answer = mirrord("gaps", path, "--json")
    found = json.loads(answer.stdout)["gaps"]
    return answer.returncode, {(each["topic"], each["start"], each["end"], each["reason"]) for each in found}


def order(path: Path, verb: str, *names: str) -> None:
    """Give a command for each name."""
    for name in names:
        answer = mirrord(verb, name, path)
        assert answer.returncode == 0, answer.stderr


def lag(daemon: Daemon, topic: str) -> tuple[int | None, int | None]:
    """The end of a topic's only partition, and how many records it lags."""
    found = [(lane.source_end, lane.lag_records) for lane in daemon.flow().lanes if lane.topic == topic]
    return found[0] if found else (None, None)


def test_what_was_lost_while_partitions_were_paused_or_limited(lab_pair: LabPair, tmp_path: Path) -> None:
    """Ten records wait in each paused partition. Then its topic is recreated, deleted, cut by retention, or recreated
    while no daemon runs."""
    source, target = lab_pair.source, lab_pair.target
    again, gone, cut, down, slow = (unique(name) for name in ("again", "gone", "cut", "down", "slow"))
    paused = (again, gone, cut, down)
    topics = "|".join((*paused, slow))
    path = conf(tmp_path, source, target, topics, flow=unique("known"), flow_more='limits = { rate = "64KiB/s" }')
    for topic in (*paused, slow):
        create_topic(source, topic)
        fill(source, topic, 1, 10)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, *paused, slow))
        order(path, "pause", *paused)
        daemon.until(lambda: sum(lane.state == "paused" for lane in daemon.flow().lanes) == 4)
        for topic in paused:
            fill(source, topic, 1, 10, first=10)
        assert mirrord("seek", f"{again}-0", path, "--to", "12", "--reason", "a test").returncode == 0
        daemon.until(lambda: all(lag(daemon, topic) == (20, 10) for topic in paused))
        recreate(source, again, 2, first=100)
        delete(source, gone)
        expire(source, cut, 15)
        write(source, slow, (Written(b"%d" % n, os.urandom(3000)) for n in range(10, 610)))
        daemon.until(lambda: lag(daemon, slow)[0] == 610)
        assert (lag(daemon, slow)[1] or 0) > 0
        daemon.until(lambda: any(each.topic == gone for each in daemon.flow().losses))
        assert daemon.stop() == 0
    recreate(source, down, 2, first=100)
    delete(source, slow)
    with Daemon(path) as daemon:
        daemon.until(lambda: daemon.flow().state == "running")
        order(path, "resume", *paused)
        daemon.until_copied(all_ends(source, again, cut, down))
        daemon.until(lambda: {each.topic for each in daemon.flow().losses} == {again, gone, down, slow})
        status = mirrord("status", path).stdout
        assert daemon.stop() == 0
    copied = ends(target, f"eu.{slow}")[0]
    assert 10 <= copied < 610
    recreated = {(topic, 10, 20, "recreated") for topic in (again, gone, down)}
    assert gaps(path) == (3, {*recreated, (slow, copied, 610, "recreated"), (cut, 10, 15, "expired")})
    assert "10 source offsets" in status
    for topic in (again, gone, down, slow):
        assert topic in status
    assert keys(target, f"eu.{again}") == [*range(10), 100, 101]
    assert "command to continue at source offset 12" in mirrord("ledger", "show", path).stdout


def test_no_record_is_lost_that_a_killed_daemon_had_copied(lab_pair: LabPair, tmp_path: Path) -> None:
    """The last batches of a daemon that is killed are in no progress record. Then their topic is deleted."""
    source, target = lab_pair.source, lab_pair.target
    topic, settings = unique("killed"), 'limits = { rate = "64KiB/s" }'
    path = conf(tmp_path, source, target, topic, flow=unique("killed"), flow_more=settings)
    create_topic(source, topic)
    fill(source, topic, 1, 10)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        write(source, topic, (Written(b"%d" % n, os.urandom(3_000)) for n in range(10, 1_510)))
        daemon.until(lambda: lag(daemon, topic)[0] == 1_510)
        begun = ends(target, f"eu.{topic}")[0]
        daemon.until(lambda: ends(target, f"eu.{topic}")[0] > begun)
        daemon.kill()
    assert ends(target, f"eu.{topic}")[0] < 1_510, "this machine is too slow for this test"
    delete(source, topic)
    with Daemon(path) as daemon:
        daemon.until(lambda: {each.topic for each in daemon.flow().losses} == {topic})
        assert daemon.stop() == 0
    copied = ends(target, f"eu.{topic}")[0]
    assert gaps(path) == (3, {(topic, copied, 1_510, "recreated")})


def test_a_migration_with_losses_ends_with_3_and_counts_what_is_newer(lab_pair: LabPair, tmp_path: Path) -> None:
    """First with a record that the target refuses; then its policy skips it, and half of the rest was deleted."""
    source, target = lab_pair.source, lab_pair.target
    large, cut, busy = unique("large"), unique("cut"), unique("busy")
    path = conf(tmp_path, source, target, f"{large}|{cut}", flow=unique("once"), flow_more="sync = { configs = false }")
    create_topic(source, large, max_message_bytes="2000000")
    create_topic(source, cut)
    create_topic(source, busy)
    for topic in (large, cut, busy):
        fill(source, topic, 1, 100)
    migrate = ("start", path, "--until-caught-up")
    write(source, large, [Written(b"100", os.urandom(1_500_000))], message_max_bytes=3_000_000)
    fill(source, large, 1, 10, first=101)
    halted = mirrord(*migrate)
    assert halted.returncode == 1
    assert f"{large}-0 is halted: " in halted.stderr
    fill(source, cut, 1, 100, first=100)
    expire(source, cut, 150)
    path.write_text(path.read_text().replace("[[flows]]", '[[flows]]\non_reject = "skip"'))
    lossy = mirrord(*migrate)
    assert lossy.returncode == 3, lossy.stderr
    output = lossy.stdout
    assert (
        "caught up, with LOSSES: 2 partitions, 260 records copied, 0 source offsets explained that were not copied"
    ) in output
    assert "source offsets LOST: 50 expired, 1 rejected" in output
    listed = mirrord("quarantine", "list", path).stdout
    assert "by policy at 20" in listed
    path.write_text(path.read_text().replace(f"{large}|{cut}", busy))
    with Load(source, busy, 1, at_once=5).running():
        newer = mirrord(*migrate)
        after = ends(source, busy)[0]
    assert newer.returncode == 0, newer.stderr
    (found,) = re.findall(r"([\d,]+) newer source offsets", newer.stdout)
    copied = ends(target, f"eu.{busy}")[0]
    assert int(found.replace(",", "")) <= after - copied
