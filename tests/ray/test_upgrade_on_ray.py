"""A daemon on a Ray of its own is replaced by another one, and is restarted when its whole Ray has died."""

from contextlib import suppress
from pathlib import Path

import psutil

from mirrord.runtime.build_info import program
from tests.fixtures.daemon import RAY_START_S, Daemon, Load, all_ends, assert_same, conf, unique
from tests.fixtures.former import FORMER_LAYOUT, former_checkout
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic

"""Ray starts within seconds on an idle machine; a busy one may need several attempts."""
PARTITIONS = 3


def is_copying(daemon: Daemon) -> bool:
    flow = daemon.flow()
    return flow.state == "running" and flow.totals.lanes == {"copying": PARTITIONS}


def ray_processes(daemon: Daemon) -> list[psutil.Process]:
    """Ray's own processes: its head and its node."""
    found: list[psutil.Process] = []
    for child in psutil.Process(daemon.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # many come and go
            if child.name() in {"gcs_server", "raylet"}:
                found.append(child)
    return found


def test_an_upgrade_and_the_death_of_ray_lose_and_double_nothing(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(source, unique("orders"), PARTITIONS)
    more = "[replicators]\ncount = 1\n[ray]\ndashboard = false\n"
    path = conf(tmp_path, source, target, topic, flow=unique("ray"), engine="ray", more=more)
    former = former_checkout(FORMER_LAYOUT, tmp_path / "former")
    with Load(source, topic, PARTITIONS).running() as load, Daemon(path, checkout=former) as old:
        old.until(lambda: "daemon_ready" in old.output, RAY_START_S)
        old.until(lambda: is_copying(old))
        with Daemon(path, "--upgrade") as new:
            new.until(lambda: "daemon_ready" in new.output, RAY_START_S)
            assert old.process.wait(RAY_START_S) == 0, old.output
            assert f"is replaced by mirrord {program()} at {new.http()}\n" in old.output
            new.until(lambda: is_copying(new))
            load.wait_for(2_000)
            head = ray_processes(new)
            assert {each.name() for each in head} == {"gcs_server", "raylet"}
            for process in head:
                with suppress(psutil.NoSuchProcess):  # the one may have ended with the other
                    process.kill()
            assert new.process.wait(RAY_START_S) != 0
        with Daemon(path) as again:
            again.until(lambda: "daemon_ready" in again.output, RAY_START_S)
            again.until(lambda: is_copying(again), RAY_START_S)
            load.wait_for(2_000)
            assert again.stop() == 0
    path.write_text(path.read_text().replace('engine = "ray"', 'engine = "process"'))
    with Daemon(path) as last:
        last.until_copied(all_ends(source, topic))
        assert last.stop() == 0
    assert_same(source, target, [topic], load.written)
