"""How long does a busy lane make no progress when it is moved, and are the others affected?

A daemon with two replicators copies a busy topic. One of its partitions is moved to the other replicator and back, many
times, at random moments. For each move, the longest time counts in which a reader of the target received nothing, of
the moved partition and of the worst other one, from the command until the status shows the lane copying at its new
replicator. Windows without a move in between show what the machine does by itself. In the end, both topics are compared
record by record.
"""

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from bench.harness.arrivals import Arrivals, Times, largest_gap_ms
from bench.harness.busy import BusyLoad, BusyTopic
from bench.questions.move_phases import Move, phases_of
from mirrord.lab.cluster import Cluster
from mirrord.lab.copy_checker import compare
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import FlowStatus, LaneStatus

PARTITIONS = 5
"""Three on one replicator and two on the other, or the other way round, so that no other partition has to move."""
RECORDS_PER_S = 2_500
MOVES = 100
WINDOW_S = 1.0
"""Length of a window without a move."""
PATIENCE_S = 30.0
_PAUSE_S = 0.2
_MOVED = 0
"""The partition that is moved."""

Engine = Literal["ray", "process"]
PrintLine = Callable[[str], None]


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """One engine; milliseconds, in ascending order."""

    engine: str
    records_per_s: int
    moved_ms: list[float]
    """For each move, the longest silence of the moved partition."""
    others_ms: list[float]
    """For each move, the longest silence of one of the others."""
    quiet_ms: list[float]
    """For each window without a move, the longest silence of any partition."""
    source_ms: list[float]
    """For each move, the same as seen by a reader of the source: the effect of the brokers and the writer."""
    phases: list[Move]
    """What each move waited for, the slowest first."""
    records: int
    difference: str
    """Empty if the target topic holds the same records, each once and in order."""


class Window(NamedTuple):
    """The time of an event, in nanoseconds."""

    began: int
    ended: int


class Run:
    """One daemon and its busy topic."""

    def __init__(self, source: Cluster, target: Cluster, engine: Engine, seed: int, folder: Path) -> None:
        self.moves: list[Window] = []
        self.quiet: list[Window] = []
        self.busy = BusyTopic(source, target, f"moves-{engine}", engine, folder, BusyLoad(PARTITIONS, RECORDS_PER_S))
        self._rng = random.Random(seed)

    def run(self, moves: int) -> Arrivals:
        """Run everything. Raises EnvironmentFault."""
        with self.busy.flowing() as stream:
            for _ in range(moves):
                self._move()
                self._rest()
            return stream.stop()

    def _move(self) -> None:
        flow = self.busy.settled(patience_s=PATIENCE_S)
        here = _moved(flow).host
        (there,) = (each.name for each in flow.replicators if each.name != here)
        began = time.monotonic_ns()
        self.busy.daemon.order(
            {"verb": "move", "name": f"{self.busy.pair.source}-{_MOVED}", "to": there, "by": "bench"}
        )

        def arrived(flow: FlowStatus) -> bool:
            return _moved(flow).host == there and _moved(flow).state == "copying"

        self.busy.daemon.wait_for("moved lane", arrived, PATIENCE_S)
        self.moves.append(Window(began, time.monotonic_ns()))

    def _rest(self) -> None:
        """Wait for a random time, so that moves meet the daemon's rounds at any point; now and then, measure a window
        without a move."""
        time.sleep(_PAUSE_S * (1 + self._rng.random()))
        if len(self.moves) % 5 == 0:
            began = time.monotonic_ns()
            time.sleep(WINDOW_S)
            self.quiet.append(Window(began, time.monotonic_ns()))


def measure(source: Cluster, target: Cluster, engine: Engine, share: float, seed: int, print_line: PrintLine) -> Moves:
    """Start a daemon and let records flow. Raises EnvironmentFault."""
    moves = max(5, round(MOVES * share))
    with tempfile.TemporaryDirectory(prefix="mirrord-moves-") as folder:
        run = Run(source, target, engine, seed, Path(folder))
        print_line(f"moves, engine {engine}: {moves} moves of one of {PARTITIONS} partitions")
        arrivals = run.run(moves)
        gaps_ms = [largest_gap_ms(arrivals.target[_MOVED : _MOVED + 1], *window) for window in run.moves]
        phases = phases_of(Path(folder), run.moves, gaps_ms)
    print_line(f"moves, engine {engine}: comparing")
    found = compare(source.bootstrap, target.bootstrap, [run.busy.pair])
    return Moves(
        engine=engine,
        records_per_s=RECORDS_PER_S,
        moved_ms=sorted(gaps_ms),
        others_ms=_gaps(arrivals.target[_MOVED + 1 :], run.moves),
        quiet_ms=_gaps(arrivals.target, run.quiet),
        source_ms=_gaps(arrivals.source, run.moves),
        phases=phases,
        records=found.records,
        difference="" if found.is_exact else found.describe(),
    )


def _gaps(times: Times, windows: Sequence[Window]) -> list[float]:
    return sorted(largest_gap_ms(times, *window) for window in windows)


def _moved(flow: FlowStatus) -> LaneStatus:
    for lane in flow.lanes:
        if lane.partition == _MOVED:
            return lane
    raise EnvironmentFault("the lane that is moved is not in the status")
