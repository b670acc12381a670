"""`mirrord compact`: moves older runs of the offset map from the ledger into a dataset of Parquet files."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from rich.markup import escape
from rich.table import Table

from mirrord.cli.arguments import Verbs, add_conf, add_some_flows, add_verb, load_conf, some_flows
from mirrord.cli.spark import add_spark, check_topics, spark_settings
from mirrord.cli.tables import count, size
from mirrord.cli.watching import console
from mirrord.ledger.compact import PART_RUNS
from mirrord.ledger.errors import LedgerMissing
from mirrord.model.config import Config, FlowConfig
from mirrord.model.errors import ConfigError
from mirrord.shell.compaction import Compacted, FileWork, Spread, Wanted, compact, write
from mirrord.shell.map_archive import ArchiveFile, writable
from mirrord.shell.observe import PATIENCE_S
from mirrord.shell.supervise import Surroundings

_EPILOG = f"""The ledger's snapshots hold the offset map of all that either cluster still has: one to three bytes for
each gap. Older parts of it are moved into Parquet files below the folder of [compact] path, from where `translate` and
the daemon answer as before. The newest gaps stay in the ledger. Spark writes the files: on this machine, or where
--spark spark.master=... says; the folder has to be the same one everywhere.

Nothing is removed from the ledger before the files are whole and the ledger says so. When it is broken off, the next
run finishes it. A part has {PART_RUNS:,} gaps; --least lets smaller ones go, too.

  mirrord compact conf.toml
  mirrord compact conf.toml --flow eu-us --topics 'orders.*' --spark spark.master=spark://host:7077"""


def register(verbs: Verbs) -> None:
    """Adds the parser."""
    parser = add_verb(verbs, "compact", "Move older parts of the offset map from the ledger into files.", _EPILOG)
    add_conf(parser)
    add_some_flows(parser)
    add_spark(parser)
    parser.add_argument(
        "--least",
        metavar="GAPS",
        type=int,
        default=PART_RUNS,
        help="a partition gives what it has when that is so many; default: %(default)s",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Compacts, and prints what was moved. Raises ConfigError, EnvironmentFault."""
    config = some_flows(load_conf(arguments), arguments)
    settings = spark_settings(arguments)
    wanted = _wanted(arguments)
    if config.compact.path is None:
        raise ConfigError(
            f'{arguments.conf}: [compact] path is missing: a folder for the files, such as path = "/srv/maps"'
        )
    due = [(flow, asyncio.run(_look(config, flow, wanted))) for flow in config.flows]
    writable(Path(config.compact.path))
    with ExitStack() as stack:
        spread: Spread = _here
        if any(runs for _, runs in due):
            from mirrord.jobs.compact import open_spread  # noqa: PLC0415 - Spark is loaded for what needs it

            spread = stack.enter_context(open_spread(settings))
        done = [asyncio.run(_compact(config, flow, wanted, spread)) for flow, runs in due if runs is not None]
    if arguments.json:
        print(msgspec.json.encode({"flows": done}).decode())
    else:
        console().print(_table(done))
    return 0


def _wanted(arguments: argparse.Namespace) -> Wanted:
    check_topics(arguments)
    if arguments.least < 1:
        raise ConfigError(f"--least: found {arguments.least}; allowed: a whole number from 1 on")
    return Wanted(topics=tuple(arguments.topics), least=arguments.least)


def _here(works: Sequence[FileWork]) -> list[ArchiveFile]:
    """Without Spark: what has become due since there was nothing to do."""
    return [write(work) for work in works]


async def _look(config: Config, flow: FlowConfig, wanted: Wanted) -> int | None:
    """How many runs there are to be moved, without moving any; None: the flow has never run."""
    store = Surroundings(config, PATIENCE_S).ledger(flow)
    try:
        await store.open(read_only=True)
    except LedgerMissing:
        return None
    try:
        return sum(part.runs for part in wanted.parts(store.state))
    finally:
        await store.close()


async def _compact(config: Config, flow: FlowConfig, wanted: Wanted, spread: Spread) -> Compacted:
    store = Surroundings(config, PATIENCE_S).ledger(flow)
    await store.open()
    try:
        folder = Path(config.compact.path or "") / flow.name
        return await compact(store, folder, wanted, spread, lambda done, every: _progress(flow.name, done, every))
    finally:
        await store.close()


def _progress(flow: str, done: int, every: int) -> None:
    share = 100 * done // every if every else 100
    print(f"mirrord: {flow}: {share}%: {count(done)} of {count(every)} gaps are written", file=sys.stderr)


def _table(done: Sequence[Compacted]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("flow", "generation"):
        table.add_column(name)
    for name in ("gaps moved", "partitions", "files", "size"):
        table.add_column(name, justify="right")
    table.add_column("remark")
    for each in done:
        remarks = ["" if each.trimmed else "whoever holds the flow's lease trims the ledger"]
        if each.left:
            remarks.append(f"of {each.left} partitions the map was told anew meanwhile: next time")
        numbers = (count(each.runs), count(each.lanes), count(each.files), size(each.size_bytes))
        generation = "-" if each.generation is None else str(each.generation)
        table.add_row(escape(each.flow), generation, *numbers, "; ".join(filter(None, remarks)))
    return table
