"""The same topics on two real clusters, copied both ways under the same names, with writers on both sides."""

from collections import Counter
from pathlib import Path

from tests.fixtures.daemon import SECONDS, Daemon, Load, conf, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import Written, create_topic, ends, messages, write

PARTITIONS = 2
KILLS = 2
ALONE = 'sync = { configs = false, acls = "off" }\ngroups = { mode = "off" }\nmm2_records = { checkpoints = false }'


def both_ways(folder: Path, pair: LabPair, topic: str, name: str) -> Path:
    back = f"""
[[flows]]
name = "{name}-back"
from = "us"
to = "eu"
topics = ["{topic}"]
naming = "identity"
refresh = "500ms"
heartbeats = {{ emit = "off", replicate = false }}
{ALONE}
"""
    there = f'naming = "identity"\n{ALONE}\n'
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
                # Each producer is new to the mirror, and idempotent: its id has to be told from those of the lanes.
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
        told = [sum(lane.verdict_offsets.values()) for flow in daemon.status().flows for lane in flow.lanes]
        raw = [flow.totals.raw_share for flow in daemon.status().flows]
        rested = [ends(side, topic) for side in (source, target)]
        assert daemon.stop() == 0
    assert rested == [ends(side, topic) for side in (source, target)]
    assert [sum(each.values()) for each in rested] == [wanted, wanted]
    assert all(told)
    assert raw == [1.0, 1.0]
    on_both = [Counter(message.value() for message in messages(side, topic)) for side in (source, target)]
    assert on_both[0] == on_both[1]
