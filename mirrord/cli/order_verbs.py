"""The code that the verbs `pause`, `resume`, `move`, `drain`, `seek` and `quarantine` share. It finds the daemon that
runs the flow, sends the operator command to it, and prints the answer."""

import argparse
import asyncio
import getpass
import socket
from collections.abc import Iterator

import msgspec

from mirrord.cli.arguments import add_conf, load_conf
from mirrord.cli.printing import print_lines
from mirrord.config.schema import Config
from mirrord.ledger.standing_orders import LONGEST_REASON, ObjectKind, Order, OrderAnswer, OrderVerb
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.operations.flow_lookup import ledgers_meant
from mirrord.operations.status_report import LedgerView
from mirrord.supervision.daemon_http_client import give_order

EPILOG = """The command is recorded in the flow's ledger, with its author and reason, so it stays in force after a
restart of the daemon. Repeating it changes nothing. Use the names that `mirrord status`, `topics` and `lag` show. If
several flows have a topic, partition or replicator with this name, write FLOW:NAME or use --flow.

Exit code 0: done, or nothing to do; 1: no daemon accepts the command; 2: the name does not exist, and nothing was
changed; 3: with --dry-run, the command would change something."""


def add_order(parser: argparse.ArgumentParser, name: str, what: str) -> None:
    """Add the arguments of an operator command that applies to a single named object. `name` is the metavar of the
    argument that names the object, and `what` is its help text."""
    parser.add_argument("name", metavar=name, help=what)
    add_order_options(parser)


def add_order_options(parser: argparse.ArgumentParser, *, reason: str = "--reason", required: bool = False) -> None:
    """Add the options that all operator commands accept. `reason` is the name of the option that specifies the reason
    for the command."""
    add_conf(parser)
    parser.add_argument("--flow", metavar="NAME", help="only in this flow")
    why = "the reason, which is recorded and shown"
    parser.add_argument(reason, metavar="TEXT", dest="reason", default="", required=required, help=why)
    parser.add_argument("--dry-run", action="store_true", help="only show what the command would affect")
    parser.add_argument("--json", action="store_true", help="print the answer as one JSON document")


def add_kind(parser: argparse.ArgumentParser, *kinds: ObjectKind) -> None:
    """Add `--kind`, which specifies what kind of object a name refers to."""
    parser.add_argument("--kind", choices=kinds, help="what the name refers to, if it is ambiguous")


def give(
    arguments: argparse.Namespace,
    verb: OrderVerb,
    *,
    to: str = "",
    offset: int = -1,
    until: int = -1,
    reason_option: str = "--reason",
) -> int:
    """Send the operator command to the daemon that runs its flow, print the answer, and return the exit code. Raises
    ConfigError or EnvironmentFault."""
    config = load_conf(arguments)
    order = order_of(arguments, verb, to=to, offset=offset, until=until, reason_option=reason_option)
    dry_run: bool = arguments.dry_run
    return print_result(arguments, asyncio.run(send(config, order, dry_run=dry_run)))


def order_of(
    arguments: argparse.Namespace, verb: OrderVerb, *, to: str = "", offset: int, until: int, reason_option: str
) -> Order:
    """Return the operator command that the arguments describe. Raises ConfigError."""
    reason = checked_reason(arguments.reason, reason_option)
    return Order(
        verb=verb,
        name=arguments.name,
        to=to,
        flow=arguments.flow or "",
        kind=getattr(arguments, "kind", None),
        by=author(),
        reason=reason,
        offset=offset,
        until=until,
    )


def checked_reason(reason: str, option: str = "--reason") -> str:
    """Return the reason for a command if the ledger can record it. Raises ConfigError."""
    if len(reason) > LONGEST_REASON or not reason.isprintable():
        raise ConfigError(f"{option}: one line of at most {LONGEST_REASON} characters")
    return reason


def print_result(arguments: argparse.Namespace, answer: OrderAnswer) -> int:
    """Print the daemon's answer to an operator command, and return the exit code."""
    dry_run: bool = arguments.dry_run
    if arguments.json:
        print(msgspec.json.encode(answer).decode())
    else:
        print_lines(_lines(answer, dry_run=dry_run))
    return 3 if dry_run and answer.done else 0


async def send(config: Config, order: Order, *, dry_run: bool) -> OrderAnswer:
    """Send the operator command to the daemon that runs its flow, and return the answer. Raises ConfigError or
    EnvironmentFault."""
    _, views = await ledgers_meant(config, order.name, order.flow)
    addresses = sorted({view.http for view in views.values() if isinstance(view, LedgerView) and view.http})
    if not addresses:
        faults = [f"flow {name}: {view}" for name, view in views.items() if not isinstance(view, LedgerView)]
        raise EnvironmentFault("\n".join(["nothing was changed: no daemon is running these flows", *faults]))
    if len(addresses) > 1:
        shown = ", ".join(addresses)
        raise EnvironmentFault(f"several daemons are running these flows ({shown}): choose one with --flow")
    return await give_order(addresses[0], config, order, dry_run=dry_run)


def author() -> str:
    """Return the current user and machine as user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def _lines(answer: OrderAnswer, *, dry_run: bool) -> Iterator[str]:
    yield from (f"would be: {line}" if dry_run else line for line in answer.done)
    if answer.lanes:
        shown = ", ".join(answer.lanes[:10])
        more = f" and {len(answer.lanes) - 10} more" if len(answer.lanes) > 10 else ""
        yield f"    partitions: {shown}{more}"
    yield from answer.notes
