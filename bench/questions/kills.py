"""How long do lanes make no progress when their replicator is killed with -9 under load, and are the others affected?

A daemon on Ray with two replicators copies a busy topic. Again and again, one of them is killed at a random moment. For
its lanes, the time until the last of them delivers records again counts. For the others, the longest time within those
seconds counts in which a reader of the target received nothing. The same number of windows of the same length without a
kill shows what the machine does by itself. Now and then the daemon gets one more replicator and loses it again; for the
partitions that do not move, the longest silence counts as well. In the end, both topics are compared record by record.
"""

import os
import random
import signal
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.harness.arrivals import Arrivals, Times, largest_gap_ms
from bench.harness.busy import REPLICATORS, BusyLoad, BusyTopic
from mirrord.lab.cluster import Cluster
from mirrord.lab.copy_checker import compare

PARTITIONS = 6
RECORDS_PER_S = 3_000
KILLS = 20
WINDOW_S = 6.0
"""Length of a window, with or without a kill."""
RESIZED_EVERY = 2
"""Number of kills between two times that a replicator is added and removed."""
_PAUSE_S = 1.0

PrintLine = Callable[[str], None]


class Kills(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds, in ascending order."""

    engine: str
    records_per_s: int
    window_s: float
    killed_ms: list[float]
    """For each kill, the time until the last lane of the killed replicator ended its longest silence."""
    others_ms: list[float]
    """For each kill, the longest silence of a lane of the other replicator."""
    quiet_ms: list[float]
    """For each window without a kill, the longest silence of any lane."""
    resized_ms: list[float]
    """For each replicator that was added or removed, the longest silence of a lane that did not move."""
    source_ms: list[float]
    """For each kill, the same as seen by a reader of the source: the effect of the brokers and the writer."""
    records: int
    difference: str
    """Empty if the target topic holds the same records, each once and in order."""


class Kill(NamedTuple):
    """The time, and the affected partitions. A replicator that is added or removed affects the partitions that move."""

    at_ns: int
    hit: frozenset[int]


class _Run:
    """One daemon and its busy topic."""

    def __init__(self, source: Cluster, target: Cluster, seed: int, folder: Path) -> None:
        self.kills: list[Kill] = []
        self.resized: list[Kill] = []
        self.quiet: list[int] = []
        self.busy = BusyTopic(source, target, "kills", "ray", folder, BusyLoad(PARTITIONS, RECORDS_PER_S))
        self._rng = random.Random(seed)

    def run(self, kills: int) -> Arrivals:
        """Run everything. Raises EnvironmentFault."""
        with self.busy.flowing() as stream:
            for number in range(kills):
                if number % RESIZED_EVERY == 0:
                    self._resize(REPLICATORS, REPLICATORS + 1)
                    self._resize(REPLICATORS + 1, REPLICATORS)
                self._kill()
                self._rest()
                self.quiet.append(time.monotonic_ns())
                time.sleep(WINDOW_S)
            return stream.stop()

    def _kill(self) -> None:
        flow = self.busy.settled()
        victim = self._rng.choice(flow.replicators)
        hit = frozenset(lane.partition for lane in flow.lanes if lane.host == victim.name)
        self.kills.append(Kill(time.monotonic_ns(), hit))
        os.kill(victim.pid, signal.SIGKILL)
        time.sleep(WINDOW_S)

    def _resize(self, before: int, after: int) -> None:
        """Wait until lanes have moved to an added replicator, or away from a surplus one."""
        began, homes = time.monotonic_ns(), self._homes(before)
        self.busy.daemon.hang_up(replicators=after)
        now = self._homes(after)
        time.sleep(max(0.0, WINDOW_S - (time.monotonic_ns() - began) / 1e9))
        self.resized.append(Kill(began, frozenset(each for each in homes if homes[each] != now[each])))

    def _homes(self, replicators: int) -> dict[int, str | None]:
        return {lane.partition: lane.host for lane in self.busy.settled(replicators).lanes}

    def _rest(self) -> None:
        """Wait until all lanes are copying again and the new replicator hosts some of them. Then wait for a random
        time, so that kills do not always occur at the same point of a periodic task."""
        self.busy.settled()
        time.sleep(_PAUSE_S * (1 + self._rng.random()))


def measure(source: Cluster, target: Cluster, share: float, seed: int, print_line: PrintLine) -> Kills:
    """Start a daemon and let records flow. Raises EnvironmentFault."""
    kills = max(2, round(KILLS * share))
    with tempfile.TemporaryDirectory(prefix="mirrord-kills-") as folder:
        run = _Run(source, target, seed, Path(folder))
        print_line(f"kills, engine ray: {kills} kills of one of {REPLICATORS} replicators")
        arrivals = run.run(kills)
    print_line("kills, engine ray: comparing")
    found = compare(source.bootstrap, target.bootstrap, [run.busy.pair])
    return Kills(
        engine="ray",
        records_per_s=RECORDS_PER_S,
        window_s=WINDOW_S,
        killed_ms=sorted(_until_all_move_ms(arrivals.target, kill) for kill in run.kills),
        others_ms=sorted(_others_ms(arrivals.target, kill) for kill in run.kills),
        resized_ms=sorted(_others_ms(arrivals.target, each) for each in run.resized),
        quiet_ms=sorted(_gap_ms(arrivals.target, began_ns) for began_ns in run.quiet),
        source_ms=sorted(_gap_ms(arrivals.source, kill.at_ns) for kill in run.kills),
        records=found.records,
        difference="" if found.is_exact else found.describe(),
    )


def _gap_ms(times: Times, began_ns: int) -> float:
    return largest_gap_ms(times, began_ns, began_ns + round(WINDOW_S * 1e9))


def _others_ms(times: Times, kill: Kill) -> float:
    others = [each for partition, each in enumerate(times) if partition not in kill.hit]
    return _gap_ms(others, kill.at_ns)


def _until_all_move_ms(times: Times, kill: Kill) -> float:
    return max(_until_moves_ms(times[partition], kill.at_ns) for partition in kill.hit)


def _until_moves_ms(times: Sequence[int], at_ns: int) -> float:
    """Return the time from the kill to the end of the longest silence. Records sent by the dead process may arrive
    after it."""
    begin = max(0, bisect_right(times, at_ns) - 1)
    end = bisect_right(times, at_ns + round(WINDOW_S * 1e9)) + 1
    silences = ((after - before, after) for before, after in pairwise(times[begin:end]))
    _, ended_ns = max(silences, default=(0, at_ns))
    return max(0, ended_ns - at_ns) / 1e6
