"""Runs the tests tier by tier, from the cheapest to the dearest, and ends with one closing line for all of them.

`python -m tests.tiers [TIER ...]`. A tier whose folders do not exist is left out. Each tier is one pytest process; the
budget is what it should take on a machine with two cores, and three times that is where it is stopped.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
STOPPED = 124
NO_TESTS = 5
# In the order and with the names of pytest's own closing line.
OUTCOMES: tuple[str, ...] = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warnings", "error")


@dataclass(frozen=True)
class Tier:
    name: str
    folders: tuple[str, ...]
    budget_minutes: float
    options: tuple[str, ...] = ()


TIERS = (
    Tier("pure", ("unit", "property", "scenario", "tidy", "packaging", "sim"), 3, ("-n", "2")),
    Tier("kafka", ("kafka",), 20),
    Tier("ray", ("ray",), 7),
    Tier("spark", ("spark",), 2),
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
    failed: list[str] = []
    for tier in TIERS:
        folders = [f"tests/{folder}" for folder in tier.folders if (ROOT / "tests" / folder).is_dir()]
        if not folders or (names and tier.name not in names):
            continue
        code, tally = run(tier, folders)
        for outcome in OUTCOMES:
            counts[outcome] += tally.get(outcome, 0)
        if code not in (0, NO_TESTS):
            failed.append(tier.name)
    if failed:
        print(f"tiers that failed: {', '.join(failed)}; the same again: MIRRORD_SEED={os.environ['MIRRORD_SEED']}")
    print(closing_line(counts, time.monotonic() - started))
    return 1 if failed else 0


def run(tier: Tier, folders: list[str]) -> tuple[int, dict[str, int]]:
    """One tier's exit code and its counts by outcome."""
    print(f"\n--- tier {tier.name}: {' '.join(folders)} (budget {tier.budget_minutes:g} min)", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tally = Path(folder) / "tally.json"
        command = [sys.executable, "-m", "pytest", *tier.options, *folders]
        environment = os.environ | {"MIRRORD_TALLY": str(tally)}
        try:
            code = subprocess.run(
                command, cwd=ROOT, env=environment, timeout=tier.budget_minutes * 180, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = STOPPED
            print(f"tier {tier.name}: stopped at three times its budget")
        counts = json.loads(tally.read_text()) if tally.exists() else {"error": 1}
    print(f"--- tier {tier.name}: {(time.monotonic() - started) / 60:.1f} of {tier.budget_minutes:g} min", flush=True)
    return code, counts


def closing_line(counts: dict[str, int], seconds: float) -> str:
    parts = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count) or "no tests ran"
    return f" {parts} in {seconds:.2f}s ".center(80, "=")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
