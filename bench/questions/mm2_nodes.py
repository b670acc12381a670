"""How long do MirrorMaker 2's partitions make no progress if one of its nodes dies, or leaves, or all of it restarts?

The same questions that `kills`, `moves` and `recovery` ask of mirrord, with the same rate of records. Two dedicated
nodes share the partitions of a busy topic. Kafka Connect waits five minutes by default before it gives the tasks of a
lost node to others (`scheduled.rebalance.max.delay.ms`, KIP-415). Then a single node is killed and restarted, and
topics are created at the same time.
"""

import random
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from bench.harness.arrivals import Arrivals, Stream, largest_gap_ms
from bench.harness.clusters import Admin
from bench.harness.copiers import MM2_HEAP_MB
from bench.harness.load import Topic
from bench.harness.mirror_maker import MirrorMaker, properties
from mirrord.lab.cluster import Cluster
from mirrord.lab.ports import LOOPBACK, free_ports
from mirrord.lab.server_properties import LabOptions
from mirrord.model.errors import EnvironmentFault

PARTITIONS = 6
RECORDS_PER_S = 3_000
RESTARTS = 5
NEW_TOPICS = 5
REFRESH_S = 5
WARM_UP_S = 20.0
START_S = 180.0
SPREAD_S = 60.0
"""Time limit until both nodes have tasks."""
NOTICED_S = 20.0
"""Time after which the partitions without progress are those of the lost node."""
BACK_S = 420.0
_QUIET_S = 10.0
_LOOK_S = 0.2

KILLED, LEFT = "kill -9 of one of two nodes", "SIGTERM to one of two nodes"
RESTARTED, NEW = "kill -9 of the only node, started again at once", "a new topic, looked for every 5 s"

PrintLine = Callable[[str], None]


