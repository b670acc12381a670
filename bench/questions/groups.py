"""How soon after a commit on the source is a group at that position on the target, and what does following cost?

A thousand groups commit in ten partitions each, every five seconds, evenly spread. Each commit is timed from before it
is sent to the source until librdkafka has read the target's commit that covers it from the `__consumer_offsets` of the
target.
"""

import asyncio
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Literal

import msgspec
import psutil
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon, Settings, target_name
from bench.harness.load import Topic
from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.kafka.client.cluster_metadata import ClusterView
from mirrord.kafka.client.connection import ConnectionOptions
from mirrord.kafka.client.group_admin import GroupAdmin
from mirrord.kafka.client.receive_buffers import BufferPool
from mirrord.kafka.protocol.consumer_offsets import TOPIC as OFFSETS
from mirrord.kafka.protocol.consumer_offsets import decode_key, decode_value
from mirrord.kafka.protocol.groups import CommittedOffset
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ClusterId
from mirrord.model.status import FlowStatus

GROUPS = 1_000
PARTITIONS = 10
EVERY_S = 5.0
MEASURED_S = 60.0
REST_S = 15.0
SETTLE_S = 10.0
START_S = 180.0
LIMIT_S = 60.0
BETWEEN = 10
"""Records between two commits of a group in a partition."""
TOPIC = "groups-orders"
_LOOK_S = 0.05

PrintLine = Callable[[str], None]
Place = tuple[str, int]


