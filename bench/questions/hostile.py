"""Does a hostile source cluster slow down the healthy flow of the same daemon?

One daemon has three flows to one target. The flow `healthy` copies 1,000 records a second from a real broker. The
source of the flows `hostile` and `scram` is the broker of `bench.faults.hostile`. Its answers are valid until all flows
have started. Then its addresses refuse connections for the first quiet period. After that it is back, and changes its
attack every 20 to 40 seconds. When it has gone again, the second quiet period begins. The latency of the healthy flow
is measured as in the question `latency`, in both quiet periods together and during the attack.
"""

import math
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from bench.faults.hostile.broker import MECHANISM, PASSWORD, Received
from bench.faults.hostile.rotation import ALL, SCRAM, USUAL_MINUTES, Phase, rotation
from bench.harness.clusters import Admin
from bench.harness.copiers import high_water
from bench.harness.daemon import Daemon, Settings, target_name
from bench.harness.load import Topic
from bench.harness.vitals import kind_of
from bench.questions import latency
from mirrord.lab.cluster import Cluster
from mirrord.lab.copy_checker import DifferenceCounts, TopicPair, compare
from mirrord.lab.ports import LOOPBACK, free_ports
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import FlowStatus
from mirrord.runtime.leash import leashed

MINUTES = USUAL_MINUTES
RATE = 1_000
WARM_UP_S = latency.FIRST_WARM_UP_S
QUIET_S = 120.0
"""The quiet period after the warm-up, and the one after the attack. Their records are taken together, because the
delays on a quiet machine vary from minute to minute. Multiplied by `--share`, as the warm-up is."""
SETTLE_S = 10.0
"""Time between the attack and the second quiet period. The hostile broker has gone by then."""
MOST_UNSTEADY = 3.0
"""The p99 of one quiet period may be this many times that of the other one. Otherwise, something else than the attack
has delayed records, and the comparison means nothing."""
MOST_RATIO = 2.0
"""The p99 during the attack may be this many times the quiet one."""
START_S = 180.0
LEAST_RECORDS = 1_000
_SAMPLE_S = 0.5
_END_S = 20.0
_AFTER_S = 5.0
_TRACEBACK = "Traceback (most recent call last)"
_LONGEST_ERROR = 200
_PASSWORD = "MIRRORD_BENCH_PASSWORD"  # noqa: S105 -- the name of the variable

Engine = Literal["ray", "process"]
PrintLine = Callable[[str], None]


