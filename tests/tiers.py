"""Runs the tests tier by tier and ends with the failed tests and one line for all.

`python -m tests.tiers [TIER ...]`. A tier whose folders do not exist is skipped. The budget is the time that a tier
should take on a machine with two cores. It is printed, but a tier that takes longer does not fail: some machines are
several times slower. A single test that hangs is stopped by its own timeout (`pyproject.toml`). After `LIMIT_MINUTES`,
whatever still runs is stopped.

The cheapest tier runs first, because it uses all cores. The tests of the other tiers mostly wait for brokers and for
Ray, so they share one pytest process with two workers: a worker that has finished a test file takes the next one,
whatever tier it belongs to (see `tests.conftest.worker_group`).
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mirrord.model.errors import EnvironmentFault
from tests.fixtures import class_archive

ROOT = Path(__file__).parent.parent
LIMIT_MINUTES = 80
"""How long all tiers may take together. CI stops everything after 90 minutes, with the checks that run before."""
STOPPED = 124
ENDING_SECONDS = 60
NO_TESTS = 5
# In the order and with the names of pytest's closing line.
OUTCOMES: tuple[str, ...] = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warnings", "error")


@dataclass(frozen=True)
class Tier:
    name: str
    folders: tuple[str, ...]
    budget_minutes: float
    options: tuple[str, ...] = ()
    needs_brokers: bool = False
    """The tiers that need brokers run last, in one pytest process."""


class Ended(NamedTuple):
    """How a tier ended. Each of `failed` is a word and a test, as in pytest's summary."""

    code: int
    counts: Mapping[str, int]
    failed: Sequence[str]
    slowest: Sequence[tuple[float, str]]
    """Seconds and name of its slowest tests."""


SHARED = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
TIERS = (
    Tier("pure", ("unit", "property", "scenario", "tidy", "packaging", "sim"), 4, ("-n", "2")),
    # Ray's tests are the longest sequence, so they begin first.
    Tier("ray", ("ray",), 4, SHARED, needs_brokers=True),
    Tier("spark", ("spark",), 1, SHARED, needs_brokers=True),
    Tier("kafka", ("kafka",), 14, SHARED, needs_brokers=True),
)


def main(names: list[str]) -> int:
    unknown = sorted(set(names) - {tier.name for tier in TIERS})
    if unknown:
        print(
            f"no tier named {', '.join(unknown)}; there are: {', '.join(tier.name for tier in TIERS)}", file=sys.stderr
        )
        return 2
    # One seed for all tiers: the line that a failure prints is enough to run it again.
    os.environ.setdefault("MIRRORD_SEED", str(random.SystemRandom().randrange(2**32)))
    started = time.monotonic()
    counts = dict.fromkeys(OUTCOMES, 0)
    failed_tiers: list[str] = []
    failed_tests: list[str] = []
    slowest: list[tuple[float, str]] = []
    for tier, ended in run_all([tier for tier in TIERS if not names or tier.name in names]):
        for outcome in OUTCOMES:
            counts[outcome] += ended.counts.get(outcome, 0)
        failed_tests += ended.failed
        slowest += ended.slowest
        if ended.code not in (0, NO_TESTS):
            failed_tiers.append(tier.name)
    print("\nthe ten slowest tests:")
    for seconds, name in sorted(slowest, reverse=True)[:10]:
        print(f"{seconds:8.1f} s  {name}")
    # If the log was cut, its end is left.
    for line in failed_tests:
        print(line)
    if failed_tiers:
        print(
            f"tiers that failed: {', '.join(failed_tiers)}; the same again: MIRRORD_SEED={os.environ['MIRRORD_SEED']}"
        )
    print(closing_line(counts, time.monotonic() - started))
    return 1 if failed_tiers else 0


def run_all(tiers: Sequence[Tier]) -> list[tuple[Tier, Ended]]:
    """Run the tiers. Return what ran, in this order, and how it ended."""
    until = time.monotonic() + LIMIT_MINUTES * 60
    present = [tier for tier in tiers if folders_of(tier)]
    ended = [(tier, run(tier, until)) for tier in present if not tier.needs_brokers]
    with_brokers = [tier for tier in present if tier.needs_brokers]
    if with_brokers:
        save_time_of_brokers()
        shared = merged(with_brokers)
        ended.append((shared, run(shared, until)))
    return ended


def merged(tiers: Sequence[Tier]) -> Tier:
    """Return one tier with the folders of these, which have the same options."""
    (options,) = {tier.options for tier in tiers}
    return Tier(
        " + ".join(tier.name for tier in tiers),
        tuple(folder for tier in tiers for folder in tier.folders),
        sum(tier.budget_minutes for tier in tiers),
        options,
        needs_brokers=True,
    )


def save_time_of_brokers() -> None:
    """Create what makes brokers start faster. Without it, they only start more slowly."""
    try:
        class_archive.create()
    except EnvironmentFault as fault:
        print(f"brokers start without a class archive: {fault}", flush=True)


def folders_of(tier: Tier) -> list[str]:
    return [f"tests/{folder}" for folder in tier.folders if (ROOT / "tests" / folder).is_dir()]


def run(tier: Tier, until: float) -> Ended:
    """Run one tier. Stop it if it still runs at the time `until` of the monotonic clock."""
    folders = folders_of(tier)
    print(f"\n--- tier {tier.name}: {' '.join(folders)} (budget {tier.budget_minutes:g} min)", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tally = Path(folder) / "tally.json"
        command = [sys.executable, "-m", "pytest", *tier.options, *folders]
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"MIRRORD_TALLY": str(tally)})
        try:
            code = process.wait(max(1.0, until - started))
        except subprocess.TimeoutExpired:
            code = STOPPED
            stop(process)
            print(f"tier {tier.name}: stopped after {LIMIT_MINUTES} minutes of all tiers", flush=True)
        spent = (time.monotonic() - started) / 60
        print(f"--- tier {tier.name}: {spent:.1f} of {tier.budget_minutes:g} min", flush=True)
        counted = (
            json.loads(tally.read_text()) if tally.exists() else {"counts": {"error": 1}, "failed": [], "slowest": []}
        )
        if code == STOPPED and tally.exists():
            # The tests that were running are in no report.
            counted["counts"]["error"] = counted["counts"].get("error", 0) + 1
    slowest = [(float(seconds), str(name)) for seconds, name in counted["slowest"]]
    return Ended(code, counted["counts"], counted["failed"], slowest)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt pytest, which then reports the tests that have ended. If it does not end in time, kill it. Brokers end
    with the process that started them (`mirrord.runtime.leash`)."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def closing_line(counts: dict[str, int], seconds: float) -> str:
    parts = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count) or "no tests ran"
    return f" {parts} in {seconds:.2f}s ".center(80, "=")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
