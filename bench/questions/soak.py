"""Does anything grow with time? Two hours of mixed load with kills, topics that come and go, and consumer groups.

Records of all kinds flow steadily (`bench.faults.storm.load`). Every minute, the first replicator is killed with -9
(the other one lives on and shows what grows), new topics are created and written, groups with new names commit, and
older topics and groups are deleted on the source. The daemon propagates the deletions of topics after a short grace
period, so that there are never more than a few dozen topics on either cluster. Memory, open files, threads and CPU of
every process, and the size of the log files, are sampled all the time.

The first quarter is the warm-up. From the samples after it follows how fast each value grows, and where it would be
after 30 days. A kind of process passes if none of its values would then be above its limit (`LIMITS`).
"""

import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec
import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.faults.storm.load import TOPICS as STREAM_TOPICS
from bench.faults.storm.load import Streams
from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon, Settings, target_name
from bench.harness.load import Topic
from bench.harness.vitals import Vitals, VitalsSampler
from bench.report.slopes import Sample, slope, thinned
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault

MINUTES = 120.0
ROUND_S = 60.0
SAMPLE_S = 15.0
RECORDS_PER_S = 500.0
NEW_TOPICS = 5
TOPICS_LIVE = 10
DELETE_GRACE_S = 10
TOPICS_LEFT = TOPICS_LIVE + 3 * NEW_TOPICS
"""Maximum number of the short-lived topics on the target at the end of a round: those that exist, and those that will
soon be deleted."""
NEW_GROUPS = 10
GROUPS_LIVE = 100
RECORDS = 2_000
START_S = 180.0
WARM_UP = 0.25
"""Share of the run after which growth counts."""
MOST_POINTS = 120
DAYS = 30
LIMITS: Mapping[str, float] = {
    "resident_bytes": float(4 << 30), "files": 1_000.0, "threads": 1_000.0, "cpu": 2.0, "log_bytes": float(16 << 30),
}  # fmt: skip
"""What a process, or the log folder, may use after 30 days. CPU is in cores."""
LOGS = "log files"

Engine = Literal["ray", "process"]
PrintLine = Callable[[str], None]


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """One value of one kind of process."""

    name: str
    begin: float
    """The value after the warm-up."""
    end: float
    per_day: float
    after_30_days: float
    points: list[Sample]
    """Minutes and values, the warm-up included."""

    @property
    def is_within_limit(self) -> bool:
        return self.after_30_days <= LIMITS[self.name]


