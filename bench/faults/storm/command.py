"""Plays chapters one after the other for the requested time, and keeps the result of each.

A run may be interrupted at any time: finished chapters are kept in bench/results/storm.json, and the next run continues
with the next flavor of chapters. The random numbers of a chapter depend on its own seed alone.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.faults.storm import network
from bench.faults.storm.chapter import Outcome, Plan, play
from bench.faults.storm.clocks import library
from bench.faults.storm.ground import OLDER, Side
from bench.faults.storm.kinds import FLAVORS, KINDS, Flavor, Missing, Need, flavors, unavailable
from bench.report import pages
from mirrord.lab.jars import cache_folder, kafka_jars
from mirrord.model.errors import EnvironmentFault
from mirrord.runtime.leash import leashed

KIND = "storm"
_STARTED = "MIRRORD_STORM_STARTED"
_EVIDENCE = Path(__file__).parents[3] / ".cache" / "storm"

PrintLine = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The arguments of a run."""

    minutes: float
    seed: int
    engine: Literal["ray", "process"]
    records_per_s: float
    chapter_minutes: float
    at_once: int
    """Number of faults that last at any time."""
    flavor: Flavor | None
    """The flavor of all chapters. None: they take turns."""
    only: frozenset[str]
    keep: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that only this variant has."""
    parser.add_argument(
        "--chapter-minutes", type=float, default=15, help="of a chapter of the storm (default: %(default)s)"
    )
    parser.add_argument("--rate", type=float, default=20_000, help="records/s of the storm (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=1, help="faults of the storm at any time (default: %(default)s)")
    parser.add_argument("--flavor", choices=FLAVORS, help="of all chapters of the storm (default: in turn)")
    names = [kind.name for kind in KINDS]
    parser.add_argument("--only", choices=names, action="append", help="kinds of faults of the storm (default: all)")


def wanted(arguments: argparse.Namespace) -> Wanted:
    """Return the arguments of a run."""
    return Wanted(
        minutes=arguments.minutes,
        seed=arguments.seed,
        engine=arguments.engine,
        records_per_s=arguments.rate,
        chapter_minutes=arguments.chapter_minutes,
        at_once=arguments.at_once,
        flavor=arguments.flavor,
        only=frozenset(arguments.only or ()),
        keep=arguments.keep,
    )


def is_started() -> bool:
    """Return whether this process was started by `start`."""
    return _STARTED in os.environ


def start(wanted: Wanted) -> bool:
    """Run the variant in a separate process, in separate namespaces if possible. Return whether it passed. Everything
    that chapters need is downloaded first. Raises EnvironmentFault."""
    _ = kafka_jars()
    with suppress(EnvironmentFault):
        _ = kafka_jars(OLDER)
    library(download=True)
    command = [sys.executable, "-m", "bench.campaign", *_arguments(wanted)]
    if not network.why_not():
        command = network.inside(command)
    return subprocess.run(leashed(["env", f"{_STARTED}=1", *command]), check=False).returncode == 0


def _arguments(wanted: Wanted) -> list[str]:
    arguments = ["--variant", "storm", f"--minutes={wanted.minutes}", f"--seed={wanted.seed}"]
    arguments += [f"--engine={wanted.engine}", f"--rate={wanted.records_per_s}"]
    arguments += [f"--chapter-minutes={wanted.chapter_minutes}", *(f"--only={kind}" for kind in sorted(wanted.only))]
    arguments += [f"--at-once={wanted.at_once}"]
    arguments += [f"--flavor={wanted.flavor}"] if wanted.flavor else []
    return [*arguments, *([] if wanted.keep else ["--try"])]


def missing(engine: Literal["ray", "process"]) -> dict[Need, str]:
    """Return what this run lacks, and why."""
    found: dict[Need, str] = {}
    if not network.is_inside():
        found["namespaces"] = network.why_not() or "the run was started without them"
    if library(download=False) is None:
        found["faketime"] = "libfaketime is not installed, and could not be downloaded"
    if not (cache_folder() / f"kafka-{OLDER}").is_dir():
        found["older Kafka"] = f"the jars of Kafka {OLDER} could not be downloaded"
    if engine != "ray":
        found["Ray"] = "the engine is process"
    return found


def run(wanted: Wanted, print_line: PrintLine) -> bool:
    """Play chapters until the time is over. Return whether all of them passed. A chapter that fails before its first
    fault ends the run: the machine lacks something, and the next chapter would fail as well."""
    lacking = missing(wanted.engine)
    for kind, reason in unavailable(KINDS, lacking).items():
        print_line(f"NOT AVAILABLE: {kind}: {reason}")
    began, played, passed = time.monotonic(), 0, True
    while not played or time.monotonic() < began + wanted.minutes * 60:
        left = wanted.minutes - (time.monotonic() - began) / 60
        plan = _plan(wanted, lacking, played, max(1.0, min(wanted.chapter_minutes, left)))
        print_line(
            f"--- chapter {played + 1}, {plan.flavor}, seed {plan.seed}, {plan.sizes['source']} and "
            f"{plan.sizes['target']} brokers, {plan.minutes:.1f} minutes, {plan.engine}"
        )
        outcome = play(plan, print_line)
        _print(outcome, print_line)
        if wanted.keep:
            pages.keep(KIND, result(outcome))
        passed, played = passed and outcome.passed, played + 1
        if not outcome.passed and not outcome.record.faults:
            break
    return passed


def _plan(wanted: Wanted, lacking: Missing, played: int, minutes: float) -> Plan:
    number = played + len(pages.stored(KIND))
    seed = wanted.seed + played
    possible = flavors(lacking)
    return Plan(
        seed=seed,
        minutes=minutes,
        records_per_s=wanted.records_per_s,
        engine=wanted.engine,
        flavor=wanted.flavor or possible[number % len(possible)],
        sizes=sizes(number),
        missing=lacking,
        at_once=wanted.at_once,
        only=wanted.only,
        evidence=_EVIDENCE / str(seed),
    )


def sizes(number: int) -> dict[Side, int]:
    """Return the number of brokers of both clusters in a chapter. Every flavor gets both, in turn."""
    source = 3 if (number + number // len(FLAVORS)) % 2 == 0 else 2
    return {"source": source, "target": 5 - source}


def _print(outcome: Outcome, print_line: PrintLine) -> None:
    verdict, record = outcome.verdict, outcome.record
    print_line(
        f"{'passed' if outcome.passed else 'FAILED'}: {verdict.records:,} records, {record.faults.total()} faults, "
        f"{record.restarts} restarts, differences: {dict(verdict.difference) or 'none'}, named: {dict(verdict.named)}"
    )
    for line in (outcome.failure, *record.failures, *verdict.where):
        if line:
            print_line(line)


def result(outcome: Outcome) -> pages.Result:
    """Return what is kept of a chapter."""
    plan, verdict, record = outcome.plan, outcome.verdict, outcome.record
    return {
        "code": pages.code_of("mirrord", "actors"),
        "seed": plan.seed,
        "engine": plan.engine,
        "flavor": plan.flavor,
        "at_once": plan.at_once,
        "brokers": [plan.sizes["source"], plan.sizes["target"]],
        "seconds": round(outcome.seconds, 1),
        "load": round(outcome.load, 2),
        "records": verdict.records,
        "payload_bytes": verdict.payload_bytes,
        "partitions": verdict.partitions,
        "faults": dict(record.faults),
        "recoveries": {
            kind: [[round(number, 2) for number in recovery] for recovery in recoveries]
            for kind, recoveries in record.recoveries.items()
        },
        "restarts": record.restarts,
        "node_restarts": record.node_restarts,
        "unfed": record.unfed,
        "unavailable": unavailable(KINDS, plan.missing),
        "named": dict(verdict.named),
        "difference": dict(verdict.difference),
        "failures": [each for each in (outcome.failure, *record.failures) if each],
        "passed": outcome.passed,
    }
