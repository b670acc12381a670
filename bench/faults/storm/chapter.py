"""One chapter: new clusters, steady load, faults for some minutes, and the comparison of all that was written."""

import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

import msgspec
import psutil

from bench.faults.ending import await_end, ends_of
from bench.faults.storm import ground as grounds
from bench.faults.storm.clocks import Clock, library
from bench.faults.storm.disks import SmallDisk
from bench.faults.storm.ground import SIDES, Ground, Side
from bench.faults.storm.judging import Verdict, judge
from bench.faults.storm.kinds import KINDS, Flavor, Kind, Missing, Order, playable
from bench.faults.storm.leaders import Leaders
from bench.faults.storm.load import COMPACT, KEYED, TOPICS, Streams, repeat
from bench.faults.storm.network import Network, is_inside
from bench.faults.storm.striking import Record, Striker
from bench.faults.storm.watch import Watch
from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon, Settings, target_name
from mirrord.lab.cluster import Cluster
from mirrord.lab.jars import KAFKA_VERSION
from mirrord.lab.server_properties import CONTROLLER_ID

START_S = 180.0
_FLOW = 'sync = { configs = false, acls = "off" }\nlimits = { map_bytes = "8MiB" }\n'

PrintLine = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a chapter is to do."""

    seed: int
    minutes: float
    records_per_s: float
    engine: Literal["ray", "process"]
    flavor: Flavor
    sizes: Mapping[Side, int]
    """The number of brokers of each cluster."""
    missing: Missing
    at_once: int = 1
    """Number of faults that last at any time."""
    only: frozenset[str] = frozenset()
    """Names of the only kinds of faults. Empty: all."""
    evidence: Path | None = None
    """The folder that gets the logs if something is wrong."""

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of faults that the chapter plays."""
        kinds = playable(KINDS, self.missing, self.flavor)
        return [kind for kind in kinds if not self.only or kind.name in self.only]


