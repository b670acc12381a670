"""`mirrord repair`: copies records that an audit found missing or altered into a separate topic."""

import argparse
import asyncio
import getpass
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from mirrord.audit.repair import Repair, damages, repair
from mirrord.audit.result_files import Results
from mirrord.cli.arguments import Verbs, add_conf, add_some_flows, add_verb, load_conf, some_flows
from mirrord.cli.tables import count
from mirrord.cli.watching import console
from mirrord.groups.translate import time_words
from mirrord.ledger.facts.base import Origin
from mirrord.model.errors import ConfigError
from mirrord.runtime.clock import SystemClock

_LEVELS = ("ledger", "digest", "records")
_EPILOG = """FOLDER is what `mirrord audit --out FOLDER` has kept. Records that are missing at the target, or altered
there, are copied from the source into the topic mirrord.<flow>.repair of the target cluster, with headers that tell
where each stood: in the copy itself they would stand out of order, and twice where they are only altered. With
--plan, as without an option, it shows what it would do, and what lies there already. Each record is copied once,
however often it is run, and wherever it is broken off. What the source has deleted since cannot be repaired: its line
says so.
The ledger keeps what was repaired, where it lies, by whom and when; audits explain it from then on, and it is no
difference any more.

Exit code 0: all of it lies there; 3: something does not.

  mirrord audit conf.toml --out results
  mirrord repair results conf.toml --plan
  mirrord repair results conf.toml --apply"""


def register(verbs: Verbs) -> None:
    """Add the parser."""
    parser = add_verb(verbs, "repair", "Copy what an audit has missed into a topic of its own.", _EPILOG)
    parser.add_argument("folder", metavar="FOLDER", help="the results of an audit")
    add_conf(parser)
    add_some_flows(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--plan", action="store_true", help="only show what it would do; the default")
    what.add_argument("--apply", action="store_true", help="do it")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Show the ranges that need repair, and with --apply repair them. Raises ConfigError, EnvironmentFault."""
    config = some_flows(load_conf(arguments), arguments)
    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder of an audit; `mirrord audit --out {folder}` makes one")
    results = Results(folder)
    found = {key: result for level in _LEVELS for key, result in results.known(level).items()}
    if not found:
        raise ConfigError(f"{folder} holds no results of an audit")
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    origin = Origin(by, "", SystemClock().wall_ms()) if arguments.apply else None
    made, lines = asyncio.run(repair(config, damages(found), origin))
    if arguments.json:
        print(msgspec.json.encode({"applied": arguments.apply, "ranges": made}).decode())
    else:
        console().print(_table(made))
    for line in lines:
        print(f"mirrord: {line}", file=sys.stderr)
    return 3 if lines or any(each.trouble or not each.records or each.lacks is not None for each in made) else 0


def _table(made: Sequence[Repair]) -> RenderableType:
    if not made:
        return "the audit has missed nothing"
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("flow", "partition", "difference"):
        table.add_column(name)
    for name in ("from", "to", "repaired"):
        table.add_column(name, justify="right")
    table.add_column("where")
    for each in made:
        where = f"{each.into} from offset {each.at} on" if each.at is not None else "nowhere yet"
        if each.at_ms is not None:
            where += f", by {each.by} ({time_words(each.at_ms)})"
        lacks = f"not all of it: source offset {each.lacks} does not lie there" if each.lacks is not None else ""
        name = escape(f"{each.topic}-{each.partition}")
        numbers = (str(each.start), str(each.end), count(each.records))
        remark = "; ".join(filter(None, (where, lacks, each.trouble)))
        table.add_row(escape(each.flow), name, each.kind, *numbers, escape(remark))
    return table
