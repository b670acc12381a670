"""The same topics on two real clusters, copied in both directions under the same names, with writers on both sides."""

import time
from collections import Counter
from pathlib import Path

from confluent_kafka.admin import AdminClient

from mirrord.lab.cluster import Cluster
from tests.fixtures.daemon import SECONDS, Daemon, Load, conf, unique
from tests.fixtures.groups import committed, consume, member
from tests.fixtures.lab import LabPair, client_settings
from tests.fixtures.mirror import Written, create_topic, ends, messages, write

PARTITIONS = 2
KILLS = 2
ALONE = 'sync = { configs = false, acls = "off" }\nmm2_records = { checkpoints = false }\n'
OFF = 'groups = { mode = "off" }'


def both_ways(folder: Path, pair: LabPair, topic: str, name: str, groups: str = OFF) -> Path:
    back = f"""
[[flows]]
name = "{name}-back"
from = "us"
to = "eu"
topics = ["{topic}"]
naming = "identity"
refresh = "500ms"
heartbeats = {{ emit = "off", replicate = false }}
{ALONE}{OFF}
"""
    there = f'naming = "identity"\n{ALONE}{groups}\n'
    return conf(folder, pair.source, pair.target, topic, flow=name, flow_more=there + back)


def test_two_sides_hold_the_records_of_both_once(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = unique("both")
    for cluster in (source, target):
        create_topic(cluster, topic, PARTITIONS)
    path = both_ways(tmp_path, lab_pair, topic, unique("ways"))
    with Load(source, topic, PARTITIONS).running() as here, Load(target, topic, PARTITIONS).running() as there:
        for _ in range(KILLS):
            with Daemon(path) as daemon:
                daemon.until(lambda daemon=daemon: all(each.totals.copied_records for each in daemon.status().flows))
                # Each producer is new to the mirror and idempotent: its id must be told from those of the lanes.
                for cluster, side in ((source, b"eu"), (target, b"us")):
                    write(
                        cluster, topic, [Written(None, side + b" %d" % n) for n in range(20)], enable_idempotence=True
                    )
                here.wait_for(1_000)
                there.wait_for(1_000)
                daemon.kill()
    wanted = here.written + there.written + 2 * KILLS * 20
    with Daemon(path) as daemon:
        daemon.until(lambda: all(sum(ends(side, topic).values()) >= wanted for side in (source, target)), 2 * SECONDS)
        daemon.until(lambda: all(each.totals.lag_records == 0 for each in daemon.status().flows))
        skipped = [sum(lane.verdict_offsets.values()) for flow in daemon.status().flows for lane in flow.lanes]
        raw = [flow.totals.raw_share for flow in daemon.status().flows]
        rested = [ends(side, topic) for side in (source, target)]
        assert daemon.stop() == 0
    assert rested == [ends(side, topic) for side in (source, target)]
    assert [sum(each.values()) for each in rested] == [wanted, wanted]
    assert all(skipped)
    assert raw == [1.0, 1.0]
    on_both = [Counter(message.value() for message in messages(side, topic)) for side in (source, target)]
    assert on_both[0] == on_both[1]


def test_a_group_continues_at_either_side_and_misses_nothing(lab_pair: LabPair, tmp_path: Path) -> None:
    """Its positions count the records of both sides, which are not in the same order in both logs."""
    sides = (lab_pair.source, lab_pair.target)
    topic, group = unique("both"), unique("group")
    for cluster, name, records in zip(sides, ("eu", "us"), (50, 30), strict=True):
        create_topic(cluster, topic)
        write(cluster, topic, [Written(None, f"{name} {number}".encode()) for number in range(records)])
    groups = f'groups = {{ match = ["{group}"], refresh = "300ms", both_ways = true, reverse = true }}'
    path = both_ways(tmp_path, lab_pair, topic, unique("ways"), groups)

    def values(cluster: Cluster) -> list[bytes]:
        return [message.value() or b"" for message in messages(cluster, topic)]

    def read_on(cluster: Cluster, records: int) -> list[bytes]:
        with member(cluster, group, topic) as (consumer, pending):
            return consume(consumer, pending, records)

    def stands(cluster: Cluster) -> int | None:
        return committed(cluster, group, topic)[0]

    with Daemon(path) as daemon:
        daemon.until(lambda: all(ends(side, topic) == {0: 80} for side in sides), 2 * SECONDS)
        here, there = map(values, sides)
        assert here != there
        read = read_on(sides[0], 60)
        assert read == here[:60]
        goes_on = next(at for at, value in enumerate(there) if value not in read)
        daemon.until(lambda: stands(sides[1]) == goes_on, 2 * SECONDS)
        assert Counter({*read, *read_on(sides[1], 80 - goes_on)}) == Counter(here)
        daemon.until(lambda: stands(sides[0]) == 80)
        assert stands(sides[1]) == 80
        assert daemon.stop() == 0


def test_a_deletion_at_one_side_deletes_and_restores_nothing_at_the_other(lab_pair: LabPair, tmp_path: Path) -> None:
    """Each topic is deleted on one side: both are left alone and reported until an operator deletes or creates them."""
    source, target = lab_pair.source, lab_pair.target
    prefix = unique("deleted")
    here, there = f"{prefix}-here", f"{prefix}-there"
    deletes = f'{OFF}\npropagate_deletes = true\ndelete_grace = "1s"'
    path = both_ways(tmp_path, lab_pair, f"{prefix}-.*", unique("ways"), deletes)
    path.write_text(path.read_text().replace(f"{ALONE}{OFF}\n\n[runtime]", f"{ALONE}{deletes}\n\n[runtime]"))
    for topic in (here, there):
        create_topic(source, topic)
        write(source, topic, [Written(None, b"from eu"), Written(None, b"from eu")])

    def held(cluster: Cluster, topic: str) -> int:
        # `ends` waits for a topic that does not exist.
        if topic not in AdminClient(client_settings(cluster)).list_topics(timeout=SECONDS).topics:
            return -1
        return sum(ends(cluster, topic).values())

    def reported(daemon: Daemon, topic: str) -> bool:
        faults = [line for flow in daemon.status().flows for each in flow.topics for line in each.faults]
        return any(line.startswith(f"{topic} was deleted on ") for line in faults)

    with Daemon(path) as daemon:
        daemon.until(lambda: held(target, here) == held(target, there) == 2)
        for topic in (here, there):
            write(target, topic, [Written(None, b"from us")])
        daemon.until(lambda: held(source, here) == held(source, there) == 3)
        for cluster, topic in ((source, here), (target, there)):
            delete(cluster, topic)
        daemon.until(lambda: reported(daemon, here) and reported(daemon, there))
        daemon.until(lambda: sum(here in line for flow in daemon.status().flows for line in flow.remarks))
        daemon.kill()
    with Daemon(path) as daemon:  # still so after a restart, past the grace period
        daemon.until(lambda: reported(daemon, here) and reported(daemon, there))
        assert (held(target, here), held(source, there)) == (3, 3)
        assert (held(source, here), held(target, there)) == (-1, -1)
        remarks = [line for flow in daemon.status().flows for each in flow.topics for line in each.remarks]
        assert not [line for line in remarks if "is created and copied again" in line], remarks
        delete(target, here)
        create_topic(target, there)
        daemon.until(lambda: not reported(daemon, here) and held(target, there) == 2)
        topics = [each for flow in daemon.status().flows for each in flow.topics if each.topic == there]
        assert any("is only on eu" in line for each in topics for line in each.remarks), topics
        assert daemon.stop() == 0
    assert held(source, there) == 3


def delete(cluster: Cluster, topic: str) -> None:
    """Delete the topic and wait until it is gone."""
    admin = AdminClient(client_settings(cluster))
    for gone in admin.delete_topics([topic]).values():
        gone.result(SECONDS)
    deadline = time.monotonic() + SECONDS
    while topic in admin.list_topics(timeout=SECONDS).topics:
        assert time.monotonic() < deadline
        time.sleep(0.05)
