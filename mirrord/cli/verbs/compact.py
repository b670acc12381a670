"""`mirrord compact`: moves older runs of the offset map from the ledger to a dataset of Parquet files."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.markup import escape
from rich.table import Table

from mirrord.cli.arguments import Verbs, add_conf, add_some_flows, add_verb, load_conf, some_flows
from mirrord.cli.number_formats import count, size
from mirrord.cli.progress import ProgressLine
from mirrord.cli.spark import add_spark, check_topics, spark_settings
from mirrord.cli.status_watch import console
from mirrord.jobs.flow_compaction import compact_flows, moved_line
from mirrord.ledger.compaction_plan import PART_RUNS
from mirrord.ledger.store.compaction import Compacted, RunSelection
from mirrord.ledger.store.job_lease import JobLease
from mirrord.ledger.store.run_archive import writable
from mirrord.model.errors import ConfigError

_EPILOG = f"""The ledger's snapshots hold the offset map of all records that either cluster still has. This takes one to
three bytes for each gap. A compaction moves older parts of the map into Parquet files below the folder that `path` in
[compact] names. `translate` and the daemon then read these parts from the files, and give the same answers as before.
The newest gaps stay in the ledger. Spark writes the files, on this machine or on the cluster that --spark
spark.master=... names. All machines must use the same folder.

Nothing is removed from the ledger until the files are complete and the ledger records that they are. If a compaction
is interrupted, the next one completes it. A part has {PART_RUNS:,} gaps; with --least, smaller parts are moved as well.

  mirrord compact conf.toml
  mirrord compact conf.toml --flow eu-us --topics 'orders.*' --spark spark.master=spark://host:7077"""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord compact`."""
    parser = add_verb(verbs, "compact", "Move older parts of the offset map from the ledger into files.", _EPILOG)
    add_conf(parser)
    add_some_flows(parser)
    add_spark(parser)
    parser.add_argument(
        "--least",
        metavar="GAPS",
        type=int,
        default=PART_RUNS,
        help="minimum number of gaps of a partition that are moved together; default: %(default)s",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Compact the flows' ledgers, and print how many runs were moved. Raises ConfigError or EnvironmentFault."""
    config = some_flows(load_conf(arguments), arguments)
    settings = spark_settings(arguments, config.compact.spark)
    wanted = _wanted(arguments)
    if config.compact.path is None:
        raise ConfigError(
            f'{arguments.conf}: [compact] path is missing: a folder for the files, such as path = "/srv/maps"'
        )
    writable(Path(config.compact.path))
    with JobLease(config, "compact") as lease, ProgressLine("compaction") as line:

        def report(_: str, moved: int, every: int) -> None:
            line.show(moved, every, "gaps are written")
            lease.progress(moved, every)

        done = compact_flows(config, Path(config.compact.path), wanted, settings, report)
        for each in done:
            lease.set_outcome(each.flow, "done", moved_line([each]))
    if arguments.json:
        print(msgspec.json.encode({"flows": done}).decode())
    else:
        console().print(_table(done))
    return 0


def _wanted(arguments: argparse.Namespace) -> RunSelection:
    check_topics(arguments)
    if arguments.least < 1:
        raise ConfigError(f"--least: found {arguments.least}; allowed: a whole number from 1 on")
    return RunSelection(topics=tuple(arguments.topics), least=arguments.least)


def _table(done: Sequence[Compacted]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("flow", "generation"):
        table.add_column(name)
    for name in ("gaps moved", "partitions", "files", "size"):
        table.add_column(name, justify="right")
    table.add_column("remark")
    for each in done:
        remarks = ["" if each.trimmed else "the holder of the flow's lease trims the ledger"]
        if each.left:
            remarks.append(f"the maps of {each.left} partitions were replaced in the meantime: moved next time")
        numbers = (count(each.runs), count(each.lanes), count(each.files), size(each.size_bytes))
        generation = "-" if each.generation is None else str(each.generation)
        table.add_row(escape(each.flow), generation, *numbers, "; ".join(filter(None, remarks)))
    return table
