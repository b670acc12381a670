"""How do CPU, memory and start time grow with partitions, topics, groups, and with the length of the ledger?

A daemon in one process with default settings starts three times: to copy a first batch of each partition, with nothing
to copy, and with a backlog of constant size. Partitions, topics, groups that have committed, and the runs of the ledger
grow, one of them at a time. Each figure should be flat, or grow no faster than its cause.
"""

import asyncio
import random
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.harness.clusters import Admin
from bench.harness.copiers import Mirrord, Used
from bench.harness.daemon import Daemon, Settings, target_name
from bench.harness.load import Topic, noise, send
from bench.questions.map_cost import fill as fill_map
from bench.questions.map_cost import lane_of, store_of
from mirrord.lab.cluster import Cluster
from mirrord.ledger.facts.core import FlowOpened, Holder, LeaseReleased, LeaseTaken
from mirrord.ledger.store.store import open_flow
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ClusterId
from mirrord.model.status import FlowStatus

What = Literal["partitions", "topics", "groups", "runs in the ledger"]

SIZES: Mapping[What, Sequence[int]] = {
    "partitions": (4, 64, 512, 2_048),
    "topics": (1, 16, 128, 512),
    "groups": (0, 100, 1_000),
    "runs in the ledger": (0, 10_000, 100_000, 1_000_000),
}
PARTITIONS = 4
"""Partitions of a topic where something else grows."""
COPIED_BYTES = 800_000_000
LEAST_BYTES = 100_000_000
RECORDS = 4
"""Records of a batch; with values of 4 KB that is 16 KiB."""
VALUE_BYTES = 4_060
START_S = 300.0
STILL_S = 120.0
_AT_ONCE = 64
_LOOK_S = 0.25
_FLUSH_S = 120
_ANSWER_S = 30.0

PrintLine = Callable[[str], None]


class Grown(msgspec.Struct, frozen=True, kw_only=True):
    """One size of what grows."""

    what: str
    size: int
    first_s: float
    """Time from the first start until a first batch of each partition is copied, while the target topics are
    created."""
    start_s: float
    """Time from the second start until there is no lag."""
    start_cpu_s: float
    """CPU-seconds of the second start."""
    cpu_s_per_gb: float
    """Cost of the third start and the backlog beyond that of the second start."""
    bytes_per_s: float
    """Wall-clock rate from the third start on."""
    peak_bytes: int


class _Case(NamedTuple):
    """What exists at the start."""

    what: What
    size: int
    topics: int
    partitions: int
    groups: int
    runs: int

    @property
    def names(self) -> list[str]:
        return [f"growth-{self.what.partition(' ')[0]}-{self.size}-{number}" for number in range(self.topics)]


def measure(source: Cluster, target: Cluster, share: float, seed: int, print_line: PrintLine) -> list[Grown]:
    """Measure each size of each cause; a short run skips the largest. Raises EnvironmentFault."""
    batches = int(max(LEAST_BYTES, COPIED_BYTES * share)) // (RECORDS * VALUE_BYTES)
    return [_measure(source, target, each, batches, seed, print_line) for each in _cases(share)]


def _cases(share: float) -> Iterator[_Case]:
    for what, sizes in SIZES.items():
        for size in sizes if share == 1 else sizes[:-1]:
            grows = {each: size if each == what else 0 for each in SIZES}
            yield _Case(
                what=what,
                size=size,
                topics=grows["topics"] or 1,
                partitions=grows["partitions"] or PARTITIONS,
                groups=grows["groups"],
                runs=grows["runs in the ledger"],
            )


