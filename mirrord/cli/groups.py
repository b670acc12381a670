"""`mirrord groups`: where consumer groups stand on both sides, how far behind they are, and what is not in step."""

import argparse
from collections.abc import Sequence

import msgspec
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from mirrord.cli.arguments import Verbs, add_conf, add_flow, add_verb, load_conf
from mirrord.cli.tables import count, duration
from mirrord.cli.watching import console
from mirrord.model.groups import GroupsReport
from mirrord.shell.group_look import gather_groups

_EPILOG = """The lag is counted at the target: records that its position has not read, and the age of the first of them.

States: in step; waits (for records to be copied); active (it has members at the target, which are left alone); ahead
(of the source: consumers went on at the target); behind (to be committed next); expired (at the source; the target's
position stays); not copied (the topic is not); unknown (no counterpart, the reason says why); refused (by the target).

The running daemon is asked; when there is none, both clusters are, or the target alone. Nothing is altered."""
_STYLES = {
    "in step": "green",
    "waits": "yellow",
    "behind": "yellow",
    "active": "cyan",
    "ahead": "cyan",
    "refused": "bold red",
    "unknown": "bold red",
}


def register(verbs: Verbs) -> None:
    """Adds the parser."""
    parser = add_verb(verbs, "groups", "Show where consumer groups stand at the source and at the target.", _EPILOG)
    add_conf(parser)
    add_flow(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Prints the groups. Raises ConfigError, EnvironmentFault when nothing is known of any flow."""
    config = load_conf(arguments)
    if arguments.flow is not None:
        config = msgspec.structs.replace(config, flows=(config.flow(arguments.flow),))
    reports = gather_groups(config)
    if arguments.json:
        print(msgspec.json.encode({"flows": reports}).decode())
    else:
        console().print(groups_table(reports))
    return 0


def groups_table(reports: Sequence[GroupsReport]) -> Group:
    """A line for each group and partition, and one for each flow that has something to say."""
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
