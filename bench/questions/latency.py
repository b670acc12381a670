"""How much later does a record arrive at a reader of the target than at a reader of the source?

A producer writes records at a steady rate; two readers note when each arrives. All times are CLOCK_MONOTONIC of this
machine. Producer, readers and copier are separate processes.
"""

import multiprocessing
import os
import statistics
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench.harness import copiers
from bench.harness.clusters import Admin
from bench.harness.copiers import Copier, Engine
from bench.harness.load import Topic, noise
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault
from mirrord.runtime.leash import tie_to

PARTITIONS = 4
RATES = (10, 1_000, 20_000)
"""Records per second."""
SHORT_RATES = (1_000,)
"""Rates of a short run, which has no transactions."""
TRANSACTIONS = (1_000, 100)
"""At this rate also in transactions of this many records, which arrive when the transactions are committed."""
LINGERS_FROM = 10_000
"""Records per second from which the producer waits for more of them, as producers do by default (KIP-1030). In
transactions it always does, because no reader sees their records before the commit. With a request per record, two
cores are fully used at these rates, and the brokers cause the delay."""
LINGER_MS = 5
PACE_S = 0.001
"""The producer does not sleep for less; librdkafka waits for whole milliseconds only."""
VALUE_BYTES = 200
WARM_UP_S = 20.0
FIRST_WARM_UP_S = 60.0
"""Warm-up of the first copier: Java compiles for the brokers, too."""
MEASURED_S = 30.0
LEAST_RECORDS = 600
START_S = 180.0
PATIENCE_S = 60.0
_LOOK_S = 0.2
_SERIAL_BYTES = 8

PrintLine = Callable[[str], None]


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds that the mirror adds: arrival at the target's reader minus arrival at the source's."""

    engine: str
    """mirrord's engine, or the name of another copier."""
    records: int
    records_per_s: int
    transaction_records: int = 0
    """Records of one transaction; 0: no transactions."""
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    source_p50_ms: float
    """Time from `produce` to the source's reader, for comparison."""


def measure(
    source: Cluster, target: Cluster, engines: Sequence[Engine], share: float, print_line: PrintLine
) -> list[Latency]:
    """Measure each engine and MirrorMaker 2 at each rate, and mirrord with transactions. Raises EnvironmentFault."""
    found: list[Latency] = []
    is_short = share < copiers.SHORT_SHARE
    for rate in SHORT_RATES if is_short else RATES:
        for name in (*engines, "MM2", "MM2 tuned"):
            print_line(f"latency, {name}: {rate:,} records a second")
            warm_up_s = WARM_UP_S if found else FIRST_WARM_UP_S
            found.append(_measure(source, target, name, (rate, 0), share, warm_up_s))
    for name in () if is_short else engines:
        print_line(f"latency, {name}: {TRANSACTIONS[0]:,} records a second in transactions of {TRANSACTIONS[1]}")
        found.append(_measure(source, target, name, TRANSACTIONS, share, WARM_UP_S))
    return found


def _measure(
    source: Cluster, target: Cluster, name: str, load: tuple[int, int], share: float, warm_up_s: float
) -> Latency:
    """Measure one copier. `load`: records per second, and per transaction."""
    rate, transaction = load
    topic = Topic(f"latency-{name.replace(' ', '-')}-{rate}-{transaction}", PARTITIONS, "none")
    Admin(source.bootstrap).create([topic])
    warm_up = int(warm_up_s * rate)
    records = warm_up + int(max(MEASURED_S * share * rate, LEAST_RECORDS * share))
    with _copier(source, target, name, topic.name) as copier:
        copier.used()
        await_topic(target, copier.copy)
        sent, at_source, at_target = let_flow((source, topic.name), (target, copier.copy), records, load)
    Admin(target.bootstrap).delete([copier.copy])
    added = [(at_target[at] - at_source[at]) / 1e6 for at in range(warm_up, records)]
    through = [(at_source[at] - sent[at]) / 1e6 for at in range(warm_up, records)]
    cuts = statistics.quantiles(added, n=1_000)
    return Latency(
        engine=name,
        records=len(added),
        records_per_s=rate,
        transaction_records=transaction,
        p50_ms=cuts[499],
        p99_ms=cuts[989],
        p999_ms=cuts[998],
        max_ms=max(added),
        source_p50_ms=statistics.median(through),
    )


