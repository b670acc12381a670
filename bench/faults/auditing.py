"""Audits of all levels while records and transactions flow and the daemon is killed: does one ever raise a false alarm?

The campaign's variant `audits`. The copy is correct, so each audit must end with exit code 0. The last one runs when
everything is copied, and must prove all of it. librdkafka compares both sides as well.
"""

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon, Settings, target_name
from bench.harness.flood import TOPICS, Flood
from bench.harness.pair import LASTING, pair
from mirrord.lab.copy_checker import TopicPair, compare
from mirrord.lab.server_properties import LabOptions
from mirrord.model.errors import EnvironmentFault

LEVELS: tuple[tuple[str, ...], ...] = (
    ("--level", "digest"),
    ("--level", "ledger"),
    ("--level", "records"),
    ("--level", "digest", "--again", "--sample", "0.3"),
)
RECORDS_PER_S = 2_000.0
KILL_S = 45.0
"""Approximate time between two kills of the daemon."""
PAUSE_S = 5.0
"""Time between two audits."""
CATCH_UP_S = 300.0
AUDIT_S = 600.0

PrintLine = Callable[[str], None]


class Outcome(NamedTuple):
    """The outcome."""

    records: int
    audits: int
    """Audits that ended without a fault of the environment. If a broker or Spark does not answer, that is not an
    alarm."""
    kills: dict[Literal["daemon"], int]
    seconds: float
    partitions: int
    wrong: dict[str, int]
    """Alarms, by kind; the ranges that are not proven in the end; the findings of librdkafka."""


def run(engine: Literal["ray", "process"], minutes: float, seed: int, print_line: PrintLine) -> Outcome:
    """Run one campaign, from empty clusters to the comparison. Raises EnvironmentFault."""
    chance = random.Random(seed)
    options = LabOptions(properties=LASTING)
    with tempfile.TemporaryDirectory(prefix="mirrord-audits-") as name, ExitStack() as everything:
        source, target = everything.enter_context(pair(options, options))
        settings = Settings(
            source=source.bootstrap, target=target.bootstrap, topics=TOPICS, engine=engine,
            lease_ttl_s=3.0, request_timeout_s=3.0,
        )  # fmt: skip
        daemon = Daemon(Path(name), settings)
        everything.callback(daemon.kill)
        flood = everything.enter_context(Flood(source.bootstrap, seed, RECORDS_PER_S, age_ms=0, creating=False))
        flood.begin()
        daemon.start()
        began = time.monotonic()
        audits = _Audits(daemon.conf, print_line)
        kills, next_kill = 0, began + KILL_S
        try:
            while time.monotonic() < began + minutes * 60:
                flood.tick()
                audits.check()
                if time.monotonic() >= next_kill:
                    daemon.kill()
                    daemon.start()
                    kills, next_kill = kills + 1, time.monotonic() + chance.uniform(0.5, 1.5) * KILL_S
                time.sleep(0.2)
        finally:
            audits.end()
        flood.stop()
        seconds = time.monotonic() - began
        topics = flood.partitions
        _until_copied(daemon, Admin(source.bootstrap).ends(topics))
        pairs = [TopicPair(topic, target_name(topic)) for topic in topics]
        comparison = compare(source.bootstrap, target.bootstrap, pairs)
        last = audits.once(("--level", "digest", "--again"))
        wrong = Counter(audits.wrong)
        if last is None:
            wrong["last audit failed"] += 1
        else:
            wrong["not proven"] += sum(each["records"] - each["equal"] for each in last["partitions"])
        if not comparison.is_exact:
            wrong["records of librdkafka's comparison"] += sum(comparison.difference)
        daemon.stop()
        found = {kind: number for kind, number in wrong.items() if number}
        return Outcome(comparison.records, audits.done, {"daemon": kills}, seconds, sum(topics.values()), found)


def _until_copied(daemon: Daemon, ends: Mapping[tuple[str, int], int]) -> None:
    deadline = time.monotonic() + CATCH_UP_S
    while True:
        flow = daemon.flow()
        lanes = {} if flow is None else {(lane.topic, lane.partition): lane for lane in flow.lanes}
        behind = [
            where
            for where, end in ends.items()
            if where not in lanes or (lanes[where].source_offset or 0) < end or lanes[where].in_flight_bytes
        ]
        if not behind:
            return
        if time.monotonic() > deadline:
            raise EnvironmentFault(f"not everything is copied after {CATCH_UP_S:g} s: {behind}")
        time.sleep(0.5)


class _Audits:
    """A thread that runs audits one after the other, until `end`."""

    def __init__(self, conf: Path, print_line: PrintLine) -> None:
        self.done = 0
        self.wrong: Counter[str] = Counter()
        self._conf = conf
        self._print_line = print_line
        self._ending = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            number = 0
            while not self._ending.wait(PAUSE_S):
                self.once(LEVELS[number % len(LEVELS)])
                number += 1
        except BaseException as fault:  # noqa: BLE001 - it is raised by `check`
            self._fault = fault

    def check(self) -> None:
        """Raise the error that occurred, if any."""
        if self._fault is not None:
            raise self._fault

    def end(self) -> None:
        """End when the last one is done."""
        self._ending.set()
        self._thread.join()

    def once(self, options: tuple[str, ...]) -> Any:
        """Return what one audit reports, or None if it failed."""
        words = [sys.executable, "-m", "mirrord.cli.main", "audit", str(self._conf), "--json", *options]
        if "ledger" not in options:
            words += ["--spark", "spark.master=local[1]"]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=AUDIT_S, check=False)
        if ended.returncode not in {0, 3}:
            self._print_line(f"audit {' '.join(options)}: exit code {ended.returncode}: {ended.stderr.strip()[-4000:]}")
            if ended.returncode != 1:
                raise EnvironmentFault(f"an audit ended with exit code {ended.returncode}")
            return None
        document = json.loads(ended.stdout)
        self.done += 1
        for each in document["differences"]:
            self.wrong[each["difference"]["kind"]] += each["difference"]["length"]
            self._print_line(f"audit {' '.join(options)}: {each}")
        records = sum(each["records"] for each in document["partitions"])
        self._print_line(f"audit {' '.join(options)}: {records:,} records, {dict(self.wrong) or 'nothing wrong'}")
        return document
