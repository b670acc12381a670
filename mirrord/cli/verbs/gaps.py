"""`mirrord gaps`: shows exactly which source offsets were not copied, and why. With `--foreign`, it instead shows the
target offsets of records that other clients wrote. Only the target cluster is read."""

import argparse
import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import msgspec
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from mirrord.cli.arguments import Verbs, add_conf, add_flow, add_verb, load_conf
from mirrord.cli.number_formats import count
from mirrord.cli.printing import print_remarks
from mirrord.cli.since import since_ms
from mirrord.cli.status_watch import console
from mirrord.config.schema import Config, FlowConfig
from mirrord.ledger.errors import LedgerMissing
from mirrord.ledger.facts.core import LOSSES, Reason
from mirrord.ledger.foreign_writes import foreign_counts, foreign_ranges
from mirrord.ledger.gaps import Gap
from mirrord.ledger.source_ends import unopened_losses
from mirrord.ledger.standing_orders import moment
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.history import LedgerReading, read_gaps
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.ledger.store.spill_file import run_memory
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import ConfigError
from mirrord.model.names import LaneId
from mirrord.operations.hazard_survey import read_state
from mirrord.replication.dead_letters.records import Returned
from mirrord.replication.dead_letters.replayed import brought_back
from mirrord.runtime.clock import SystemClock

_EPILOG = """Without --all, only verdicts that need attention are listed: losses (expired, truncated, recreated,
rejected, skipped, unexplained) and duplicates (doubled). No daemon needs to be running. If the ledger has been trimmed,
it still has the newest ranges of each partition, but no longer the times at which they were recorded. Such ranges are
listed regardless of --since. If rejected records have been brought back (`mirrord quarantine replay`), the output shows
where they are. If thousands of topics with losses were deleted on both clusters, only the total is known for the oldest
of them; it is listed without --since. Exit code 3: a loss is listed.

With --foreign, the command lists target offsets instead: those that other clients wrote between the copied records,
including transaction markers. Records before the first copied record are not listed, because they were there before the
flow started. Records after the last copied record are listed once the next record is copied. These records cause no
loss, but readers of the target topic see them.

  mirrord gaps conf.toml --since 24h"""

_TELLING: tuple[Reason, ...] = (*LOSSES, "doubled")


class GapLine(msgspec.Struct, frozen=True):
    """A range of source offsets on which the ledger has a verdict, as `mirrord gaps` prints it."""

    flow: str
    topic: str
    partition: int
    start: int
    end: int
    reason: Reason
    at_ms: int | None
    brought_back: tuple[Returned, ...] = ()
    """The records in the range that `mirrord quarantine replay` has appended to the target, with their target
    positions."""


class ForgottenLine(msgspec.Struct, frozen=True):
    """The number of source offsets that were lost for one reason in topics that were deleted on both clusters long ago.
    The ledger no longer contains their names and ranges."""

    flow: str
    reason: Reason
    offsets: int