@dataclass
class Outcome:
    """What a chapter has shown."""

    plan: Plan
    record: Record = field(default_factory=Record)
    verdict: Verdict = field(default_factory=Verdict)
    seconds: float = 0.0
    """Duration of the faults."""
    load: float = 0.0
    """The load average of the machine before the chapter."""
    failure: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing went wrong."""
        return not self.failure and not self.record.failures and not self.verdict.difference


def play(plan: Plan, print_line: PrintLine) -> Outcome:
    """Play a chapter. Whatever goes wrong is part of the outcome."""
    outcome = Outcome(plan, load=psutil.getloadavg()[0])
    with tempfile.TemporaryDirectory(prefix="mirrord-storm-") as name, ExitStack() as everything:
        folder = Path(name)
        ground: Ground | None = None
        try:
            ground = _ground(plan, folder, everything, print_line)
            _play(plan, ground, outcome, print_line)
        except Exception as error:  # noqa: BLE001 - the outcome says it, and the evidence is kept
            outcome.failure = f"{type(error).__name__}: {error}"
            print_line("".join(traceback.format_exception(error)))
        if not outcome.passed and plan.evidence is not None:
            _keep_evidence(plan.evidence, folder, ground, outcome)
            print_line(f"the logs are in {plan.evidence}")
    return outcome


def _ground(plan: Plan, folder: Path, everything: ExitStack, print_line: PrintLine) -> Ground:
    """Start the clusters, the load and the daemon."""
    network = Network() if is_inside() else None
    clocks = _clocks(plan, folder)
    version = grounds.OLDER if plan.flavor == "upgrade" else KAFKA_VERSION
    environments = {name: clock.environment for name, clock in clocks.items()}
    clusters = everything.enter_context(grounds.clusters(plan.sizes, version, environments, folder))
    disks: dict[str, SmallDisk] = {}
    if plan.flavor == "disks":
        disks = {side: grounds.put_on_small_disk(cluster) for side, cluster in clusters.items()}
        spill = folder / "spill"
        spill.mkdir()
        disks["spill"] = SmallDisk(spill)
        for disk in disks.values():
            everything.callback(disk.close)
    streams = everything.enter_context(Streams(clusters["source"].aside, plan.seed, plan.records_per_s))
    streams.begin()
    environment = dict(environments.get("mirrord", {}))
    if "spill" in disks:
        environment["TMPDIR"] = str(disks["spill"].folder)
    daemons = [_daemon(plan, folder, clusters, name, environment) for name in ("one", "two")]
    for daemon in daemons:
        everything.callback(daemon.kill)
    older: set[tuple[Side, int]] = {
        (side, node) for side in SIDES for node in clusters[side].options.node_ids if plan.flavor == "upgrade"
    }
    return Ground(
        clusters=clusters, daemon=daemons[0], second=daemons[1], streams=streams, print_line=print_line,
        network=network, disks=disks, clocks=clocks, older=older,
    )  # fmt: skip


def _clocks(plan: Plan, folder: Path) -> dict[str, Clock]:
    preload = library(download=False) if plan.flavor == "clocks" else None
    if preload is None:
        return {}
    names = [f"{side}-{node}" for side, size in plan.sizes.items() for node in (*range(1, size + 1), CONTROLLER_ID)]
    return {name: Clock(preload, folder / f"{name}.clock") for name in (*names, "mirrord")}


def _daemon(
    plan: Plan, folder: Path, clusters: Mapping[Side, Cluster], name: str, environment: Mapping[str, str]
) -> Daemon:
    # A standby does not need a Ray cluster.
    engine = plan.engine if name == "one" else "process"
    return Daemon(
        folder,
        Settings(
            source=clusters["source"].bootstrap,
            target=clusters["target"].bootstrap,
            topics=TOPICS,
            engine=engine,
            instance=name,
            replicators=2 if engine == "ray" else "auto",
            flow_more=_FLOW,
            environment=environment,
        ),
    )


def _play(plan: Plan, ground: Ground, outcome: Outcome, print_line: PrintLine) -> None:
    daemon, streams, clusters = ground.daemon, ground.streams, ground.clusters
    daemon.start()
    lanes = sum(streams.standing().values())
    daemon.wait_for("lanes", lambda flow: flow.totals.lanes.get("copying", 0) >= lanes, START_S)
    starts = Admin(clusters["source"].aside).starts(streams.standing())
    repeat(lambda: Leaders(clusters["target"].aside).configure(target_name(KEYED), COMPACT))
    watches: dict[Side, Watch] = {
        "source": Watch(_asides(clusters["source"]), streams.places),
        "target": Watch(
            _asides(clusters["target"]),
            lambda: {(target_name(topic), at): age for (topic, at), age in streams.places().items()},
        ),
    }
    chance = Random(plan.seed)
    striker = Striker(ground, Order(plan.kinds, chance), watches, chance, at_once=plan.at_once)
    outcome.record, began = striker.record, time.monotonic()
    try:
        striker.run(plan.minutes * 60)
    finally:
        ground.ending.set()
        outcome.seconds = time.monotonic() - began
    if striker.record.failures:
        return
    print_line(f"{striker.record.faults.total()} faults, {streams.records:,} records written; all must be copied now")
    numbered = streams.stop()
    standing = streams.standing()
    striker.keep_daemon()
    await_end([daemon], ends_of(clusters["source"].aside, standing), print_line)
    daemon.stop()
    print_line("comparing")
    began = time.monotonic()
    exact = streams.exact()
    outcome.verdict = judge(
        clusters["source"].aside, clusters["target"].aside, exact, numbered, standing, starts, daemon.conf
    )
    print_line(f"compared in {time.monotonic() - began:.0f} s")


def _asides(cluster: Cluster) -> list[int]:
    return [cluster.ports(broker).aside for broker in cluster.options.broker_ids]


def _keep_evidence(kept: Path, folder: Path, ground: Ground | None, outcome: Outcome) -> None:
    """Copy the logs of mirrord and of the brokers, what the ledger names, the ledger itself, and the partitions that
    halted or that differ. The fault may not be seen a second time."""
    kept.mkdir(parents=True, exist_ok=True)
    lines = [repr(outcome.plan), outcome.failure, repr(outcome.record), repr(outcome.verdict)]
    (kept / "outcome.txt").write_text("\n".join(lines))
    flow = ground.daemon.flow() if ground else None
    if flow is not None:
        (kept / "flow.json").write_bytes(msgspec.json.format(msgspec.json.encode(flow)))
    for pattern in ("*.out", "*.toml", "logs/*", "*/node-*/kafka.log"):
        for file in folder.glob(pattern):
            if file.is_file():
                shutil.copy(file, kept / "-".join(file.relative_to(folder).parts))
    halted = [lane for lane in flow.lanes if lane.state == "halted"] if flow is not None else []
    names = {f"{topic}-{lane.partition}" for lane in halted for topic in (lane.topic, lane.target_topic)}
    found = [line.partition(":")[0] for line in outcome.verdict.where]
    names |= {each for name in found for each in (name, target_name(name)) if name}
    for name in (*sorted(names), "mirrord.*-0"):
        for part in folder.glob(f"*/node-*/**/{name}"):
            shutil.copytree(part, kept / "partitions" / part.relative_to(folder), dirs_exist_ok=True)
