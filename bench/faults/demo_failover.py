"""`make demo-failover`: the source of a mirror is killed under load, and producers and consumers move to the target.

A producer writes numbered records, and three consumer groups read them and commit. The source is killed with -9,
`mirrord failover --source-lost` runs, and then the producer and the groups continue on the target. At the end, each
group's records are counted: those that it read twice, and those that it missed. The exit code is 0 if no group missed a
record of the target or read one again that it had committed a second before the kill, and if no record is on the target
twice. Everything that was started ends with this command.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from rich.console import Console
from rich.table import Table

from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon, Settings, target_name
from bench.harness.load import Topic
from bench.harness.pair import LASTING, pair
from mirrord.lab.cluster import Cluster
from mirrord.lab.server_properties import LabOptions
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import FlowStatus

TOPIC, PARTITIONS = "orders", 4
GROUPS = ("billing", "shipping", "search")
RECORDS_PER_S = 1_000
COMMIT_S = 0.1
READ_S = 1.0
"""A commit may be unknown to mirrord for this long."""
BEFORE_S, AFTER_S = 10.0, 8.0
PATIENCE_S = 60.0
_POLL_S = 0.05

console = Console(highlight=False)


class NumberedWriter:
    """Writes numbered records in a thread: into the topic of the source and, after `move`, of the target."""

    def __init__(self, source: Cluster) -> None:
        self.acknowledged: set[int] = set()
        self._next = 0
        self._producer = self._connect(source)
        self._moving = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def move(self, cluster: Cluster) -> None:
        """Continue on another cluster. Records that the former one has not acknowledged are dropped."""
        with self._moving:
            self._producer.purge()
            self._producer = self._connect(cluster)

    def stop(self) -> None:
        """Stop writing, and wait for the records in flight."""
        self._stopping.set()
        self._thread.join()
        self._producer.flush(PATIENCE_S)

    def _connect(self, cluster: Cluster) -> Producer:
        return Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, "log_level": 2})

    def _run(self) -> None:
        began, written = time.monotonic(), 0
        while not self._stopping.is_set():
            with self._moving:
                while written < (time.monotonic() - began) * RECORDS_PER_S:
                    number = self._next
                    self._producer.produce(
                        TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._noting(number)
                    )
                    self._next, written = number + 1, written + 1
                self._producer.poll(0)
            time.sleep(_POLL_S / 5)

    def _noting(self, number: int) -> Any:
        def note(error: object, _: object) -> None:
            if error is None:
                self.acknowledged.add(number)

        return note


class ReadingGroup:
    """One consumer of a group in a thread: it reads, and commits what it has read."""

    def __init__(self, cluster: Cluster, group: str, topics: Sequence[str]) -> None:
        self.group = group
        self.numbers: list[int] = []
        self.committed: list[tuple[float, int]] = []
        """For each commit that was acknowledged: the time, and how many of `numbers` had been read before it."""
        self.first_s: float | None = None
        """The time at which the first record was read."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(cluster, list(topics)), daemon=True)
        self._thread.start()

    def stop(self, *, wait: bool = True) -> None:
        """Stop reading. A consumer of a cluster that is gone takes a minute to end."""
        self._stopping.set()
        if wait:
            self._thread.join(PATIENCE_S)

    def _run(self, cluster: Cluster, topics: list[str]) -> None:
        settings = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": self.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "log_level": 1,
        }
        consumer = Consumer(settings)
        consumer.subscribe(topics)
        positions: dict[tuple[str, int], int] = {}
        due = time.monotonic() + COMMIT_S
        try:
            while not self._stopping.is_set():
                for message in consumer.consume(200, timeout=_POLL_S):
                    value = message.value()
                    topic, partition, offset = message.topic(), message.partition(), message.offset()
                    if message.error() is not None or None in (value, topic, partition, offset):
                        continue
                    self.first_s = self.first_s or time.monotonic()
                    self.numbers.append(int(bytes(value or b"")))
                    positions[str(topic), int(partition or 0)] = int(offset or 0) + 1
                if positions and time.monotonic() > due:
                    self._commit(consumer, positions)
                    due = time.monotonic() + COMMIT_S
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer, positions: dict[tuple[str, int], int]) -> None:
        count = len(self.numbers)
        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
        try:
            done = consumer.commit(offsets=places, asynchronous=False)
        except KafkaException:
            return  # the cluster is gone
        if all(place.error is None for place in done):
            self.committed.append((time.monotonic(), count))


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.demo_failover", description=__doc__)
    parser.add_argument("--before", type=float, default=BEFORE_S, help="seconds of load before the source is killed")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="mirrord-demo-") as name:
            return 0 if _run(Path(name), arguments.before) else 1
    except EnvironmentFault as fault:
        print(f"demo-failover: {fault}", file=sys.stderr)
        return 1


