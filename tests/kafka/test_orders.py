"""Commands on real brokers under load: paused lanes wait, moved lanes continue, and nothing is lost or duplicated."""

import json
from pathlib import Path

from mirrord.model.status import LaneStatus
from tests.fixtures.daemon import Daemon, Load, all_ends, assert_same, conf, fill, mirrord, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic
from tests.kafka.test_apply import of_kind

TWO = "[replicators]\ncount = 2"


def lanes(daemon: Daemon, topic: str) -> dict[int, LaneStatus]:
    return {lane.partition: lane for lane in daemon.flow().lanes if lane.topic == topic}


def move(daemon: Daemon, topic: str, path: Path) -> None:
    """Move partition 0 to the other one of two replicators."""
    here = lanes(daemon, topic)[0].host
    (there,) = (each.name for each in daemon.flow().replicators if each.name != here)
    moved = mirrord("move", f"{topic}-0", path, "--to", there)
    assert moved.returncode == 0, moved.stderr
    daemon.until(lambda: (lane := lanes(daemon, topic)[0]).host == there and lane.state == "copying")


def test_pause_resume_move_and_drain_under_load(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    busy, other = create_topic(source, unique("busy"), 4), create_topic(source, unique("other"), 1)
    fill(source, other, 1, 100)
    path = conf(tmp_path, source, target, f"{busy}', '{other}", flow=unique("orders"), more=TWO)
    assert mirrord("pause", busy, path).returncode == 1, "nobody runs it"
    with Load(source, busy, 4).running() as load, Daemon(path) as daemon:
        daemon.until(lambda: daemon.flow().totals.lanes == {"copying": 5})
        daemon.until(lambda: len({lane.host for lane in lanes(daemon, busy).values()}) == 2)

        wrong = mirrord("pause", busy[:-1], path)
        assert wrong.returncode == 2
        assert f'did you mean "{busy}"?' in wrong.stderr
        planned = mirrord("pause", f"{busy}-1", path, "--dry-run", "--json")
        assert (planned.returncode, json.loads(planned.stdout)["lanes"]) == (3, [f"{busy}-1"])
        paused = mirrord("pause", f"{busy}-1", path, "--reason", "the disk is full")
        assert paused.returncode == 0, paused.stderr
        daemon.until(lambda: lanes(daemon, busy)[1].state == "paused")
        assert lanes(daemon, busy)[1].note.endswith(": the disk is full")
        standing = all_ends(target, f"eu.{busy}")
        load.wait_for(2_000)
        daemon.until(lambda: all_ends(target, f"eu.{busy}")[f"eu.{busy}", 0] > standing[f"eu.{busy}", 0] + 100)
        assert all_ends(target, f"eu.{busy}")[f"eu.{busy}", 1] == standing[f"eu.{busy}", 1]
        assert "is already paused" in mirrord("pause", f"{busy}-1", path).stdout
        assert mirrord("resume", f"{busy}-1", path).returncode == 0
        daemon.until(lambda: lanes(daemon, busy)[1].state == "copying")

        for _ in range(4):
            move(daemon, busy, path)
        victim = lanes(daemon, busy)[2].host
        assert mirrord("move", f"{busy}-0", path, "--unpin").returncode == 0
        drained = mirrord("drain", victim.rpartition("/")[2], path)
        assert drained.returncode == 0, drained.stderr
        daemon.until(lambda: victim not in {lane.host for lane in daemon.flow().lanes})
        daemon.until(lambda: daemon.flow().totals.lanes == {"copying": 5})
        assert mirrord("resume", victim, path).returncode == 0
        load.wait_for(1_000)
        assert mirrord("pause", f"{daemon.flow().name}:{other}", path).returncode == 0
        daemon.until(lambda: lanes(daemon, other)[0].state == "paused")
    fill(source, other, 1, 10, first=100)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, busy))
        assert lanes(daemon, other)[0].state == "paused"
        assert all_ends(target, f"eu.{other}") == {(f"eu.{other}", 0): 100}
        assert mirrord("resume", other, path).returncode == 0
        daemon.until_copied(all_ends(source, other))
        assert daemon.stop() == 0
    assert_same(source, target, [busy], load.written)
    assert_same(source, target, [other], 110)
    assert len(of_kind(path, "copying_paused")) == len(of_kind(path, "copying_resumed")) == 2
    assert len(of_kind(path, "lane_pinned")) == 4


def test_replicators_come_and_go_under_load(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    busy = create_topic(source, unique("busy"), 6)
    path = conf(tmp_path, source, target, busy, flow=unique("count"), more="[replicators]\ncount = 1")
    with Load(source, busy, 6).running() as load, Daemon(path) as daemon:
        daemon.until(lambda: daemon.flow().totals.lanes == {"copying": 6})
        for count in (3, 1):
            path.write_text(path.read_text().replace(f"count = {4 - count}", f"count = {count}"))
            answer = mirrord("apply", path)
            assert answer.returncode == 0, answer.stderr
            assert f"all flows: replicators.count: {4 - count} -> {count}" in answer.stdout
            daemon.until(
                lambda count=count: (
                    len(daemon.flow().replicators) == count
                    and len({lane.host for lane in daemon.flow().lanes}) == count
                    and daemon.flow().totals.lanes == {"copying": 6}
                )
            )
            load.wait_for(1_000)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, busy))
        assert daemon.stop() == 0
    assert_same(source, target, [busy], load.written)
