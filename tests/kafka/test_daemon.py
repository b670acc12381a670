"""The daemon as users run it, on two real brokers: one command copies, crashes cost nothing, status needs no daemon."""

import asyncio
import time
import urllib.request
from pathlib import Path

from mirrord.config.loader import load
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.operations.status_report import LedgerView, read_ledgers
from tests.fixtures.daemon import SECONDS, Daemon, Load, all_ends, assert_same, conf, fill, mirrord, status, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic


def recorded(path: Path) -> int:
    """How far the progress marks on the target are, summed over all lanes."""
    config = load(path)
    (view,) = asyncio.run(read_ledgers(config, ClusterAccess(config))).values()
    assert isinstance(view, LedgerView)
    return sum(mark.source_offset for mark in view.state.progress.values())


def test_one_command_copies_everything_and_a_restart_continues(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic, late = (create_topic(source, unique("orders"), 3), unique("orders"))
    path = conf(tmp_path, source, target, f"{topic}|{late}", flow=unique("one"))
    fill(source, topic, 3, 3_000)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        create_topic(source, late, 2)
        fill(source, late, 2, 500)
        daemon.until_copied(all_ends(source, topic, late))
        flow = daemon.flow()
        assert (flow.state, flow.totals.lag_records, flow.totals.raw_share) == ("running", 0, 1.0)
        assert flow.guarantee == "exactly-once"
        with urllib.request.urlopen(f"{daemon.http()}/readyz", timeout=SECONDS) as answer:
            assert answer.status == 200
        assert daemon.stop() == 0
    assert daemon.events()[-1]["event"] == "daemon_stopped"
    (left,) = status(path).flows
    assert (left.state, left.totals.lanes, left.totals.lag_records, left.lease) == ("stopped", {"drained": 5}, 0, None)
    fill(source, topic, 3, 3_000, first=3_000)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic, late))
        assert daemon.stop() == 0
    assert_same(source, target, [topic, late], 6_500)


def test_kill_9_at_any_moment_costs_and_doubles_nothing(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(source, unique("orders"), 4)
    path = conf(tmp_path, source, target, topic, flow=unique("kill"))
    with Load(source, topic, 4).running() as load:
        for _ in range(3):
            with Daemon(path) as daemon:
                daemon.until(lambda daemon=daemon: (daemon.flow().totals.copied_records or 0) > 0)
                load.wait_for(2_000)
                daemon.kill()
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        assert daemon.stop() == 0
    assert_same(source, target, [topic], load.written)


def test_two_daemons_of_one_flow_double_nothing_and_the_standby_takes_over(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(source, unique("orders"), 2)
    path = conf(tmp_path, source, target, topic, flow=unique("two"))
    with Load(source, topic, 2).running() as load, Daemon(path) as one, Daemon(path) as other:
        states = {"running", "standby"}
        one.until(lambda: {one.flow().state, other.flow().state} == states)
        holder, standby = (one, other) if one.flow().state == "running" else (other, one)
        assert standby.flow().lease == holder.flow().lease or standby.flow().lease is not None
        holder.until(lambda: (holder.flow().totals.copied_records or 0) > 0)
        load.wait_for(2_000)
        holder.kill()
        standby.until(lambda: standby.flow().state == "running")
        load.wait_for(2_000)
        standby.until(lambda: (standby.flow().totals.copied_records or 0) > 0)
        assert standby.stop() == 0
    with Daemon(path) as last:
        last.until_copied(all_ends(source, topic))
        assert last.stop() == 0
    assert_same(source, target, [topic], load.written)


def test_two_daemons_of_different_flows_live_side_by_side(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topics = [create_topic(source, unique("orders"), 1) for _ in range(2)]
    paths = [conf(tmp_path, source, target, topic, flow=unique("side")) for topic in topics]
    for topic in topics:
        fill(source, topic, 1, 100)
    with Daemon(paths[0]) as one, Daemon(paths[1]) as other:
        for daemon, topic in ((one, topics[0]), (other, topics[1])):
            daemon.until_copied(all_ends(source, topic))
        assert one.http() != other.http()
        assert mirrord("stop", paths[0]).returncode == 0
        assert one.process.wait(SECONDS) == 0
        assert other.flow().state == "running"
        assert other.stop() == 0


def test_status_and_lag_from_the_target_alone(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(source, unique("orders"), 2)
    path = conf(tmp_path, source, target, topic, flow=unique("alone"))
    assert status(path).flows[0].note == "the flow has never run"
    fill(source, topic, 2, 1_000)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        daemon.until(lambda: status(path).gathered == "daemon")
        daemon.until(lambda: recorded(path) == 1_000)
        daemon.kill()
    fill(source, topic, 2, 10, first=1_000)
    (flow,) = status(path).flows
    assert (flow.state, flow.source.reachable, flow.totals.lag_records) == ("down", True, 10)
    source.kill()
    document = status(path)
    (flow,) = document.flows
    assert document.gathered == "target"
    assert (flow.state, flow.source.reachable, flow.target.reachable) == ("down", False, True)
    assert [(lane.partition, lane.source_offset, lane.lag_records) for lane in flow.lanes] == [(0, 500, 0), (1, 500, 0)]
    assert flow.lease is not None
    assert flow.lease.pid == daemon.process.pid
    shown = mirrord("lag", path)
    assert shown.returncode == 0
    assert f"{topic}-1" in shown.stdout
    assert "eu is unreachable" in shown.stdout


def test_a_target_that_hangs_does_not_hold_up_a_stop(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(source, unique("orders"), 1)
    path = conf(tmp_path, source, target, topic, flow=unique("hang"))
    with Load(source, topic, 1).running() as load, Daemon(path) as daemon:
        daemon.until(lambda: (daemon.flow().totals.copied_records or 0) > 0)
        target.pause()
        try:
            load.wait_for(200)
            assert daemon.stop(20) == 0
        finally:
            target.resume()
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        assert daemon.stop() == 0
    assert_same(source, target, [topic], load.written)


def test_a_detached_daemon_outlives_its_command_and_stops_on_order(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(source, unique("orders"), 1)
    fill(source, topic, 1, 100)
    path = conf(tmp_path, source, target, topic, flow=unique("detached"))
    assert mirrord("stop", path).stdout == "no daemon is running these flows\n"
    started = mirrord("start", path, "--detach")
    assert started.returncode == 0, started.stderr
    assert started.stdout.startswith("mirrord is running in the background: pid ")
    pid = int(started.stdout.split("pid ")[1].split(",")[0])
    assert status(path).flows[0].state == "running"
    stopped = mirrord("stop", path)
    assert stopped.returncode == 0, stopped.stderr
    assert stopped.stdout.startswith("stopped the daemon at http://127.0.0.1:")
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.1)
    assert status(path).flows[0].state == "stopped"
    assert (tmp_path / "logs" / "mirrord-daemon.log").exists()
