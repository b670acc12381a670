"""`mirrord seek`: moves a partition forward to a higher source offset. The records between its old and new positions
are skipped."""

import argparse
import asyncio

import msgspec

from mirrord.cli.arguments import Verbs, add_verb, load_conf
from mirrord.cli.order_verbs import EPILOG, add_order_options, give
from mirrord.cli.printing import print_lines
from mirrord.config.value_parsers import start_point
from mirrord.model.errors import ConfigError
from mirrord.operations.seek_preview import Goal, plan_seek

_EPILOG = f"""A seek can only go forward, because records that have already been copied would otherwise be in the target
twice. The skipped offsets get the verdict `skipped` in the ledger, with their exact range, the author and the reason.
`mirrord gaps` lists them. The plan is shown before the command is sent. A partition that is copying stops for a moment,
and then skips what it has not copied by then. The command makes a halted partition continue, even if the partition is
waiting at records that the source has deleted.

  mirrord seek orders-3 --to 1207 --reason "broken records until there" conf.toml
  mirrord seek orders-3 --to latest --reason "only new records matter" conf.toml --dry-run

{EPILOG}"""
_TIME_RULE = "a time with its zone, such as 2026-01-31T12:00:00Z, or epoch milliseconds"


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord seek`."""
    parser = add_verb(
        verbs, "seek", "Move a partition forward in the source, and skip the records in between.", _EPILOG
    )
    parser.add_argument("name", metavar="LANE", help="a partition of the source, such as orders-3")
    where = parser.add_mutually_exclusive_group(required=True)
    what = "a source offset; or earliest or latest, for the start or the end of the source's log"
    where.add_argument("--to", metavar="OFFSET", help=what)
    when = (
        "the first record whose timestamp is at or after this time, such as 2026-01-31T12:00:00Z; if there is none, "
        "the log end"
    )
    where.add_argument("--to-time", metavar="TIME", help=when)
    add_order_options(parser, required=True)


def run(arguments: argparse.Namespace) -> int:
    """Print the effect of the operator command, and send it unless `--dry-run` is given. Raises ConfigError or
    EnvironmentFault."""
    if not arguments.reason.strip():
        raise ConfigError("--reason: it is empty; say why the records are skipped: the reason is recorded and shown")
    goal = _goal(arguments)
    plan = asyncio.run(plan_seek(load_conf(arguments), arguments.name, arguments.flow, goal))
    if plan.standing or arguments.dry_run:
        if arguments.json:
            print(msgspec.json.encode(plan).decode())
        else:
            print_lines(plan.lines())
        return 0 if plan.standing else 3
    if not arguments.json:
        print_lines(plan.lines())
    arguments.name, arguments.flow = f"{plan.topic}-{plan.partition}", plan.flow
    return give(arguments, "seek", offset=plan.log_start, until=plan.to)


def _goal(arguments: argparse.Namespace) -> Goal:
    if arguments.to_time is not None:
        text: str = arguments.to_time
        try:
            moment = start_point(int(text) if text.isdecimal() else text)
        except ValueError:
            moment = ""
        if not isinstance(moment, int):
            raise ConfigError(f'--to-time: "{text}" is not a time; allowed: {_TIME_RULE}')
        return Goal(time_ms=moment)
    to: str = arguments.to
    match to:
        case "earliest" | "latest":
            return Goal(end=to)
        case _ if to.isascii() and to.isdecimal() and int(to) < 1 << 63:
            return Goal(offset=int(to))
        case _:
            raise ConfigError(f'--to: found "{to}"; allowed: a source offset from 0 on, earliest, latest')
