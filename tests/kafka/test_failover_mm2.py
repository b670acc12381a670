"""Failovers with a file of MirrorMaker 2 that has a flow in each direction.

The daemon uses the same file, converted, because only a conf.toml can choose the process engine. The commands use the
file of MirrorMaker 2 itself.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirrord.lab.cluster import Cluster
from mirrord.supervision.rules.failover_plan import STEPS
from tests.fixtures.daemon import Daemon, fill, mirrord, unique
from tests.fixtures.failover import MARKER, failovers, ledger_of, stays
from tests.fixtures.groups import commit, committed
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic, ends


@dataclass(frozen=True)
class Way:
    """The flow in one direction."""

    source: Cluster
    target: Cluster
    flow: str
    topic: str
    into: str
    group: str

    def write(self, records: int) -> None:
        fill(self.source, self.topic, 1, records)

    def copied(self) -> int:
        return ends(self.target, self.into)[0]

    def position(self) -> int | None:
        return committed(self.target, self.group, self.into)[0]

    @property
    def is_begun(self) -> bool:
        return bool(ledger_of(self.target, self.flow).recoveries)


class Mm2:
    """A file with the flows A -> B and B -> A, and the daemon that copies both."""

    def __init__(self, pair: LabPair, folder: Path) -> None:
        a, b = unique("a"), unique("b")
        self.ways = [self._way(pair.source, pair.target, a, b), self._way(pair.target, pair.source, b, a)]
        self.path = folder / "mm2.properties"
        lines = [
            f"clusters = {a}, {b}",
            f"{a}.bootstrap.servers = {pair.source.bootstrap}",
            f"{b}.bootstrap.servers = {pair.target.bootstrap}",
            f"{a}->{b}.enabled = true",
            f"{b}->{a}.enabled = true",
            *(f"{flow}.topics = {way.topic}" for flow, way in zip((f"{a}->{b}", f"{b}->{a}"), self.ways, strict=True)),
            *(f"{flow}.groups = {way.group}" for flow, way in zip((f"{a}->{b}", f"{b}->{a}"), self.ways, strict=True)),
            "replication.factor = 1",
            "refresh.topics.interval.seconds = 1",
            "sync.group.offsets.enabled = true",
            "sync.group.offsets.interval.seconds = 1",
            "refresh.groups.interval.seconds = 1",
            *(f"emit.{each}.enabled = false" for each in ("heartbeats", "checkpoints", "offset-syncs")),
            "heartbeats.replication.enabled = false",
            "sync.topic.acls.enabled = false",
        ]
        self.path.write_text("\n".join(lines) + "\n")
        converted = mirrord("convert", self.path)
        assert converted.returncode == 0, converted.stderr
        self.converted = folder / "conf.toml"
        runtime = '[runtime]\nengine = "process"\nlease_ttl = "3s"\nrequest_timeout = "4s"\n'
        self.converted.write_text(f'{converted.stdout}\n{runtime}[logs]\ndir = "{folder / "logs"}"\n')

    @staticmethod
    def _way(source: Cluster, target: Cluster, start: str, end: str) -> Way:
        topic = create_topic(source, unique("orders"), 1)
        fill(source, topic, 1, 50)
        return Way(source, target, f"{start}-{end}", topic, f"{start}.{topic}", f"{topic}-group")

    def copying(self) -> Daemon:
        """Start a daemon, and wait until it has copied everything in both directions."""
        daemon = Daemon(self.converted)
        for way in self.ways:
            daemon.until(lambda way=way: way.into in topics(daemon, way) and way.copied() == 50)
            commit(way.source, way.group, way.topic, {0: 20})
            daemon.until(lambda way=way: way.position() == 20)
        return daemon

    def dry_run(self, *options: str) -> dict[str, Any]:
        """Show what a failover would do, and assert that it has done nothing."""
        shown = mirrord("failover", self.path, "--dry-run", "--json", *options)
        assert shown.returncode == 0, shown.stdout + shown.stderr
        assert not any(way.is_begun for way in self.ways)
        return json.loads(shown.stdout)


def topics(daemon: Daemon, way: Way) -> set[str]:
    """The target topics of the flow's lanes."""
    return {lane.target_topic for flow in daemon.status().flows if flow.name == way.flow for lane in flow.lanes}


def states(daemon: Daemon) -> dict[str, str]:
    return {flow.name: flow.state for flow in daemon.status().flows}


def test_one_direction_ends_and_then_both(lab_pair: LabPair, tmp_path: Path) -> None:
    mm2 = Mm2(lab_pair, tmp_path)
    gone, kept = mm2.ways
    with mm2.copying() as daemon:
        shown = mm2.dry_run("--planned")
        assert (shown["steps"], len(shown["plan"])) == ([*STEPS["planned"]], 2)
        assert {each["flow"] for each in shown["ready"]["flows"]} == {gone.flow, kept.flow}
        chosen = mm2.dry_run("--planned", "--flow", gone.flow)
        assert [each["flow"] for each in chosen["ready"]["flows"]] == [gone.flow]

        receipts = failovers(mm2.path, "--planned", "--flow", gone.flow)
        assert [*receipts] == [gone.flow]
        ended = receipts[gone.flow]
        assert (ended["outcome"], ended["lost"], ended["names"]) == ("complete", [], {gone.topic: gone.into})
        daemon.until(lambda: states(daemon) == {gone.flow: "ended", kept.flow: "running"})
        for way in mm2.ways:
            way.write(30)
            commit(way.source, way.group, way.topic, {0: 40})
        daemon.until(lambda: (kept.copied(), kept.position()) == (80, 40))
        stays(lambda: gone.copied() == 50 + MARKER)
        assert gone.position() == 20
        assert not kept.is_begun

        both = failovers(mm2.path, "--planned")
        assert both[gone.flow] == ended
        assert (both[kept.flow]["outcome"], both[kept.flow]["lost"]) == ("complete", [])
        assert both[kept.flow]["names"] == {kept.topic: kept.into}
        daemon.until(lambda: set(states(daemon).values()) == {"ended"})
        kept.write(10)
        stays(lambda: (gone.copied(), kept.copied()) == (50 + MARKER, 80 + MARKER))
        assert daemon.stop() == 0


def test_both_directions_end_at_once_without_a_daemon(lab_pair: LabPair, tmp_path: Path) -> None:
    mm2 = Mm2(lab_pair, tmp_path)
    with mm2.copying() as daemon:
        daemon.kill()
    for way in mm2.ways:
        way.write(10)
    mm2.dry_run("--source-lost")
    receipts = failovers(mm2.path, "--source-lost")
    assert {*receipts} == {way.flow for way in mm2.ways}
    for way in mm2.ways:
        receipt = receipts[way.flow]
        assert (receipt["outcome"], receipt["mode"], receipt["partitions"]) == ("complete", "source-lost", 1)
        (lost,) = receipt["lost"]
        assert (lost["topic"], lost["start"], lost["end"], lost["target_end"]) == (way.topic, 50, 60, 50 + MARKER)
        assert way.position() == 20
    assert failovers(mm2.path, "--source-lost") == receipts
    with Daemon(mm2.converted) as daemon:
        daemon.until(lambda: set(states(daemon).values()) == {"ended"})
        stays(lambda: all(way.copied() == 50 + MARKER for way in mm2.ways))
        assert daemon.stop() == 0