class Following(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of following this number of groups."""

    engine: str
    groups: int
    partitions: int
    """Partitions of each group."""
    seconds: float
    commits: int
    """Groups times partitions times rounds."""
    p50_ms: float
    p99_ms: float
    most_ms: float
    core_share: float
    """CPU-seconds per second: of the follower's process with Ray, of the whole daemon without Ray."""
    rest_share: float
    """The same while there are no commits."""


class Seen:
    """The times at which commits of the source reached the target; filled by two threads."""

    def __init__(self, name: str) -> None:
        self.delays_s: list[float] = []
        self.reached: dict[Place, int] = {}
        """The newest position of each group and partition on the target."""
        self._name = name
        self._pending: dict[Place, deque[tuple[int, float]]] = {}
        self._lock = threading.Lock()

    @property
    def pending(self) -> int:
        """Commits that are not on the target yet."""
        with self._lock:
            return sum(map(len, self._pending.values()))

    def committed(self, group: str, partitions: Iterable[int], offset: int, at_s: float) -> None:
        """Note that a commit is about to be sent to the source."""
        with self._lock:
            for partition in partitions:
                self._pending.setdefault((group, partition), deque()).append((offset, at_s))

    def arrived(self, key: bytes, value: bytes | None, at_s: float) -> None:
        """Note a record of the target's log of commits."""
        place = decode_key(key)
        if isinstance(place, int) or place.topic != self._name or value is None:
            return
        offset = decode_value(value).offset
        with self._lock:
            self.reached[place.group, place.partition] = offset
            pending = self._pending.get((place.group, place.partition), deque())
            while pending and pending[0][0] <= offset:
                self.delays_s.append(at_s - pending.popleft()[1])


def measure(
    source: Cluster, target: Cluster, engine: Literal["ray", "process"], share: float, print_line: PrintLine
) -> Following:
    """Start a daemon and let groups commit. Raises EnvironmentFault."""
    topic = f"{TOPIC}-{engine}"
    rounds = max(2, round(MEASURED_S * share / EVERY_S))
    Admin(source.bootstrap).create([Topic(topic, PARTITIONS, "none")])
    _fill(source, topic, BETWEEN * (rounds + 2))
    with tempfile.TemporaryDirectory(prefix="mirrord-groups-") as folder:
        settings = Settings(
            source=source.bootstrap,
            target=target.bootstrap,
            topics=topic,
            engine=engine,
            flow=f"groups-{engine}",
            replicators=1 if engine == "ray" else "auto",
        )
        daemon = Daemon(Path(folder), settings)
        try:
            daemon.start()
            daemon.wait_for("lane", _is_copied, START_S)
            return _follow(source, target, daemon, topic, rounds, print_line)
        except psutil.Error as error:
            raise EnvironmentFault(f"the follower of groups has ended: {error}") from error
        finally:
            daemon.stop()


def _is_copied(flow: FlowStatus) -> bool:
    return flow.totals.lanes == {"copying": PARTITIONS} and flow.totals.lag_records == 0


def _follow(
    source: Cluster, target: Cluster, daemon: Daemon, topic: str, rounds: int, print_line: PrintLine
) -> Following:
    engine = daemon.settings.engine
    seen = Seen(target_name(topic))
    with _watched(target, seen):
        print_line(f"groups, engine {engine}: {GROUPS:,} groups of {PARTITIONS} partitions come")
        _commit(source, topic, seen, range(1))
        _until_right(seen)
        time.sleep(SETTLE_S)
        process = _follower(daemon)
        rest_share = _share_of(process, lambda: time.sleep(REST_S))[0]
        seen.delays_s.clear()
        print_line(f"groups, engine {engine}: they commit every {EVERY_S:g} s for {rounds * EVERY_S:.0f} s")

        def work() -> None:
            _commit(source, topic, seen, range(1, rounds + 1))

        core_share, seconds = _share_of(process, work)
        _until_right(seen)
    delays_ms = sorted(1_000 * each for each in seen.delays_s)
    cuts = quantiles(delays_ms, n=100)
    return Following(
        engine=engine,
        groups=GROUPS,
        partitions=PARTITIONS,
        seconds=seconds,
        commits=len(delays_ms),
        p50_ms=cuts[49],
        p99_ms=cuts[98],
        most_ms=delays_ms[-1],
        core_share=core_share,
        rest_share=rest_share,
    )


def _commit(source: Cluster, topic: str, seen: Seen, rounds: range) -> None:
    asyncio.run(_commits(source, topic, seen, rounds))


async def _commits(source: Cluster, topic: str, seen: Seen, rounds: range) -> None:
    """Let each group commit once a round, at its own time within it."""
    config = ClusterConfig((source.bootstrap,), Security())
    options = ConnectionOptions(client_id="bench-groups", request_timeout_s=LIMIT_S)
    named = AdminClient({"bootstrap.servers": source.bootstrap}).list_topics(topic, timeout=LIMIT_S).cluster_id
    view = ClusterView("eu", config, BufferPool(1 << 20), options, ClusterId(named or ""))
    view.start()
    admin = GroupAdmin(view)
    places = [(topic, partition) for partition in range(PARTITIONS)]

    async def commit(group: str, offset: int) -> None:
        while True:
            answer = await admin.commit({group: dict.fromkeys(places, CommittedOffset(offset, -1, ""))})
            if not any(answer[group].values()):
                return
            # Right after its start, a broker keeps no groups yet.
            await asyncio.sleep(_LOOK_S)

    try:
        await admin.listed()
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as together:
            for number in rounds:
                for group in range(GROUPS):
                    due = began + EVERY_S * (number - rounds.start + group / GROUPS)
                    await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
                    name, offset = f"group-{group:04}", BETWEEN * (number + 1)
                    seen.committed(name, range(PARTITIONS), offset, time.monotonic())
                    together.create_task(commit(name, offset))
    finally:
        await view.close()


@contextmanager
def _watched(target: Cluster, seen: Seen):
    """Read the target's log of commits from its current end on."""
    ending = threading.Event()
    ready = threading.Event()

    def read() -> None:
        settings = {"bootstrap.servers": target.bootstrap, "group.id": "bench", "fetch.wait.max.ms": 20}
        consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 2})
        try:
            consumer.assign(_ends(consumer))
            ready.set()
            while not ending.is_set():
                messages = consumer.consume(1_000, _LOOK_S)
                now = time.monotonic()
                for message in messages:
                    key = message.key()
                    if not message.error() and isinstance(key, bytes):
                        seen.arrived(key, message.value(), now)
        finally:
            ready.set()
            consumer.close()

    thread = threading.Thread(target=read, name="target-commits")
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def _ends(consumer: Consumer) -> list[TopicPartition]:
    """Return where each partition ends. A target without any commits has no such partitions, and creates them when
    asked."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            consumer.committed([TopicPartition(OFFSETS, 0)], timeout=LIMIT_S)
            known = consumer.list_topics(OFFSETS, timeout=LIMIT_S).topics[OFFSETS].partitions
            places = [TopicPartition(OFFSETS, partition) for partition in known]
            for place in places:
                place.offset = consumer.get_watermark_offsets(place, timeout=LIMIT_S)[1]
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise EnvironmentFault(f"the target's commits cannot be read: {error}") from error
        else:
            if places:
                return places
        time.sleep(_LOOK_S)


def _until_right(seen: Seen) -> None:
    deadline = time.monotonic() + LIMIT_S
    while seen.pending:
        if time.monotonic() > deadline:
            raise EnvironmentFault(f"{seen.pending:,} commits are not on the target after {LIMIT_S:g} s")
        time.sleep(_LOOK_S)


def _follower(daemon: Daemon) -> psutil.Process:
    process = psutil.Process(daemon.pid)
    if daemon.settings.engine == "process":
        return process
    # Ray names a process by the class of its actor.
    found = [each for each in process.children(recursive=True) if "GroupsActor" in " ".join(each.cmdline())]
    if len(found) != 1:
        raise EnvironmentFault(f"there are {len(found)} followers of groups:\n{daemon.tail()}")
    return found[0]


def _share_of(process: psutil.Process, work: Callable[[], None]) -> tuple[float, float]:
    """Return the CPU-seconds per second during some work, and how long it took."""
    began, before = time.monotonic(), _cpu_s(process)
    work()
    seconds = time.monotonic() - began
    return (_cpu_s(process) - before) / seconds, seconds


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _fill(source: Cluster, topic: str, records: int) -> None:
    """Write this number of records into each partition."""
    producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 20})
    for number in range(records * PARTITIONS):
        producer.produce(topic, b"value %d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    if producer.flush(LIMIT_S):
        raise EnvironmentFault(f"{topic} cannot be written")
