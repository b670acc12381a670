"""When do the records of a busy topic arrive at a reader of the source, and at a reader of the target?

A writer sends records at a steady rate, each at its scheduled time, until it is stopped. Two librdkafka consumers note
when each record arrives. Writer and readers are separate processes. All times are CLOCK_MONOTONIC of this machine.
"""

import multiprocessing
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench.harness.load import noise
from mirrord.model.errors import EnvironmentFault

VALUE_BYTES = 200
PATIENCE_S = 60.0
_POLL_S = 0.2
_NOT_KNOWN = -1

Times = Sequence[Sequence[int]]
"""For each partition, the arrival times of its records: nanoseconds, in ascending order."""


class Arrivals(NamedTuple):
    """All records of a stream."""

    source: Times
    target: Times


class Stream:
    """A stream of records from entering the block until `stop`."""

    def __init__(self, source: str, target: str, topic: tuple[str, str], partitions: int, records_per_s: int) -> None:
        """`topic` is its name on the source and on the target."""
        context = multiprocessing.get_context("spawn")
        self._end = context.Event()
        self._total = context.Value("q", _NOT_KNOWN)
        self._ready = [context.Event() for _ in topic]
        pipes = [context.Pipe(duplex=False) for _ in range(3)]
        self._pipes = [pipe[0] for pipe in pipes]
        self._readers = [
            context.Process(target=_read, args=(bootstrap, name, partitions, self._total, ready, pipe[1]))
            for bootstrap, name, ready, pipe in zip((source, target), topic, self._ready, pipes[:2], strict=True)
        ]
        writing = (source, topic[0], partitions, records_per_s, self._end, pipes[2][1])
        self._writer = context.Process(target=_write, args=writing)

    def __enter__(self) -> Self:
        try:
            for reader in self._readers:
                reader.start()
            if not all(ready.wait(PATIENCE_S) for ready in self._ready):
                raise EnvironmentFault("the readers do not start")
            self._writer.start()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._kill()

    def stop(self) -> Arrivals:
        """Wait until every record has arrived at both readers. Raises EnvironmentFault if they do not arrive."""
        self._end.set()
        self._total.value = self._received(2)
        return Arrivals(self._received(0), self._received(1))

    def _received(self, at: int) -> Any:
        pipe = self._pipes[at]
        if not pipe.poll(PATIENCE_S):
            raise EnvironmentFault(f"not all records arrived within {PATIENCE_S:g} s")
        return pipe.recv()

    def _kill(self) -> None:
        for process in (*self._readers, self._writer):
            if process.pid is not None:
                process.kill()
                process.join()


def largest_gap_ms(times: Times, first_ns: int, last_ns: int) -> float:
    """Return the longest time without a record in one partition between two moments. Gaps across them count in full."""
    return max(_largest_gap_ns(each, first_ns, last_ns) for each in times) / 1e6


def _largest_gap_ns(times: Sequence[int], first_ns: int, last_ns: int) -> int:
    begin, end = max(0, bisect_right(times, first_ns) - 1), bisect_left(times, last_ns) + 1
    return max((after - before for before, after in pairwise(times[begin:end])), default=last_ns - first_ns)


def _write(
    bootstrap: str, topic: str, partitions: int, records_per_s: int, end: Event, pipe: "Connection[Any, Any]"
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "1", "log_level": 2})
    value = noise(VALUE_BYTES, 1)
    serial = 0
    began = time.monotonic_ns()
    try:
        while not end.is_set():
            due = began + serial * 1_000_000_000 // records_per_s
            producer.poll(0)
            # librdkafka waits for whole milliseconds only.
            while (now := time.monotonic_ns()) < due:
                time.sleep((due - now) / 1e9)
            key, now_ms = b"%d" % serial, time.time_ns() // 1_000_000
            producer.produce(topic, value, key, partition=serial % partitions, timestamp=now_ms)
            serial += 1
        producer.flush(PATIENCE_S)
        pipe.send(serial)
    except KeyboardInterrupt:
        return  # the parent prints


def _read(
    bootstrap: str,
    topic: str,
    partitions: int,
    total: "Synchronized[int]",
    ready: Event,
    pipe: "Connection[Any, Any]",
) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": "arrivals", "enable.auto.commit": False, "log_level": 2}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    consumer.poll(1)
    ready.set()
    arrived = [array("q") for _ in range(partitions)]
    count = 0
    try:
        while not 0 <= total.value <= count:
            message = consumer.poll(_POLL_S)
            if message is None or message.error() is not None:
                continue
            arrived[message.partition() or 0].append(time.monotonic_ns())
            count += 1
        pipe.send(arrived)
    except KeyboardInterrupt:
        return
