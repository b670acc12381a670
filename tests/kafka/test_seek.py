"""`mirrord seek` on real brokers: what it plans, what it refuses, and what is skipped."""

import json
from pathlib import Path

from tests.fixtures.daemon import Daemon, all_ends, conf, fill, mirrord, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic, messages
from tests.kafka.test_apply import of_kind


def seek(path: Path, lane: str, *options: str) -> tuple[int, str]:
    """The exit code, and the output."""
    ended = mirrord("seek", lane, path, "--reason", "broken records", *options)
    return ended.returncode, ended.stdout + ended.stderr


def test_a_partition_continues_further_ahead(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(source, unique("seek"), 1)
    lane, copy = f"{topic}-0", f"eu.{topic}"
    fill(source, topic, 1, 100)
    path = conf(tmp_path, source, target, topic, flow=unique("seek"))
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        # While it is paused, nothing is copied.
        assert mirrord("pause", lane, path).returncode == 0
        daemon.until(lambda: daemon.flow().totals.lanes == {"paused": 1})
        fill(source, topic, 1, 200, first=100)
        code, said = seek(path, lane, "--to", "301")
        assert (code, "allowed: 0 to 300" in said) == (2, True), said
        code, said = seek(path, lane, "--to", "250")
        assert (code, "skips [100, 250)" in said, "is paused" in said) == (0, True, True), said
        code, said = seek(path, lane, "--to", "250")
        assert (code, "already has a command to continue at source offset 250" in said) == (0, True), said
        assert mirrord("resume", lane, path).returncode == 0
        daemon.until(lambda: all_ends(target, copy)[copy, 0] == 150)
        fill(source, topic, 1, 10, first=300)
        daemon.until(lambda: all_ends(target, copy)[copy, 0] == 160)
        assert daemon.stop() == 0
    copied = [message.value() for message in messages(target, copy)]
    assert copied == [b"value %d" % number for number in (*range(100), *range(250, 310))]
    listed = mirrord("gaps", path, "--json")
    assert listed.returncode == 3
    (gap,) = json.loads(listed.stdout)["gaps"]
    assert (gap["start"], gap["end"], gap["reason"]) == (100, 250, "skipped")
    (order,) = of_kind(path, "lane_sought")
    assert order["fact"]["origin"]["reason"] == "broken records"
    fill(source, topic, 1, 5, first=310)
    code, said = seek(path, lane, "--to", "latest")
    assert (code, "no daemon is running these flows" in said) == (1, True), said