def _run(folder: Path, before_s: float) -> bool:
    began = time.monotonic()

    def say(line: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.1f} s[/]  {line}", soft_wrap=True)

    say("starting two Kafka clusters on this machine")
    options = LabOptions(heap_mb=448, quick_start=True, properties=LASTING)
    with pair(options, options) as (source, target):
        for cluster in (source, target):
            Admin(cluster.bootstrap).create([Topic(TOPIC, PARTITIONS, "none")])
        settings = Settings(source=source.bootstrap, target=target.bootstrap, topics=TOPIC, engine="process")
        daemon = Daemon(folder, settings)
        writer = NumberedWriter(source)
        readers = [ReadingGroup(source, group, [TOPIC]) for group in GROUPS]
        moved: list[ReadingGroup] = []
        try:
            daemon.start()
            say(f"a producer writes {RECORDS_PER_S:,} records a second, {len(GROUPS)} groups read them; mirrord starts")
            daemon.wait_for("copy", lambda flow: _is_busy(flow, readers), PATIENCE_S)
            _wait(before_s, daemon)
            say("[bold]kill -9[/] of the source's only broker")
            source.kill()
            killed_s = time.monotonic()
            _fail_over(daemon.conf)
            over_s = time.monotonic()
            say("the producer and the groups move to the target")
            for reader in readers:
                reader.stop(wait=False)
            writer.move(target)
            moved += [ReadingGroup(target, group, [target_name(TOPIC), TOPIC]) for group in GROUPS]
            _wait(AFTER_S, daemon)
            writer.stop()
            _wait(AFTER_S / 2, daemon)
        finally:
            writer.stop()
            for reader in readers:
                reader.stop(wait=False)
            for reader in moved:
                reader.stop()
            daemon.stop()
        say("counting")
        there = _numbers(target)
        return _show(readers, moved, there, writer.acknowledged, (killed_s, over_s))


def _is_busy(flow: FlowStatus, readers: Sequence[ReadingGroup]) -> bool:
    return bool(flow.totals.copied_records) and all(reader.committed for reader in readers)


def _wait(seconds: float, daemon: Daemon) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        _ = daemon.pid
        time.sleep(_POLL_S)


def _fail_over(conf: Path) -> None:
    command = [sys.executable, "-m", "mirrord.cli.main", "failover", str(conf), "--source-lost", "--reason", "demo"]
    console.print(f"[dim]$ mirrord failover {conf.name} --source-lost --reason demo[/]")
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    console.print(done.stdout, end="", markup=False, soft_wrap=True)
    if done.returncode:
        raise EnvironmentFault(f"mirrord failover ends with {done.returncode}: {done.stderr}")


def _numbers(target: Cluster) -> Counter[int]:
    """Return how often each number is on the target."""
    names = (target_name(TOPIC), TOPIC)
    ends = Admin(target.bootstrap).ends(dict.fromkeys(names, PARTITIONS))
    left = {place: end for place, end in ends.items() if end}
    settings = {"group.id": "demo-count", "log_level": 1, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": target.bootstrap, **settings})
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in left])
    found: Counter[int] = Counter()
    deadline = time.monotonic() + PATIENCE_S
    try:
        while left and time.monotonic() < deadline:
            for message in consumer.consume(1_000, timeout=0.5):
                if message.error() is None:
                    found[int(bytes(message.value() or b"0"))] += 1
                else:  # the end of the partition, which may be after a marker that consumers do not see
                    left.pop((str(message.topic()), int(message.partition() or 0)), None)
    finally:
        consumer.close()
    if left:
        raise EnvironmentFault("the target cannot be read to its end")
    return found


def _show(
    readers: Sequence[ReadingGroup],
    moved: Sequence[ReadingGroup],
    there: Counter[int],
    acknowledged: set[int],
    times: tuple[float, float],
) -> bool:
    killed_s, over_s = times
    doubled = sum(count - 1 for count in there.values())
    table = Table(title="what each group read", box=None, title_justify="left")
    for column in (
        "group",
        "on the source",
        "on the target",
        "again",
        "again, though committed",
        "missed",
        "first record",
    ):
        table.add_column(column, justify="left" if column == "group" else "right")
    is_exact = doubled == 0
    for before, after in zip(readers, moved, strict=True):
        known = max((count for at, count in before.committed if at <= killed_s - READ_S), default=0)
        again = set(before.numbers) & set(after.numbers)
        unexpected = set(before.numbers[:known]) & set(after.numbers)
        missed = there.keys() - set(before.numbers) - set(after.numbers)
        is_exact = is_exact and not unexpected and not missed and after.first_s is not None
        first = "never" if after.first_s is None else f"{after.first_s - killed_s:.1f} s"
        counts = (len(before.numbers), len(after.numbers), len(again), len(unexpected), len(missed))
        table.add_row(before.group, *(f"{count:,}" for count in counts), first)
    console.print(table)
    lost = len(acknowledged - there.keys())
    console.print(f"records that the source had acknowledged and that are lost: {lost:,}")
    console.print(f"records that are on the target twice: {doubled:,}")
    console.print(f"from the kill to the end of the command: {over_s - killed_s:.1f} s")
    console.print("[green]as promised[/]" if is_exact else "[bold red]not as promised[/]")
    return is_exact


if __name__ == "__main__":
    sys.exit(main())
