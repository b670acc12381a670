"""What was left behind by a failover comes back: daemons that wake up, start again or start elsewhere copy nothing."""

import shutil
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from mirrord.lab.cluster import Cluster
from tests.fixtures.altered_mirrord import FREEZES_AT, HOST_NAME
from tests.fixtures.daemon import SECONDS, Daemon, all_ends, conf, fill, unique
from tests.fixtures.failover import (
    ALTERED,
    MARKER,
    Gate,
    command,
    failover,
    groups_for,
    ledger_of,
    stays,
    steps_of,
    until,
    up_to,
    writing,
)
from tests.fixtures.groups import commit, committed
from tests.fixtures.lab import LabFactory, LabPair, client_settings
from tests.fixtures.mirror import create_topic, ends, messages


def values(cluster: Cluster, topic: str, partition: int) -> list[bytes | str | None]:
    return [message.value() for message in messages(cluster, topic, partition)]


@pytest.mark.parametrize("wakes", ["after the failover", "during the failover"])
def test_a_frozen_daemon_wakes_up(lab_pair: LabPair, tmp_path: Path, wakes: str) -> None:
    """The source lives, so that a copied record would be noticed."""
    source, target, flow = lab_pair.source, lab_pair.target, unique("frozen")
    topic, into, gate = create_topic(source, flow, 2), f"eu.{flow}", Gate(tmp_path, flow)
    if wakes == "after the failover":
        gate.open()
    path = conf(tmp_path, source, target, topic, flow=flow, flow_more=gate.key)
    with Daemon(path) as daemon, writing(source, topic, 2) as written:
        daemon.until(lambda: daemon.flow().totals.lanes == {"copying": 2})
        written(2_000)
        daemon.until(lambda: min(ends(target, into).values()) > 500)
        epoch = ledger_of(target, flow).lease_epoch
        daemon.process.send_signal(signal.SIGSTOP)
        begun = ends(source, topic)
        with subprocess.Popen(command(path, "--source-lost"), stdout=subprocess.DEVNULL) as running:
            if wakes == "during the failover":
                until(lambda: ledger_of(target, flow).lease_epoch > epoch)
                daemon.process.send_signal(signal.SIGCONT)
                written(1_000)
                daemon.until(lambda: daemon.flow().state == "standby")
                gate.open()
            assert running.wait(SECONDS) == 0
        receipt, copied = failover(path, "--source-lost"), ends(target, into)
        written(1_000)
        if wakes == "after the failover":
            daemon.process.send_signal(signal.SIGCONT)
        daemon.until(lambda: daemon.flow().state == "ended")
        written(1_000)
        stays(lambda: ends(target, into) == copied)
        assert daemon.stop() == 0
    for each in receipt["lost"]:
        assert begun[each["partition"]] <= each["end"] < ends(source, topic)[each["partition"]]
    assert_prefix(source, target, topic, receipt)


def assert_prefix(source: Cluster, target: Cluster, topic: str, receipt: dict[str, Any]) -> None:
    """Each partition of the target holds the records of the source up to the lost range, and nothing else."""
    into = f"eu.{topic}"
    copied = ends(target, into)
    assert receipt["lost"]
    for each in receipt["lost"]:
        assert each["start"] + MARKER == each["target_end"] == copied[each["partition"]]
    for partition, end in copied.items():
        there = values(target, into, partition)
        assert len(there) == end - MARKER
        assert there == values(source, topic, partition)[: end - MARKER]


def test_a_frozen_daemon_wakes_up_after_another_one_has_failed_over(lab_pair: LabPair, tmp_path: Path) -> None:
    """A standby has taken the flow, and copies until it carries out the failover."""
    source, target, flow = lab_pair.source, lab_pair.target, unique("twice")
    topic, into = create_topic(source, flow, 2), f"eu.{flow}"
    path = conf(tmp_path, source, target, topic, flow=flow)
    other = path.with_suffix(".other.toml")
    other.write_text(f'instance = "other"\n{path.read_text()}')
    with Daemon(path) as daemon, writing(source, topic, 2) as written:
        daemon.until(lambda: daemon.flow().totals.lanes == {"copying": 2})
        with Daemon(other) as standby:
            standby.until(lambda: standby.flow().state == "standby")
            daemon.process.send_signal(signal.SIGSTOP)
            standby.until(lambda: standby.flow().totals.lanes == {"copying": 2})
            written(1_000)
            receipt = failover(path, "--source-lost")
            standby.until(lambda: standby.flow().state == "ended")
            copied = ends(target, into)
            written(1_000)
            daemon.process.send_signal(signal.SIGCONT)
            daemon.until(lambda: daemon.flow().state == "ended")
            written(1_000)
            stays(lambda: ends(target, into) == copied)
            assert (daemon.stop(), standby.stop()) == (0, 0)
    assert_prefix(source, target, topic, receipt)


