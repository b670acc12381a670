"""Progress of 2,000 partitions with traffic, alone and next to a topic that catches up.

Records are written into all partitions in turn, a few at once, the same number into each. For a window, Jain's index is
computed over the share of each partition's records on the source that its lane has copied: (sum x)^2 / (n sum x^2). It
is 1 if all shares are equal, and 1/n if one lane takes everything. Shares are used because the mirror is not
responsible for what the writer or the brokers hold back. In the second window, `mirrord apply` has added a topic with a
backlog, which is copied at the same time.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec
from confluent_kafka import Producer

from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon, Settings
from bench.harness.load import Load, Topic, Writers
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import FlowStatus

TOPICS = 40
PARTITIONS = 50
RECORDS_PER_S = 2
"""Average rate per partition."""
RECORDS_AT_ONCE = 10
"""They become one batch: a request for each record would keep the brokers busy by itself."""
VALUE_BYTES = 200
BACKLOG_PARTITIONS = 4
BACKLOG_RECORDS = 1_000_000
BACKLOG_BYTES = 1_000
WINDOW_S = 30.0
LAST_S = 5.0
"""Records written in the last seconds of a window may be in flight at its end, and do not count."""
LEAST_WINDOW_S = 20.0
"""In a shorter window, a pause of the machine would weigh more than the mirror."""
START_S = 300.0
LOOK_S = 0.5
ALONE, BESIDE = "traffic alone", "beside a topic that catches up"

Engine = Literal["ray", "process"]
PrintLine = Callable[[str], None]


class Fairness(msgspec.Struct, frozen=True, kw_only=True):
    """One window of one engine."""

    engine: str
    what: str
    partitions: int
    seconds: float
    jain: float
    """Jain's index over the shares that the live lanes copied in the window."""
    least_share: float
    """The smallest share."""
    lag_s: float
    """The largest lag in seconds of a live lane in any sample."""
    backlog_bytes_per_s: float
    """What the topic that catches up received meanwhile."""


def jain(values: Sequence[float]) -> float:
    """Return Jain's fairness index; 1 if all values are 0."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


class Traffic:
    """Writes into all partitions in turn until the block ends."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 2})
        self._topics = topics
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write, name="traffic", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()

    def _write(self) -> None:
        value, due = bytes(VALUE_BYTES), time.monotonic()
        while not self._end.is_set():
            for topic in self._topics:
                for partition in range(PARTITIONS):
                    for _ in range(RECORDS_AT_ONCE):
                        self._produce(topic, value, partition)
                due += RECORDS_AT_ONCE / RECORDS_PER_S / len(self._topics)
                self._producer.poll(0)
                self._end.wait(max(0.0, due - time.monotonic()))
        self._producer.flush(START_S)

    def _produce(self, topic: str, value: bytes, partition: int) -> None:
        while not self._end.is_set():
            try:
                self._producer.produce(topic, value, partition=partition)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return


def measure(source: Cluster, target: Cluster, engine: Engine, share: float, print_line: PrintLine) -> list[Fairness]:
    """Measure both windows of one engine. Raises EnvironmentFault."""
    topics = [f"fair-{engine}-{number:02}" for number in range(max(2, round(TOPICS * share)))]
    backlog = Topic(f"backlog-{engine}", BACKLOG_PARTITIONS, "none")
    Admin(source.bootstrap).create([backlog, *(Topic(each, PARTITIONS, "none") for each in topics)])
    load = Load(records=round(BACKLOG_RECORDS * share), value_bytes=BACKLOG_BYTES, seed=1, large_every=1 << 40)
    with Writers(source.bootstrap, [backlog], load) as writers:
        print_line(f"fairness, engine {engine}: {load.records:,} records into a backlog")
        while not writers.done:
            time.sleep(LOOK_S)
    copied = f"fair-{engine}-.*"
    lanes = len(topics) * PARTITIONS
    window_s = max(LEAST_WINDOW_S, WINDOW_S * share)
    with tempfile.TemporaryDirectory(prefix="mirrord-fairness-") as folder:
        settings = Settings(
            source=source.bootstrap,
            target=target.bootstrap,
            topics=copied,
            engine=engine,
            flow=f"fairness-{engine}",
            refresh_s=5.0,
        )
        daemon = Daemon(Path(folder), settings)
        try:
            daemon.start()
            daemon.wait_for("lane", lambda flow: flow.totals.lanes == {"copying": lanes}, START_S)
            with Traffic(source.bootstrap, topics):
                daemon.wait_for("traffic", lambda flow: all(lane.ordinal for lane in flow.lanes), START_S)
                print_line(f"fairness, engine {engine}: {lanes:,} partitions, two windows of {window_s:.0f} s")
                alone = _window(source, daemon, engine, ALONE, backlog.name, window_s)
                daemon.apply(f"{copied}|{backlog.name}")
                daemon.wait_for("backlog", lambda flow: bool(_of(flow, backlog.name)), START_S)
                beside = _window(source, daemon, engine, BESIDE, backlog.name, window_s)
        finally:
            daemon.stop()
    return [alone, beside]


def _of(flow: FlowStatus, topic: str) -> int:
    return sum(lane.ordinal or 0 for lane in flow.lanes if lane.topic == topic)


def _window(source: Cluster, daemon: Daemon, engine: Engine, what: str, backlog: str, seconds: float) -> Fairness:
    """Measure one window. Raises EnvironmentFault if the daemon ends, or reports no lane."""
    first = daemon.wait_for("status", lambda _: True, START_S)
    live = [lane for lane in first.lanes if lane.topic != backlog]
    before = {(lane.topic, lane.partition): lane.source_offset or 0 for lane in live}
    admin, names = Admin(source.bootstrap), dict.fromkeys({topic for topic, _ in before}, PARTITIONS)
    began, lag_s, last = time.monotonic(), 0.0, first
    ends: dict[tuple[str, int], int] = {}
    while time.monotonic() - began < seconds:
        time.sleep(LOOK_S)
        _ = daemon.pid
        last = daemon.flow() or last
        lag_s = max(lag_s, *(lane.lag_s or 0.0 for lane in last.lanes if lane.topic != backlog))
        if not ends and time.monotonic() - began > seconds - LAST_S:
            ends = admin.ends(names, timeout_s=START_S)
    took = time.monotonic() - began
    last = daemon.wait_for("status", lambda _: True, START_S)
    shares = [
        min(1.0, ((lane.source_offset or 0) - begin) / (end - begin))
        for lane in last.lanes
        if (lane.topic, lane.partition) in before
        and (begin := before[lane.topic, lane.partition]) < (end := ends[lane.topic, lane.partition])
    ]
    if not shares:
        raise EnvironmentFault("nothing was written")
    return Fairness(
        engine=engine,
        what=what,
        partitions=len(shares),
        seconds=took,
        jain=jain(shares),
        least_share=min(shares),
        lag_s=lag_s,
        backlog_bytes_per_s=(_of(last, backlog) - _of(first, backlog)) * BACKLOG_BYTES / took,
    )
