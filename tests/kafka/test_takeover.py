"""MirrorMaker 2 copies for a while, and mirrord continues where it stopped."""

import json
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from bench.harness.mirror_maker import MirrorMaker, properties
from mirrord.lab.copy_checker import TopicPair, compare
from mirrord.lab.server_properties import LabOptions
from tests.fixtures.daemon import SECONDS, Daemon, all_ends, conf, fill, mirrord, unique
from tests.fixtures.lab import LabPair, pair_of
from tests.fixtures.mirror import Written, create_topic, ends, write
from tests.fixtures.mm2 import await_copied

PARTITIONS = 3


@pytest.fixture(scope="module")
def pair() -> Generator[LabPair]:
    with pair_of(LabOptions(), LabOptions()) as pair:
        yield pair


def dry_run(file: Path) -> list[dict[str, Any]]:
    """Once all partitions would begin: for some seconds the killed workers still count as alive."""
    deadline = time.monotonic() + SECONDS
    while (ended := mirrord("start", file, "--dry-run", "--json")).returncode != 0:
        assert "are still copying" in ended.stdout, ended
        assert time.monotonic() < deadline, ended
    return json.loads(ended.stdout)


def test_continuing_after_mirrormaker_2(pair: LabPair, tmp_path: Path) -> None:
    source, target = pair.source, pair.target
    names = [unique(kind) for kind in ("orderly", "crashed", "young")]
    file = conf(tmp_path, source, target, "|".join(names), flow=unique("after-mm2"))
    pairs = {name: TopicPair(name, f"eu.{name}") for name in names}
    orderly, crashed, young = names
    for name in (orderly, crashed):
        fill(source, create_topic(source, name, PARTITIONS), PARTITIONS, 600)
    path = properties(
        tmp_path / "mm2.properties", source, target, ",".join(names), more="us.offset.flush.interval.ms = 3600000\n"
    )
    with MirrorMaker(path) as maker:
        for name in (orderly, crashed):
            await_copied(maker, source, target, pairs[name])
        maker.stop()  # it saves its positions
        maker.start()
        fill(source, crashed, PARTITIONS, 300, first=600)
        await_copied(maker, source, target, pairs[crashed])
        maker.kill()
        maker.start()  # and copies the 300 again
        await_copied(maker, source, target, pairs[crashed], extra=300)
        maker.stop()
        maker.start()
        fill(source, crashed, PARTITIONS, 60, first=900)
        fill(source, create_topic(source, young, PARTITIONS), PARTITIONS, 90)
        for name, extra in ((crashed, 300), (young, 0)):
            await_copied(maker, source, target, pairs[name], extra)
        busy = mirrord("start", file, "--dry-run", "--json")
        assert busy.returncode == 3
        note = json.loads(busy.stdout)[0]["note"]
        assert "1 workers of MirrorMaker 2 are still copying (group eu-mm2 on the target)" in note
        maker.kill()  # what it copied last is not saved
    there = {name: ends(source, name) for name in names}
    for name in names:
        fill(source, name, PARTITIONS, 150, first=10_000)

    found = dry_run(file)
    assert {each["by"] for each in found} == {"verified"}
    assert {
        name: {each["partition"]: each["position"] for each in found if each["topic"] == name} for name in names
    } == there
    assert {name: sum(each["doubled_records"] for each in found if each["topic"] == name) for name in names} == {
        orderly: 0,
        crashed: 300,
        young: 0,
    }
    assert "after MirrorMaker 2, the ends agree" in mirrord("start", file, "--dry-run").stdout

    with Daemon(file) as daemon:
        daemon.until_copied(all_ends(source, *names))
        doubled = sum(lane.verdict_offsets.get("doubled", 0) for lane in daemon.flow().lanes if lane.verdict_offsets)
        assert doubled == 300
        assert daemon.stop() == 0
    results = compare(source.bootstrap, target.bootstrap, list(pairs.values()), processes=1)
    total = results.difference
    assert (total.missing, total.doubled, total.altered, total.foreign) == (0, 300, 0, 0)
    assert "MirrorMaker 2 had copied up to source offset" in mirrord("ledger", "show", file).stdout
    assert {each["by"] for each in json.loads(mirrord("start", file, "--dry-run", "--json").stdout)} == {"history"}


def test_a_target_with_other_records(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    name = create_topic(source, unique("others"))
    create_topic(target, f"eu.{name}")
    fill(source, name, 1, 100)
    for first, count in ((0, 100), (1_000, 50)):  # its target topic, then foreign records
        fill(target, f"eu.{name}", 1, count, first=first)
    word = create_topic(target, unique("connect-offsets"), 2, cleanup_policy="compact")
    key = {"cluster": "eu", "partition": 0, "topic": name}
    write(
        target,
        word,
        [
            Written(json.dumps(["MirrorSourceConnector", key]).encode(), b'{"offset": %d}' % offset, partition=1)
            for offset in (49, 99)
        ],
    )
    few = 'from_mm2 = {{ takeover = "{}", verify_records = 20, offsets_topic = "{}" }}'
    file = conf(tmp_path, source, target, name, flow=unique("strange"), flow_more=few.format("verify", word))
    ended = mirrord("start", file, "--dry-run", "--json")
    assert ended.returncode == 3
    (found,) = json.loads(ended.stdout)
    assert (found["by"], found["said"], found["position"]) == ("strange", 100, None)
    with Daemon(file) as daemon:
        daemon.until(lambda: [lane.state for lane in daemon.flow().lanes] == ["halted"])
        assert "the last 20 records of the target are different" in daemon.flow().lanes[0].note
        assert daemon.stop() == 0
    assert ends(target, f"eu.{name}") == {0: 150}
    fill(source, name, 1, 10, first=100)
    trusting = conf(tmp_path, source, target, name, flow=unique("trusting"), flow_more=few.format("trust", word))
    with Daemon(trusting) as daemon:
        daemon.until_copied(all_ends(source, name))
        assert daemon.stop() == 0
    assert ends(target, f"eu.{name}") == {0: 160}
