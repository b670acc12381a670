"""What drills of a healthy flow report, and whether they slow down copying.

A topic gets 5,000 records a second, and 200 groups commit positions in it. `mirrord drill` runs many times. For each
drill, the longest time counts in which a reader of the target received nothing from one of the partitions, next to
a window of the same length without a drill, right before it.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from bench.harness.arrivals import Times, largest_gap_ms
from bench.harness.busy import BusyLoad, BusyTopic
from bench.harness.committer import GROUPS, Committer
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault

DRILLS = 50
PARTITIONS = 8
RECORDS_PER_S = 5_000
PREFIX = "drill-group"
_PATIENCE_S = 120.0
_WINDOW_S = 5.0
_POLL_S = 0.1

PrintLine = Callable[[str], None]


class Drills(msgspec.Struct, frozen=True, kw_only=True):
    """All drills of one healthy flow; milliseconds in ascending order."""

    drills: int
    findings: list[str]
    """Empty if no drill has found anything."""
    positions: int
    """Positions of groups that were examined, summed over all drills."""
    compared: int
    """Positions whose next records were compared and are the same."""
    took_ms: list[float]
    """The duration of the stages of each drill."""
    drill_ms: list[float]
    """For each drill, the longest silence of one of the partitions."""
    quiet_ms: list[float]
    """For each window without a drill, the longest silence of one of the partitions."""


def measure(source: Cluster, target: Cluster, share: float, seed: int, print_line: PrintLine) -> Drills:
    """Start a daemon, let records flow, and run drills. Raises EnvironmentFault."""
    groups = f'groups = {{ match = ["{PREFIX}-.*"] }}'
    with tempfile.TemporaryDirectory(prefix="mirrord-drills-") as folder:
        load = BusyLoad(PARTITIONS, RECORDS_PER_S, groups)
        busy = BusyTopic(source, target, "drills", "process", Path(folder), load)
        committer = Committer(source, busy.pair.source, PARTITIONS, PREFIX, seed)
        rng = random.Random(seed)
        receipts: list[dict[str, Any]] = []
        drilled: list[tuple[int, int]] = []
        quiet: list[tuple[int, int]] = []
        with busy.flowing() as stream:
            committer.start()
            try:
                _until(lambda: len({group for group, _ in committer.commits}) == GROUPS)
                length_s = _WINDOW_S
                for number in range(max(2, round(DRILLS * share))):
                    time.sleep(rng.random())
                    quiet.append(_window(lambda length_s=length_s: time.sleep(length_s)))
                    drilled.append(_window(lambda: receipts.append(_drill(busy.daemon.conf))))
                    length_s = (drilled[-1][1] - drilled[-1][0]) / 1e9
                    print_line(f"drill {number}: {length_s:.1f} s, {_shown(receipts[-1])}")
            finally:
                committer.stop()
            arrivals = stream.stop()
    _print_gaps_by_stage(receipts, drilled, arrivals.target, print_line)
    return Drills(
        drills=len(receipts),
        findings=[line for each in receipts for line in each["findings"]],
        positions=sum(each["positions"] for each in receipts),
        compared=sum(each["compared"] for each in receipts),
        took_ms=sorted(float(sum(stage["took_ms"] for stage in each["stages"])) for each in receipts),
        drill_ms=sorted(largest_gap_ms(arrivals.target, *window) for window in drilled),
        quiet_ms=sorted(largest_gap_ms(arrivals.target, *window) for window in quiet),
    )


def _print_gaps_by_stage(
    receipts: Sequence[dict[str, Any]], drilled: Sequence[tuple[int, int]], times: Times, print_line: PrintLine
) -> None:
    """Print the median of the longest silences in each stage, and before the first one. The command ends right after
    the last stage."""
    gaps: dict[str, list[float]] = {}
    for receipt, (began_ns, ended_ns) in zip(receipts, drilled, strict=True):
        later_ns = ended_ns
        for stage in reversed(receipt["stages"]):
            first_ns = later_ns - round(stage["took_ms"] * 1e6)
            gaps.setdefault(stage["name"], []).append(largest_gap_ms(times, first_ns, later_ns))
            later_ns = first_ns
        gaps.setdefault("start", []).append(largest_gap_ms(times, began_ns, later_ns))
    shown = ", ".join(f"{name} {median(each):.0f} ms" for name, each in gaps.items())
    print_line(f"longest silences, median by stage: {shown}")


def _shown(receipt: dict[str, Any]) -> str:
    counts = ", ".join(
        f"{receipt[name]} {name}" for name in ("positions", "compared", "at_end", "waiting", "explained")
    )
    return f"{counts}, findings: {receipt['findings']}"


def _window(work: Callable[[], object]) -> tuple[int, int]:
    began = time.monotonic_ns()
    work()
    return began, time.monotonic_ns()


def _until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not reached():
        if time.monotonic() > deadline:
            raise EnvironmentFault(f"the groups do not commit within {_PATIENCE_S:g} s")
        time.sleep(_POLL_S)


def _drill(conf: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "mirrord.cli.main", "drill", str(conf), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    if done.returncode not in {0, 3}:
        raise EnvironmentFault(f"mirrord drill ends with {done.returncode}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)["flows"][0]
