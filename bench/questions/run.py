"""`make bench`, `make bench-whole`: how fast, how small and how late, each figure next to those that it is compared
with.

Figures are kept in bench/results and shown in docs/measurements.md. bench/README.md says how they are measured.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import msgspec
from rich.console import Console

from bench.harness.pair import LASTING, pair
from bench.questions import (
    audit_cost,
    catch_up,
    compact_cost,
    discovery,
    drill,
    failover,
    fairness,
    far,
    groups,
    growth,
    hostile,
    idle,
    kills,
    latency,
    map_cost,
    memory,
    mm2_nodes,
    moves,
    ready,
    recovery,
    soak,
    throughput,
    topics,
)
from bench.report import pages, tables
from mirrord.lab.cluster import Cluster
from mirrord.lab.server_properties import LabOptions
from mirrord.model.errors import EnvironmentFault

Question = Literal[
    "catch-up",
    "far",
    "throughput",
    "memory",
    "latency",
    "recovery",
    "idle",
    "topics",
    "moves",
    "kills",
    "discovery",
    "groups",
    "growth",
    "map",
    "compact",
    "audit",
    "fairness",
    "ready",
    "failover",
    "drill",
    "soak",
    "mm2",
    "hostile",
]
Engine = Literal["ray", "process"]

QUESTIONS: tuple[Question, ...] = get_args(Question)
LONG: tuple[Question, ...] = ("soak", "mm2", "hostile", "failover", "drill")
"""Questions that are asked only on request."""
MINUTES: Mapping[Question, tuple[float, float]] = {"soak": (soak.MINUTES, 2.0), "hostile": (hostile.MINUTES, 1.0)}
"""The usual and the shortest duration of the questions that have one."""
SHORT: tuple[Question, ...] = ("catch-up", "throughput", "latency", "recovery")
SHORT_SHARE = 0.1
"""The questions of `--short`, and the share of each."""
ENGINES: tuple[Engine, ...] = ("process", "ray")
BROKER_HEAP_MB = 1_024
"""The same as in Kafka's start script. With half of it, collections take 1 % of the time at 1,000 records per second,
each in a request, and a p99 would show nothing else."""

console = Console(highlight=False, width=None if sys.stdout.isatty() else 180)


class Order(NamedTuple):
    """The questions, and how thoroughly they are measured."""

    engines: Sequence[Engine]
    share: float
    """Share of bytes, time and repetitions."""
    seed: int
    minutes: float | None = None
    """Duration of a question of `MINUTES`. None: the usual one."""

    def minutes_of(self, question: Question) -> float:
        """Return the duration of this question."""
        return MINUTES[question][0] if self.minutes is None else self.minutes


Measure = Callable[[Cluster, Cluster, Order, Callable[[str], None]], list[msgspec.Struct]]


def _throughput(
    source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]
) -> list[msgspec.Struct]:
    return [throughput.measure(source, target, cell, order.share, print_line) for cell in throughput.CELLS]


def _catch_up(
    source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]
) -> list[msgspec.Struct]:
    return list(catch_up.measure(source, target, order.share, print_line))


def _memory(source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]) -> list[msgspec.Struct]:
    return list(memory.measure(source, target, order.share, print_line))


def _latency(source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]) -> list[msgspec.Struct]:
    return list(latency.measure(source, target, order.engines, order.share, print_line))


def _recovery(
    source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]
) -> list[msgspec.Struct]:
    repetitions = max(1, round(recovery.REPETITIONS * order.share))
    waits: list[msgspec.Struct] = []
    for engine in order.engines:
        waits += recovery.measure(source, target, engine, repetitions, order.seed, print_line)
    return waits


def _idle(source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]) -> list[msgspec.Struct]:
    return list(idle.measure(source, target, order.engines, order.share, print_line))


def _topics(source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]) -> list[msgspec.Struct]:
    return [topics.measure(source, target, each, order.share, order.seed, print_line) for each in order.engines]


def _moves(source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]) -> list[msgspec.Struct]:
    return [moves.measure(source, target, each, order.share, order.seed, print_line) for each in order.engines]


def _kills(source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]) -> list[msgspec.Struct]:
    return [kills.measure(source, target, order.share, order.seed, print_line)]


def _discovery(
    source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]
) -> list[msgspec.Struct]:
    return [discovery.measure(source, target, order.share, print_line)]


def _groups(source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]) -> list[msgspec.Struct]:
    return [groups.measure(source, target, engine, order.share, print_line) for engine in order.engines]


def _growth(source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]) -> list[msgspec.Struct]:
    return list(growth.measure(source, target, order.share, order.seed, print_line))


def _map(source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]) -> list[msgspec.Struct]:
    return list(map_cost.measure(source, target, order.share, order.seed, print_line))


def _compact(
    _source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]
) -> list[msgspec.Struct]:
    return [compact_cost.measure(target, order.share, order.seed, print_line)]


def _audit(source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]) -> list[msgspec.Struct]:
    return [audit_cost.measure(source, target, order.share, print_line)]


def _fairness(
    source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]
) -> list[msgspec.Struct]:
    windows: list[msgspec.Struct] = []
    for engine in order.engines:
        windows += fairness.measure(source, target, engine, order.share, print_line)
    return windows


def _mm2(source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]) -> list[msgspec.Struct]:
    return list(mm2_nodes.measure(source, target, order.share, order.seed, print_line))


def _soak(source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]) -> list[msgspec.Struct]:
    kinds: list[msgspec.Struct] = []
    for engine in order.engines:
        kinds += soak.measure(source, target, engine, order.minutes_of("soak"), order.seed, print_line)
    return kinds


def _ready(source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]) -> list[msgspec.Struct]:
    return list(ready.measure(source, target, order.share, print_line))


def _failover(
    source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]
) -> list[msgspec.Struct]:
    return list(failover.measure(source, target, order.share, order.seed, print_line))


def _drill(source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]) -> list[msgspec.Struct]:
    return [drill.measure(source, target, order.share, order.seed, print_line)]


def _hostile(source: Cluster, target: Cluster, order: Order, print_line: Callable[[str], None]) -> list[msgspec.Struct]:
    minutes = order.minutes_of("hostile")
    return [
        hostile.measure(source, target, engine, (minutes, order.share), order.seed, print_line)
        for engine in order.engines
    ]


_MEASURES: dict[str, Measure] = {
    "catch-up": _catch_up,
    "throughput": _throughput,
    "memory": _memory,
    "latency": _latency,
    "recovery": _recovery,
    "idle": _idle,
    "topics": _topics,
    "moves": _moves,
    "kills": _kills,
    "discovery": _discovery,
    "groups": _groups,
    "growth": _growth,
    "map": _map,
    "compact": _compact,
    "audit": _audit,
    "fairness": _fairness,
    "ready": _ready,
    "failover": _failover,
    "drill": _drill,
    "soak": _soak,
    "mm2": _mm2,
    "hostile": _hostile,
}


def ask(question: Question, order: Order, print_line: Callable[[str], None]) -> list[msgspec.Struct]:
    """Measure one question on two separate clusters. Raises EnvironmentFault."""
    options = LabOptions(quick_start=False, heap_mb=BROKER_HEAP_MB, properties=LASTING)
    print_line(f"{question}: starting two clusters")
    if question == "far":
        return list(far.measure(options, order.share, print_line))
    with pair(options, options) as (source, target):
        return _MEASURES[question](source, target, order, print_line)


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--question", choices=QUESTIONS, action="append", help=f"default: all but {', '.join(LONG)}")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="default: both, where there is one")
    parser.add_argument(
        "--share", type=float, default=1.0, help="of bytes, time and repetitions; 0.1 takes minutes (default: 1)"
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), help="default: by chance")
    usual = ", ".join(f"{minutes:g} of {question}" for question, (minutes, _) in MINUTES.items())
    parser.add_argument("--minutes", type=float, help=f"of a soak, or of an attack (default: {usual})")
    parser.add_argument("--short", action="store_true", help="four questions in ten minutes; nothing is kept")
    parser.add_argument("--try", dest="keep", action="store_false", help="do not keep the results")
    arguments = parser.parse_args()
    if not 0 < arguments.share <= 1:
        parser.error(f"--share is {arguments.share:g}; it must be above 0 and at most 1")
    for question, (_, least) in MINUTES.items():
        if arguments.minutes is not None and question in (arguments.question or ()) and arguments.minutes < least:
            parser.error(f"--minutes is {arguments.minutes:g}; {question} needs at least {least:g}")
    if arguments.short and arguments.share < 1:
        parser.error(f"--short is a share of {SHORT_SHARE:g}; --share {arguments.share:g} cannot stand beside it")
    if arguments.short:
        arguments.question, arguments.share, arguments.keep = arguments.question or SHORT, SHORT_SHARE, False
    order = Order(arguments.engine or ENGINES, arguments.share, arguments.seed, arguments.minutes)
    began, load = time.monotonic(), os.getloadavg()[0]

    def print_line(line: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.1f} s  {line}[/]", soft_wrap=True)

    print_line(f"seed {order.seed}, share {order.share:g}, load average {load:.1f}")
    failed: list[Question] = []
    questions: Sequence[Question] = arguments.question or [each for each in QUESTIONS if each not in LONG]
    for question in questions:
        try:
            results = ask(question, order, print_line)
        except EnvironmentFault as fault:
            console.print(f"[red]{question}: {fault}[/]", soft_wrap=True, markup=False)
            failed.append(question)
            continue
        for table in tables.TABLES[question](msgspec.to_builtins(results)):
            console.print(table.for_terminal())
        if faults := [fault for each in results if isinstance(each, hostile.Hostile) for fault in each.faults]:
            console.print(f"{question}: {'; '.join(faults)}", soft_wrap=True, markup=False, style="red")
            failed.append(question)
        if arguments.keep:
            document = {"share": order.share, "seed": order.seed, "load": load, "results": msgspec.to_builtins(results)}
            pages.keep(question, document)
    print_line(f"failed: {', '.join(failed)}" if failed else "done")
    return 1 if failed else 0
