"""Filters and transforms on real brokers: exactly once too, whatever a filter answers and whenever a process dies."""

import json
from pathlib import Path

from tests.fixtures.daemon import Daemon, Load, all_ends, conf, mirrord, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic, messages

SAMPLE = "tests.fixtures.sample_policies"
RULES = f'records = {{ filter = "{SAMPLE}:Fickle", transform = "{SAMPLE}:Upper" }}'


def test_a_fickle_filter_under_kill_9(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(source, unique("shaped"), 1)
    path = conf(tmp_path, source, target, topic, flow=unique("shape"), flow_more=RULES)
    # Policies take a moment for each record, which adds up on a loaded machine.
    with Load(source, topic, 1, at_once=10).running() as load:
        for _ in range(2):
            with Daemon(path) as daemon:
                daemon.until(lambda daemon=daemon: (daemon.flow().totals.copied_records or 0) > 0)
                load.wait_for(500)
                daemon.kill()
        load.wait_for(500)  # so that the last one finds work
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        (lane,) = daemon.flow().lanes
        assert lane.raw_batches == 0
        assert set(lane.rebuilt_batches) == {"policy"}
        assert daemon.stop() == 0
    gaps = json.loads(mirrord("gaps", path, "--all", "--json").stdout)["gaps"]
    assert {gap["reason"] for gap in gaps} == {"filtered"}
    left_out = {offset for gap in gaps for offset in range(gap["start"], gap["end"])}
    written = [message.value() or b"" for message in messages(source, topic)]
    wanted = [value.upper() for at, value in enumerate(written) if at not in left_out]
    assert len(wanted) + len(left_out) == load.written
    assert [message.value() for message in messages(target, f"eu.{topic}")] == wanted
