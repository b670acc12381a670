"""The demo and the fault campaign on Ray, in short: a replicator that is killed with -9 costs no record."""

import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bench.faults.campaign import Plan, run

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_exactly_once_when_replicators_and_supervisor_are_killed(seed: int) -> None:
    plan = Plan(variant="fresh", seed=seed, records=60_000, kills=3, kinds=("replicator", "supervisor"), minutes=4)
    outcome = run(plan, print)
    assert outcome.kills == plan.wanted
    assert outcome.comparison.is_exact, outcome.comparison.describe()
    assert outcome.comparison.records >= 60_000


@pytest.mark.timeout(600)
def test_the_demo(seed: int) -> None:
    command = [sys.executable, "-m", "bench.demo", "--records", "60000", "--pace", "2000", "--seed", str(seed)]
    demo = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False)
    print(demo.stdout)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    table = demo.stdout[demo.stdout.index("what arrived") :]
    for what in ("missing", "doubled", "altered", "foreign", "out of order"):
        assert re.search(rf"{what} +│ +0 ", table)
    assert re.search(r"records +│ +60,000 ", table)
    # Its files are gone, and so is every process with them on its command line.
    (folder,) = re.findall(r"files below (\S+)", demo.stdout)
    assert not Path(folder).exists()
    commands = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert [line for line in commands if folder in line] == []
