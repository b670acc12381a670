"""Writes records as real applications do: with librdkafka producers in separate processes.

Among the records are null and empty keys and values, headers with duplicate names and null values, records of nearly 1
MB and, if a topic asks for it, transactions of which some are aborted. All records differ from each other.
"""

import multiprocessing
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Any, Literal, Self

from confluent_kafka import KafkaException, Producer

from mirrord.model.errors import EnvironmentFault
from mirrord.runtime.leash import tie_to

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]

_WORDS = ("order", "payment", "customer", "shipped", "pending", "amount", "currency", "region", "warehouse", "status")
_LARGE_BYTES = 900_000
_ABORTED_SHARE = 0.1
_JOIN_S = 60
_STUCK_S = 40.0
_SAMPLES = 512


@dataclass(frozen=True)
class Topic:
    """A topic to write into."""

    name: str
    partitions: int
    codec: Codec
    transactional: bool = False
    batch_bytes: int = 128 << 10
    settings: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Load:
    """The load of each topic."""

    records: int
    value_bytes: int
    """Average size of a record."""
    seed: int
    age_ms: int = 0
    """Age of the records when they are written."""
    records_per_s: float | None = None
    """Rate per topic. None: as fast as possible."""
    large_every: int = 50_000
    """One record in this number is nearly 1 MB long."""
    at_once: int = 200
    """Number of records between two checks of the clock and of the queue."""


class Writers:
    """One process per topic, which writes until its load is done, or until `stop`. Counters may be read at any time."""

    def __init__(self, bootstrap: str, topics: Sequence[Topic], load: Load) -> None:
        # librdkafka's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        self._records = [context.Value("q", 0) for _ in topics]
        self._bytes = [context.Value("q", 0) for _ in topics]
        self._end = context.Event()
        self._processes = [
            context.Process(
                target=_write, args=(bootstrap, topic, load, at, (records, written), self._end), name=topic.name
            )
            for at, (topic, records, written) in enumerate(zip(topics, self._records, self._bytes, strict=True))
        ]

    def __enter__(self) -> Self:
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    @property
    def records(self) -> int:
        """Number of records written so far, without those of aborted transactions."""
        return sum(counter.value for counter in self._records)

    @property
    def payload_bytes(self) -> int:
        """Size of their keys, values and headers."""
        return sum(counter.value for counter in self._bytes)

    @property
    def done(self) -> bool:
        """Whether all have ended. Raises EnvironmentFault if one of them failed."""
        for process in self._processes:
            if process.exitcode:
                raise EnvironmentFault(f"the writer of {process.name} ended with code {process.exitcode}")
        return all(process.exitcode == 0 for process in self._processes)

    def stop(self) -> None:
        """End after the records in flight. Raises EnvironmentFault if one does not end."""
        self._end.set()
        for process in self._processes:
            process.join(_JOIN_S)
            if process.exitcode is None:
                raise EnvironmentFault(f"the writer of {process.name} does not end")
        _ = self.done


Counters = tuple["Synchronized[int]", "Synchronized[int]"]


def _write(bootstrap: str, topic: Topic, load: Load, writer: int, counters: Counters, end: Event) -> None:
    """Run in each process, which the kernel ends with the parent. Records never expire, so a writer whose brokers are
    gone would not exit by itself."""
    tie_to(os.getppid())
    records = Records(load, writer, topic.partitions)
    try:
        if topic.transactional:
            _write_transactions(bootstrap, topic, load, records, counters, end)
        else:
            _write_plainly(bootstrap, topic, load, records, counters, end)
    except KeyboardInterrupt:
        return  # the parent prints


def _producer(bootstrap: str, topic: Topic, **settings: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": topic.codec,
            "batch.size": topic.batch_bytes,
            "linger.ms": 20,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 65_536,
            "socket.timeout.ms": 10_000,
            "reconnect.backoff.max.ms": 500,
            "log_level": 2,
            **settings,
        }
    )


def _write_plainly(
    bootstrap: str, topic: Topic, load: Load, records: "Records", counters: Counters, end: Event
) -> None:
    # Duplicates in the source are no fault: whatever is there must be copied. An idempotent producer of old records
    # would be forgotten by a broker that restarts.
    producer, watch = _producer(bootstrap, topic, **{"message.timeout.ms": 0}), DeliveryWatch()
    for chunk in _paced(load, end):
        size = 0
        for _ in range(chunk):
            record, length = records.next()
            send(producer, topic.name, **record)
            size += length
        producer.poll(0)
        _count(counters, chunk, size)
        watch.sent += chunk
        if watch.is_stuck(producer):
            producer.purge()
            producer, watch = _producer(bootstrap, topic, **{"message.timeout.ms": 0}), DeliveryWatch()
    while producer.flush(1) and not watch.is_stuck(producer):
        continue


