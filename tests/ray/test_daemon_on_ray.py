"""The daemon on a Ray of its own, on two real brokers: what dies is restarted, and what ends leaves nothing behind."""

import json
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from mirrord.lab.cluster import Cluster
from mirrord.lab.ports import LOOPBACK, free_ports
from mirrord.model.status import FlowStatus, ReplicatorStatus
from tests.fixtures.daemon import RAY_START_S, Daemon, Load, all_ends, assert_same, conf, fill, mirrord, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic

"""Ray starts within seconds on an idle machine; a busy one may need several attempts."""
PARTITIONS = 4


def family(daemon: Daemon) -> list[psutil.Process]:
    """The daemon's process and everything that it started."""
    process = psutil.Process(daemon.process.pid)
    return [process, *process.children(recursive=True)]


def until_ended(processes: Iterable[psutil.Process], seconds: float = 30.0) -> None:
    """Wait until the processes have ended; a zombie counts as ended."""
    deadline = time.monotonic() + seconds
    while left := [each for each in processes if is_alive(each)]:
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.1)


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def mirror(source: Cluster, target: Cluster, folder: Path, *, own_port: bool = True) -> tuple[str, Path]:
    """A topic, and a configuration that copies it with two replicators.

    With `own_port`, a supervisor that is killed comes back on the same port, which no daemon of another test takes
    meanwhile. Two daemons cannot share it.
    """
    topic = create_topic(source, unique("orders"), PARTITIONS)
    more = "[replicators]\ncount = 2\n[ray]\ndashboard = false\n"
    if own_port:
        more += f'[http]\nlisten = "{LOOPBACK}:{free_ports(1)[0]}"\n'
    instance = unique("ray")
    path = conf(folder, source, target, topic, flow=unique("ray"), engine="ray", more=more, lease_ttl="10s")
    path.write_text(f'instance = "{instance}"\n{path.read_text()}')
    return topic, path


def is_copying(flow: FlowStatus, lanes: int = PARTITIONS) -> bool:
    return len(flow.replicators) == 2 and flow.totals.lanes == {"copying": lanes}


def own_niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def replicator_of(flow: FlowStatus, partition: int) -> ReplicatorStatus:
    name = next(lane.host for lane in flow.lanes if lane.partition == partition)
    return next(each for each in flow.replicators if each.name == name)


def finish(path: Path, source: Cluster, topic: str) -> None:
    """Copy the rest, with a daemon that needs no Ray."""
    path.write_text(path.read_text().replace('engine = "ray"', 'engine = "process"'))
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        assert daemon.stop() == 0


def test_what_is_killed_comes_back_by_what_was_applied_and_a_stop_leaves_nothing(
    lab_pair: LabPair, tmp_path: Path
) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic, path = mirror(source, target, tmp_path)
    with Load(source, topic, PARTITIONS).running() as load, Daemon(path) as daemon:
        daemon.until(lambda: "daemon_ready" in daemon.output, RAY_START_S)
        daemon.until(lambda: is_copying(daemon.flow()))
        load.wait_for(2_000)

        flow = daemon.flow()
        # By default, Ray gives its workers the niceness 15.
        assert {os.getpriority(os.PRIO_PROCESS, each.pid) for each in flow.replicators} == {own_niceness()}
        victim = replicator_of(flow, 0)
        others = {lane.partition for lane in flow.lanes if lane.host != victim.name}
        assert 0 < len(others) < PARTITIONS, "both replicators have lanes"
        os.kill(victim.pid, signal.SIGKILL)

        def back() -> bool:
            lanes = [lane for lane in daemon.flow().lanes if lane.partition not in others]
            return all(lane.state == "copying" and lane.host != victim.name for lane in lanes)

        daemon.until(back)
        daemon.until(lambda: is_copying(daemon.flow()))
        assert all(each.pid != victim.pid for each in daemon.flow().replicators)

        later = create_topic(source, unique("later"))
        fill(source, later, 1, 100)
        path.write_text(path.read_text().replace(f"['{topic}']", f"['{topic}', '{later}']"))
        assert mirrord("apply", path).returncode == 0
        daemon.until(lambda: is_copying(daemon.flow(), PARTITIONS + 1))

        # It was created with another configuration than the one it received later.
        for _ in range(2):
            before = daemon.flow()
            kill_supervisor(daemon)
            daemon.until(lambda: is_copying(daemon.flow(), PARTITIONS + 1))
            assert pids(daemon.flow()) == pids(before), "its replicators go on"
        takings = sum(fact["kind"] == "lane_taken" for fact in facts(path))
        victim = replicator_of(daemon.flow(), 0)
        kept = pids(daemon.flow()) - {victim.pid}
        os.kill(victim.pid, signal.SIGKILL)
        kill_supervisor(daemon)
        daemon.until(lambda: is_copying(daemon.flow(), PARTITIONS + 1) and victim.pid not in pids(daemon.flow()))
        assert kept < pids(daemon.flow())
        kinds = [fact["kind"] for fact in facts(path)]
        assert takings < kinds.count("lane_taken") <= takings + 2 * victim.lanes
        assert (kinds.count("lease_taken"), kinds.count("lease_continued")) == (1, 3)
        written = "".join(path.read_text() for path in (tmp_path / "logs").glob("*replicator-*.log"))
        assert '"event_loop": "uvloop' in written, "Ray's async actors run on uvloop"
        load.wait_for(2_000)
        processes = family(daemon)
        assert len(processes) > 5
        assert daemon.stop() == 0
    until_ended(processes)
    finish(path, source, topic)
    assert_same(source, target, [topic, later], load.written + 100)