class Mm2Waits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, in ascending order."""

    what: str
    concerned_s: list[float]
    """Time until the partitions of the node deliver records again, or a topic its first one."""
    others_s: list[float]
    """The longest silence of a partition that does not belong to the lost node."""


def measure(source: Cluster, target: Cluster, share: float, seed: int, print_line: PrintLine) -> list[Mm2Waits]:
    """Measure for a quarter of an hour, most of it waiting. Raises EnvironmentFault."""
    chance = random.Random(seed)
    found: list[Mm2Waits] = []
    for what in (KILLED, LEFT):
        print_line(f"MM2: {what}")
        found.append(_Pair(source, target, what).measure())
    print_line(f"MM2: {RESTARTED}")
    found.append(_restarts(source, target, max(1, round(RESTARTS * share)), chance))
    print_line(f"MM2: {NEW}")
    found.append(_new_topics(source, target, max(1, round(NEW_TOPICS * share)), chance))
    return found


class _Pair:
    """Two nodes, one of which is lost."""

    def __init__(self, source: Cluster, target: Cluster, what: str) -> None:
        self._source = source
        self._target = target
        self._what = what
        self._alias = "killed" if what == KILLED else "left"
        self._topic = f"mm2.{self._alias}"
        self._copy = f"{self._alias}.{self._topic}"
        self._admin = Admin(target.bootstrap)

    def measure(self) -> Mm2Waits:
        """Measure. Raises EnvironmentFault."""
        Admin(self._source.bootstrap).create([Topic(self._topic, PARTITIONS, "none")])
        with tempfile.TemporaryDirectory(prefix="mirrord-mm2-nodes-") as folder, ExitStack() as everything:
            nodes = [everything.enter_context(node) for node in self._nodes(Path(folder))]
            _await_topic(self._admin, self._copy, PARTITIONS)
            stream = everything.enter_context(
                Stream(
                    self._source.bootstrap,
                    self._target.bootstrap,
                    (self._topic, self._copy),
                    PARTITIONS,
                    RECORDS_PER_S,
                )
            )
            time.sleep(SPREAD_S)
            gone_ns = time.monotonic_ns()
            (nodes[0].kill if self._what == KILLED else nodes[0].stop)()
            concerned = self._standing()
            self._await_moving(concerned)
            back_ns = time.monotonic_ns()
            return self._waits(stream.stop(), concerned, gone_ns, back_ns)

    def _nodes(self, folder: Path) -> list[MirrorMaker]:
        ports = free_ports(2)
        files = [
            properties(
                folder / f"{port}.properties",
                self._source,
                self._target,
                self._topic,
                alias=self._alias,
                more=f"tasks.max = {PARTITIONS}\ndedicated.mode.enable.internal.rest = true\n"
                f"listeners = http://{LOOPBACK}:{port}\n",
            )
            for port in ports
        ]
        options = LabOptions(quick_start=False, heap_mb=MM2_HEAP_MB // 2)
        return [MirrorMaker(file, options=options) for file in files]

    def _standing(self) -> set[int]:
        time.sleep(NOTICED_S - _QUIET_S)
        before = self._ends()
        time.sleep(_QUIET_S)
        after = self._ends()
        return {partition for partition, end in after.items() if end == before.get(partition)}

    def _await_moving(self, concerned: set[int]) -> None:
        before, deadline = self._ends(), time.monotonic() + BACK_S
        while any(self._ends().get(partition, 0) <= before.get(partition, 0) for partition in concerned):
            if time.monotonic() > deadline:
                raise EnvironmentFault(f"after {self._what} partitions make no progress for more than {BACK_S:g} s")
            time.sleep(_LOOK_S)

    def _ends(self) -> dict[int, int]:
        return {partition: end for (_, partition), end in self._admin.ends({self._copy: PARTITIONS}).items()}

    def _waits(self, arrivals: Arrivals, concerned: set[int], gone_ns: int, back_ns: int) -> Mm2Waits:
        gaps = [largest_gap_ms([each], gone_ns, back_ns) / 1000 for each in arrivals.target]
        return Mm2Waits(
            what=self._what,
            concerned_s=sorted(gap for at, gap in enumerate(gaps) if at in concerned),
            others_s=sorted(gap for at, gap in enumerate(gaps) if at not in concerned),
        )


def _restarts(source: Cluster, target: Cluster, count: int, chance: random.Random) -> Mm2Waits:
    topic, copy = "mm2.restarted", "restarted.mm2.restarted"
    Admin(source.bootstrap).create([Topic(topic, PARTITIONS, "none")])
    kills: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory(prefix="mirrord-mm2-nodes-") as folder, ExitStack() as everything:
        path = properties(Path(folder) / "mm2.properties", source, target, topic, alias="restarted")
        maker = everything.enter_context(MirrorMaker(path, options=LabOptions(quick_start=False, heap_mb=MM2_HEAP_MB)))
        admin = Admin(target.bootstrap)
        _await_topic(admin, copy, PARTITIONS)
        stream = Stream(source.bootstrap, target.bootstrap, (topic, copy), PARTITIONS, RECORDS_PER_S)
        everything.enter_context(stream)
        for _ in range(count):
            time.sleep(WARM_UP_S * (1 + chance.random()))
            killed_ns = time.monotonic_ns()
            maker.kill()
            before = sum(admin.ends({copy: PARTITIONS}).values())
            maker.start()
            _until(lambda before=before: sum(admin.ends({copy: PARTITIONS}).values()) > before, "records after a kill")
            kills.append((killed_ns, time.monotonic_ns()))
        arrived = stream.stop().target
    anywhere = sorted(at for each in arrived for at in each)
    return Mm2Waits(
        what=RESTARTED,
        concerned_s=sorted(largest_gap_ms([anywhere], began, ended) / 1000 for began, ended in kills),
        others_s=[],
    )


def _new_topics(source: Cluster, target: Cluster, count: int, chance: random.Random) -> Mm2Waits:
    waits: list[float] = []
    here, there = Admin(source.bootstrap), Admin(target.bootstrap)
    here.create([Topic("mm2-new-0", 1, "none")])
    with tempfile.TemporaryDirectory(prefix="mirrord-mm2-nodes-") as folder:
        more = f"refresh.topics.interval.seconds = {REFRESH_S}\n"
        path = properties(Path(folder) / "mm2.properties", source, target, "mm2-new-.*", alias="new", more=more)
        with MirrorMaker(path, options=LabOptions(quick_start=False, heap_mb=MM2_HEAP_MB)):
            _await_topic(there, "new.mm2-new-0", 1)
            for number in range(1, count + 1):
                time.sleep(WARM_UP_S * (1 + chance.random()))
                topic, began = f"mm2-new-{number}", time.monotonic()
                here.create([Topic(topic, 1, "none")])
                here.write(topic)
                _until(lambda copy=f"new.{topic}": any(there.ends({copy: 1}).values()), "the record of a new topic")
                waits.append(time.monotonic() - began)
    return Mm2Waits(what=NEW, concerned_s=sorted(waits), others_s=[])


def _await_topic(admin: Admin, topic: str, partitions: int) -> None:
    _until(lambda: len(admin.ends({topic: partitions})) == partitions, f"topic {topic}")


def _until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_S
    while not reached():
        if time.monotonic() > deadline:
            raise EnvironmentFault(f"no {what} within {START_S:g} s")
        time.sleep(_LOOK_S)
