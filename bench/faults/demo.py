"""`make demo`: two real clusters, 1 GB, a replicator killed in the middle, and the proof that nothing is wrong.

The exit code is 0 only if every record arrived once, unaltered and in order. Everything that was started ends with this
command. With KEEP=1 in the environment, clusters and daemon keep running, and the command says how to end them.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table

from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon, Settings, target_name
from bench.harness.load import Load, Topic, Writers
from bench.harness.pair import LASTING, Side, partitions, sides
from bench.harness.watch import ReplicatorWatch
from mirrord.lab.copy_checker import CopyComparison, PartitionResult, TopicPair, compare
from mirrord.lab.server_properties import LabOptions
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import FlowStatus, LaneStatus

TOPICS = [
    Topic("demo.orders", 3, "none"),
    Topic("demo.archive", 2, "gzip", batch_bytes=512 << 10),
    Topic("demo.clicks", 4, "snappy", batch_bytes=32 << 10),
    Topic("demo.sensors", 3, "lz4"),
    Topic("demo.payments", 2, "zstd", transactional=True),
]
VALUE_BYTES = 1_100
REPLICATORS = 2
KILL_AT = 0.35
"""Share of all records that has arrived when a replicator is killed."""
START_S = 180.0
COPY_S = 420.0
POLL_S = 0.05

console = Console(highlight=False)


@dataclass
class Recovery:
    """What happened after the kill. None until it has happened."""

    pid: int
    lanes: int
    first_s: float | None = None
    """Time until a first lane of the killed replicator had a new record in the target."""
    all_s: float | None = None
    """Time until all lanes had one that had any records left to copy."""


@dataclass
class Outcome:
    """The measurements of the demo."""

    written_bytes: int
    stored_bytes: int
    copy_s: float
    cpu_seconds: float
    rss_bytes: int
    recovery: Recovery
    flow: FlowStatus
    comparison: CopyComparison


class Story:
    """Prints what happens, with the seconds since the beginning."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next = 0.0

    def say(self, line: str) -> None:
        """Print one line."""
        console.print(f"[dim]{time.monotonic() - self._began:6.1f} s[/]  {line}", soft_wrap=True)

    def progress(self, line: str) -> None:
        """Print one line, at most every two seconds."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 2
            self.say(f"[dim]{line}[/]")


class Demo:
    """One run."""

    def __init__(self, load: Load, folder: Path, *, keep: bool) -> None:
        """`load` is the load of each topic."""
        self._records = load.records * len(TOPICS)
        self._rng = random.Random(load.seed)
        self._load = load
        self._folder = folder
        self._keep = keep
        self._story = Story()
        self._names = partitions(TOPICS)
        self._copies = {target_name(name): count for name, count in self._names.items()}

    def run(self) -> bool:
        """Run the demo. Return whether everything is correct. Raises EnvironmentFault."""
        say = self._story.say
        with ExitStack() as everything:
            say("starting two Kafka clusters on this machine")
            options = LabOptions(heap_mb=448, quick_start=False, properties=LASTING)
            keep_in = self._folder / "lab" if self._keep else None
            source, target = everything.enter_context(sides(options, keep_in=keep_in))
            say(f"source {source.bootstrap}, target {target.bootstrap}, files below {self._folder}")
            daemon = self._daemon(source, target)
            everything.callback(daemon.kill)
            Admin(source.bootstrap).create(TOPICS)
            outcome = self._copy(source, target, daemon)
            exit_code = 0
            if self._keep:
                everything.pop_all()
            else:
                say("stopping the daemon: SIGTERM")
                exit_code = daemon.stop()
                say(f"it drained and ended with exit code {exit_code}")
            self._show(outcome, daemon)
        return outcome.comparison.is_exact and exit_code == 0

    def _daemon(self, source: Side, target: Side) -> Daemon:
        settings = Settings(
            source=source.bootstrap,
            target=target.bootstrap,
            topics=r"demo\..*",
            engine="ray",
            instance="demo",
            replicators=REPLICATORS,
            dashboard=True,
        )
        return Daemon(self._folder, settings, outlives=self._keep)

    def _copy(self, source: Side, target: Side, daemon: Daemon) -> Outcome:
        say = self._story.say
        with Writers(source.bootstrap, TOPICS, self._load) as writers:
            say(f"writing {self._records:,} records into {len(TOPICS)} topics, {sum(self._names.values())} partitions")
            while writers.records < self._records // 2 and not writers.done:
                self._story.progress(f"{writers.records:,} records, {writers.payload_bytes / 1e6:,.0f} MB written")
                time.sleep(POLL_S)
            say("half is written: starting mirrord on a local Ray (some seconds)")
            daemon.start()
            with ReplicatorWatch(daemon) as watch:
                daemon.wait_for(
                    "copied record",
                    lambda flow: bool(flow.totals.copied_records),
                    START_S,
                    lambda: self._story.progress(f"{writers.records:,} records written, mirrord is starting"),
                )
                began = time.monotonic()
                say(f"mirrord copies. {_pages(daemon)}")
                recovery = self._kill_in_the_middle(daemon, writers, source, target)
                flow = self._wait_for_the_end(daemon, writers, recovery)
                copy_s = time.monotonic() - began
        written = writers.payload_bytes
        say(f"lag is zero: {writers.records:,} records, {written / 1e6:,.0f} MB before compression")
        comparison = self._compare(source, target)
        stored = target.stored_bytes(self._copies)
        return Outcome(written, stored, copy_s, watch.cpu_seconds, watch.rss_bytes, recovery, flow, comparison)

    def _kill_in_the_middle(self, daemon: Daemon, writers: Writers, source: Side, target: Side) -> Recovery:
        at_target = Admin(target.bootstrap)
        while True:
            arrived = at_target.ends(self._copies)
            if sum(arrived.values()) >= KILL_AT * self._records:
                break
            self._story.progress(f"{writers.records:,} records written, {sum(arrived.values()):,} copied")
            _ = daemon.pid, writers.done
            time.sleep(POLL_S)
        flow = daemon.wait_for("replicator", lambda flow: len(flow.replicators) == REPLICATORS, START_S)
        victim = self._rng.choice(flow.replicators)
        lanes = [lane for lane in flow.lanes if lane.host == victim.name]
        self._story.say(f"[bold]kill -9 {victim.pid}[/]: {victim.name}, which copies {len(lanes)} partitions")
        os.kill(victim.pid, signal.SIGKILL)
        recovery = Recovery(victim.pid, len(lanes))
        self._await_recovery(recovery, lanes, Admin(source.bootstrap), at_target)
        return recovery

    def _await_recovery(self, recovery: Recovery, lanes: list[LaneStatus], source: Admin, target: Admin) -> None:
        killed = time.monotonic()
        names = {lane.target_topic: self._copies[lane.target_topic] for lane in lanes}
        before = _quiet(target, names)
        behind = source.ends(self._names, read_committed=True)
        waiting = {
            (lane.target_topic, lane.partition)
            for lane in lanes
            if before[lane.target_topic, lane.partition] < behind[lane.topic, lane.partition]
        }
        while waiting and time.monotonic() - killed < COPY_S:
            now = target.ends(names)
            moved = {lane for lane in waiting if now.get(lane, 0) > before[lane]}
            if moved and recovery.first_s is None:
                recovery.first_s = time.monotonic() - killed
                self._story.say(f"a first record of its partitions {recovery.first_s:.1f} s after the kill")
            waiting -= moved
            if not waiting:
                recovery.all_s = time.monotonic() - killed
                self._story.say(f"all of them move again after {recovery.all_s:.1f} s")
            time.sleep(POLL_S)

    def _wait_for_the_end(self, daemon: Daemon, writers: Writers, recovery: Recovery) -> FlowStatus:
        lanes = sum(self._names.values())
        deadline = time.monotonic() + COPY_S
        while True:
            written = writers.done
            flow = daemon.flow()
            _ = daemon.pid
            if flow is not None:
                totals = flow.totals
                at_end = totals.lanes == {"copying": lanes} and totals.lag_records == 0
                if written and at_end and all(each.pid != recovery.pid for each in flow.replicators):
                    return flow
                rate = f", {totals.bytes_per_s / 1e6:.0f} MB/s" if totals.bytes_per_s else ""
                self._story.progress(f"{writers.records:,} records written, lag {totals.lag_records or 0:,}{rate}")
            if time.monotonic() > deadline:
                state = f"{flow.totals}, {flow.note}" if flow else "the daemon does not answer"
                raise EnvironmentFault(f"not everything is copied after {COPY_S:g} s: {state}\n{daemon.tail()}")
            time.sleep(POLL_S)

    def _compare(self, source: Side, target: Side) -> CopyComparison:
        count = sum(self._names.values())
        self._story.say(f"comparing both clusters record by record, {count} partitions")
        done: list[PartitionResult] = []

        def print_result(result: PartitionResult) -> None:
            done.append(result)
            self._story.progress(f"{len(done)} of {count} partitions, {sum(each.records for each in done):,} records")

        pairs = [TopicPair(topic.name, target_name(topic.name)) for topic in TOPICS]
        return compare(source.bootstrap, target.bootstrap, pairs, report=print_result)

    def _show(self, outcome: Outcome, daemon: Daemon) -> None:
        console.print()
        console.print(_table(outcome))
        if not outcome.comparison.is_exact:
            console.print(f"[red]{outcome.comparison.describe()}[/]")
        if self._keep:
            mirrord = Path(sys.executable).with_name("mirrord")
            console.print(
                f"Everything keeps running. {_pages(daemon)}\n"
                f"  look:  {mirrord} status {daemon.conf}\n"
                f"  end:   {mirrord} stop {daemon.conf} ; "
                f"{mirrord} lab down --dir {self._folder / 'lab'} ; rm -r {self._folder}",
                soft_wrap=True,
            )


def _quiet(target: Admin, names: dict[str, int]) -> dict[tuple[str, int], int]:
    """Return the ends of topics once everything has arrived that a dead process had sent."""
    ends = target.ends(names)
    for _ in range(10):
        time.sleep(2 * POLL_S)
        before, ends = ends, target.ends(names)
        if ends == before:
            break
    return ends


def _pages(daemon: Daemon) -> str:
    nothing: dict[str, str] = {}
    ready = next((event for event in daemon.events() if event.get("event") == "daemon_ready"), nothing)
    board, token_file = ready.get("dashboard"), ready.get("dashboard_auth_file")
    token = f" (its token is in {token_file})" if token_file else ""
    return f"mirrord page http://{daemon.address}, Ray dashboard {f'{board}{token}' if board else 'not there'}"


def _table(outcome: Outcome) -> Table:
    comparison, difference, totals = outcome.comparison, outcome.comparison.difference, outcome.flow.totals
    recovery = outcome.recovery
    table = Table(title="what arrived", show_header=False, title_justify="left")
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_row("records", f"{comparison.records:,}")
    table.add_row("bytes before compression", f"{comparison.payload_bytes:,}")
    table.add_row("bytes stored in the target", f"{outcome.stored_bytes:,}")
    table.add_section()
    for name, count in zip(difference._fields, difference, strict=True):
        table.add_row(name.replace("_", " "), f"[{'red' if count else 'green'}]{count:,}[/]")
    table.add_section()
    rate = comparison.payload_bytes / 1e6 / outcome.copy_s
    table.add_row("MB/s before compression", f"{rate:,.0f}")
    table.add_row("MB/s stored", f"{outcome.stored_bytes / 1e6 / outcome.copy_s:,.0f}")
    table.add_row("CPU-seconds of the replicators, from their start", f"{outcome.cpu_seconds:.1f}")
    table.add_row(
        "CPU-seconds per GB before compression", f"{outcome.cpu_seconds / comparison.payload_bytes * 1e9:.1f}"
    )
    table.add_row("CPU-seconds per GB stored", f"{outcome.cpu_seconds / outcome.stored_bytes * 1e9:.1f}")
    table.add_row("largest memory of a replicator", f"{outcome.rss_bytes / 1e6:,.0f} MB")
    table.add_row("batches copied unchanged", f"{totals.raw_share:.1%}" if totals.raw_share is not None else "-")
    table.add_section()
    table.add_row("kill -9 to a first new record", _seconds(recovery.first_s))
    table.add_row(f"kill -9 until all {recovery.lanes} partitions move", _seconds(recovery.all_s))
    return table


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


@contextmanager
def _home(*, keep: bool) -> Generator[Path]:
    """Return a folder. It is removed when the demo ends, unless processes that keep running need it."""
    folder = Path(tempfile.mkdtemp(prefix="mirrord-demo-"))
    try:
        yield folder
    except BaseException:
        keep = False
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.demo", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--pace", type=float, metavar="N", help="records a second (default: as fast as possible)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), help="default: random")
    arguments = parser.parse_args()
    keep = os.environ.get("KEEP", "") not in {"", "0"}
    signal.signal(signal.SIGTERM, _terminated)
    console.print(f"seed {arguments.seed}")
    pace = arguments.pace / len(TOPICS) if arguments.pace else None
    load = Load(arguments.records // len(TOPICS), VALUE_BYTES, arguments.seed, records_per_s=pace)
    try:
        with _home(keep=keep) as folder:
            exact = Demo(load, folder, keep=keep).run()
    except EnvironmentFault as fault:
        console.print(f"[red]demo: {fault}[/]", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("stopped; everything that was started has ended")
        return 130
    console.print("[green]every record once, unaltered, in order[/]" if exact else "[red]something is wrong[/]")
    return 0 if exact else 1


def _terminated(*_: Any) -> NoReturn:
    raise KeyboardInterrupt
