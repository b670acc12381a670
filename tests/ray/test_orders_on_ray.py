"""Commands to a daemon on Ray: a busy lane moves to and fro, and a pause outlives the supervisor."""

import os
import signal
from pathlib import Path

from tests.fixtures.daemon import RAY_START_S, Daemon, Load, all_ends, assert_same, mirrord
from tests.fixtures.lab import LabPair
from tests.ray.test_daemon_on_ray import PARTITIONS, came_back, finish, is_copying, mirror


def test_moves_and_pauses_lose_nothing_and_outlive_the_supervisor(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic, path = mirror(source, target, tmp_path)

    def home(daemon: Daemon) -> str:
        return next(lane.host for lane in daemon.flow().lanes if lane.partition == 0)

    with Load(source, topic, PARTITIONS).running() as load, Daemon(path) as daemon:
        daemon.until(lambda: is_copying(daemon.flow()), RAY_START_S)
        for _ in range(6):
            (there,) = (each.name for each in daemon.flow().replicators if each.name != home(daemon))
            moved = mirrord("move", f"{topic}-0", path, "--to", there)
            assert moved.returncode == 0, moved.stderr
            daemon.until(lambda there=there: home(daemon) == there and is_copying(daemon.flow()))
        assert mirrord("pause", f"{topic}-1", path, "--reason", "supervised").returncode == 0
        daemon.until(lambda: daemon.flow().totals.lanes == {"copying": PARTITIONS - 1, "paused": 1})
        lease = daemon.flow().lease
        assert lease is not None
        os.kill(lease.pid, signal.SIGKILL)
        daemon.until(lambda: came_back(daemon, lease.pid), RAY_START_S)
        standing = all_ends(target, f"eu.{topic}")[f"eu.{topic}", 1]
        daemon.until(lambda: daemon.flow().totals.lanes == {"copying": PARTITIONS - 1, "paused": 1})
        load.wait_for(1_000)
        assert all_ends(target, f"eu.{topic}")[f"eu.{topic}", 1] == standing
        assert mirrord("resume", f"{topic}-1", path).returncode == 0
        daemon.until(lambda: is_copying(daemon.flow()))
        assert daemon.stop() == 0
    finish(path, source, topic)
    assert_same(source, target, [topic], load.written)