class ForeignLine(msgspec.Struct, frozen=True):
    """A range of target offsets whose records another client wrote, as `mirrord gaps --foreign` prints it."""

    flow: str
    target_topic: str
    partition: int
    start: int
    end: int


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord gaps`."""
    parser = add_verb(verbs, "gaps", "Show which source offsets were not copied, and why.", _EPILOG)
    add_conf(parser)
    add_flow(parser)
    when = "only verdicts recorded from this time on, such as 2026-01-31T12:00:00Z, or 24h for the last 24 hours"
    parser.add_argument("--since", metavar="WHEN", help=when)
    parser.add_argument(
        "--all",
        action="store_true",
        help="also list gaps that need no attention: markers, aborted, compacted, filtered",
    )
    parser.add_argument("--foreign", action="store_true", help="list what other clients wrote to the target partitions")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Print the ranges of all selected flows. Raises ConfigError or EnvironmentFault."""
    if arguments.foreign and (arguments.all or arguments.since is not None):
        raise ConfigError("--foreign lists all known target offsets: it cannot be combined with --all or --since")
    config = load_conf(arguments)
    flows = config.flows if arguments.flow is None else (config.flow(arguments.flow),)
    begin_ms = since_ms(arguments.since)
    if arguments.foreign:
        _print_foreign([line for flow in flows for line in _foreign(config, flow)], as_json=arguments.json)
        return 0
    found = [asyncio.run(_read(config, flow)) for flow in flows]
    shown = [
        line
        for lines, _ in found
        for line in lines
        if (arguments.all or line.reason in _TELLING)
        and (begin_ms is None or line.at_ms is None or line.at_ms >= begin_ms)
    ]
    totals = [line for _, lines in found for line in lines] if begin_ms is None else []
    if arguments.json:
        print(msgspec.json.encode({"gaps": shown, "forgotten": totals}).decode())
    else:
        console().print(_table(shown, totals))
    return 3 if totals or any(line.reason in LOSSES for line in shown) else 0


async def _read(config: Config, flow: FlowConfig) -> tuple[list[GapLine], list[ForgottenLine]]:
    reading = LedgerReading(KafkaLog(flow.name, config.clusters[flow.target]), run_memory(flow))
    try:
        gaps = await read_gaps(reading)
    except LedgerMissing:
        return [], []
    returned, trouble = await brought_back(config, flow, reading.state)
    if trouble:
        print_remarks([trouble])
    lanes = reading.state.lanes
    unopened = [
        GapLine(flow.name, lost.topic, lost.partition, lost.start, lost.end, "recreated", lost.at_ms)
        for lost in unopened_losses(reading.state)
    ]
    lines = [*(_line(flow.name, gap, reading.state, returned) for gap in gaps if gap.lane in lanes), *unopened]
    totals = [ForgottenLine(flow.name, reason, lost) for reason, lost in sorted(reading.state.forgotten_losses.items())]
    return lines, totals


def _foreign(config: Config, flow: FlowConfig) -> Iterator[ForeignLine]:
    try:
        state = asyncio.run(read_state(flow, partial(_store, config)))
    except LedgerMissing:
        return
    for lane_id in foreign_counts(state):
        lane = state.lanes[lane_id]
        for start, end in foreign_ranges(state, lane_id):
            yield ForeignLine(flow.name, lane.target_topic, lane.partition, start, end)


def _store(config: Config, flow: FlowConfig) -> LedgerStore:
    return LedgerStore(KafkaLog(flow.name, config.clusters[flow.target]), SystemClock(), memory=run_memory(flow))


def _line(flow: str, gap: Gap, state: FlowState, returned: Mapping[LaneId, Sequence[Returned]]) -> GapLine:
    lane = state.lanes[gap.lane]
    back = returned.get(gap.lane, ()) if gap.reason == "rejected" else ()
    back = tuple(each for each in back if gap.start <= each.offset < gap.end)
    return GapLine(flow, lane.source_topic, lane.partition, gap.start, gap.end, gap.reason, gap.at_ms, back)


def _print_foreign(lines: Sequence[ForeignLine], *, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode({"foreign": lines}).decode())
        return
    if not lines:
        console().print("no other client is known to have written between the copies")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("flow", "target partition", "from", "to", "offsets"):
        table.add_column(heading, justify="right" if heading in {"from", "to", "offsets"} else "left")
    for line in sorted(lines, key=lambda each: (each.flow, each.target_topic, each.partition, each.start)):
        numbers = (str(line.start), str(line.end), count(line.end - line.start))
        table.add_row(escape(line.flow), escape(f"{line.target_topic}-{line.partition}"), *numbers)
    console().print(table)


def _table(lines: Sequence[GapLine], totals: Sequence[ForgottenLine]) -> Group:
    former = [
        f"{escape(each.flow)}: {count(each.offsets)} source offsets of topics that were deleted long ago: "
        f"[bold red]{each.reason}[/]"
        for each in totals
    ]
    if not lines:
        return Group(*(former or ["nothing is known to be missing"]))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("flow", "partition", "from", "to", "offsets", "why", "recorded"):
        table.add_column(heading, justify="right" if heading in {"from", "to", "offsets"} else "left")
    for line in sorted(lines, key=lambda each: (each.flow, each.topic, each.partition, each.start)):
        why = f"[bold red]{line.reason}[/]" if line.reason in LOSSES else line.reason
        when = "-" if line.at_ms is None else moment(line.at_ms)
        name = escape(f"{line.topic}-{line.partition}")
        numbers = (str(line.start), str(line.end), count(line.end - line.start))
        table.add_row(escape(line.flow), name, *numbers, why, when)
    back = [
        escape(f"{line.topic}-{line.partition} of {line.flow}: brought back: {each}")
        for line in lines
        for each in line.brought_back
    ]
    return Group(table, *(["", *back] if back else []), *(["", *former] if former else []))
