"""The campaign's variant `groups`: consumers move to the target and back, again and again, while the process that
follows their groups is killed.

Each group reads and commits at one cluster, stops at a random moment, waits until mirrord has brought its position to
the other cluster, and continues there. Every record holds its own offset on the source, so the records show whether any
were read again after they had been committed, or were skipped. Meanwhile, each commit in the logs of both clusters is
checked: none may be before the data, and none below the previous one.
"""

import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon, Settings, target_name
from bench.harness.load import Topic
from bench.harness.pair import LASTING, pair
from mirrord.kafka.protocol.consumer_offsets import TOPIC as OFFSETS
from mirrord.kafka.protocol.consumer_offsets import decode_key, decode_value
from mirrord.lab.cluster import Cluster
from mirrord.lab.server_properties import LabOptions
from mirrord.model.errors import EnvironmentFault

TOPIC = "moving"
PARTITIONS = 4
GROUPS = 6
RECORDS_PER_S = 2_000
MOST_READ = 400
GAP_S = 3.0
HURRIED_SHARE = 0.2
"""Share of kills that do not wait until the previous one is overcome."""
LIMIT_S = 120.0
_LOOK_S = 0.05

PrintLine = Callable[[str], None]


@dataclass
class Moved:
    """The outcome."""

    records: int = 0
    """Records read and committed, over all groups."""
    moves: int = 0
    commits: int = 0
    """Commits that were checked, on both sides."""
    kills: Counter[str] = field(default_factory=Counter[str])
    seconds: float = 0.0
    wrong: Counter[str] = field(default_factory=Counter[str])
    first_wrong: str = ""

    def fault(self, what: str, line: str) -> None:
        """Record a violation."""
        self.wrong[what] += 1
        self.first_wrong = self.first_wrong or line


def run(engine: Literal["ray", "process"], kills: int, seed: int, print_line: PrintLine) -> Moved:
    """Run the variant, from empty clusters until all kills are done and every group has come to rest. Raises
    EnvironmentFault."""
    options, moved, ending, faults = LabOptions(properties=LASTING), Moved(), threading.Event(), list[BaseException]()
    with tempfile.TemporaryDirectory(prefix="mirrord-moving-") as folder, ExitStack() as everything:
        source, target = everything.enter_context(pair(options, options))
        Admin(source.bootstrap).create([Topic(TOPIC, PARTITIONS, "none")])
        daemon = _daemon(Path(folder), source, target, engine)
        everything.callback(daemon.kill)
        everything.enter_context(_running(lambda: _write(source, ending), ending, faults))
        for cluster, topic in ((source, TOPIC), (target, target_name(TOPIC))):
            everything.enter_context(_running(lambda c=cluster, t=topic: _look(c, t, moved, ending), ending, faults))
        daemon.start()
        daemon.wait_for("lane", lambda flow: flow.totals.lanes == {"copying": PARTITIONS}, LIMIT_S)
        began = time.monotonic()
        movers = [_Mover(number, seed, source, target, moved, ending) for number in range(GROUPS)]
        with ExitStack() as moving:
            for mover in movers:
                moving.enter_context(_running(mover.run, ending, faults))
            _kill(daemon, kills, random.Random(seed), moved, faults, print_line)
        moved.seconds = time.monotonic() - began
        if faults:
            raise EnvironmentFault(f"{faults[0]}") from faults[0]
        daemon.stop()
    return moved


def _daemon(folder: Path, source: Cluster, target: Cluster, engine: Literal["ray", "process"]) -> Daemon:
    settings = Settings(
        source=source.bootstrap,
        target=target.bootstrap,
        topics=TOPIC,
        engine=engine,
        lease_ttl_s=3.0,
        request_timeout_s=3.0,
        replicators=1 if engine == "ray" else "auto",
        flow_more='groups = { match = ["moving-.*"], refresh = "500ms", reverse = true }',
    )
    return Daemon(folder, settings)


@contextmanager
def _running(work: Callable[[], None], ending: threading.Event, faults: list[BaseException]) -> Generator[None]:
    """Run a thread. It is asked to end with the block. An error that it raises is kept and ends the others as well."""

    def guarded() -> None:
        try:
            work()
        except (EnvironmentFault, KafkaException) as fault:
            faults.append(fault)
            ending.set()

    thread = threading.Thread(target=guarded)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def _kill(
    daemon: Daemon, kills: int, chance: random.Random, moved: Moved, faults: list[BaseException], print_line: PrintLine
) -> None:
    """Kill, with Ray mostly only the process of the follower; otherwise, and now and then, the whole daemon."""
    while sum(moved.kills.values()) < kills and not faults:
        if chance.random() > HURRIED_SHARE:
            _await_move(moved, faults)
        time.sleep(chance.random() * GAP_S)
        follower = _follower(daemon) if daemon.settings.engine == "ray" and chance.random() > 0.2 else None
        if follower is not None:
            follower.kill()
            moved.kills["follower"] += 1
        elif daemon.settings.engine == "process" or chance.random() < 0.5:
            daemon.kill()
            daemon.start()
            moved.kills["daemon"] += 1
        else:
            continue
        print_line(f"{sum(moved.kills.values())} of {kills}: {dict(moved.kills)}, {moved.moves} moves")


def _await_move(moved: Moved, faults: list[BaseException]) -> None:
    """Wait until a group has moved, so that the killed part is working again."""
    moves, deadline = moved.moves, time.monotonic() + LIMIT_S
    while moved.moves == moves and time.monotonic() < deadline and not faults:
        time.sleep(_LOOK_S)


