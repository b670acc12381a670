"""`mirrord apply`: makes a running daemon read its own configuration file again, and apply the changes. Flows that the
changes do not affect keep copying without interruption."""

import argparse
import asyncio
from collections.abc import Iterator

import msgspec
from rich.console import Group
from rich.markup import escape

from mirrord.cli.arguments import Verbs, add_conf, add_some_flows, add_verb, some_flows
from mirrord.cli.order_verbs import author
from mirrord.cli.status_watch import console
from mirrord.config.changes import ConfigChanges, FlowChange
from mirrord.config.own_file import FileDigest, OwnFile
from mirrord.config.schema import Config
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.operations.status_report import PATIENCE_S, LedgerView, read_ledgers
from mirrord.supervision.daemon_http_client import order_apply
from policies.policy_trial import LOADING

_EPILOG = """The daemon reads again the file that it was started with, and keeps the options --flow and --clusters of
its start. If the contents of CONF differ from those of that file, the daemon refuses, and names its file. Here, --flow
and --clusters only say which daemon to ask, if several daemons run flows of CONF.

Flows can be added and removed. Topics, groups, sync settings and limits can be changed. Lanes of topics
that stay selected are not interrupted, unless the limits, naming, isolation or start of their flow change: in that
case, all lanes of the flow are drained and taken again. If [replicators] changes, partitions move a few at a time, and
surplus replicators end when they no longer host any lanes. Each change is recorded as a fact in the flow's ledger.
Clusters can be added. All other settings of clusters and of the daemon are read only when the daemon starts.

Exit code 0: done, or nothing to do; 2: refused, and nothing was changed; 3: with --dry-run, something would change."""
_STYLES = {"added": "green", "removed": "red", "changed": "yellow"}


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord apply`."""
    parser = add_verb(verbs, "apply", "Apply a changed configuration to the running daemon.", _EPILOG)
    add_conf(parser)
    add_some_flows(parser)
    parser.add_argument("--dry-run", action="store_true", help="only show what would change")
    parser.add_argument("--json", action="store_true", help="print the changes as one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Print what the configuration would change, and apply it unless `--dry-run` is given. Raises ConfigError or
    EnvironmentFault."""
    contents = OwnFile.at(arguments.conf).read(LOADING)
    digest, config = FileDigest(contents.sha256, author()), some_flows(contents.config, arguments)
    return asyncio.run(_apply(config, digest, dry_run=arguments.dry_run, as_json=arguments.json))


async def _apply(config: Config, digest: FileDigest, *, dry_run: bool, as_json: bool) -> int:
    address = await _daemon(config, ClusterAccess(config, PATIENCE_S))
    changes = await order_apply(address, config, digest, dry_run=True)
    if changes.refused:
        raise ConfigError("\n".join(f"nothing was changed: {line}" for line in changes.refused))
    if as_json:
        print(msgspec.json.encode(changes).decode())
    else:
        console().print(Group(*_lines(changes)), soft_wrap=True)
    if dry_run:
        return 3 if changes.flows or changes.for_all else 0
    if changes.flows or changes.for_all:
        done = await order_apply(address, config, digest, dry_run=False)
        if done.refused:
            raise ConfigError("\n".join(f"nothing was changed: {line}" for line in done.refused))
        if not as_json:
            print(f"applied by the daemon at {address}")
    return 0


async def _daemon(config: Config, access: ClusterAccess) -> str:
    """Return the address of the daemon that runs flows of this configuration under the same instance name. Raises
    EnvironmentFault if there is no such daemon, or more than one."""
    views = await read_ledgers(config, access)
    held = [view for view in views.values() if isinstance(view, LedgerView)]
    ours = [view for view in held if view.state.holder and view.state.holder.instance == config.instance]
    addresses = sorted({view.http for view in ours if view.http})
    if not addresses:
        raise EnvironmentFault(f'no daemon of the instance "{config.instance}" is running any of these flows')
    if len(addresses) > 1:
        shown = ", ".join(addresses)
        raise EnvironmentFault(f"several daemons are running these flows ({shown}): choose some with --flow")
    return addresses[0]


def _lines(changes: ConfigChanges) -> Iterator[str]:
    if not changes.flows and not changes.for_all:
        yield "nothing changes"
    yield from (f"all flows: {escape(line)}" for line in changes.for_all)
    for change in changes.flows:
        yield from _flow_lines(change)


def _flow_lines(change: FlowChange) -> Iterator[str]:
    yield f"flow {escape(change.flow)}: [{_STYLES[change.kind]}]{change.kind}[/]"
    yield from (f"    {escape(line)}" for line in (*change.lines, *change.topics))
    if change.restarts:
        yield "    all its lanes are drained and taken again"
