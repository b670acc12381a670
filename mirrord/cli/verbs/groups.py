"""`mirrord groups`: shows the positions of consumer groups on the source and on the target, and their lag. With
`--reverse`, it shows where the target's consumer groups would resume on the source."""

import argparse
from collections.abc import Sequence

import msgspec
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from mirrord.cli.arguments import Verbs, add_conf, add_flow, add_verb, load_conf
from mirrord.cli.number_formats import count, duration
from mirrord.cli.status_watch import console
from mirrord.model.errors import ConfigError
from mirrord.model.group_status import GroupsReport
from mirrord.operations.group_report import gather_groups
from mirrord.operations.reverse_groups import ReverseOptions, gather_reverse

_EPILOG = """The lag is the group's lag on the target: the number of records after its position, and the age of the
first of them.

States: in step; waits (for records to be copied); active (the group has members on the target, and its position is not
changed); ahead (of the source, because consumers have continued on the target); behind (will be committed next);
expired (on the source; the target's position stays); not copied (the topic is not copied); unknown (the position has no
counterpart; the last column gives the reason); unsure (it is not known on which side the group last moved); refused (by
the target).

The answer comes from the running daemon. If no daemon is running, it comes from both clusters, or only from the target
if the source does not respond. Nothing is changed.

--reverse shows the opposite direction, for a failback: where groups that have consumed on the target
would resume on the source. In this case, ahead means that the source is further ahead. --write commits these positions
on the source, but only for groups that have no members there, and never beyond the records that the source has. Exit
code 3: after --write, not all groups are in step.

  mirrord groups conf.toml --reverse              # show only
  mirrord groups conf.toml --reverse --write      # then start the consumers on the source"""
_STYLES = {
    "in step": "green",
    "waits": "yellow",
    "behind": "yellow",
    "active": "cyan",
    "ahead": "cyan",
    "refused": "bold red",
    "unknown": "bold red",
    "unsure": "yellow",
}


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord groups`."""
    parser = add_verb(
        verbs, "groups", "Show the positions of consumer groups on the source and on the target.", _EPILOG
    )
    add_conf(parser)
    add_flow(parser)
    parser.add_argument("--reverse", action="store_true", help="show positions from the target back to the source")
    parser.add_argument("--write", action="store_true", help="with --reverse: commit on the source")
    force = "with --reverse: use the target's position even if the source may be further ahead"
    parser.add_argument("--force", action="store_true", help=force)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Print the positions of the consumer groups. Raises ConfigError. Raises EnvironmentFault if no flow's groups can
    be read."""
    if (arguments.write or arguments.force) and not arguments.reverse:
        raise ConfigError("--write and --force need --reverse: the daemon itself commits on the target")
    config = load_conf(arguments)
    if arguments.flow is not None:
        config = msgspec.structs.replace(config, flows=(config.flow(arguments.flow),))
    if arguments.reverse:
        reports = gather_reverse(config, ReverseOptions(arguments.write, arguments.force))
    else:
        reports = gather_groups(config)
    if arguments.json:
        print(msgspec.json.encode({"flows": reports}).decode())
    else:
        console().print(groups_table(reports))
    is_in_step = all(each.state == "in step" for report in reports for each in report.groups)
    return 3 if arguments.write and not is_in_step else 0


def groups_table(reports: Sequence[GroupsReport]) -> Group:
    """Return a table with one line for each consumer group and partition. Remarks about the flows follow the table, one
    line each."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("flow", "group", "partition", "target topic"):
        table.add_column(title, overflow="fold")
    for title in ("source", "target", "lag", "time lag"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("why", overflow="fold")
    for report in reports:
        for each in report.groups:
            style = _STYLES.get(each.state, "dim")
            table.add_row(
                escape(report.flow),
                escape(each.group),
                f"{escape(each.topic)}-{each.partition}",
                escape(each.target_topic) or "-",
                count(each.source_offset),
                count(each.target_offset),
                count(each.lag_records),
                duration(each.lag_s),
                f"[{style}]{each.state}[/]",
                escape(each.why),
            )
    notes = [f"{escape(report.flow)}: {escape(report.note)}" for report in reports if report.note]
    notes += [
        f"{escape(report.flow)}: {report.skipped} records of __consumer_offsets could not be read"
        for report in reports
        if report.skipped
    ]
    return Group(table, *notes)
