"""Failovers on real brokers: what is lost, what groups read next, and that nothing is copied again."""

import json
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.fixtures.daemon import SECONDS, Daemon, Load, all_ends, conf, fill, mirrord, unique
from tests.fixtures.failover import MARKER, command, failover, groups_for, stays, writing
from tests.fixtures.groups import commit, committed, member
from tests.fixtures.lab import LabFactory, LabPair
from tests.fixtures.mirror import create_topic, ends


@pytest.mark.parametrize("dies", ["source", "source and daemon"])
def test_a_lost_source_is_left_for_good(lab_cluster: LabFactory, lab_pair: LabPair, tmp_path: Path, dies: str) -> None:
    source, target, group = lab_cluster(), lab_pair.target, unique("group")
    topic = create_topic(source, unique("lost"), 3)
    fill(source, topic, 3, 300)
    path = conf(tmp_path, source, target, topic, flow=unique("lost"), flow_more=groups_for(group))
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        commit(source, group, topic, {0: 1, 1: 2, 2: 3})  # a new cluster has no topic with offsets before that
        daemon.until(lambda: committed(target, group, f"eu.{topic}", range(3)) == {0: 1, 1: 2, 2: 3})
        with writing(source, topic, 3) as written:
            written(2_000)
            committed_at = {partition: end - 5 for partition, end in ends(source, topic).items()}
            commit(source, group, topic, committed_at)
            written(2_000)
            if dies != "source":
                # A daemon that dies as well cannot commit later what it has just read.
                daemon.until(lambda: committed(target, group, f"eu.{topic}", range(3)) == committed_at)
            source.kill()
            if dies != "source":
                daemon.kill()
        receipt = failover(path, "--source-lost", "--reason", "fire")
        assert (receipt["outcome"], receipt["mode"], receipt["reason"]) == ("complete", "source-lost", "fire")
        copied = ends(target, f"eu.{topic}")
        for lost in receipt["lost"]:
            assert lost["start"] + MARKER == copied[lost["partition"]] == lost["target_end"]
        assert committed(target, group, f"eu.{topic}", copied) == committed_at
        # Repeating the command changes nothing.
        again = failover(path, "--source-lost", "--reason", "another")
        assert {**again, "reason": "fire"} == receipt
        source.restart()
        there = ends(source, topic)
        lost_of = {lost["partition"]: lost for lost in receipt["lost"]}
        for partition, end in there.items():
            records = copied[partition] - MARKER
            seen = lost_of[partition]["end"] if partition in lost_of else records
            assert records <= seen <= end
        if dies == "source":
            daemon.until(lambda: daemon.flow().state == "ended")
        with Daemon(path) as revived:
            revived.until(lambda: revived.flow().state == "ended")
            fill(source, topic, 3, 30)
            stays(lambda: ends(target, f"eu.{topic}") == copied)