def _measure(source: Cluster, target: Cluster, case: _Case, batches: int, seed: int, print_line: PrintLine) -> Grown:
    flow, names = f"growth-{uuid.uuid4().hex[:8]}", case.names
    for at in range(0, len(names), _AT_ONCE):
        Admin(source.bootstrap).create([Topic(name, case.partitions, "none") for name in names[at : at + _AT_ONCE]])
    first = _fill(source.bootstrap, names, case.partitions, case.topics * case.partitions)
    _commit(source.bootstrap, names[0], case.partitions, case.groups)
    if case.runs:
        ids = (_cluster_id(source.bootstrap), _cluster_id(target.bootstrap))
        asyncio.run(_write_ledger(flow, target.bootstrap, ids, case.runs, seed))
    settings = Settings(
        source=source.bootstrap,
        target=target.bootstrap,
        topics=f"{names[0].rpartition('-')[0]}-.*",
        engine="process",
        flow=flow,
    )
    copies = {target_name(name): case.partitions for name in names}
    lanes = {"copying": case.topics * case.partitions}

    def all_copied(flow: FlowStatus) -> bool:
        return flow.totals.lanes == lanes and flow.totals.lag_records == 0

    with tempfile.TemporaryDirectory(prefix="mirrord-growth-") as folder:
        daemon = Daemon(Path(folder), settings)
        try:
            first_s, _ = _started(daemon, lambda: daemon.wait_for("copy of all partitions", all_copied, START_S))
            start_s, start = _started(daemon, lambda: daemon.wait_for("copy of all partitions", all_copied, START_S))
            records = _fill(source.bootstrap, names, case.partitions, batches)
            seconds, whole = _started(daemon, lambda: _until_copied(target.bootstrap, daemon, copies, first + records))
        finally:
            daemon.stop()
    for cluster, parts in ((source, names), (target, list(copies))):
        for at in range(0, len(parts), _AT_ONCE):
            Admin(cluster.bootstrap).delete(parts[at : at + _AT_ONCE])
    copied_bytes = records * VALUE_BYTES
    grown = Grown(
        what=case.what,
        size=case.size,
        first_s=first_s,
        start_s=start_s,
        start_cpu_s=start.cpu_s,
        cpu_s_per_gb=(whole.cpu_s - start.cpu_s) / copied_bytes * 1e9,
        bytes_per_s=copied_bytes / seconds,
        peak_bytes=whole.peak_bytes,
    )
    print_line(
        f"growth: {case.size:,} {case.what}: first start {first_s:.1f} s, start {start_s:.1f} s and {start.cpu_s:.2f} "
        f"CPU-s, {grown.cpu_s_per_gb:.2f} CPU-s per GB, {grown.peak_bytes / 1e6:,.0f} MB"
    )
    return grown


def _started(daemon: Daemon, wait: Callable[[], object]) -> tuple[float, Used]:
    """Start the daemon, and end it when a state is reached. Return the seconds until then, and the usage."""
    began = time.monotonic()
    daemon.start()
    wait()
    seconds, used = time.monotonic() - began, Mirrord(daemon, "").used()
    daemon.stop()
    return seconds, used


def _fill(bootstrap: str, names: Sequence[str], partitions: int, batches: int) -> int:
    """Fill the topics, and return the number of records."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 1_000,
            "batch.num.messages": RECORDS,
            "queue.buffering.max.kbytes": 256 << 10,
        }
    )
    values = [noise(VALUE_BYTES, number) for number in range(64)]
    for batch in range(batches):
        name, partition = names[batch % len(names)], batch // len(names) % partitions
        for at in range(RECORDS):
            send(producer, name, value=values[(batch + at) % len(values)], partition=partition)
        producer.poll(0)
    if producer.flush(_FLUSH_S):
        raise EnvironmentFault(f"{names[0]} cannot be filled")
    return batches * RECORDS


def _commit(bootstrap: str, topic: str, partitions: int, groups: int) -> None:
    client = cast(Any, AdminClient({"bootstrap.servers": bootstrap}))
    asked: list[Any] = []
    for number in range(groups):
        places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
        group = ConsumerGroupTopicPartitions(f"growth-{groups}-{number:04}", places)
        asked += client.alter_consumer_group_offsets([group], request_timeout=_ANSWER_S).values()
    for each in asked:
        each.result(_ANSWER_S)


def _cluster_id(bootstrap: str) -> ClusterId:
    return ClusterId(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=_ANSWER_S).cluster_id or "")


async def _write_ledger(flow: str, bootstrap: str, ids: tuple[ClusterId, ClusterId], runs: int, seed: int) -> None:
    """Write a ledger with the runs of a partition whose topic no longer exists."""
    store = store_of(flow, bootstrap)
    await store.open()
    try:
        await open_flow(store, FlowOpened(flow, *ids))
        await store.append(1, [LeaseTaken(1, Holder("bench", 0, "bench", ""), 60_000)])
        await fill_map(store, lane_of(0), runs, random.Random(seed), is_recorded=False)
        await store.append(1, [LeaseReleased(1)])
        await store.trim(0)
    finally:
        await store.close()


def _until_copied(bootstrap: str, daemon: Daemon, copies: Mapping[str, int], wanted: int) -> None:
    admin = Admin(bootstrap)
    seen, moved = -1, time.monotonic()
    while (arrived := sum(admin.ends(copies, timeout_s=10.0).values())) < wanted:
        if arrived > seen:
            seen, moved = arrived, time.monotonic()
        elif time.monotonic() - moved > STILL_S:
            raise EnvironmentFault(f"{arrived:,} of {wanted:,} records are copied, and no more come:\n{daemon.tail()}")
        time.sleep(_LOOK_S)
