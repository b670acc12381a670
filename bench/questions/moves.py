"""How long does a busy lane stand when it is moved, and do the others notice?

A daemon with two replicators copies a busy topic. One of its partitions is moved to the other replicator and back, many
times, at moments of chance. For each move the longest time counts that a reader of the target got nothing, of the moved
partition and of the worst other one, from the order until the status shows the lane copying at its new host. Windows
without a move in between tell what the machine does by itself. In the end both topics are compared record by record.
"""

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from bench.harness.arrivals import Arrivals, Times, largest_gap_ms
from bench.harness.busy import BusyTopic
from bench.questions.move_phases import Move, phases_of
from mirrord.lab.checker import compare
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import FlowStatus, LaneStatus

PARTITIONS = 5
"""Three here and two there, or the other way round: nothing has to give way."""
RECORDS_PER_S = 2_500
MOVES = 100
WINDOW_S = 1.0
"""Without a move."""
PATIENCE_S = 30.0
_PAUSE_S = 0.2
_MOVED = 0
"""The partition that is moved."""

Engine = Literal["ray", "process"]
Tell = Callable[[str], None]


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """One engine; milliseconds, in ascending order."""

    engine: str
    records_per_s: int
    moved_ms: list[float]
    """For each move, the longest that the moved partition brought nothing."""
    others_ms: list[float]
    """For each move, the longest that one of the others did."""
    quiet_ms: list[float]
    """For each window without a move, the longest that any partition brought nothing."""
    source_ms: list[float]
    """For each move, the same as a reader of the source saw it: what the brokers and the writer do."""
    phases: list[Move]
    """What each move waited for, the slowest first."""
    records: int
    difference: str
    """Empty: the copy holds the same records, each once and in order."""


class Window(NamedTuple):
    """When something happened: nanoseconds."""

    began: int
    ended: int


class Run:
    """One daemon and its busy topic."""

    def __init__(self, source: Cluster, target: Cluster, engine: Engine, seed: int, folder: Path) -> None:
        self.moves: list[Window] = []
        self.quiet: list[Window] = []
        self.busy = BusyTopic(
            source, target, f"moves-{engine}", engine, folder, partitions=PARTITIONS, records_per_s=RECORDS_PER_S
        )
        self._rng = random.Random(seed)

    def run(self, moves: int) -> Arrivals:
        """All of it. Raises EnvironmentFault."""
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
        """So long that moves meet the daemon's rounds at any point; now and then a window without a move."""
        time.sleep(_PAUSE_S * (1 + self._rng.random()))
        if len(self.moves) % 5 == 0:
            began = time.monotonic_ns()
            time.sleep(WINDOW_S)
            self.quiet.append(Window(began, time.monotonic_ns()))


def measure(source: Cluster, target: Cluster, engine: Engine, share: float, seed: int, tell: Tell) -> Moves:
    """Starts a daemon and lets records flow. Raises EnvironmentFault."""
    moves = max(5, round(MOVES * share))
    with tempfile.TemporaryDirectory(prefix="mirrord-moves-") as folder:
        run = Run(source, target, engine, seed, Path(folder))
        tell(f"moves, engine {engine}: {moves} moves of one of {PARTITIONS} partitions")
        arrivals = run.run(moves)
        gaps_ms = [largest_gap_ms(arrivals.target[_MOVED : _MOVED + 1], *window) for window in run.moves]
        phases = phases_of(Path(folder), run.moves, gaps_ms)
    tell(f"moves, engine {engine}: comparing")
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