def _copier(source: Cluster, target: Cluster, name: str, topic: str) -> AbstractContextManager[Copier]:
    match name:
        case "ray" | "process":
            return copiers.mirrord(source, target, topic, topic, name)
        case "MM2":
            return copiers.mm2(source, target, topic, topic)
        case _:
            return copiers.mm2(source, target, topic, topic, copiers.tuned(topic, "none", PARTITIONS))


def await_topic(cluster: Cluster, topic: str) -> None:
    """Wait until a cluster has a topic with `PARTITIONS`. Raises EnvironmentFault."""
    admin, deadline = Admin(cluster.bootstrap), time.monotonic() + START_S
    while len(admin.ends({topic: PARTITIONS})) < PARTITIONS:
        if time.monotonic() > deadline:
            raise EnvironmentFault(f"there is no topic {topic} within {START_S:g} s")
        time.sleep(_LOOK_S)


def let_flow(
    source: tuple[Cluster, str],
    target: tuple[Cluster, str],
    records: int,
    load: tuple[int, int],
    meanwhile: Callable[[], None] = lambda: None,
) -> tuple["array[int]", "array[int]", "array[int]"]:
    """Let records flow. Return for each one when it was sent and when it arrived at either reader, in nanoseconds.

    `source` and `target` contain a cluster and the name of the topic there, `load` the records per second and per
    transaction (0: no transactions). `meanwhile` is called when the writer has been started. Raises EnvironmentFault if
    not all records arrive.
    """
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(3)]
    ready = [context.Event() for _ in range(2)]
    readers = [
        context.Process(target=_read, args=(cluster.bootstrap, name, records, pipe[1], event))
        for (cluster, name), pipe, event in zip((source, target), pipes[:2], ready, strict=True)
    ]
    writer = context.Process(target=_write, args=(source[0].bootstrap, source[1], records, load, pipes[2][1]))
    try:
        for reader in readers:
            reader.start()
        if not all(event.wait(PATIENCE_S) for event in ready):
            raise EnvironmentFault("the readers do not start")
        writer.start()
        meanwhile()
        patience_s = records / load[0] + PATIENCE_S
        deadline = time.monotonic() + patience_s
        if not all(pipe[0].poll(max(0.0, deadline - time.monotonic())) for pipe in pipes):
            raise EnvironmentFault(f"not all records arrived within {patience_s:.0f} s")
        at_source, at_target, sent = (pipe[0].recv() for pipe in pipes)
    finally:
        for process in (*readers, writer):
            if process.pid is not None:
                process.kill()
                process.join()
    return sent, at_source, at_target


def _write(bootstrap: str, topic: str, records: int, load: tuple[int, int], pipe: "Connection[Any, Any]") -> None:
    tie_to(os.getppid())
    rate, transaction = load
    options: dict[str, Any] = {"transactional.id": topic} if transaction else {"acks": "1"}
    linger_ms = LINGER_MS if transaction or rate >= LINGERS_FROM else 0
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": linger_ms, **options})
    if transaction:
        producer.init_transactions(PATIENCE_S)
    filler = noise(VALUE_BYTES - _SERIAL_BYTES, 1)
    sent = array("q", bytes(8 * records))
    began = time.monotonic_ns()
    for serial in range(records):
        due = began + serial * 1_000_000_000 // rate
        while (now := time.monotonic_ns()) < due:
            producer.poll(0)
            time.sleep(max(PACE_S, (due - now) / 1e9))
        sent[serial] = now
        if transaction and serial % transaction == 0:
            producer.begin_transaction()
        producer.produce(topic, serial.to_bytes(_SERIAL_BYTES) + filler, partition=serial % PARTITIONS)
        if transaction and (serial + 1) % transaction == 0:
            producer.commit_transaction(PATIENCE_S)
    if transaction and records % transaction:
        producer.commit_transaction(PATIENCE_S)
    producer.flush(PATIENCE_S)
    pipe.send(sent)


def _read(bootstrap: str, topic: str, records: int, pipe: "Connection[Any, Any]", ready: Event) -> None:
    tie_to(os.getppid())
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "latency", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    consumer.poll(1)
    ready.set()
    arrived = array("q", bytes(8 * records))
    count = 0
    while count < records:
        message = consumer.poll(1)
        value = message.value() if message is not None and message.error() is None else None
        if value is not None:
            arrived[int.from_bytes(value[:_SERIAL_BYTES])] = time.monotonic_ns()
            count += 1
    pipe.send(arrived)
