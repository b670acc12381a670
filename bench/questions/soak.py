"""Does anything grow with time? Half an hour of traffic with kills, topics that come and go, and consumer groups.

Every minute, the first replicator is killed with -9 (the other one lives on and shows what grows), new topics are
created and written, older ones are deleted on the source, and groups with new names commit. The resident memory of each
process is measured at the start (after a warm-up), in the middle and at the end, each as the median of a few samples.
Memory counts as flat if it grows by less than a tenth, or 10 MB, from the middle to the end. Processes that were
replaced are compared by kind: replicator with replicator.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon, Settings
from bench.harness.load import Topic
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault

MINUTES = 30.0
ROUND_S = 60.0
NEW_TOPICS = 5
TOPICS_LIVE = 10
NEW_GROUPS = 10
RECORDS = 2_000
START_S = 180.0
LOOKS = 5
LOOK_S = 2.0
ALLOWED = 0.1
ALLOWED_BYTES = 10 << 20

Engine = Literal["ray", "process"]
PrintLine = Callable[[str], None]


class Soak(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of process."""

    engine: str
    process: str
    minutes: float
    start_bytes: int
    middle_bytes: int
    end_bytes: int
    files: int
    """All of the daemon's log files at the end."""
    rounds: int
    flat: bool
    """Whether the second half added little."""


def measure(
    source: Cluster, target: Cluster, engine: Engine, minutes: float, seed: int, print_line: PrintLine
) -> list[msgspec.Struct]:
    """Measure one engine. Raises EnvironmentFault."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="mirrord-soak-") as name:
        folder = Path(name)
        settings = Settings(
            source=source.bootstrap,
            target=target.bootstrap,
            topics="soak-.*",
            engine=engine,
            flow=f"soak-{engine}",
            refresh_s=2.0,
            replicators=2,
        )
        daemon = Daemon(folder, settings)
        life = _Life(source.bootstrap, chance)
        try:
            life.round(0)
            daemon.start()
            daemon.wait_for("lane", lambda flow: flow.totals.lanes.get("copying", 0) > 0, START_S)
            looks: list[dict[str, int]] = []
            rounds = max(2, round(minutes * 60 / ROUND_S))
            print_line(f"soak, engine {engine}: {rounds} rounds of {ROUND_S:.0f} s")
            for number in range(1, rounds + 1):
                began = time.monotonic()
                life.round(number)
                if engine == "ray":
                    _kill(daemon)
                if number in {1, (rounds + 1) // 2, rounds}:
                    time.sleep(max(0.0, ROUND_S - LOOKS * LOOK_S - (time.monotonic() - began)))
                    looks.append(_memory(daemon))
                    print_line(
                        f"soak, round {number}: " + ", ".join(f"{k} {v >> 20} MiB" for k, v in looks[-1].items())
                    )
                time.sleep(max(0.0, ROUND_S - (time.monotonic() - began)))
            files = sum(1 for _ in (folder / "logs").glob("*"))
        finally:
            daemon.stop()
    first, middle, last = looks[0], looks[len(looks) // 2], looks[-1]
    return [
        Soak(
            engine=engine,
            process=kind,
            minutes=minutes,
            start_bytes=first.get(kind, 0),
            middle_bytes=middle.get(kind, 0),
            end_bytes=last[kind],
            files=files,
            rounds=rounds,
            flat=last[kind] - middle.get(kind, last[kind])
            <= max(ALLOWED_BYTES, ALLOWED * middle.get(kind, last[kind])),
        )
        for kind in last
    ]


class _Life:
    """The events on the source."""

    def __init__(self, bootstrap: str, chance: random.Random) -> None:
        self._bootstrap = bootstrap
        self._chance = chance
        self._admin = Admin(bootstrap)
        self._topics: list[str] = []

    def round(self, number: int) -> None:
        """Create topics with records and groups that commit there, and delete the oldest topics. Raises
        EnvironmentFault."""
        new = [f"soak-{number:04}-{each}" for each in range(NEW_TOPICS)]
        self._admin.create([Topic(name, 2, "none") for name in new])
        self._topics += new
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 20, "log_level": 2})
        for _ in range(RECORDS):
            producer.produce(self._chance.choice(self._topics), self._chance.randbytes(200))
            producer.poll(0)
        if producer.flush(START_S):
            raise EnvironmentFault("the source takes no records")
        for each in range(NEW_GROUPS):
            self._commit(f"soak-group-{number:04}-{each}", new[each % len(new)])
        gone, self._topics = self._topics[:-TOPICS_LIVE], self._topics[-TOPICS_LIVE:]
        if gone:
            self._admin.delete(gone)

    def _commit(self, group: str, topic: str) -> None:
        consumer: Any = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, "log_level": 2})
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        consumer.close()


def _kill(daemon: Daemon) -> None:
    flow = daemon.flow()
    if flow is not None and flow.replicators:
        try:
            psutil.Process(min(flow.replicators, key=lambda each: each.name).pid).kill()
        except psutil.Error:
            return  # it has just ended


def _memory(daemon: Daemon) -> dict[str, int]:
    """Return the resident memory by kind of process: the median of a few samples of the largest one of each."""
    seen: dict[str, list[int]] = {}
    for _ in range(LOOKS):
        for kind, size in _look(daemon).items():
            seen.setdefault(kind, []).append(size)
        time.sleep(LOOK_S)
    return {kind: int(statistics.median(sizes)) for kind, sizes in sorted(seen.items())}


def _look(daemon: Daemon) -> dict[str, int]:
    root = psutil.Process(daemon.pid)
    found: dict[str, int] = {}
    for process in (root, *root.children(recursive=True)):
        try:
            kind, size = _kind(process, root), process.memory_info().rss
        except psutil.Error:
            continue
        found[kind] = max(found.get(kind, 0), size)
    return found


def _kind(process: psutil.Process, root: psutil.Process) -> str:
    if process.pid == root.pid:
        return "mirrord start"
    words: Sequence[str] = process.cmdline() or [process.name()]
    line = " ".join(words)
    for name in ("ReplicatorActor", "SupervisorActor", "GroupsActor", "gcs_server", "raylet", "dashboard", "agent"):
        if name in line:
            return name
    return "ray::IDLE" if "ray::" in line else Path(words[0]).name
