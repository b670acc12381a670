"""How do new topics affect existing ones: how long does a busy topic make no progress, and when does a new one begin?

A daemon copies a busy topic. In windows of the same length, which alternate, there is nothing else; 100 topics are
created at once; or the configuration gets 50 more topics and loses them again, by SIGHUP and by `mirrord apply`. In
addition, the same is done without any work for mirrord: as many topics that are not copied are created in both
clusters, and `mirrord apply --dry-run` changes nothing. So the load that brokers and the command line put on a small
machine is not attributed to the mirror.
"""

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from confluent_kafka import Producer

from bench.harness.arrivals import Arrivals, Stream, largest_gap_ms
from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon, Settings, target_name
from bench.harness.load import Topic
from bench.questions.recovery import Target
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault

PARTITIONS = 4
RECORDS_PER_S = 1_000
CREATED_AT_ONCE = 100
APPLIED_AT_ONCE = 50
NEW_TOPICS = 5
ROUNDS = 5
WINDOW_S = 8.0
WARM_UP_S = 10.0
REFRESH_S = 5.0
"""How often the flow looks for new topics: mirrord's default."""
START_S = 180.0
PATIENCE_S = 60.0
_POLL_S = 0.25

Engine = Literal["ray", "process"]
PrintLine = Callable[[str], None]

QUIET = "nothing else"
BROKERS_ALONE = "100 topics are created that are not copied"
CREATED = "100 topics are created"
APPLY_ALONE = "`mirrord apply --dry-run` twice"
APPLIED = "`mirrord apply` adds 50 topics and removes them"
HUNG_UP = "SIGHUP adds 50 topics, and removes them"
ROUND = (QUIET, BROKERS_ALONE, CREATED, QUIET, HUNG_UP, APPLY_ALONE, APPLIED)


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """For each window, the longest silence of one partition of the busy topic, in milliseconds."""

    what: str
    target_ms: list[float]
    source_ms: list[float]
    """The same windows, as seen by a reader of the source."""


class Topics(msgspec.Struct, frozen=True, kw_only=True):
    """One engine."""

    engine: str
    records_per_s: int
    window_s: float
    gaps: list[Gap]
    new_topic_s: list[float]
    """Time from the creation, with a record written at once, until that record is in the target; in ascending order."""
    all_new_s: list[float]
    """The same for the last one of 100 that are created at once."""


class Window(NamedTuple):
    """An event and its time, in nanoseconds."""

    what: str
    began: int
    ended: int


