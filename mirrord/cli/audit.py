"""`mirrord audit`: is the copy what the ledger says? Compares both clusters, and names differences by their offsets."""

import argparse
import asyncio
import random
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from mirrord.audit.model import Difference, RangeResult
from mirrord.cli.arguments import Verbs, add_conf, add_some_flows, add_verb, load_conf, some_flows
from mirrord.cli.since import since_ms
from mirrord.cli.spark import add_spark, check_topics, spark_settings
from mirrord.cli.tables import count, size
from mirrord.cli.watching import console
from mirrord.ledger.errors import LedgerMissing
from mirrord.model.config import Config
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.shell.audit_plan import FlowPlan, PlannedLane, audit_by_ledger, plan_flow
from mirrord.shell.audit_proof import tell
from mirrord.shell.audit_results import (
    LaneSummary,
    Level,
    RangeKey,
    Results,
    Row,
    proven,
    range_key,
    summary,
)
from mirrord.shell.clock import SystemClock
from mirrord.shell.translating import time_words

LEVELS = ("ledger", "digest", "records")
_KEPT_AT_ONCE = 32
_EPILOG = """Levels: ledger compares what the ledger says with the ends of both logs and reads no record; digest
compares batches by their checksums, and record by record where these prove nothing; records decodes every record.
Audited is what the ledger says is copied, while traffic flows. What retention, compaction and verdicts of the ledger
explain is no difference. digest and records run on Spark: on this machine, or where --spark spark.master=... says.

Exit code 3 when there is a difference.

  mirrord audit conf.toml --level ledger
  mirrord audit conf.toml --topics 'orders.*' --since 24h --out audit"""


Key = tuple[str, str]
"""Flow and lane."""


class LaneDifference(msgspec.Struct, frozen=True):
    """A difference, with its place."""

    flow: str
    topic: str
    partition: int
    target_topic: str
    difference: Difference


def register(verbs: Verbs) -> None:
    """Adds the parser."""
    parser = add_verb(verbs, "audit", "Compare the copy with the source, and name each difference.", _EPILOG)
    add_conf(parser)
    parser.add_argument("--level", choices=LEVELS, default="digest", help="how closely; default: digest")
    add_some_flows(parser)
    when = "only what the source holds since then: a time such as 2026-01-31T12:00:00Z, or so long ago, such as 24h"
    parser.add_argument("--since", metavar="WHEN", help=when)
    parser.add_argument(
        "--sample", metavar="SHARE", type=float, default=1.0, help="only so many of the ranges, such as 0.1"
    )
    parser.add_argument("--out", metavar="FOLDER", help="keep the results there, as Parquet files")
    parser.add_argument(
        "--resume", metavar="FOLDER", help="go on with an audit that was broken off, and keep results there"
    )
    add_spark(parser)
    parser.add_argument("--again", action="store_true", help="also what earlier audits have proven")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Audits, and prints the sums. Raises ConfigError, EnvironmentFault."""
    config = some_flows(load_conf(arguments), arguments)
    begin_ms = since_ms(arguments.since)
    settings = _settings(arguments)
    results = Results(Path(arguments.resume or arguments.out)) if arguments.resume or arguments.out else None
    known = results.known(arguments.level) if results and arguments.resume else {}
    plans = [plan for plan in (_plan(config, flow.name, arguments, begin_ms) for flow in config.flows) if plan]
    found = _audit(config, plans, arguments, settings, results, known)
    sums = [
        summary(plan, lane, found.get((plan.flow, lane.lane), []), level=arguments.level)
        for plan in plans
        for lane in plan.lanes
    ]
    differences = list(_differences(plans, found))
    if arguments.json:
        document = {"level": arguments.level, "partitions": sums, "differences": differences}
        print(msgspec.json.encode(document).decode())
    else:
        console().print(_tables(sums, differences))
    if arguments.level != "ledger":
        _tell(config, plans, found, arguments.level)
    return 3 if any(each.differences for each in sums) else 0


def _settings(arguments: argparse.Namespace) -> dict[str, str]:
    """Spark's, by the command line; with what else can be wrong there. Raises ConfigError."""
    if not 0 < arguments.sample <= 1:
        raise ConfigError(f"--sample: found {arguments.sample:g}; allowed: a share above 0 and up to 1, such as 0.1")
    if arguments.level == "ledger" and (arguments.sample < 1 or arguments.spark):
        option = "--spark" if arguments.spark else "--sample"
        raise ConfigError(f"{option} has no meaning beside --level ledger, which reads no record and needs no Spark")
    if arguments.resume and arguments.out:
        raise ConfigError("--out has no meaning beside --resume, which names the folder")
    check_topics(arguments)
    return spark_settings(arguments)


def _tell(config: Config, plans: Sequence[FlowPlan], found: dict[Key, list[RangeResult]], level: Level) -> None:
    """Let the ledger know what is proven. An audit that could not is an audit all the same."""
    for plan in plans:
        told = [
            fact
            for lane in plan.lanes
            if (fact := proven(lane, found.get((plan.flow, lane.lane), []), level, SystemClock().wall_ms()))
        ]
        if not told:
            continue
        try:
            asyncio.run(tell(config, config.flow(plan.flow), plan, told))
        except EnvironmentFault as fault:
            line = f"what is proven of {plan.flow} is not kept, so the next audit reads it again: {fault}"
            print(f"mirrord: {line}", file=sys.stderr)