class DeliveryWatch:
    """Notices that a producer delivers nothing any more. After faults that follow each other closely, a producer of
    librdkafka sometimes sends nothing again, and reports no error. It then has to be replaced."""

    def __init__(self) -> None:
        self.sent = 0
        """Number of records that were passed to the producer."""
        self._delivered, self._since = 0, time.monotonic()

    def is_stuck(self, producer: Producer) -> bool:
        """Return whether the producer has had records to deliver for too long, and has delivered none of them."""
        waiting, now = len(producer), time.monotonic()
        if not waiting or self.sent - waiting > self._delivered:
            self._delivered, self._since = max(self._delivered, self.sent - waiting), now
        return now > self._since + _STUCK_S


def _write_transactions(
    bootstrap: str, topic: Topic, load: Load, records: "Records", counters: Counters, end: Event
) -> None:
    rng = random.Random(load.seed)
    producer: Producer | None = None
    settings = {"transactional.id": f"load-{topic.name}", "transaction.timeout.ms": 60_000}
    for chunk in _paced(load, end):
        while True:
            try:
                if producer is None:
                    producer = _producer(bootstrap, topic, **settings)
                    producer.init_transactions(30)
                producer.begin_transaction()
                if rng.random() < _ABORTED_SHARE:
                    _send_many(producer, topic.name, records, chunk)
                    producer.abort_transaction(30)
                    continue
                size = _send_many(producer, topic.name, records, chunk)
                producer.commit_transaction(30)
            except KafkaException:
                producer = None  # a broker was killed: a new producer with the same id ends what is open
                continue
            _count(counters, chunk, size)
            break


def _send_many(producer: Producer, topic: str, records: "Records", count: int) -> int:
    size = 0
    for _ in range(count):
        record, length = records.next()
        send(producer, topic, **record)
        size += length
    # Aborted records must be written as well.
    producer.flush(10)
    return size


def send(producer: Producer, topic: str, **record: Any) -> None:
    """Pass a record (the arguments of `produce`) to the client when there is room for it."""
    while True:
        try:
            producer.produce(topic, **record)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _paced(load: Load, end: Event) -> Iterator[int]:
    """Yield how many records to write next, until the load is done, at the pace of the load."""
    began = time.monotonic()
    written = 0
    while written < load.records and not end.is_set():
        chunk = min(load.at_once, load.records - written)
        yield chunk
        written += chunk
        if load.records_per_s is not None:
            end.wait(max(0.0, began + written / load.records_per_s - time.monotonic()))


def _count(counters: Counters, records: int, size: int) -> None:
    for counter, more in zip(counters, (records, size), strict=True):
        with counter.get_lock():
            counter.value += more


class Records:
    """An endless sequence of records of one writer, all different."""

    def __init__(self, load: Load, writer: int, partitions: int) -> None:
        self._rng = random.Random(load.seed * 1_000 + writer)
        self._load = load
        self._serial = writer << 32
        self._partitions = partitions
        length = load.value_bytes
        text = " ".join(self._rng.choice(_WORDS) + str(self._rng.randrange(10_000)) for _ in range(64 + length // 2))
        blob = text.encode()
        self._samples = [
            blob[start : start + self._rng.randint(length // 2, length + length // 2)]
            for start in (self._rng.randrange(max(1, len(blob) - 2 * length)) for _ in range(_SAMPLES))
        ]
        self._large = self._rng.randbytes(_LARGE_BYTES)

    def next(self) -> tuple[dict[str, Any], int]:
        """Return the arguments of `produce`, and the length of key, value and headers."""
        serial = self._serial = self._serial + 1
        name = b"%x" % serial
        key: bytes | None = name
        value: bytes | None = name + self._samples[serial % _SAMPLES]
        if serial % self._load.large_every == 0:
            value = name + self._large
        match serial % 50:
            case 1:
                value = None
            case 2:
                value = b""
            case 3:
                key = None
            case 4:
                key = b""
            case _:
                pass
        headers: list[tuple[str, bytes | None]] = []
        if serial % 10 == 7:
            headers = [("trace", name), ("trace", None), ("tenant", b""), ("trace", b"again")]
        length = len(key or b"") + len(value or b"") + sum(len(each) + len(part or b"") for each, part in headers)
        record: dict[str, Any] = {"key": key, "value": value, "partition": serial // 50 % self._partitions}
        if headers:
            record["headers"] = headers
        if self._load.age_ms:
            record["timestamp"] = int(time.time() * 1000) - self._load.age_ms
        return record, length


def noise(size: int, seed: int) -> bytes:
    """Return bytes that do not compress."""
    return random.Random(seed).randbytes(size)