class Run:
    """One daemon and its busy topic."""

    def __init__(self, source: Cluster, target: Cluster, engine: Engine, seed: int, folder: Path) -> None:
        self.new_topic_s: list[float] = []
        self.all_new_s: list[float] = []
        self.windows: list[Window] = []
        self._name = f"topics-{engine}"
        self._rng = random.Random(seed)
        self._bootstraps = source.bootstrap, target.bootstrap
        self._admins = Admin(source.bootstrap), Admin(target.bootstrap)
        self._copied = f"{self._name}[.](busy|new.*)"
        settings = Settings(
            source=source.bootstrap,
            target=target.bootstrap,
            topics=self._copied,
            engine=engine,
            flow=self._name,
            refresh_s=REFRESH_S,
        )
        self._daemon = Daemon(folder, settings)
        self._work: dict[str, Callable[[int], None]] = {
            QUIET: lambda _: None,
            BROKERS_ALONE: self._create_others,
            CREATED: self._create,
            APPLY_ALONE: self._apply_nothing,
            APPLIED: self._apply,
            HUNG_UP: self._hang_up,
        }

    def run(self, rounds: int, new_topics: int) -> Arrivals:
        """Run everything. Raises EnvironmentFault."""
        busy = f"{self._name}.busy"
        self._admins[0].create([Topic(busy, PARTITIONS, "none")])
        for number in range(rounds):
            for kind in ("added", "more"):
                self._make(0, self._names(f"{kind}-{number}", APPLIED_AT_ONCE))
        with ExitStack() as everything:
            everything.callback(self._daemon.stop)
            self._daemon.start()
            self._daemon.wait_for("lane", lambda flow: flow.totals.lanes == {"copying": PARTITIONS}, START_S)
            names = (busy, target_name(busy))
            stream = everything.enter_context(Stream(*self._bootstraps, names, PARTITIONS, RECORDS_PER_S))
            time.sleep(WARM_UP_S)
            for number in range(new_topics):
                self._one_new(f"{self._name}.new-{number}")
            for number in range(rounds):
                for what in ROUND:
                    self._window(what, number)
            return stream.stop()

    def _one_new(self, name: str) -> None:
        time.sleep(self._rng.random() * REFRESH_S)
        began = time.monotonic()
        self._make(0, [name])
        first, _ = Target(self._bootstraps[1]).grown(self._daemon, {(target_name(name), 0): 0}, began)
        self.new_topic_s.append(first)

    def _window(self, what: str, number: int) -> None:
        began = time.monotonic_ns()
        self._work[what](number)
        time.sleep(max(0.0, WINDOW_S - (time.monotonic_ns() - began) / 1e9))
        self.windows.append(Window(what, began, time.monotonic_ns()))

    def _create_others(self, number: int) -> None:
        for side in range(len(self._admins)):
            self._make(side, self._names(f"other-{number}", CREATED_AT_ONCE))

    def _create(self, number: int) -> None:
        began = time.monotonic()
        names = self._names(f"new-in-{number}", CREATED_AT_ONCE)
        self._make(0, names)
        self._wait_for_copies(names)
        self.all_new_s.append(time.monotonic() - began)

    def _apply_nothing(self, number: int) -> None:
        for _ in range(2):
            self._daemon.apply(self._with(f"added-{number}"), dry_run=True)

    def _apply(self, number: int) -> None:
        self._daemon.apply(self._with(f"added-{number}"))
        self._wait_for_copies(self._names(f"added-{number}", APPLIED_AT_ONCE))
        self._daemon.apply(self._copied)

    def _hang_up(self, number: int) -> None:
        self._daemon.hang_up(topics=self._with(f"more-{number}"))
        self._wait_for_copies(self._names(f"more-{number}", APPLIED_AT_ONCE))
        self._daemon.hang_up(topics=self._copied)

    def _with(self, kind: str) -> str:
        return f"{self._copied}|{self._name}[.]{kind}.*"

    def _names(self, kind: str, count: int) -> list[str]:
        return [f"{self._name}.{kind}-{number:03}" for number in range(count)]

    def _make(self, side: int, names: Sequence[str]) -> None:
        """Create topics with one partition and one record. Raises EnvironmentFault."""
        self._admins[side].create([Topic(name, 1, "none", settings={"retention.ms": "7200000"}) for name in names])
        producer = Producer({"bootstrap.servers": self._bootstraps[side], "linger.ms": 0, "log_level": 2})
        for name in names:
            producer.produce(name, b"first")
        if producer.flush(PATIENCE_S):
            raise EnvironmentFault(f"{names[0]} cannot be written")

    def _wait_for_copies(self, names: Sequence[str]) -> None:
        """Wait until the record of each of these topics is in the target. Raises EnvironmentFault."""
        copies = {target_name(name): 1 for name in names}
        deadline = time.monotonic() + PATIENCE_S
        while sum(1 for end in self._admins[1].ends(copies).values() if end) < len(copies):
            if time.monotonic() > deadline:
                raise EnvironmentFault(f"not all of {len(copies)} new topics are copied within {PATIENCE_S:g} s")
            _ = self._daemon.pid
            time.sleep(_POLL_S)


def measure(source: Cluster, target: Cluster, engine: Engine, share: float, seed: int, print_line: PrintLine) -> Topics:
    """Start a daemon and let records flow. Raises EnvironmentFault."""
    rounds, new_topics = max(1, round(ROUNDS * share)), max(1, round(NEW_TOPICS * share))
    with tempfile.TemporaryDirectory(prefix="mirrord-topics-") as folder:
        run = Run(source, target, engine, seed, Path(folder))
        print_line(f"topics, engine {engine}: {new_topics} new topics, then {rounds} rounds of {len(ROUND)} windows")
        arrivals = run.run(rounds, new_topics)
    return Topics(
        engine=engine,
        records_per_s=RECORDS_PER_S,
        window_s=WINDOW_S,
        gaps=[_gap(what, run.windows, arrivals) for what in dict.fromkeys(ROUND)],
        new_topic_s=sorted(run.new_topic_s),
        all_new_s=sorted(run.all_new_s),
    )


def _gap(what: str, windows: Sequence[Window], arrivals: Arrivals) -> Gap:
    spans = [(each.began, each.ended) for each in windows if each.what == what]
    return Gap(
        what=what,
        target_ms=[largest_gap_ms(arrivals.target, *span) for span in spans],
        source_ms=[largest_gap_ms(arrivals.source, *span) for span in spans],
    )