def _plan(config: Config, flow: str, arguments: argparse.Namespace, begin_ms: int | None) -> FlowPlan | None:
    wanted = (config, config.flow(flow), arguments.level, arguments.topics, begin_ms)
    try:
        return asyncio.run(plan_flow(*wanted, again=arguments.again))
    except LedgerMissing:
        return None  # it has never run, so nothing is copied


def _audit(
    config: Config,
    plans: Sequence[FlowPlan],
    arguments: argparse.Namespace,
    settings: dict[str, str],
    results: Results | None,
    known: Mapping[RangeKey, RangeResult],
) -> dict[Key, list[RangeResult]]:
    """All results by flow and lane, kept on the way; `known` are those of an audit that was broken off."""
    found: dict[Key, list[RangeResult]] = {}
    for plan in plans:
        for lane in plan.lanes:
            done = [known.get(range_key(plan.flow, wanted)) for wanted in lane.ranges]
            found[plan.flow, lane.lane] = [result for result in done if result is not None]
    fresh = _fresh(config, [_left(plan, known) for plan in plans], arguments, settings)
    lanes = {(plan.flow, lane.lane): lane for plan in plans for lane in plan.lanes}
    ranges = {(key, wanted.first): wanted for key, lane in lanes.items() for wanted in lane.ranges}
    rows: list[Row] = []
    try:
        for flow, result in fresh:
            found[flow, result.lane].append(result)
            audited = lanes[flow, result.lane].audited
            rows.append(
                Row(
                    flow=flow,
                    source=audited.source,
                    target_topic=audited.target.topic,
                    level=arguments.level,
                    audited_at_ms=SystemClock().wall_ms(),
                    wanted=ranges[(flow, result.lane), result.first],
                    result=result,
                )
            )
            if results is not None and len(rows) >= _KEPT_AT_ONCE:
                results.write(rows)
                rows = []
    finally:
        # Also when it is broken off: --resume goes on behind it.
        if results is not None:
            results.write(rows)
    return found


def _left(plan: FlowPlan, known: Collection[RangeKey]) -> FlowPlan:
    """Without what is known."""

    def left(lane: PlannedLane) -> PlannedLane:
        ranges = tuple(wanted for wanted in lane.ranges if range_key(plan.flow, wanted) not in known)
        return msgspec.structs.replace(lane, ranges=ranges)

    return msgspec.structs.replace(plan, lanes=tuple(map(left, plan.lanes)))


def _fresh(
    config: Config, plans: Sequence[FlowPlan], arguments: argparse.Namespace, settings: dict[str, str]
) -> Iterator[tuple[str, RangeResult]]:
    if arguments.level == "ledger":
        for plan in plans:
            for lane in plan.lanes:
                for result in audit_by_ledger(lane):
                    yield plan.flow, result
        return
    from mirrord.jobs.audit import audit, works  # noqa: PLC0415 - Spark is loaded for what needs it

    wanted = [work for plan in plans for work in works(plan)]
    if arguments.sample < 1:
        some = max(1, round(len(wanted) * arguments.sample))
        wanted = random.sample(wanted, min(some, len(wanted)))
    for each in audit(config.clusters, wanted, settings, by_records=arguments.level == "records"):
        yield each.flow, each.result


def _differences(plans: Iterable[FlowPlan], found: dict[Key, list[RangeResult]]) -> Iterator[LaneDifference]:
    for plan in plans:
        for lane in plan.lanes:
            source, target = lane.audited.source, lane.audited.target
            for result in sorted(found.get((plan.flow, lane.lane), []), key=lambda each: each.first):
                for difference in result.compared.differences:
                    yield LaneDifference(plan.flow, source.topic, source.partition, target.topic, difference)


_SHOWN = 100


def _tables(sums: Sequence[LaneSummary], differences: Sequence[LaneDifference]) -> RenderableType:
    table = _table(
        "flow", "partition", "result", "explained", "proven up to",
        numbers=("records", "equal", "read"), behind=("remark",),
    )  # fmt: skip
    for each in sums:
        wrong = ", ".join(f"{number} {kind}" for kind, number in each.differences.items())
        result = f"[bold red]{wrong}[/]" if wrong else "-" if each.skipped else "[green]no difference[/]"
        proven = "-" if each.proven_to is None else str(each.proven_to)
        if each.proven_ms is not None:
            proven += f" ({time_words(each.proven_ms)})"
        table.add_row(
            escape(each.flow),
            escape(f"{each.topic}-{each.partition}"),
            result,
            ", ".join(f"{number} {cause}" for cause, number in each.explained.items()) or "-",
            proven,
            count(each.records),
            count(each.equal),
            size(each.read_bytes),
            escape(each.skipped),
        )
    if not differences:
        return Group(table)
    places = _table("partition", "difference", numbers=("records", "source offset", "target offset"))
    for each in differences[:_SHOWN]:
        found = each.difference
        name = escape(f"{each.topic}-{each.partition}")
        numbers = (str(found.length), *(_offsets(start, found.length) for start in (found.source, found.target)))
        places.add_row(name, f"[bold red]{found.kind}[/]", *numbers)
    left = len(differences) - _SHOWN
    more = [f"and {left} more; --json tells all"] if left > 0 else []
    return Group(table, "", places, *more)


def _offsets(start: int | None, length: int) -> str:
    if start is None:
        return "-"
    return str(start) if length == 1 else f"{start} to {start + length - 1}"


def _table(*names: str, numbers: Sequence[str] = (), behind: Sequence[str] = ()) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in names:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    for name in behind:
        table.add_column(name)
    return table
