"""`mirrord divergence`: shows the records that exist only on the source or only on the target. An operator uses it
after a failover, to prepare the return to the source cluster."""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from mirrord.audit.divergence_file import AtomicParquetFile
from mirrord.audit.divergence_scan import Diverging, diverge
from mirrord.cli.arguments import Verbs, add_conf, add_some_flows, add_verb, load_conf, some_flows
from mirrord.cli.number_formats import count
from mirrord.cli.since import since_ms
from mirrord.cli.spark import check_topics
from mirrord.cli.status_watch import console
from mirrord.config.schema import Config

_EPILOG = """The records are found with the exact offset map. On the source, these are records that have not been copied
yet (pending, or not begun for a whole partition) and records that were skipped (filtered, rejected, skipped,
unexplained). On the target, these are records that other clients wrote (foreign), between the copied records and after
them. After a failover, the command therefore shows the records that applications have written on the target, and those
from the source that never arrived. Stop the daemon first: records that it copies in the meantime are reported as
pending. If two flows copy topics with the same names both ways, each flow reports only the records of its own source.

With --out, the records themselves are kept in one Parquet file. Exit code 3: there are such records.

  mirrord divergence conf.toml --since 2026-01-31T12:00:00Z
  mirrord divergence conf.toml --topics 'orders.*' --out diverged"""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord divergence`."""
    parser = add_verb(verbs, "divergence", "Show records that exist on only one side.", _EPILOG)
    add_conf(parser)
    add_some_flows(parser)
    parser.add_argument(
        "--topics", metavar="REGEX", action="append", default=[], help="only source topics that match; may be repeated"
    )
    when = "begin at the first record from this time on, such as 2026-01-31T12:00:00Z, or 24h for the last 24 hours"
    parser.add_argument("--since", metavar="WHEN", help=when)
    parser.add_argument(
        "--out", metavar="FOLDER", help="keep the records in this folder, in the file divergence.parquet"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Read both logs, and print the offset ranges whose records exist only on the source or only on the target. Raises
    ConfigError or EnvironmentFault."""
    config = some_flows(load_conf(arguments), arguments)
    check_topics(arguments)
    begin_ms = since_ms(arguments.since)
    rows = AtomicParquetFile(Path(arguments.out)) if arguments.out else None
    try:
        found = asyncio.run(_diverge(config, arguments.topics, begin_ms, rows))
        if rows is not None:
            rows.finish()
    finally:
        if rows is not None:
            rows.drop()
    if arguments.json:
        print(msgspec.json.encode({"divergence": found}).decode())
    else:
        console().print(_table(found, are_all=begin_ms is None))
    return 3 if found else 0


async def _diverge(
    config: Config, topics: Sequence[str], begin_ms: int | None, rows: AtomicParquetFile | None
) -> list[Diverging]:
    return [each for flow in config.flows for each in await diverge(config, flow, topics, begin_ms, rows)]


def _table(found: Sequence[Diverging], *, are_all: bool) -> RenderableType:
    if not found:
        return "nothing exists on one side only"
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("flow", "only on the", "partition", "why"):
        table.add_column(name)
    for name in ("records", "from", "to"):
        table.add_column(name, justify="right")
    for each in found:
        name = escape(f"{each.topic}-{each.partition}")
        numbers = (count(each.records), str(each.start), str(each.end))
        why = f"not begun: all {count(each.records)} records" if each.why == "not begun" and are_all else each.why
        table.add_row(escape(each.flow), each.side, name, why, *numbers)
    return table
