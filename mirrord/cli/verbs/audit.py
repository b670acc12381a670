"""`mirrord audit`: compares source and target, checks whether the copy matches the ledger, and reports each difference
with its offsets."""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from mirrord.audit.atomic_file import write_whole
from mirrord.audit.result_files import Results
from mirrord.audit.rules.html_report import page
from mirrord.audit.rules.results import LaneDifference, LaneRepaired, LaneSummary
from mirrord.audit.rules.summary import is_bad, lane_result
from mirrord.cli.arguments import Verbs, add_conf, add_some_flows, add_verb, load_conf, some_flows
from mirrord.cli.number_formats import count, size
from mirrord.cli.printing import print_remarks
from mirrord.cli.progress import ProgressLine
from mirrord.cli.since import since_ms
from mirrord.cli.spark import add_spark, check_topics, spark_settings
from mirrord.cli.status_watch import console
from mirrord.config.schema import Config
from mirrord.config.units import rate_bytes_per_s
from mirrord.groups.offset_translation_queries import format_time
from mirrord.jobs.audit_run import Audit, AuditOrder, AuditProgress
from mirrord.ledger.store.job_lease import JobLease, JobNotRecorded
from mirrord.model.errors import ConfigError

LEVELS = ("ledger", "digest", "records")
_EPILOG = """The level `ledger` compares the ledger with the ends of both logs, and reads no records. `digest` compares
batches by their checksums, and record by record where checksums prove nothing. `records` decodes every record. The
audit compares what, according to the ledger, has been copied, and can run while records are being copied. A deviation
that is explained by retention, compaction or a verdict in the ledger is not a difference. `digest` and `records` run on
Spark, on this machine or on the cluster that --spark spark.master=... names.

All partitions that the configuration selects are audited. If none of a partition's records have been copied, this is a
difference. If only part of a partition is compared because of --sample or --since, the result says so.

Exit code 3: there is a difference or a loss (mirrord gaps), or a flow has no ledger.

  mirrord audit conf.toml --level ledger
  mirrord audit conf.toml --topics 'orders.*' --since 24h --out audit"""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord audit`."""
    parser = add_verb(verbs, "audit", "Compare the copy with the source, and name each difference.", _EPILOG)
    add_conf(parser)
    parser.add_argument("--level", choices=LEVELS, default="digest", help="how closely to compare; default: digest")
    add_some_flows(parser)
    when = "only source records from this time on, such as 2026-01-31T12:00:00Z, or 24h for the last 24 hours"
    parser.add_argument("--since", metavar="WHEN", help=when)
    parser.add_argument(
        "--sample", metavar="SHARE", type=float, default=1.0, help="only this share of the ranges, such as 0.1"
    )
    parser.add_argument("--out", metavar="FOLDER", help="keep the results in this folder, as Parquet files")
    parser.add_argument(
        "--resume", metavar="FOLDER", help="continue an interrupted audit, and keep the results in its folder"
    )
    add_spark(parser)
    parser.add_argument(
        "--html", metavar="FILE", help="write a report with plots to this file; with --out, it includes earlier audits"
    )
    parser.add_argument(
        "--rate", metavar="RATE", help="read at most this much from both clusters together, such as 50MB/s"
    )
    parser.add_argument("--again", action="store_true", help="also audit ranges that earlier audits have proven")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Run the audit, print its result and return the exit code. Raises ConfigError or EnvironmentFault."""
    config = some_flows(load_conf(arguments), arguments)
    order = _order(arguments, config)
    results = Results(Path(arguments.resume or arguments.out)) if arguments.resume or arguments.out else None
    audit = Audit(config, order)
    known = results.known(order.level) if results and arguments.resume else {}
    if results is not None:
        results.begin()
    with ExitStack() as stack:
        # An audit at the `ledger` level reads no records. It is too short to keep other jobs waiting, so it needs no
        # lease.
        lease = _lease(config, stack) if order.level != "ledger" else None
        with ProgressLine("audit") as shown:
            audit.run(results, known, lambda progress: _show_progress(progress, shown, lease))
        lines = audit.record_proofs()
        for flow in config.flows:
            if lease is not None:
                lease.set_outcome(flow.name, *audit.outcome(flow.name))
    sums, differences, repaired = audit.sums(), list(audit.differences()), list(audit.repaired())
    if arguments.html:
        write_whole(Path(arguments.html), page(audit.report(results)))
    if arguments.json:
        document = {
            "level": order.level,
            "reader_cpu_s": round(audit.cpu_s, 3),
            "partitions": sums,
            "differences": differences,
            "repaired": repaired,
            "troubles": audit.troubles(),
        }
        print(msgspec.json.encode(document).decode())
    else:
        console().print(_tables(sums, differences))
        for each in repaired[:_SHOWN]:
            console().print(escape(_describe_repaired(each)))
        if len(repaired) > _SHOWN:
            console().print(f"and {len(repaired) - _SHOWN} more; --json lists all")
    troubles = audit.troubles()
    print_remarks((*lines, *troubles))
    return 3 if troubles or any(map(is_bad, sums)) else 0


def _lease(config: Config, stack: ExitStack) -> JobLease | None:
    """Acquire the lease that keeps other audits from running. Return None if the ledger cannot be written to; the audit
    then runs without a lease. Raises EnvironmentFault."""
    try:
        return stack.enter_context(JobLease(config, "audit"))
    except JobNotRecorded as fault:
        print_remarks([f"other processes cannot see that an audit is running: {fault}"])
        return None


def _show_progress(progress: AuditProgress, line: ProgressLine, lease: JobLease | None) -> None:
    line.show(progress.ranges, progress.every, "ranges", f"{size(progress.read_bytes)} read")
    if lease is not None:
        lease.progress(progress.ranges, progress.every)


def _order(arguments: argparse.Namespace, config: Config) -> AuditOrder:
    """Return the options of the audit, as specified by the command-line arguments. Raises ConfigError."""
    begin_ms = since_ms(arguments.since)
    if not 0 < arguments.sample <= 1:
        raise ConfigError(f"--sample: found {arguments.sample:g}; allowed: a share above 0 and up to 1, such as 0.1")
    idle = {"--sample": arguments.sample < 1, "--spark": arguments.spark, "--rate": arguments.rate}
    if arguments.level == "ledger" and any(idle.values()):
        option = next(name for name, given in idle.items() if given)
        raise ConfigError(f"{option} has no effect with --level ledger, which reads no records and needs no Spark")
    if arguments.resume and arguments.out:
        raise ConfigError("--out cannot be combined with --resume, which names the folder")
    check_topics(arguments)
    return AuditOrder(
        level=arguments.level,
        topics=tuple(arguments.topics),
        since_ms=begin_ms,
        again=arguments.again,
        sample=arguments.sample,
        spark=spark_settings(arguments, config.audit.spark),
        rate_bytes_per_s=_rate(arguments.rate),
    )


def _rate(given: str | None) -> int | None:
    try:
        return None if given is None else rate_bytes_per_s(given)
    except ValueError as rule:
        raise ConfigError(f'--rate: found "{given}"; allowed: {rule}') from None


_SHOWN = 100
_UNDECIDED = "{:,} records are undecided until open transactions of other clients on the target end"


def _tables(sums: Sequence[LaneSummary], differences: Sequence[LaneDifference]) -> RenderableType:
    table = _table(
        "flow", "partition", "result", "explained", "proven up to",
        numbers=("records", "equal", "read"), behind=("remark",),
    )  # fmt: skip
    for each in sums:
        found = lane_result(each)
        colour = "bold red" if found.is_bad else "yellow" if found.is_partial else "green"
        proven = "-" if each.proven_to is None else str(each.proven_to)
        if each.proven_ms is not None:
            proven += f" ({format_time(each.proven_ms)})"
        table.add_row(
            escape(each.flow),
            escape(f"{each.topic}-{each.partition}"),
            f"[{colour}]{escape(found.words)}[/]",
            ", ".join(f"{number} {cause}" for cause, number in each.explained.items()) or "-",
            proven,
            count(each.records),
            count(each.equal),
            size(each.read_bytes),
            escape(_remark(each)),
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
    more = [f"and {left} more; --json lists all"] if left > 0 else []
    return Group(table, "", places, *more)


def _remark(each: LaneSummary) -> str:
    waiting = [f"{each.waiting:,} newer offsets have not been copied yet"] if each.waiting else []
    beyond = [f"{each.beyond:,} target offsets after the last known copy were not compared"] if each.beyond else []
    undecided = [_UNDECIDED.format(each.undecided)] if each.undecided else []
    return each.skipped or "; ".join([*waiting, *beyond, *undecided])


def _describe_repaired(each: LaneRepaired) -> str:
    where = f"source offsets {_offsets(each.start, each.end - each.start)} of {each.topic}-{each.partition}"
    return f"{where} ({each.difference}): repaired, in {each.into} from offset {each.at} on"


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
