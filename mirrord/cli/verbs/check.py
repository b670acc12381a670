"""`mirrord check`: finds problems that `mirrord start` would encounter. It changes nothing."""

import argparse
import asyncio
from collections.abc import Iterator

import msgspec
from rich.console import Group
from rich.markup import escape

from mirrord.cli.arguments import Verbs, add_conf, add_some_flows, add_verb, some_flows
from mirrord.cli.finding_lines import finding_lines
from mirrord.cli.status_watch import console
from mirrord.config.loader import load_file
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.findings import Finding
from mirrord.operations.advertised_brokers import ClusterSeen
from mirrord.operations.check_findings import CheckReport, check
from mirrord.operations.rules.acl_commands import acl_commands
from mirrord.operations.status_report import PATIENCE_S
from policies.policy_trial import LOADING

_EPILOG = """Checks whether every broker can be reached and is new enough, and whether mirrord has the permissions that
this configuration requires. Also finds configs that make the target refuse or rewrite records, old backlogs,
unsynchronized clocks, name collisions and other hazards. --json lists every required permission, whether or not it has
been granted. --acls prints the commands of kafka-acls.sh that grant them. Exit code 0: a start would succeed; 1: it
would fail, or would not do what the configuration asks for.

Nothing is changed, except with --probe, which writes a few batches to the topic mirrord.<flow>.probe on each target and
then deletes the topic. The first start of a flow does the same."""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord check`."""
    parser = add_verb(verbs, "check", "Find problems that a start would encounter, without changing anything.", _EPILOG)
    add_conf(parser)
    add_some_flows(parser)
    parser.add_argument(
        "--probe",
        action="store_true",
        help="also test, with a temporary topic, whether the target's brokers allow exactly-once copying",
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print one JSON document")
    shown.add_argument(
        "--acls",
        action="store_true",
        help="print the commands that grant exactly the permissions that this file needs, and all findings on stderr",
    )


def run(arguments: argparse.Namespace) -> int:
    """Examine the clusters of the configuration and print the findings. Return 1 if a start would fail. Raises
    ConfigError."""
    config, remarks = load_file(arguments.conf, LOADING)
    config = some_flows(config, arguments)
    report = asyncio.run(check(config, ClusterAccess(config, PATIENCE_S), probe=arguments.probe))
    notes = tuple(Finding(severity="note", where=arguments.conf, what=remark) for remark in remarks)
    report = msgspec.structs.replace(report, findings=(*report.findings, *notes))
    if arguments.json:
        print(msgspec.json.encode(report).decode())
    elif arguments.acls:
        console(stderr=True).print(Group(*_lines(report)), soft_wrap=True)
        print(*acl_commands((seen.right for seen in report.rights), config.flows, config.clusters), sep="\n")
    else:
        console().print(Group(*_lines(report)), soft_wrap=True)
    return 0 if report.would_start else 1


def _lines(report: CheckReport) -> Iterator[str]:
    yield from map(_cluster_line, report.clusters)
    yield from finding_lines(report.findings)
    held = sum(right.held is True for right in report.rights)
    unknown = sum(right.held is None for right in report.rights)
    if report.rights:
        rest = f", {unknown} are not known" if unknown else ""
        yield f"permissions: {held} of {len(report.rights)} have been granted{rest}"
    yield "[green]a start would succeed[/]" if report.would_start else "[bold red]a start would fail[/]"


def _cluster_line(cluster: ClusterSeen) -> str:
    if cluster.error:
        return f"{escape(cluster.alias)}: [bold red]cannot be reached[/]"
    releases = ", ".join(sorted({broker.release for broker in cluster.brokers if broker.release}))
    number = len(cluster.brokers)
    brokers = f"{number} broker{'' if number == 1 else 's'}"
    return f"{escape(cluster.alias)}: {brokers} like {releases or 'no known release'}, id {cluster.cluster_id}"
