"""One topic on two clusters, copied both ways under one name, with writers on both sides, while everything is killed.

At the end, each side must hold every record of both sides exactly once, and each partition in the order of its origin.
"""

import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.faults.killing import Faults, Kind, Mirror
from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon, Settings
from bench.harness.load import Topic
from bench.harness.pair import LASTING, pair
from mirrord.lab.server_properties import LabOptions
from mirrord.model.errors import EnvironmentFault

TOPIC = "both"
PARTITIONS = 4
CATCH_UP_S = 300.0
RECORDS_PER_S = 4_000
_ALONE = 'sync = { configs = false, acls = "off" }\ngroups = { mode = "off" }\nmm2_records = { checkpoints = false }'
_SAME = f'naming = "identity"\nheartbeats = {{ emit = "off", replicate = false }}\n{_ALONE}\n'
_BOTH = f'{_SAME}\n[[flows]]\nfrom = "us"\nto = "eu"\ntopics = ["{TOPIC}"]\nrefresh = "1s"\n{_SAME}'


@dataclass(frozen=True)
class Outcome:
    """The outcome."""

    records: int
    """Records acknowledged to the writers of both sides."""
    kills: dict[Kind, int]
    seconds: float
    wrong: dict[str, int]
    """The faults found, by kind. Empty if there are none."""


class Writer:
    """A writer of numbered records on one side, which runs until its end is requested. Brokers may die meanwhile."""

    def __init__(self, bootstrap: str, side: str) -> None:
        self.acknowledged = 0
        self._side = side
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 2}
        self._producer = Producer({**settings, "message.timeout.ms": 600_000})
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._ending.wait(0.02):
            for _ in range(RECORDS_PER_S // 50):
                value = f"{self._side} {number}"
                self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._acknowledge)
                number += 1
            self._producer.poll(0)

    def _acknowledge(self, error: object, _message: object) -> None:
        if error is None:
            self.acknowledged += 1

    def end(self) -> None:
        """Wait until all records are acknowledged. Raises EnvironmentFault if they are not."""
        self._ending.set()
        self._thread.join()
        if self._producer.flush(CATCH_UP_S):
            raise EnvironmentFault(f"the writer of {self._side} has records that were not acknowledged")


def run(engine: Literal["ray", "process"], kills: int, seed: int, print_line: Callable[[str], None]) -> Outcome:
    """Run one campaign, from empty clusters to the comparison. Raises EnvironmentFault."""
    options = LabOptions(properties=LASTING)
    with tempfile.TemporaryDirectory(prefix="mirrord-both-ways-") as name, ExitStack() as everything:
        eu, us = everything.enter_context(pair(options, options))
        for cluster in (eu, us):
            Admin(cluster.bootstrap).create([Topic(TOPIC, PARTITIONS, "none")])
        daemon = Daemon(
            Path(name),
            Settings(
                source=eu.bootstrap, target=us.bootstrap, topics=TOPIC, engine=engine, flow_more=_BOTH,
                lease_ttl_s=3.0, request_timeout_s=3.0,
            ),
        )  # fmt: skip
        everything.callback(daemon.kill)
        writers = [Writer(eu.bootstrap, "eu"), Writer(us.bootstrap, "us")]
        began = time.monotonic()
        daemon.start()
        wanted: dict[Kind, int] = {"daemon": kills, "source": kills, "target": kills}
        faults = Faults(Mirror(eu, us, [daemon], lambda: {TOPIC: PARTITIONS}), wanted, random.Random(seed), print_line)
        faults.run()
        for writer in writers:
            writer.end()
        records = sum(writer.acknowledged for writer in writers)
        print_line(f"all kills done, {records:,} records written; waiting until each side has all of them")
        _await(eu.bootstrap, us.bootstrap, records)
        seconds = time.monotonic() - began
        daemon.stop()
        sides = [_read(bootstrap) for bootstrap in (eu.bootstrap, us.bootstrap)]
        done: dict[Kind, int] = {kind: faults.tally.kills[kind] for kind in wanted}
        return Outcome(records, done, seconds, _wrong(sides, records))


def _await(one: str, other: str, records: int) -> None:
    deadline = time.monotonic() + CATCH_UP_S
    while True:
        ends = [sum(Admin(each).ends({TOPIC: PARTITIONS}).values()) for each in (one, other)]
        if min(ends) >= records:
            return
        if time.monotonic() > deadline:
            raise EnvironmentFault(f"of {records:,} records the sides hold {ends} after {CATCH_UP_S:g} s")
        time.sleep(0.5)


def _read(bootstrap: str) -> list[list[str]]:
    """Return all values, by partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "both-ways", "enable.auto.commit": False})
    try:
        found: list[list[str]] = []
        for partition in range(PARTITIONS):
            end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=60)[1]
            consumer.assign([TopicPartition(TOPIC, partition, 0)])
            values: list[str] = []
            position = 0
            while position < end:
                for message in consumer.consume(10_000, 5.0):
                    values.append((message.value() or b"").decode())
                    position = (message.offset() or 0) + 1
            found.append(values)
        return found
    finally:
        consumer.close()


def _wrong(sides: Iterable[list[list[str]]], records: int) -> dict[str, int]:
    """Return what a side lacks, holds twice, or holds in another order than it was written."""
    wrong: Counter[str] = Counter()
    for side in sides:
        counts = Counter(value for values in side for value in values)
        wrong["missing"] += max(0, records - len(counts))
        wrong["doubled"] += counts.total() - len(counts)
        for values in side:
            for origin in ("eu", "us"):
                numbers = [int(value.split()[1]) for value in values if value.startswith(origin)]
                wrong["out of order"] += sum(later < earlier for earlier, later in pairwise(numbers))
    return {kind: count for kind, count in wrong.items() if count}
