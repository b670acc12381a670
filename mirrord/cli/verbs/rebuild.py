"""`mirrord rebuild`: rebuilds a lost ledger from the records on both clusters."""

import argparse
import asyncio
from collections.abc import Sequence

import msgspec
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from mirrord.audit.ledger_rebuild import FlowRebuilt, apply, find_positions
from mirrord.audit.lost_ledger import lost
from mirrord.cli.arguments import Verbs, add_conf, add_some_flows, add_verb, load_conf, some_flows
from mirrord.cli.number_formats import count
from mirrord.cli.status_watch import console
from mirrord.config.schema import Config
from mirrord.model.errors import ConfigError

_EPILOG = """Use this command if the topics of a ledger have been deleted, or have lost some of their content. It finds
the source of each record in the target partitions: by batch headers, or one by one where batches were split, rebuilt or
recompressed. Afterwards, the offset map is as it was, and partitions resume where they were, so that each record is
copied once. Without --apply, the command only shows what it would do. With --apply it takes at least lease_ttl +
request_timeout. Stop the daemon first.

The position of a partition is never guessed. If it cannot be determined with certainty, the partition is paused, and
its line says why. After `mirrord resume`, such a partition begins like a new one. Everything else in the old ledger is
lost: operator commands, decisions on individual records, what audits have proven, and which ACLs and configs mirrord
had synced. See docs/how-to/rebuild-a-ledger.md.

Exit code 3: a partition is refused.

  mirrord rebuild conf.toml
  mirrord rebuild conf.toml --apply"""


class LaneLine(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the rebuild for one partition, as `mirrord rebuild` prints it."""

    flow: str
    topic: str
    partition: int
    target_topic: str
    outcome: str
    records: int = 0
    expired: int = 0
    left_out: int = 0
    again: int = 0
    """Number of records that the target refused and has not accepted since. The daemon copies them again after its next
    start."""
    source_offset: int | None = None
    target_offset: int | None = None
    producer_id: int | None = None
    why: str = ""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord rebuild`."""
    parser = add_verb(verbs, "rebuild", "Rebuild a lost ledger from the records of both clusters.", _EPILOG)
    add_conf(parser)
    add_some_flows(parser)
    parser.add_argument(
        "--apply", action="store_true", help="rebuild the ledger; by default, only show what would be done"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Print the position of each partition in the rebuilt ledger and, with `--apply`, write this ledger. Raises
    ConfigError or EnvironmentFault."""
    config = some_flows(load_conf(arguments), arguments)
    found = asyncio.run(_find_positions(config))
    lines = [line for each in found for line in _lines(each)]
    if not arguments.json:
        console().print(_table(found, lines))
    if arguments.apply:
        asyncio.run(_apply(config, found))
    if arguments.json:
        document = {"applied": arguments.apply, "lost": {each.flow: each.lost for each in found}, "partitions": lines}
        print(msgspec.json.encode(document).decode())
    else:
        print("the ledger has been rebuilt" if arguments.apply else "nothing has been done yet: --apply does it")
    return 3 if any(line.outcome == "refused" for line in lines) else 0


async def _find_positions(config: Config) -> list[FlowRebuilt]:
    why = {flow.name: await lost(config, flow) for flow in config.flows}
    if not any(why.values()):
        plural = "s of" if len(why) > 1 else " of"
        raise ConfigError(f"the ledger{plural} {', '.join(why)} is whole: there is nothing to rebuild")
    return [await find_positions(config, flow, why[flow.name]) for flow in config.flows if why[flow.name]]


async def _apply(config: Config, found: Sequence[FlowRebuilt]) -> None:
    for each in found:
        await apply(config, config.flow(each.flow), each)


def _lines(found: FlowRebuilt) -> list[LaneLine]:
    lines: list[LaneLine] = []
    for lane in found.lanes:
        line = LaneLine(
            flow=found.flow,
            topic=lane.planned.source_topic,
            partition=lane.planned.key.partition,
            target_topic=lane.planned.target_topic,
            outcome=lane.outcome,
            why=lane.why,
        )
        reconstructed = lane.reconstructed
        if reconstructed is not None:
            line = msgspec.structs.replace(
                line,
                records=reconstructed.records,
                expired=reconstructed.expired,
                left_out=reconstructed.left_out,
                again=reconstructed.until - reconstructed.ordinal,
                source_offset=reconstructed.source_offset,
                target_offset=reconstructed.target_offset,
                producer_id=lane.producer[0],
            )
        lines.append(line)
    return lines


def _table(found: Sequence[FlowRebuilt], lines: Sequence[LaneLine]) -> RenderableType:
    headings = [f"{each.flow}: {each.lost}" for each in found]
    if not lines:
        return Group(*map(escape, headings), "none of its partitions has a copy")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("flow", "partition", "result"):
        table.add_column(name)
    for name in ("records found", "resumes at", "after target offset"):
        table.add_column(name, justify="right")
    table.add_column("remark")
    for line in lines:
        result = {"rebuilt": "[green]as it was[/]", "new": "begins", "refused": "[bold red]refused[/]"}[line.outcome]
        offsets = ["-" if each is None else str(each) for each in (line.source_offset, line.target_offset)]
        name = escape(f"{line.topic}-{line.partition}")
        table.add_row(escape(line.flow), name, result, count(line.records), *offsets, escape(_remark(line)))
    return Group(*map(escape, headings), table)


def _remark(line: LaneLine) -> str:
    parts = [line.why]
    if line.expired:
        parts.append(f"{count(line.expired)} more have been deleted on the source")
    if line.left_out:
        parts.append(f"{count(line.left_out)} were not copied; the reason was lost")
    if line.again:
        parts.append(f"{count(line.again)} that the target has refused are copied again")
    return "; ".join(filter(None, parts))