def pids(flow: FlowStatus) -> set[int]:
    return {each.pid for each in flow.replicators}


def facts(path: Path) -> list[dict[str, object]]:
    shown = mirrord("ledger", "show", "--json", path)
    assert shown.returncode == 0, shown.stderr
    return [json.loads(line) for line in shown.stdout.splitlines()]


def kill_supervisor(daemon: Daemon) -> None:
    """Kill it with kill -9; returns when Ray has restarted it."""
    lease = daemon.flow().lease
    assert lease is not None
    os.kill(lease.pid, signal.SIGKILL)
    daemon.until(lambda: came_back(daemon, lease.pid))


def came_back(daemon: Daemon, former: int) -> bool:
    """Another supervisor process answers HTTP, and holds the lease."""
    try:
        lease = daemon.flow().lease
    except OSError:
        return False
    return lease is not None and lease.pid != former


def test_a_daemon_killed_with_9_ends_with_its_ray_and_the_next_one_continues(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic, path = mirror(source, target, tmp_path)
    with Load(source, topic, PARTITIONS).running() as load:
        with Daemon(path) as daemon:
            daemon.until(lambda: "daemon_ready" in daemon.output, RAY_START_S)
            daemon.until(lambda: is_copying(daemon.flow()))
            load.wait_for(2_000)
            processes = family(daemon)
            daemon.kill()
        until_ended(processes)
    finish(path, source, topic)
    assert_same(source, target, [topic], load.written)


def test_replicators_that_wake_up_when_another_daemon_has_the_flow_end_by_themselves(
    lab_pair: LabPair, tmp_path: Path
) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic, path = mirror(source, target, tmp_path, own_port=False)
    other = tmp_path / "other.toml"
    other.write_text(path.read_text().replace('engine = "ray"', 'engine = "process"').replace("instance = ", "#"))
    with Load(source, topic, PARTITIONS).running() as load, Daemon(path) as daemon:
        daemon.until(lambda: "daemon_ready" in daemon.output, RAY_START_S)
        daemon.until(lambda: is_copying(daemon.flow()))
        flow = daemon.flow()
        assert flow.lease is not None
        supervisor = flow.lease.pid
        zombies = [psutil.Process(each.pid) for each in flow.replicators]
        with Daemon(other) as standby:
            standby.until(lambda: standby.flow().state == "standby")
            for pid in (supervisor, *(each.pid for each in zombies)):
                os.kill(pid, signal.SIGSTOP)
            standby.until(lambda: standby.flow().totals.lanes == {"copying": PARTITIONS})
            load.wait_for(2_000)
            for each in zombies:
                os.kill(each.pid, signal.SIGCONT)
            # They are not told: their supervisor is still suspended.
            until_ended(zombies)
            with suppress(ProcessLookupError):
                os.kill(supervisor, signal.SIGCONT)
            daemon.until(lambda: reached_standby(daemon))
            load.wait_for(2_000)
            assert daemon.stop() == 0
            assert standby.stop() == 0
    finish(path, source, topic)
    assert_same(source, target, [topic], load.written)


def reached_standby(daemon: Daemon) -> bool:
    try:
        return daemon.flow().state == "standby"
    except OSError:
        return False
