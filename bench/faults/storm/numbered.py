"""Numbered records: the writer notes the source offset of each record that a broker has acknowledged.

Each topic has its own idempotent producer in one separate process. The value of a record is its number within its
partition. A number is never sent twice, so a number that is in the target twice was doubled by the mirror.
"""

import multiprocessing
import os
import pickle
import threading
import time
from array import array
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException, Producer

from bench.harness.load import DeliveryWatch
from mirrord.model.errors import EnvironmentFault
from mirrord.runtime.leash import tie_to

_PACE_S = 0.1
_STOP_S = 180.0
_FLUSH_S = 60.0


@dataclass
class Numbered:
    """A topic of numbered records."""

    name: str
    partitions: int
    settings: Mapping[str, str]
    records_per_s: int
    keys: int = 0
    """Number of different keys in each partition. 0: no record has a key."""
    written: dict[int, int] = field(default_factory=dict[int, int])
    """How many numbers were used, by partition. The records of the last ones may not have arrived."""
    acknowledged: "dict[int, tuple[array[int], array[int]]]" = field(
        default_factory=dict[int, "tuple[array[int], array[int]]"]
    )
    """The acknowledged numbers and the offsets of their records, by partition, in the order of the acknowledgements."""

    def key(self, number: int) -> bytes | None:
        return b"%d" % (number * 7919 % self.keys) if self.keys else None


class NumberedWriter:
    """The process that writes. The methods `add`, `grow` and `remove` take effect soon."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        """The folder gets the file of what was acknowledged."""
        context = multiprocessing.get_context("spawn")
        self.partitions: dict[str, int] = {}
        """Partitions of the topics that are written to, by name."""
        self._file = folder / "acknowledged"
        self._records = context.Value("q", 0)
        self._orders, theirs = context.Pipe()
        self._lock = threading.Lock()
        self._process = context.Process(target=_run, args=(bootstrap, theirs, self._records, self._file))

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.join()

    @property
    def records(self) -> int:
        """Number of acknowledged records."""
        return self._records.value

    def add(self, topic: Numbered) -> None:
        self._order("add", topic)
        self.partitions[topic.name] = topic.partitions

    def grow(self, name: str, partitions: int) -> None:
        self._order("grow", (name, partitions))
        self.partitions[name] = partitions

    def remove(self, name: str) -> None:
        """Stop writing to a topic that was deleted."""
        self.partitions.pop(name)
        self._order("remove", name)

    def check(self) -> None:
        """Raise EnvironmentFault if the process has ended."""
        if self._process.exitcode is not None:
            raise EnvironmentFault(f"the writer of numbered records ended with code {self._process.exitcode}")

    def stop(self) -> dict[str, Numbered]:
        """End when all records are acknowledged or have failed, and return all topics, also removed ones. Raises
        EnvironmentFault."""
        self._order("stop", None)
        self._process.join(_STOP_S)
        if self._process.exitcode != 0:
            raise EnvironmentFault(f"the writer of numbered records does not end well: {self._process.exitcode}")
        return pickle.loads(self._file.read_bytes())  # noqa: S301 - written by the process of `_run`

    def _order(self, order: str, what: object) -> None:
        with self._lock:
            self._orders.send((order, what))


def _run(bootstrap: str, orders: "Connection[Any, Any]", records: Any, file: Path) -> None:
    """Run in the separate process, which the kernel ends with the parent."""
    tie_to(os.getppid())
    topics: dict[str, _Topic] = {}
    done: dict[str, Numbered] = {}
    try:
        while True:
            while orders.poll():
                order, what = orders.recv()
                if order == "add":
                    topics[what.name] = _Topic(bootstrap, what)
                elif order == "grow":
                    topics[what[0]].topic.partitions = what[1]
                elif order == "remove":
                    done[what] = topics.pop(what).abandon()
                else:
                    done |= {name: topic.finish() for name, topic in topics.items()}
                    file.write_bytes(pickle.dumps(done))
                    return
            for topic in topics.values():
                topic.tick()
            records.value = sum(topic.count for topic in topics.values()) + sum(map(_count, done.values()))
            time.sleep(_PACE_S)
    except KeyboardInterrupt:
        return  # the parent prints


def _count(topic: Numbered) -> int:
    return sum(len(numbers) for numbers, _ in topic.acknowledged.values())


class _Topic:
    """One topic and its producer."""

    def __init__(self, bootstrap: str, topic: Numbered) -> None:
        self.topic = topic
        self.count = 0
        self._bootstrap = bootstrap
        self._written = defaultdict[int, int](int)
        self._total = 0
        self._began = time.monotonic()
        self._producer, self._watch = self._new(), DeliveryWatch()

    def _new(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "message.timeout.ms": 0,
                "reconnect.backoff.max.ms": 500,
                "socket.timeout.ms": 10_000,
                "topic.metadata.refresh.interval.ms": 2_000,
                "log_level": 2,
            }
        )

    def tick(self) -> None:
        """Write what is due."""
        self._producer.poll(0)
        if self._watch.is_stuck(self._producer):
            self._replace()
        due = int((time.monotonic() - self._began) * self.topic.records_per_s)
        while self._total < due:
            partition = self._total % self.topic.partitions
            number = self._written[partition]
            try:
                self._producer.produce(
                    self.topic.name, b"%d" % number, self.topic.key(number), partition,
                    on_delivery=lambda error, message, at=partition, n=number: self._deliver(error, message, at, n),
                )  # fmt: skip
            except BufferError:
                return
            except KafkaException:
                # A fatal error of this producer, or a partition that it does not know yet.
                self._replace()
                return
            self._written[partition] += 1
            self._total += 1
            self._watch.sent += 1

    def _replace(self) -> None:
        """Continue with another producer. Records in flight may or may not arrive, and are not sent again."""
        self._producer.purge()
        self._producer.poll(0)
        self._producer, self._watch = self._new(), DeliveryWatch()

    def _deliver(self, error: object, message: Any, partition: int, number: int) -> None:
        if error is None:
            numbers, offsets = self.topic.acknowledged.setdefault(partition, (array("q"), array("q")))
            numbers.append(number)
            offsets.append(message.offset())
            self.count += 1

    def finish(self) -> Numbered:
        """Wait for what is in flight."""
        self._producer.flush(_FLUSH_S)
        return self.abandon()

    def abandon(self) -> Numbered:
        self._producer.poll(0)
        self.topic.written = dict(self._written)
        return self.topic
