"""A failover while the processes of a daemon on Ray are suspended: none of them copies when they wake up."""

import signal
from pathlib import Path

import psutil

from tests.fixtures.daemon import RAY_START_S, Daemon
from tests.fixtures.failover import MARKER, failover, stays, writing
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import ends
from tests.ray.test_daemon_on_ray import PARTITIONS, family, is_copying, mirror, until_ended


def workers(daemon: Daemon) -> list[psutil.Process]:
    """Return the processes of the daemon's actors, and Ray's other workers."""
    return [each for each in family(daemon) if each.cmdline()[:1] and each.cmdline()[0].startswith("ray::")]


def has_ended(daemon: Daemon) -> bool:
    """Return whether the daemon answers that the flow has ended. Its supervisor may be about to start again."""
    try:
        return daemon.flow().state == "ended"
    except OSError:
        return False


def test_a_frozen_daemon_wakes_up_after_the_failover(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic, path = mirror(source, target, tmp_path, own_port=False)
    into = f"eu.{topic}"
    with writing(source, topic, PARTITIONS) as written, Daemon(path) as daemon:
        daemon.until(lambda: "daemon_ready" in daemon.output, RAY_START_S)
        daemon.until(lambda: is_copying(daemon.flow()))
        written(2_000)
        replicators = [psutil.Process(each.pid) for each in daemon.flow().replicators]
        frozen = workers(daemon)
        assert {each.pid for each in replicators} <= {each.pid for each in frozen}
        for each in frozen:
            each.send_signal(signal.SIGSTOP)
        receipt = failover(path, "--source-lost")
        copied = ends(target, into)
        assert receipt["outcome"] == "complete"
        assert {each["partition"]: each["start"] + MARKER for each in receipt["lost"]} == copied
        written(1_000)
        for each in frozen:
            each.send_signal(signal.SIGCONT)
        until_ended(replicators)
        daemon.until(lambda: has_ended(daemon))
        written(1_000)
        stays(lambda: ends(target, into) == copied)
        assert daemon.stop() == 0