def _follower(daemon: Daemon) -> psutil.Process | None:
    """Return the process of the actor that follows groups. Ray names a process by the class of its actor."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        try:
            children = psutil.Process(daemon.pid).children(recursive=True)
            found = [each for each in children if "GroupsActor" in " ".join(each.cmdline())]
        except psutil.Error:
            found = []
        if found:
            return found[0]
        time.sleep(_LOOK_S)
    return None


class _Mover:
    """One group."""

    def __init__(
        self, number: int, seed: int, source: Cluster, target: Cluster, moved: Moved, ending: threading.Event
    ) -> None:
        self._group = f"moving-{number}"
        self._chance = random.Random(seed + number)
        self._sides = ((source, TOPIC), (target, target_name(TOPIC)))
        self._moved = moved
        self._ending = ending
        self._next: dict[int, int] = {}
        """The committed offsets, by partition."""

    def run(self) -> None:
        """Move from side to side, until the end."""
        at = 0
        while not self._ending.is_set():
            self._stay(*self._sides[at])
            at = 1 - at
            self._await(*self._sides[at])
            self._moved.moves += 1

    def _stay(self, cluster: Cluster, topic: str) -> None:
        """Read and commit for a while."""
        settings = {"bootstrap.servers": cluster.bootstrap, "group.id": self._group, "log_level": 2}
        # The very first time there is no position. A position that is lost later would show in the records that are
        # read.
        consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        records, deadline = self._chance.randrange(1, MOST_READ), time.monotonic() + LIMIT_S
        here = dict(self._next)
        try:
            while records > 0 and not self._ending.is_set():
                if time.monotonic() > deadline:
                    raise EnvironmentFault(f"{self._group} reads nothing at {topic} for {LIMIT_S:g} s")
                message = consumer.poll(_LOOK_S)
                if message is None or message.error():
                    continue
                records -= 1
                partition, number = message.partition() or 0, int(message.value() or b"-1")
                wanted = here.get(partition, 0)
                if number != wanted:
                    what = "read again" if number < wanted else "skipped"
                    line = f"{self._group}: {number} instead of {wanted} in {topic}-{partition}"
                    self._moved.fault(what, line)
                here[partition] = number + 1
                if not records or self._chance.random() < 0.05:
                    consumer.commit(asynchronous=False)
                    self._moved.records += sum(here.values()) - sum(self._next.values())
                    self._next = dict(here)
            for _ in range(self._chance.randrange(3)):
                consumer.poll(_LOOK_S)  # read, but never committed
        finally:
            consumer.close()

    def _await(self, cluster: Cluster, topic: str) -> None:
        """Wait until the group's position on that side is the one that it has committed on the other."""
        admin: Any = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
        places = [TopicPartition(topic, partition) for partition in self._next]
        deadline = time.monotonic() + LIMIT_S
        there: dict[int, int] = {}
        while there != self._next and not self._ending.is_set():
            if time.monotonic() > deadline:
                raise EnvironmentFault(f"{self._group} is at {there} in {topic}, and committed {self._next}")
            time.sleep(_LOOK_S)
            (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self._group, places)]).values()
            try:
                listed = future.result(LIMIT_S).topic_partitions
            except KafkaException:
                continue
            there = {each.partition: each.offset for each in listed}


def _write(source: Cluster, ending: threading.Event) -> None:
    """Write records, each with its own offset as value."""
    producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 5, "enable.idempotence": True})
    number, began = 0, time.monotonic()
    while not ending.is_set():
        while number < (time.monotonic() - began) * RECORDS_PER_S:
            producer.produce(TOPIC, b"%d" % (number // PARTITIONS), partition=number % PARTITIONS)
            number += 1
        producer.poll(0.01)
    producer.flush(LIMIT_S)


def _look(cluster: Cluster, topic: str, moved: Moved, ending: threading.Event) -> None:
    """Check every commit for a topic when it appears in the log of commits."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "look", "log_level": 2, "fetch.wait.max.ms": 10}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    known: dict[tuple[str, int], int] = {}
    ends: dict[int, int] = {}
    try:
        partitions = _partitions(consumer, ending)
        consumer.assign([TopicPartition(OFFSETS, partition, 0) for partition in partitions])
        while not ending.is_set():
            for message in consumer.consume(1_000, _LOOK_S):
                key, value = message.key(), message.value()
                if message.error() or not isinstance(key, bytes) or value is None:
                    continue
                place = decode_key(key)
                if isinstance(place, int) or place.topic != topic:
                    continue
                offset = decode_value(value).offset
                moved.commits += 1
                before = known.get((place.group, place.partition), 0)
                if offset < before:
                    moved.fault("back", f"{place.group} goes back from {before} to {offset} in {topic}")
                known[place.group, place.partition] = offset
                if offset > ends.get(place.partition, 0):
                    asked = TopicPartition(topic, place.partition)
                    ends[place.partition] = consumer.get_watermark_offsets(asked, timeout=LIMIT_S)[1]
                if offset > ends[place.partition]:
                    moved.fault("ahead", f"{place.group} is at {offset} of {ends[place.partition]} in {topic}")
    finally:
        consumer.close()


def _partitions(consumer: Consumer, ending: threading.Event) -> list[int]:
    """Return the partitions of the log of commits, which the first group creates."""
    while not ending.is_set():
        found = consumer.list_topics(timeout=LIMIT_S).topics.get(OFFSETS)
        if found is not None and found.partitions:
            return list(found.partitions)
        time.sleep(_LOOK_S)
    return []
