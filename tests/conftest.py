"""What all tiers share: one random seed, shown in the header, and the tally that `tests.tiers` sums up."""

import json
import os
import random
import signal
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = ["tests.fixtures.lab"]

SEED = "MIRRORD_SEED"
TALLY = "MIRRORD_TALLY"
SLOWEST = 10
MOST_REASON = 200
"""Characters."""

# No deadline: the speed of a machine says nothing about whether the code is correct.
settings.register_profile("mirrord", deadline=None)
settings.load_profile("mirrord")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scenarios",
        action="store_true",
        help="write the output of tests/scenario/*.txt as it is now, instead of comparing it",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A process that a shell starts in the background inherits that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # It is set in the environment, so that the workers of pytest-xdist use the same one.
    seed = os.environ.setdefault(SEED, str(random.SystemRandom().randrange(2**32)))
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = seed


class GroupScheduling(LoadScopeScheduling):
    """Lets one worker of pytest-xdist run all tests of a group."""

    def _split_scope(self, nodeid: str) -> str:
        return worker_group(Path(nodeid.partition("::")[0]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    return GroupScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def worker_group(path: Path) -> str:
    """Return the group of a test file. With `--dist loadfile`, one worker runs all tests of a group.

    The tests of Ray, and those of Spark, share one session, which two workers should not start side by side.
    """
    folder = path.parent.name
    return folder if folder in {"ray", "spark"} else path.stem


def pytest_report_header() -> str:
    return f"random seed: {SEED}={os.environ[SEED]}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    if exitstatus:
        terminalreporter.write_line(f"the same again: {SEED}={os.environ[SEED]}")
    tally = os.environ.get(TALLY)
    if tally:
        stats = terminalreporter.stats
        counts = {outcome: len(reports) for outcome, reports in stats.items()}
        failed = [
            f"{word} {report.nodeid}{_reason(report)}"
            for word, outcome in (("FAILED", "failed"), ("ERROR", "error"))
            for report in stats.get(outcome, ())
        ]
        Path(tally).write_text(json.dumps({"counts": counts, "failed": failed, "slowest": _slowest(stats)}))


def _reason(report: object) -> str:
    """Return the first line of why a test failed, or nothing if the report has no such line."""
    message = getattr(getattr(getattr(report, "longrepr", None), "reprcrash", None), "message", "")
    return f": {message.splitlines()[0][:MOST_REASON]}" if message else ""


def _slowest(stats: Mapping[str, Sequence[object]]) -> list[tuple[float, str]]:
    """Return the slowest tests with their seconds, the slowest first. Setup and teardown count."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in chain.from_iterable(stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid] += report.duration
    return sorted(((spent, name) for name, spent in seconds.items()), reverse=True)[:SLOWEST]


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of this run. A test that needs random numbers creates a `random.Random(seed)`."""
    return int(os.environ[SEED])