def test_copies_of_the_file_start_elsewhere(lab_pair: LabPair, tmp_path: Path) -> None:
    """The old file, its copy in another folder, its copy on another machine with another instance, and a standby that
    was there before."""
    source, target, flow = lab_pair.source, lab_pair.target, unique("elsewhere")
    topic, into = create_topic(source, f"{flow}-1", 2), f"eu.{flow}-1"
    fill(source, topic, 2, 100)
    path = conf(tmp_path, source, target, f"{flow}-.*", flow=flow, flow_more=groups_for(flow))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    copy, other, third = (folder / name for name in ("copy.toml", "other.toml", "third.toml"))
    shutil.copyfile(path, copy)
    for name in (other, third):
        name.write_text(f'instance = "{name.stem}"\n{path.read_text()}')
    elsewhere = {HOST_NAME: "elsewhere"}
    with Daemon(path) as daemon, Daemon(third, module=ALTERED, environment=elsewhere) as standby:
        daemon.until(lambda: {daemon.flow().state, standby.flow().state} == {"running", "standby"})
        daemon.until(lambda: ends(target, into) == {0: 50, 1: 50})
        commit(source, f"{flow}-group", topic, {0: 20, 1: 30})
        assert failover(path, "--planned")["outcome"] == "complete"
        for each in (daemon, standby):
            each.until(lambda each=each: each.flow().state == "ended")
        daemon.kill()
        with ExitStack() as daemons:
            started = [Daemon(path), Daemon(copy), Daemon(other, module=ALTERED, environment=elsewhere)]
            for each in started:
                daemons.enter_context(each)
            # A topic that is created after the failover belongs to the flow that has ended as well.
            later = create_topic(source, f"{flow}-2", 1)
            fill(source, topic, 2, 30)
            fill(source, later, 1, 30)
            commit(source, f"{flow}-group", topic, {0: 40, 1: 40})
            for each in started:
                each.until(lambda each=each: each.flow().state == "ended")
            stays(lambda: ends(target, into) == {0: 50 + MARKER, 1: 50 + MARKER})
            assert committed(target, f"{flow}-group", into, range(2)) == {0: 20, 1: 30}
            assert f"eu.{later}" not in AdminClient(client_settings(target)).list_topics(timeout=SECONDS).topics
            assert [each.stop() for each in (*started, standby)] == [0] * 4


def test_the_source_is_turned_off_as_soon_as_the_copying_has_ended(
    lab_cluster: LabFactory, lab_pair: LabPair, tmp_path: Path
) -> None:
    """A planned failover comes to its end without the commits of the source, which the daemon cannot verify then."""
    source, target, flow = lab_cluster(), lab_pair.target, unique("off")
    topic, into = create_topic(source, flow, 2), f"eu.{flow}"
    fill(source, topic, 2, 100)
    path = conf(tmp_path, source, target, topic, flow=flow, flow_more=groups_for(flow), lease_ttl="20s")
    with Daemon(path, module=ALTERED, environment={FREEZES_AT: "end"}) as daemon:
        daemon.until_copied(all_ends(source, topic))
        commit(source, f"{flow}-group", topic, {0: 20, 1: 30})
        daemon.until(lambda: committed(target, f"{flow}-group", into, range(2)) == {0: 20, 1: 30})
        with subprocess.Popen(command(path, "--planned"), stdout=subprocess.DEVNULL) as running:
            process = psutil.Process(daemon.process.pid)
            daemon.until(lambda: process.status() == psutil.STATUS_STOPPED)
            assert steps_of(target, flow) == up_to("planned", "end")
            source.kill()
            process.resume()
            assert running.wait(SECONDS) == 0
        receipt = failover(path, "--planned")
        assert (receipt["outcome"], receipt["partitions"], receipt["lost"]) == ("complete", 2, [])
        (groups,) = (each["outcome"] for each in receipt["steps"] if each["step"] == "groups")
        assert groups.startswith("2 positions are known exactly")
        daemon.until(lambda: daemon.flow().state == "ended")
        assert daemon.stop() == 0
    assert ends(target, into) == {0: 50 + MARKER, 1: 50 + MARKER}
    assert committed(target, f"{flow}-group", into, range(2)) == {0: 20, 1: 30}
