"""Filters and transforms on real brokers: exactly once too, whatever a filter answers and whenever a process dies."""

import json
from pathlib import Path

from tests.fixtures.daemon import Daemon, Load, all_ends, conf, mirrord, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic
from tests.kafka.test_both_ways import values

SAMPLE = "tests.fixtures.sample_policies"
RULES = f'records = {{ filter = "{SAMPLE}:Fickle", transform = "{SAMPLE}:Upper" }}'


def test_a_fickle_filter_under_kill_9(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(source, unique("shaped"), 1)
    path = conf(tmp_path, source, target, topic, flow=unique("shape"), flow_more=RULES)
    with Load(source, topic, 1).running() as load:
        for _ in range(2):
            with Daemon(path) as daemon:
                daemon.until(lambda daemon=daemon: (daemon.flow().totals.copied_records or 0) > 0)
                load.wait_for(500)
                daemon.kill()
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        (lane,) = daemon.flow().lanes
        assert lane.raw_batches == 0
        assert set(lane.rebuilt_batches) == {"policy"}
        assert daemon.stop() == 0
    gaps = json.loads(mirrord("gaps", path, "--all", "--json").stdout)["gaps"]
    assert {gap["reason"] for gap in gaps} == {"filtered"}
    left_out = {offset for gap in gaps for offset in range(gap["start"], gap["end"])}
    wanted = [value.upper() for at, value in enumerate(values(source, topic)) if at not in left_out]
    assert len(wanted) + len(left_out) == load.written
    assert values(target, f"eu.{topic}") == wanted
