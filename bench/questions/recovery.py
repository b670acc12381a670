"""How long until records arrive: after a start, after kill -9 of a replicator, of the supervisor or of the daemon, with
and without a standby, and for a new topic?

One repetition begins with a new flow, whose topic already holds records and keeps getting more. All times are measured
by this process: from the moment before the process is started or killed, or the topic is created, until the target log
has grown. Records sent by a dead process do not count: after the daemon's death, the logs must be quiet first, and for
the lanes of a killed replicator the end of the longest silence counts. Every partition gets records ten times a second.
"""

import math
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec
from confluent_kafka import Producer

from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon, Settings, target_name
from bench.harness.load import Load, Topic, Writers
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import FlowStatus

PARTITIONS = 8
RECORDS_PER_S = 4_000
VALUE_BYTES = 200
REPLICATORS = 2
REPETITIONS = 5
REFRESH_S = 5.0
"""How often the flow looks for new topics: mirrord's default."""
PATIENCE_S = 120.0
_FILLED = 4_000
_POLL_S = 0.02
_SETTLE_S = 0.3
_WATCHED_S = 1.0
_TAKEN_OVER_S = 15.0
"""Minimum time for which growth is observed after a replicator was killed."""
_RESTARTED_S = 10.0
"""Time within which a supervisor is restarted and has continued with its replicators."""
_PAUSE_S = 1.0
"""Minimum time between a recovery and the next fault."""

Engine = Literal["ray", "process"]
PrintLine = Callable[[str], None]
Lane = tuple[str, int]
"""Target topic and partition."""

START = "start to the first record"
NEW_TOPIC = "new topic to its first record"
REPLICATOR_FIRST = "kill -9 of a replicator to the first new record of its lanes"
REPLICATOR_ALL = "kill -9 of a replicator until all of its lanes move"
SUPERVISOR_GAP = "kill -9 of the supervisor: longest silence of any lane"
STANDBY_FIRST = "kill -9 of the daemon to the first new record by a standby"
STANDBY_ALL = "kill -9 of the daemon until all lanes move by a standby"
DAEMON_FIRST = "kill -9 of the daemon and restart to the first new record"
DAEMON_ALL = "kill -9 of the daemon and restart until all lanes move"


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, of all repetitions."""

    engine: str
    what: str
    seconds: list[float]
    """In ascending order."""

    @property
    def median_s(self) -> float:
        """The median."""
        return statistics.median(self.seconds)


class Target:
    """Observes the ends of the target's logs."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = Admin(bootstrap)

    def grown(self, daemon: Daemon, before: Mapping[Lane, int], since: float) -> tuple[float, float]:
        """Return the seconds from `since` until one, and until all of these lanes have more records than before.

        Raises EnvironmentFault if the daemon ends or time is up.
        """
        waiting, first = set(before), math.inf
        names = {topic: partition + 1 for topic, partition in sorted(before)}
        while True:
            now = self._admin.ends(names)
            at = time.monotonic() - since
            moved = {lane for lane in waiting if now.get(lane, 0) > before[lane]}
            if moved:
                first = min(first, at)
                waiting -= moved
            if not waiting:
                return first, at
            if at > PATIENCE_S:
                raise EnvironmentFault(f"{len(waiting)} of {len(before)} lanes do not move within {PATIENCE_S:g} s")
            _ = daemon.pid
            time.sleep(_POLL_S)

    def silences(
        self, daemon: Daemon, before: Mapping[Lane, int], since: float, watched_s: float = _WATCHED_S
    ) -> list[float]:
        """Return for each lane the seconds from `since` to the end of its longest silence. Raises as `grown` does.

        Records sent by a dead process may arrive meanwhile, so the first growth alone is not conclusive.
        """
        grown: dict[Lane, list[float]] = {lane: [0.0] for lane in before}
        ends, names = dict(before), {topic: partition + 1 for topic, partition in sorted(before)}
        while any(times[-1] < watched_s for times in grown.values()):
            at = time.monotonic() - since
            for lane, end in self._admin.ends(names).items():
                if end > ends.get(lane, end):
                    ends[lane] = end
                    grown[lane].append(at)
            if at > PATIENCE_S:
                raise EnvironmentFault(f"not all of {len(before)} lanes move within {PATIENCE_S:g} s")
            _ = daemon.pid
            time.sleep(_POLL_S)
        return [max((after - ahead, after) for ahead, after in pairwise(times))[1] for times in grown.values()]

    def longest_gap(self, daemon: Daemon, before: Mapping[Lane, int], seconds: float) -> float:
        """Return the longest time in these seconds in which a lane did not grow. Raises EnvironmentFault."""
        began = time.monotonic()
        grown: dict[Lane, list[float]] = {lane: [0.0] for lane in before}
        ends, names = dict(before), {topic: partition + 1 for topic, partition in sorted(before)}
        while (at := time.monotonic() - began) < seconds:
            for lane, end in self._admin.ends(names).items():
                if end > ends.get(lane, end):
                    ends[lane] = end
                    grown[lane].append(at)
            _ = daemon.pid
            time.sleep(_POLL_S)
        return max(after - ahead for times in grown.values() for ahead, after in pairwise([*times, seconds]))

    def ends(self, topic: str, partitions: int) -> dict[Lane, int]:
        """Return the ends of all partitions. Raises EnvironmentFault if the target does not answer."""
        ends = self._admin.ends({topic: partitions})
        if len(ends) < partitions:
            raise EnvironmentFault(f"the ends of {topic} cannot be asked")
        return ends

    def quiet(self, topic: str, partitions: int) -> dict[Lane, int]:
        """Return the ends of all partitions once they no longer change. Raises EnvironmentFault."""
        ends: dict[Lane, int] = {}
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            time.sleep(_SETTLE_S)
            before, ends = ends, self.ends(topic, partitions)
            if ends == before:
                return ends
        raise EnvironmentFault(f"{topic} is still written to")