def test_a_command_that_is_killed_is_repeated(lab_cluster: LabFactory, lab_pair: LabPair, tmp_path: Path) -> None:
    """Nothing but the command is alive, and it dies after each of its steps."""
    source, target, group = lab_cluster(), lab_pair.target, unique("group")
    topic = create_topic(source, unique("killed"), 2)
    fill(source, topic, 2, 300)
    path = conf(tmp_path, source, target, topic, flow=unique("killed"), flow_more=groups_for(group))
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        commit(source, group, topic, {0: 100, 1: 120})
        daemon.until(lambda: committed(target, group, f"eu.{topic}", range(2)) == {0: 100, 1: 120})
        daemon.kill()
    fill(source, topic, 2, 20, 300)
    source.kill()
    for step in ("failover 1", "stop: ", "groups: "):
        with subprocess.Popen(
            command(path, "--source-lost"), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stderr is not None
            assert any(step in line for line in process.stderr), step
            process.kill()
    receipt = failover(path, "--source-lost")
    assert (receipt["outcome"], receipt["number"], receipt["partitions"]) == ("complete", 1, 2)
    # Nobody has seen the last records. The receipt says up to which time the source was seen.
    assert receipt["lost"] == []
    assert receipt["seen_ms"] < receipt["began_ms"]
    assert [each["step"] for each in receipt["steps"]] == [
        "before",
        "stop",
        "settle",
        "fence",
        "groups",
        "grant",
        "after",
    ]
    assert committed(target, group, f"eu.{topic}", range(2)) == {0: 100, 1: 120}
    assert ends(target, f"eu.{topic}") == {0: 150 + MARKER, 1: 150 + MARKER}


def test_a_planned_failover_loses_nothing(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target, group = lab_pair.source, lab_pair.target, unique("group")
    topic = create_topic(source, unique("planned"), 2)
    path = conf(tmp_path, source, target, topic, flow=unique("planned"), flow_more=groups_for(group))
    fill(source, topic, 2, 100)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        with Load(source, topic, 2, at_once=20).running() as load:
            load.wait_for(1_000)
        commit(source, group, topic, {0: 50, 1: 60})
        receipt = failover(path, "--planned")
        assert (receipt["outcome"], receipt["partitions"], receipt["lost"]) == ("complete", 2, [])
        steps = {each["step"]: each["outcome"] for each in receipt["steps"]}
        assert [*steps] == ["before", "catch up", "stop", "fence", "groups", "grant", "after"]
        assert steps["fence"] == "late batches to 2 partitions are refused by the target"
        assert receipt["names"] == {topic: f"eu.{topic}"}
        copied = ends(target, f"eu.{topic}")
        assert copied == {partition: end + MARKER for partition, end in ends(source, topic).items()}
        assert committed(target, group, f"eu.{topic}", copied) == {0: 50, 1: 60}
        daemon.until(lambda: daemon.flow().state == "ended")
        with urllib.request.urlopen(f"{daemon.http()}/readiness", timeout=SECONDS) as answer:
            (flow,) = json.loads(answer.read())["flows"]
        assert (flow["ready"], flow["grounds"]) == (False, "ledger")
        assert flow["blockers"][0].startswith("failover 1"), flow["blockers"]
        fill(source, topic, 2, 30)
        commit(source, group, topic, {0: 70, 1: 70})
        stays(lambda: ends(target, f"eu.{topic}") == copied)
        assert committed(target, group, f"eu.{topic}", copied) == {0: 50, 1: 60}
        assert daemon.stop() == 0
    shown = mirrord("failover", path, "--planned")
    assert "2 of 2 partitions were copied completely" in shown.stdout


def test_some_topics_move_and_the_others_are_still_copied(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target, name = lab_pair.source, lab_pair.target, unique("some")
    gone, kept = (create_topic(source, f"{name}-{each}", 1) for each in ("gone", "kept"))
    path = conf(tmp_path, source, target, f"{name}-.*", flow=name, flow_more=groups_for(name))
    fill(source, gone, 1, 100)
    fill(source, kept, 1, 100)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, gone, kept))
        for group in ("a", "b"):
            commit(source, f"{name}-{group}", gone, {0: 50})
        receipt = failover(path, "--planned", "--topics", gone)
        assert (receipt["outcome"], receipt["topics"], receipt["names"]) == ("complete", [gone], {gone: f"eu.{gone}"})
        assert committed(target, f"{name}-a", f"eu.{gone}") == {0: 50}
        fill(source, gone, 1, 30)
        fill(source, kept, 1, 30)
        commit(source, f"{name}-a", gone, {0: 60})
        commit(source, f"{name}-b", kept, {0: 70})
        daemon.until(lambda: ends(target, f"eu.{kept}") == {0: 130})
        daemon.until(lambda: committed(target, f"{name}-b", f"eu.{kept}") == {0: 70})
        assert ends(target, f"eu.{gone}") == {0: 100 + MARKER}
        assert committed(target, f"{name}-a", f"eu.{gone}") == {0: 50}
        assert daemon.flow().state == "running"
        # The rest follows later, even if the source is gone by then.
        assert failover(path, "--source-lost")["names"] == {kept: f"eu.{kept}"}
        daemon.until(lambda: daemon.flow().state == "ended")


def test_a_failover_that_waits_is_cancelled(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target, group = lab_pair.source, lab_pair.target, unique("group")
    topic = create_topic(source, unique("waits"), 1)
    path = conf(tmp_path, source, target, topic, flow=unique("waits"), flow_more=groups_for(group))
    fill(source, topic, 1, 100)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        with member(source, group, topic), subprocess.Popen(command(path, "--planned")) as waiting:
            line = f"failover 1: group {group} still has members on eu: stop them"
            daemon.until(lambda: line in daemon.flow().remarks)
            assert mirrord("failover", path, "--source-lost").returncode == 2
            assert failover(path, "--cancel")["outcome"] == "cancelled"
            assert waiting.wait(SECONDS) == 3
        fill(source, topic, 1, 30)
        daemon.until(lambda: ends(target, f"eu.{topic}") == {0: 130})
        receipt = failover(path, "--planned")
        assert (receipt["outcome"], receipt["number"]) == ("complete", 2)


def test_bad_input_gets_one_clear_error_and_changes_nothing(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(source, unique("bad"), 1)
    fill(source, topic, 1, 10)
    path = conf(tmp_path, source, target, topic, flow=unique("bad"))

    def refused(*options: str) -> str:
        ended = mirrord("failover", path, *options)
        assert ended.returncode in {1, 2}, ended.stdout
        assert "Traceback" not in ended.stderr
        return ended.stderr

    assert "has never run, so there is nothing to fail over" in refused("--source-lost")
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        assert f'has copied no topic "{topic}x"; did you mean "{topic}"?' in refused(
            "--planned", "--topics", f"{topic}x"
        )
        assert "names of source topics, separated by commas" in refused("--planned", "--topics", "a,,b")
        assert "one of the arguments --planned --source-lost --cancel is required" in refused()
        assert "not allowed with argument --planned" in refused("--planned", "--source-lost")
        assert "no failover of these flows is in progress" in refused("--cancel")
        assert "do not apply to it" in refused("--cancel", "--dry-run")
        shown = mirrord("failover", path, "--planned", "--dry-run")
        assert "steps: before, catch up, stop, end, fence, groups, grant, after, finish" in shown.stdout
        assert daemon.flow().state == "running"
        daemon.stop()
    assert "no daemon copies" in refused("--planned")