class Delay(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds that the mirror adds to the records of one period."""

    records: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """Largest resident memory of a process of one kind in either period. 0: there was none."""

    process: str
    quiet_bytes: int
    attack_bytes: int


class Hostile(msgspec.Struct, frozen=True, kw_only=True):
    """One engine."""

    engine: str
    minutes: float
    quiet: Delay
    quiet_before: Delay | None = None
    quiet_after: Delay | None = None
    """The two quiet periods by themselves. None in older results."""
    attack: Delay
    records: int
    """Records of the healthy topic that were compared."""
    differences: dict[str, int]
    """The differences between source and target of the healthy topic, by kind."""
    same_daemon: bool
    """Whether the daemon is still the process that was started."""
    healthy_lanes: dict[str, int]
    """The lanes of the healthy flow at the end, by state."""
    replicators_ended: int
    """Replicators of the healthy flow that are no longer there at the end."""
    tracebacks: int
    """Number of tracebacks in the logs."""
    peaks: list[Peak]
    attacks: list[Received]
    p99_by_attack_ms: dict[str, float]
    """The p99 of the records that were sent during each attack."""

    @property
    def ratio(self) -> float:
        """The p99 during the attack, divided by the quiet one."""
        return self.attack.p99_ms / self.quiet.p99_ms if self.quiet.p99_ms > 0 else math.inf

    @property
    def unsteadiness(self) -> float:
        """How many times as long the p99 of one quiet period is as that of the other one."""
        if self.quiet_before is None or self.quiet_after is None:
            return 1.0
        before, after = sorted((self.quiet_before.p99_ms, self.quiet_after.p99_ms))
        return after / before if before > 0 else math.inf

    @property
    def faults(self) -> list[str]:
        """What the attack must not do, and has done. Empty if the healthy flow is unharmed."""
        found: list[str] = []
        if self.ratio > MOST_RATIO:
            found.append(f"the p99 is {self.ratio:.1f} times the quiet one; allowed: {MOST_RATIO:g}")
        if self.unsteadiness > MOST_UNSTEADY:
            found.append(
                f"the p99 of one quiet period is {self.unsteadiness:.1f} times that of the other one: "
                f"the machine was not quiet; allowed: {MOST_UNSTEADY:g}"
            )
        found += [
            f"{count} records of the healthy topic are {kind}" for kind, count in self.differences.items() if count
        ]
        if not self.same_daemon:
            found.append("the daemon has ended")
        elif set(self.healthy_lanes) != {"copying"}:
            found.append(f"the healthy flow does not copy all partitions: {self.healthy_lanes}")
        found += [
            f"{each.proofs} proofs of the password followed {each.attack}" for each in self.attacks if each.proofs
        ]
        found += [f"no answer with {each.attack} was sent" for each in self.attacks if not each.hits]
        if self.tracebacks:
            found.append(f"there are {self.tracebacks} tracebacks in the logs")
        return found


def delay(added_ms: Sequence[float]) -> Delay:
    """Return the percentiles. Raises EnvironmentFault if there are too few records."""
    if len(added_ms) < LEAST_RECORDS:
        raise EnvironmentFault(
            f"{len(added_ms):,} records arrived in one period; at least {LEAST_RECORDS:,} are needed"
        )
    cuts = statistics.quantiles(added_ms, n=1_000)
    return Delay(records=len(added_ms), p50_ms=cuts[499], p99_ms=cuts[989], p999_ms=cuts[998], max_ms=max(added_ms))


def measure(
    source: Cluster, target: Cluster, engine: Engine, length: tuple[float, float], seed: int, print_line: PrintLine
) -> Hostile:
    """Measure one engine. `length` contains the minutes of the attack, and the share of the time before it. Raises
    EnvironmentFault."""
    minutes, share = length
    warm_up_s, quiet_s = WARM_UP_S * share, QUIET_S * share
    topic = f"healthy-{engine}"
    Admin(source.bootstrap).create([Topic(topic, latency.PARTITIONS, "none")])
    ports = free_ports(2)
    port_of_target = int(target.bootstrap.rpartition(":")[2])
    with tempfile.TemporaryDirectory(prefix="mirrord-hostile-") as name:
        folder = Path(name)
        daemon = Daemon(folder, _settings(source, target, engine, topic, ports))
        with _hostile_broker(ports, port_of_target, seed, minutes) as broker:
            try:
                print_line(f"hostile, engine {engine}: starting the daemon; all sources are valid")
                daemon.start()
                daemon.wait_for("lane", lambda flow: flow.totals.lanes == {"copying": latency.PARTITIONS}, START_S)
                _await_flows(daemon)
                attack = _Attack(daemon, broker, (warm_up_s + quiet_s, minutes * 60), print_line)
                records = int((warm_up_s + quiet_s + minutes * 60 + SETTLE_S + quiet_s + _AFTER_S) * RATE)
                pair = (source, topic), (target, target_name(topic))
                with attack:
                    times = latency.let_flow(*pair, records, (RATE, 0), attack.begin)
                found = _compared(source, target, topic)
                flow, same_daemon = daemon.flow(), attack.is_same_daemon()
                traces = tracebacks(folder)
            finally:
                daemon.stop()
    print_line(f"hostile, engine {engine}: {records:,} records compared")
    for error, count in traces.most_common():
        print_line(f"hostile, engine {engine}: {count} tracebacks end with {error}")
    began, attacked, ended = attack.moments
    first, settled = began + int(warm_up_s * 1e9), ended + int(SETTLE_S * 1e9)
    last = settled + int(quiet_s * 1e9)
    before, after = added(times, first, attacked), added(times, settled, last)
    return Hostile(
        engine=engine,
        minutes=minutes,
        quiet=delay([*before, *after]),
        quiet_before=delay(before),
        quiet_after=delay(after),
        attack=delay(added(times, attacked, ended)),
        records=found[0],
        differences=found[1]._asdict(),
        same_daemon=same_daemon,
        healthy_lanes=flow.totals.lanes if flow else {},
        replicators_ended=len(attack.replicators - {each.pid for each in flow.replicators} if flow else ()),
        tracebacks=traces.total(),
        peaks=attack.peaks(),
        attacks=summed(attack.received),
        p99_by_attack_ms={
            name: p99
            for attacks in (ALL, SCRAM)
            for name, p99 in by_attack(times, rotation(attacks, seed, minutes), attacked).items()
        },
    )


def _await_flows(daemon: Daemon) -> None:
    """Wait until all flows run, and the flow `hostile` has a lane. Raises EnvironmentFault."""

    def copies(_: FlowStatus) -> bool:
        flows = {flow.name: flow for flow in daemon.flows()}
        return all(flow.state == "running" for flow in flows.values()) and "copying" in flows["hostile"].totals.lanes

    daemon.wait_for("start of all flows", copies, START_S)


def _settings(source: Cluster, target: Cluster, engine: Engine, topic: str, ports: Sequence[int]) -> Settings:
    """Return the configuration: three flows to the same target. The filter makes mirrord decompress hostile batches."""
    more = f"""
[clusters.hostile]
bootstrap = "{LOOPBACK}:{ports[0]}"

[clusters.scram]
bootstrap = "{LOOPBACK}:{ports[1]}"

[clusters.scram.security]
protocol = "SASL_PLAINTEXT"
mechanism = "{MECHANISM}"
username = "mirrord"
password = "env:{_PASSWORD}"

[[flows]]
name = "hostile"
from = "hostile"
to = "us"
topics = [".*"]

[flows.records]
filter = "tombstones"

[[flows]]
name = "scram"
from = "scram"
to = "us"
topics = [".*"]
"""
    return Settings(
        source=source.bootstrap,
        target=target.bootstrap,
        topics=topic,
        engine=engine,
        flow="healthy",
        replicators=1,
        more=more,
        environment={_PASSWORD: PASSWORD},
    )


def added(times: tuple[Sequence[int], Sequence[int], Sequence[int]], first_ns: int, last_ns: int) -> list[float]:
    """Return the milliseconds that the mirror added to the records sent between two moments. `times` is what
    `latency.let_flow` returns."""
    sent, here, there = times
    first, last = bisect_left(sent, first_ns), bisect_left(sent, last_ns)
    return [(there[at] - here[at]) / 1e6 for at in range(first, last)]


def by_attack(
    times: tuple[Sequence[int], Sequence[int], Sequence[int]], phases: Sequence[Phase], began_ns: int
) -> dict[str, float]:
    """Return the p99 in milliseconds of the records that were sent during each attack. `began_ns` is the moment when
    the first phase began."""
    found: dict[str, list[float]] = {}
    begins = began_ns
    for phase in phases:
        ends = begins + int(phase.seconds * 1e9)
        found.setdefault(phase.attack, []).extend(added(times, begins, ends))
        begins = ends
    return {attack: statistics.quantiles(each, n=100)[98] for attack, each in found.items() if len(each) > 1}


def summed(received: Sequence[Received]) -> list[Received]:
    """Return the sums of each attack, in the order of their first phases."""
    sums: dict[str, Received] = {}
    for each in received:
        known = sums.get(each.attack)
        sums[each.attack] = each if known is None else known.plus(each)
    return list(sums.values())


def tracebacks(folder: Path) -> Counter[str]:
    """Return the errors at the end of the tracebacks that a daemon has logged into this folder, each with its number.
    The output of the daemon repeats its log."""
    logged, printed = (_errors(folder.rglob(pattern)) for pattern in ("*.log*", "*.out"))
    return logged if logged.total() >= printed.total() else printed


def _errors(files: Iterable[Path]) -> Counter[str]:
    found: Counter[str] = Counter()
    for file in files:
        # In a line of JSON, the lines of a traceback are separated by escaped line feeds.
        _, *parts = file.read_text(errors="replace").replace("\\n", "\n").split(_TRACEBACK)
        for part in parts:
            _, *lines = part.splitlines()
            found[next((line for line in lines if line and not line.startswith(" ")), "")[:_LONGEST_ERROR]] += 1
    return found


def _compared(source: Cluster, target: Cluster, topic: str) -> tuple[int, DifferenceCounts]:
    found = compare(source.bootstrap, target.bootstrap, [TopicPair(topic, target_name(topic))])
    return found.records, found.difference


@contextmanager
def _hostile_broker(
    ports: Sequence[int], target_port: int, seed: int, minutes: float
) -> Generator["subprocess.Popen[str]"]:
    """Start the process of the hostile broker, which does not listen yet. It ends with the block."""
    arguments = [*ports, target_port, seed, minutes]
    command = [sys.executable, "-m", "bench.faults.hostile.broker", *map(str, arguments)]
    with subprocess.Popen(leashed(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as broker:
        try:
            if broker.stdout is None or broker.stdout.readline() != "ready\n":
                raise EnvironmentFault("the hostile broker does not start")
            yield broker
        finally:
            broker.kill()


class _Attack:
    """Begins and ends the attack in a thread, and samples the memory of the daemon's processes."""

    def __init__(
        self, daemon: Daemon, broker: "subprocess.Popen[str]", seconds: tuple[float, float], print_line: PrintLine
    ) -> None:
        """`seconds` contains the time before the attack, and its duration."""
        self._root = psutil.Process(daemon.pid)
        self._daemon = daemon
        self._broker = broker
        self._before_s, self._attack_s = seconds
        self._print_line = print_line
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._play, name="attack", daemon=True)
        self._quiet: dict[str, int] = {}
        self._attacked: dict[str, int] = {}
        flow = daemon.flow()
        self.replicators = {each.pid for each in flow.replicators} if flow else set[int]()
        """Processes of the replicators of the healthy flow before the attack."""
        self.moments = (0, 0, 0)
        """When the flow of records, the attack and the end of the attack began, in nanoseconds."""
        self.received: list[Received] = []

    def __enter__(self) -> None:
        self._tell()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join()

    def begin(self) -> None:
        """Begin the periods, because records begin to flow."""
        self._thread.start()

    def is_same_daemon(self) -> bool:
        """Return whether the daemon is still the process that was started."""
        return self._daemon.running and self._root.is_running()

    def peaks(self) -> list[Peak]:
        """Return the peak of each kind of process."""
        kinds = sorted(self._quiet.keys() | self._attacked.keys())
        return [
            Peak(process=kind, quiet_bytes=self._quiet.get(kind, 0), attack_bytes=self._attacked.get(kind, 0))
            for kind in kinds
        ]

    def _play(self) -> None:
        began = time.monotonic_ns()
        self._sample(self._before_s, self._quiet)
        for process in self._family():
            # The kernel then counts the peak (VmHWM) from now on.
            with suppress(OSError):
                Path(f"/proc/{process.pid}/clear_refs").write_text("5")
        self._print_line(f"hostile: the attack begins and lasts {self._attack_s / 60:g} minutes")
        self._tell()
        attacked = time.monotonic_ns()
        self._sample(self._attack_s, self._attacked)
        ended = time.monotonic_ns()
        self._tell()
        self.moments = began, attacked, ended
        with suppress(subprocess.TimeoutExpired):
            answer, _ = self._broker.communicate(timeout=_END_S)
            rows = msgspec.json.decode(answer, type=list[list[Received]])
            self.received = [each for broker in rows for each in broker]

    def _tell(self) -> None:
        """Send the next line to the hostile broker."""
        if self._broker.stdin is not None:
            self._broker.stdin.write("\n")
            self._broker.stdin.flush()

    def _sample(self, seconds: float, peaks: dict[str, int]) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._end.wait(_SAMPLE_S):
            for process in self._family():
                with suppress(psutil.Error):
                    kind = kind_of(process, self._root)
                    peaks[kind] = max(peaks.get(kind, 0), int(high_water(process)))

    def _family(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            return []