class Repetition:
    """One flow from its start to its end."""

    def __init__(self, source: Cluster, target: Cluster, engine: Engine, number: int, folder: Path, seed: int) -> None:
        self.seconds: dict[str, float] = {}
        self._seed = seed
        self._rng = random.Random(seed)
        self._source = source
        self._engine = engine
        self._topic = Topic(f"recovery-{engine}-{number}", PARTITIONS, "lz4")
        self._new = Topic(f"{self._topic.name}.new", 1, "none")
        self._copy = target_name(self._topic.name)
        self._lanes = [(self._copy, partition) for partition in range(PARTITIONS)]
        self._target = Target(target.bootstrap)
        settings = Settings(
            source=source.bootstrap,
            target=target.bootstrap,
            topics=rf"{self._topic.name}(\.new)?",
            engine=engine,
            flow=f"recovery-{engine}-{number}",
            refresh_s=REFRESH_S,
            replicators=REPLICATORS if engine == "ray" else "auto",
        )
        self._daemon = Daemon(folder / str(number), settings)
        self._standby = Daemon(folder / str(number), replace(settings, instance="standby"))

    def run(self) -> None:
        """Cause all faults, one after the other. Raises EnvironmentFault."""
        admin = Admin(self._source.bootstrap)
        admin.create([self._topic])
        load = Load(1 << 40, VALUE_BYTES, self._seed, records_per_s=RECORDS_PER_S, large_every=1 << 40)
        with ExitStack() as everything:
            writers = everything.enter_context(Writers(self._source.bootstrap, [self._topic], load))
            while writers.records < _FILLED and not writers.done:
                time.sleep(_POLL_S)
            everything.callback(self._daemon.kill)
            self._start()
            self._pause()
            self._new_topic(admin)
            if self._engine == "ray":
                self._pause()
                self._kill_replicator()
                self._pause()
                self._kill_supervisor()
            self._pause()
            self._kill_daemon()
            self._pause()
            everything.callback(self._standby.kill)
            self._kill_beside_standby()
            self._standby.stop()

    def _start(self) -> None:
        began = time.monotonic()
        self._daemon.start()
        self.seconds[START], _ = self._target.grown(self._daemon, dict.fromkeys(self._lanes, 0), began)

    def _new_topic(self, admin: Admin) -> None:
        producer = Producer({"bootstrap.servers": self._source.bootstrap, "linger.ms": 0, "log_level": 2})
        began = time.monotonic()
        admin.create([self._new])
        producer.produce(self._new.name, b"first")
        if producer.flush(PATIENCE_S):
            raise EnvironmentFault(f"{self._new.name} cannot be written")
        lane = (target_name(self._new.name), 0)
        self.seconds[NEW_TOPIC], _ = self._target.grown(self._daemon, {lane: 0}, began)

    def _kill_replicator(self) -> None:
        flow = self._settled(REPLICATORS)
        victim = self._rng.choice(flow.replicators)
        hosted = {(lane.target_topic, lane.partition) for lane in flow.lanes if lane.host == victim.name}
        before = self._target.ends(self._copy, PARTITIONS)
        killed = time.monotonic()
        os.kill(victim.pid, signal.SIGKILL)
        silences = self._target.silences(
            self._daemon, {lane: end for lane, end in before.items() if lane in hosted}, killed
        )
        self.seconds[REPLICATOR_FIRST], self.seconds[REPLICATOR_ALL] = min(silences), max(silences)

    def _kill_daemon(self) -> None:
        self._settled(REPLICATORS if self._engine == "ray" else 1)
        killed = time.monotonic()
        self._daemon.kill()
        self._daemon.start()
        # Ray's processes may live on for a moment: what they still copy is not a recovery.
        before = self._target.quiet(self._copy, PARTITIONS)
        self.seconds[DAEMON_FIRST], self.seconds[DAEMON_ALL] = self._target.grown(self._daemon, before, killed)

    def _kill_supervisor(self) -> None:
        flow = self._settled(REPLICATORS)
        if flow.lease is None:
            raise EnvironmentFault("the flow runs without a lease")
        before = self._target.ends(self._copy, PARTITIONS)
        os.kill(flow.lease.pid, signal.SIGKILL)
        self.seconds[SUPERVISOR_GAP] = self._target.longest_gap(self._daemon, before, _RESTARTED_S)

    def _kill_beside_standby(self) -> None:
        """Kill the daemon while the other one has the clusters and the ledger open, and waits for the lease."""
        self._settled(REPLICATORS if self._engine == "ray" else 1)
        self._standby.start()
        self._standby.wait_for("standby", lambda flow: flow.state == "standby", PATIENCE_S)
        self._pause()
        before = self._target.ends(self._copy, PARTITIONS)
        killed = time.monotonic()
        self._daemon.kill()
        # Without Ray it is so quick that the ends may never be seen unchanged; with Ray, processes live on.
        silences = self._target.silences(self._standby, before, killed, _TAKEN_OVER_S)
        self.seconds[STANDBY_FIRST], self.seconds[STANDBY_ALL] = min(silences), max(silences)

    def _settled(self, replicators: int) -> FlowStatus:
        """Wait until all lanes copy in this number of replicators."""
        lanes = PARTITIONS + 1

        def reached(flow: FlowStatus) -> bool:
            return flow.totals.lanes == {"copying": lanes} and len(flow.replicators) == replicators

        return self._daemon.wait_for("settled flow", reached, PATIENCE_S)

    def _pause(self) -> None:
        """Wait for a random time, so that faults meet the daemon's rounds at any point."""
        time.sleep(_PAUSE_S + self._rng.random() * REFRESH_S)


def measure(
    source: Cluster, target: Cluster, engine: Engine, repetitions: int, seed: int, print_line: PrintLine
) -> list[Wait]:
    """Measure all waits of one engine. Raises EnvironmentFault."""
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="mirrord-recovery-") as folder:
        for number in range(1, repetitions + 1):
            repetition = Repetition(source, target, engine, number, Path(folder), seed + number)
            repetition.run()
            print_line(
                f"recovery, engine {engine}, {number} of {repetitions}: "
                + ", ".join(f"{value:.1f} s {what}" for what, value in repetition.seconds.items())
            )
            for what, value in repetition.seconds.items():
                seconds.setdefault(what, []).append(value)
    return [Wait(engine=engine, what=what, seconds=sorted(values)) for what, values in seconds.items()]
