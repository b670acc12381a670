"""What a move waited for, according to the lines that both replicators log (`mirrord.replication.host.move_trace`)."""

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

PHASES = ("order", "drain", "hand over", "ledger", "grant", "target", "fetch", "produce")
"""Until the old replicator gets the command; until nothing is in flight any more; until the new one gets the lane;
until it has read the ledger; until the grant is its own; until it knows the state of the target; until it has records;
until the target has accepted some. If two run at the same time, the later one counts only for the rest."""
_STATIONS = PHASES[3:]


class Move(msgspec.Struct, frozen=True):
    """One move; milliseconds."""

    gap_ms: float
    """The gap as seen by the reader of the target."""
    phases: dict[str, float]
    """None for a move that the logs do not show."""


def phases_of(folder: Path, windows: Sequence[tuple[int, int]], gaps_ms: Sequence[float]) -> list[Move]:
    """Return the moves of these windows (CLOCK_MONOTONIC, nanoseconds), the slowest first."""
    ahead_ns = time.time_ns() - time.monotonic_ns()
    events = list(_events(folder.glob("**/*.log*")))
    moves: list[Move] = []
    for (began, ended), gap_ms in zip(windows, gaps_ms, strict=True):
        first_ms, last_ms = ((at + ahead_ns) / 1e6 for at in (began, ended))
        here = [each for each in events if first_ms <= each["at_ms"] <= last_ms]
        left = next((each for each in here if each["event"] == "lane_left"), None)
        left_ms = left["at_ms"] if left else last_ms
        moved = next((each for each in here if each["event"] == "lane_moved" and each["at_ms"] >= left_ms), None)
        moves.append(Move(gap_ms, _phases(first_ms, left, moved) if left and moved else {}))
    return sorted(moves, key=lambda move: move.gap_ms, reverse=True)


def _phases(began_ms: float, left: dict[str, Any], moved: dict[str, Any]) -> dict[str, float]:
    drain_ms = left["drain_ms"]
    produced_ms = moved["at_ms"] - moved["produce_ms"]
    phases = [left["at_ms"] - drain_ms - began_ms, drain_ms, produced_ms - left["at_ms"]]
    passed_ms = 0.0
    for station in _STATIONS:
        at_ms = max(moved.get(f"{station}_ms", 0.0), passed_ms)
        phases.append(at_ms - passed_ms)
        passed_ms = at_ms
    return {phase: round(ms, 1) for phase, ms in zip(PHASES, phases, strict=True)}


def _events(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for file in files:
        for line in file.read_bytes().splitlines():
            if b"lane_left" in line or b"lane_moved" in line:
                event = msgspec.json.decode(line)
                yield event | {"at_ms": datetime.fromisoformat(event["timestamp"]).timestamp() * 1000}