class Soak(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of process."""

    engine: str
    process: str
    minutes: float
    rounds: int
    kills: int
    values: list[Value]
    lasts: bool
    """Whether no value would be above its limit after 30 days."""


def measure(
    source: Cluster, target: Cluster, engine: Engine, minutes: float, seed: int, print_line: PrintLine
) -> list[msgspec.Struct]:
    """Measure one engine. Raises EnvironmentFault."""
    prefix = f"soak-{engine}-"
    with tempfile.TemporaryDirectory(prefix="mirrord-soak-") as name:
        folder = Path(name)
        settings = Settings(
            source=source.bootstrap,
            target=target.bootstrap,
            topics=rf"{prefix}.*|{STREAM_TOPICS}",
            engine=engine,
            flow=f"soak-{engine}",
            refresh_s=2.0,
            replicators=2,
            dashboard=engine == "ray",
            flow_more=f'propagate_deletes = true\ndelete_grace = "{DELETE_GRACE_S}s"',
        )
        daemon = Daemon(folder, settings)
        life = _Life(source.bootstrap, random.Random(seed), prefix)
        with Streams(source.bootstrap, seed, RECORDS_PER_S) as streams:
            streams.begin()
            life.round(0)
            try:
                daemon.start()
                daemon.wait_for("lane", lambda flow: flow.totals.lanes.get("copying", 0) > 0, START_S)
                copies = (Admin(target.bootstrap), target_name(prefix))
                run = _Run(daemon, life, streams, folder / "logs", copies, print_line)
                run.play(minutes)
            finally:
                daemon.stop()
    series = run.sampler.series
    kinds = {kind: _values(samples) for kind, samples in series.items() if len(samples) > run.samples * WARM_UP}
    kinds[LOGS] = [grown("log_bytes", run.log_bytes)]
    return [
        Soak(
            engine=engine,
            process=kind,
            minutes=minutes,
            rounds=run.rounds,
            kills=run.kills,
            values=values,
            lasts=all(each.is_within_limit for each in values),
        )
        for kind, values in sorted(kinds.items())
    ]


def _values(samples: Sequence[Vitals]) -> list[Value]:
    names = Vitals.__struct_fields__[1:]
    return [grown(name, [(each.minute, getattr(each, name)) for each in samples]) for name in names]


def grown(name: str, samples: Sequence[Sample]) -> Value:
    """Return how a value has grown after the warm-up."""
    warm = [each for each in samples if each[0] >= samples[-1][0] * WARM_UP]
    points = thinned(warm, MOST_POINTS)
    tenth = max(1, len(warm) // 10)
    end, per_day = median(value for _, value in warm[-tenth:]), slope(points) * 24 * 60
    return Value(
        name=name,
        begin=median(value for _, value in warm[:tenth]),
        end=end,
        per_day=per_day,
        after_30_days=max(end, end + DAYS * per_day),
        points=[(round(minute, 2), round(value, 3)) for minute, value in thinned(samples, MOST_POINTS)],
    )


class _Run:
    """The minutes of a soak."""

    def __init__(
        self,
        daemon: Daemon,
        life: "_Life",
        streams: Streams,
        logs: Path,
        copies: tuple[Admin, str],
        print_line: PrintLine,
    ) -> None:
        """`copies` contains the target cluster, and how the names of the short-lived topics on it begin."""
        self._daemon = daemon
        self._target, self._prefix = copies
        self._life = life
        self._streams = streams
        self._logs = logs
        self._print_line = print_line
        self.sampler = VitalsSampler(daemon.pid)
        self.log_bytes: list[Sample] = []
        self.rounds = self.kills = self.samples = 0

    def play(self, minutes: float) -> None:
        """Raises EnvironmentFault."""
        began = time.monotonic()
        next_round = began + ROUND_S
        while time.monotonic() < began + minutes * 60:
            time.sleep(SAMPLE_S)
            self.sampler.sample()
            self.samples += 1
            size = sum(file.stat().st_size for file in self._logs.rglob("*") if file.is_file())
            self.log_bytes.append(((time.monotonic() - began) / 60, float(size)))
            if time.monotonic() < next_round:
                continue
            next_round += ROUND_S
            self.rounds += 1
            self._streams.check()
            copies = self._copies()
            self._life.round(self.rounds)
            self.kills += self._daemon.settings.engine == "ray" and kill_first_replicator(self._daemon)
            last = {kind: samples[-1] for kind, samples in self.sampler.series.items()}
            sizes = ", ".join(f"{kind} {each.resident_bytes / 2**20:.0f}" for kind, each in last.items())
            self._print_line(f"soak, round {self.rounds}, {copies} short-lived topics on the target, MiB: {sizes}")

    def _copies(self) -> int:
        """Return the number of short-lived topics on the target. Raises EnvironmentFault if there are too many."""
        copies = sum(name.startswith(self._prefix) for name in self._target.names())
        if copies > TOPICS_LEFT:
            raise EnvironmentFault(f"{copies} short-lived topics are on the target: deletions are not propagated")
        return copies


class _Life:
    """The events on the source."""

    def __init__(self, bootstrap: str, chance: random.Random, prefix: str) -> None:
        self._chance = chance
        self._prefix = prefix
        self._admin = Admin(bootstrap)
        self._groups_admin: Any = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        self._topics: list[str] = []
        self._groups: list[str] = []
        # One client for all rounds: what grows must be mirrord.
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 2})
        self._bootstrap = bootstrap

    def round(self, number: int) -> None:
        """Create topics with records and groups that commit there, and delete the oldest of both. Raises
        EnvironmentFault."""
        new = [f"{self._prefix}{number:04}-{each}" for each in range(NEW_TOPICS)]
        self._admin.create([Topic(name, 2, "none") for name in new])
        self._topics += new
        for _ in range(RECORDS):
            self._producer.produce(self._chance.choice(self._topics), self._chance.randbytes(200))
            self._producer.poll(0)
        if self._producer.flush(START_S):
            raise EnvironmentFault("the source takes no records")
        groups = [f"soak-group-{number:04}-{each}" for each in range(NEW_GROUPS)]
        for group, topic in zip(groups, new * NEW_GROUPS, strict=False):
            self._commit(group, topic)
        self._groups += groups
        old, self._groups = self._groups[:-GROUPS_LIVE], self._groups[-GROUPS_LIVE:]
        deletions: Mapping[str, Future[None]] = self._groups_admin.delete_consumer_groups(old) if old else {}
        for deletion in deletions.values():
            deletion.exception()  # a group is gone already if its topic is
        gone, self._topics = self._topics[:-TOPICS_LIVE], self._topics[-TOPICS_LIVE:]
        if gone:
            self._admin.delete(gone)

    def _commit(self, group: str, topic: str) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, "log_level": 2})
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        consumer.close()


def kill_first_replicator(daemon: Daemon) -> bool:
    """Kill the first replicator of the daemon with -9. Return whether there was one."""
    flow = daemon.flow()
    if flow is None or not flow.replicators:
        return False
    try:
        psutil.Process(min(flow.replicators, key=lambda each: each.name).pid).kill()
    except psutil.Error:
        return False  # it has just ended
    return True
