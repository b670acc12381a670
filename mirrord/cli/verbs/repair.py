"""`mirrord repair`: writes to a separate topic the records that an audit found to be missing or altered."""

import argparse
import asyncio
import getpass
import socket
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from mirrord.audit.repair import Repair, damages, repair
from mirrord.audit.result_files import Results
from mirrord.cli.arguments import Verbs, add_conf, add_some_flows, add_verb, load_conf, some_flows
from mirrord.cli.number_formats import count
from mirrord.cli.printing import print_remarks
from mirrord.cli.status_watch import console
from mirrord.groups.offset_translation_queries import format_time
from mirrord.ledger.facts.base import Origin
from mirrord.model.errors import ConfigError
from mirrord.runtime.clock import SystemClock

_LEVELS = ("ledger", "digest", "records")
_EPILOG = """FOLDER contains the results of `mirrord audit --out FOLDER`. Records that are missing or altered at the
target are copied from the source to the topic mirrord.<flow>.repair on the target cluster, with headers that name the
topic, partition and offset of each. In the target topic itself, repaired records would be out of order, and altered
ones would exist twice. With --plan, or without an option, the command shows what it would do, and which records are
already in the repair topic. Each record is copied once, no matter how often the command runs and where it is
interrupted. Records that the source has deleted since the audit cannot be repaired, and their line says so. The ledger
records which offsets were repaired, where the records are, by whom and when. Later audits treat these offsets as
explained, and not as differences.

Exit code 0: all records are in the repair topic; 3: some are not.

  mirrord audit conf.toml --out results
  mirrord repair results conf.toml --plan
  mirrord repair results conf.toml --apply"""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord repair`."""
    parser = add_verb(
        verbs, "repair", "Copy records that an audit found missing or altered into a separate topic.", _EPILOG
    )
    parser.add_argument("folder", metavar="FOLDER", help="the folder with the results of an audit")
    add_conf(parser)
    add_some_flows(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--plan", action="store_true", help="only show what would be copied; the default")
    what.add_argument("--apply", action="store_true", help="copy the records")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Print the damaged ranges and, with `--apply`, repair them. Raises ConfigError or EnvironmentFault."""
    config = some_flows(load_conf(arguments), arguments)
    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not the folder of an audit; `mirrord audit --out {folder}` creates one")
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
    print_remarks(lines)
    return 3 if lines or any(each.trouble or not each.records or each.lacks is not None for each in made) else 0


def _table(made: Sequence[Repair]) -> RenderableType:
    if not made:
        return "the audit found nothing missing"
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("flow", "partition", "difference"):
        table.add_column(name)
    for name in ("from", "to", "repaired"):
        table.add_column(name, justify="right")
    table.add_column("where")
    for each in made:
        where = f"{each.into} from offset {each.at} on" if each.at is not None else "nowhere yet"
        if each.at_ms is not None:
            where += f", by {each.by} ({format_time(each.at_ms)})"
        lacks = f"not all of it: source offset {each.lacks} is not there" if each.lacks is not None else ""
        name = escape(f"{each.topic}-{each.partition}")
        numbers = (str(each.start), str(each.end), count(each.records))
        remark = "; ".join(filter(None, (where, lacks, each.trouble)))
        table.add_row(escape(each.flow), name, each.kind, *numbers, escape(remark))
    return table
