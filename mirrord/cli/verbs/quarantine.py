"""`mirrord quarantine list|show|skip|replay`: shows records that cannot be copied, and lets an operator decide what
happens to them."""

import argparse
import asyncio
from collections.abc import Iterator

import msgspec
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from mirrord.cli.arguments import Verbs, add_conf, add_flow, add_verb, load_conf, offset
from mirrord.cli.order_verbs import EPILOG, add_order_options, order_of, print_result, send
from mirrord.cli.printing import print_lines
from mirrord.cli.status_watch import console
from mirrord.config.schema import Config
from mirrord.ledger.quarantine import Parked
from mirrord.ledger.standing_orders import Order, OrderAnswer, describe_origin
from mirrord.model.errors import ConfigError
from mirrord.model.names import dead_letter_topic
from mirrord.operations.quarantine_entries import QuarantineEntry, find, is_untimed, read_entries
from mirrord.operations.quarantine_parking import WITHOUT, bring_back, park
from mirrord.replication.dead_letters.records import letters_words
from mirrord.runtime.clock import SystemClock

_EPILOG = """If the target refuses a record because of its content, or the source cannot return it, only the record's
partition halts. The record waits in quarantine until an operator decides. `skip` skips the record, which gets the
verdict `rejected` in the ledger, with author and reason. Before that, its bytes are parked in the topic
mirrord.FLOW.dead on the target cluster. `replay` tries to copy a waiting record again, for example after
max.message.bytes has been raised on the target. If the record was skipped and parked, `replay` instead appends it to
the target topic, or to a different topic (--into), exactly once. The record is then out of order, and its verdict
stays. With on_reject = "skip", the flow itself parks and skips such records.

  mirrord quarantine skip orders-3 1207 --why "larger than the target accepts" conf.toml"""
WHY = "--why"
_LIST_EPILOG = "No daemon needs to be running. Exit code 3: a partition is waiting for a decision."


def register(verbs: Verbs) -> None:
    """Add the parsers for `mirrord quarantine` and its subcommands."""
    parser = add_verb(
        verbs, "quarantine", "Show records that cannot be copied, and decide what happens to them.", _EPILOG
    )
    steps: Verbs = parser.add_subparsers(dest="quarantine_verb", metavar="VERB", required=True, title="verbs")
    listing = add_verb(
        steps, "list", "List records that are waiting for a decision, and records that were skipped.", _LIST_EPILOG
    )
    _add_reading(listing)
    show = add_verb(steps, "show", "Show one entry of the quarantine.", _LIST_EPILOG)
    _add_entry(show)
    _add_reading(show)
    for name, summary in (
        ("skip", "Skip the records at which a partition is waiting, and park them."),
        ("replay", "Try again to copy the records at which a partition is waiting, or bring back skipped records."),
    ):
        step = add_verb(steps, name, summary, EPILOG)
        _add_entry(step)
        add_order_options(step, reason=WHY, required=name == "skip")
        if name == "skip":
            until = "skip all source offsets below this one, but none after the log end (default: the end of the entry)"
            step.add_argument("--until", metavar="OFFSET", type=offset, default=-1, help=until)
            without = "skip the records without parking them; they cannot be brought back then"
            step.add_argument(WITHOUT, action="store_true", dest="without_parking", help=without)
        else:
            into = "append skipped records to this topic of the target cluster instead"
            step.add_argument("--into", metavar="TOPIC", help=into)


def _add_entry(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="LANE", help="a partition of the source, such as orders-3")
    parser.add_argument("offset", metavar="OFFSET", type=offset, help="a source offset in the entry")


def _add_reading(parser: argparse.ArgumentParser) -> None:
    add_conf(parser)
    add_flow(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Print the quarantined records, or send an operator command about them. Raises ConfigError or EnvironmentFault."""
    match arguments.quarantine_verb:
        case "skip":
            if not arguments.reason.strip():
                raise ConfigError(
                    f"{WHY}: it is empty; say why the records are skipped: the reason is recorded and shown"
                )
            config = load_conf(arguments)
            order = order_of(arguments, "skip", offset=arguments.offset, until=arguments.until, reason_option=WHY)
            return print_result(arguments, asyncio.run(_skip(config, order, arguments)))
        case "replay":
            config = load_conf(arguments)
            order = order_of(arguments, "replay", offset=arguments.offset, until=-1, reason_option=WHY)
            return print_result(arguments, asyncio.run(_replay(config, order, arguments)))
        case _:
            return _show(arguments)


async def _skip(config: Config, order: Order, arguments: argparse.Namespace) -> OrderAnswer:
    """Park the records in the dead-letter topic, then send the operator command to skip them. Each record that the
    source still holds is therefore stored before it is skipped. With `--without-parking`, the records are not
    parked."""
    would = await send(config, order, dry_run=True)
    if not would.done:
        return would
    if arguments.dry_run:
        parked = f"the records that the source still holds would be parked in {dead_letter_topic(would.flow)} first"
        return would if arguments.without_parking else msgspec.structs.replace(would, notes=(*would.notes, parked))
    if not arguments.without_parking:
        order = await park(config, order, would.flow, SystemClock().wall_ms())
    answer = await send(config, order, dry_run=False)
    note = f"{letters_words(order.letters)} in {dead_letter_topic(would.flow)}" if order.letters >= 0 else "not parked"
    return msgspec.structs.replace(answer, notes=(*answer.notes, note))


async def _replay(config: Config, order: Order, arguments: argparse.Namespace) -> OrderAnswer:
    dry_run: bool = arguments.dry_run
    found = await find(config, order)
    if found is not None and found.entry.skipped is not None:
        return await bring_back(config, order, found, arguments.into, dry_run=dry_run)
    if arguments.into is not None:
        raise ConfigError(f"--into: no record of {order.name} was skipped at source offset {order.offset}")
    return await send(config, order, dry_run=dry_run)


def _show(arguments: argparse.Namespace) -> int:
    config = load_conf(arguments)
    if arguments.flow is not None:
        config = msgspec.structs.replace(config, flows=(config.flow(arguments.flow),))
    found = asyncio.run(read_entries(config))
    if arguments.quarantine_verb == "show":
        name: str = arguments.name
        at: int = arguments.offset
        chosen = [
            each
            for each in found
            if f"{each.topic}-{each.partition}" == name and each.entry.start <= at < each.entry.end
        ]
        if not chosen:
            raise ConfigError(f"{name} has no entry with source offset {at}; `mirrord quarantine list` shows all")
        found = chosen
    if arguments.json:
        print(msgspec.json.encode({"quarantine": found}).decode())
    elif arguments.quarantine_verb == "show":
        for each in found:
            print_lines(_describe(each))
    else:
        console().print(_table(found))
    return 3 if any(each.entry.skipped is None for each in found) else 0


def _state(entry: Parked) -> str:
    if entry.skipped is None:
        return "waits"
    by = f"by policy: {entry.skipped.reason}" if is_untimed(entry) else describe_origin(entry.skipped)
    return f"skipped ({letters_words(entry.letters)}) {by}"


def _describe(each: QuarantineEntry) -> Iterator[str]:
    entry = each.entry
    yield f"{each.topic}-{each.partition} of {each.flow}, source offsets [{entry.start}, {entry.end}): {_state(entry)}"
    yield f"    {entry.line}"
    if entry.skipped is None:
        lane = f"{each.topic}-{each.partition} {entry.start}"
        yield f"    to skip it:          mirrord quarantine skip {lane} --why TEXT"
        yield f"    to try it again:     mirrord quarantine replay {lane}"
    elif entry.letters > 0:
        lane = f"{each.topic}-{each.partition} {entry.start}"
        yield f"    to bring it back:    mirrord quarantine replay {lane} --why TEXT"


def _table(found: list[QuarantineEntry]) -> Group:
    if not found:
        return Group("nothing is in quarantine")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("flow", "partition", "from", "to", "state", "why"):
        table.add_column(heading, justify="right" if heading in {"from", "to"} else "left")
    for each in found:
        entry = each.entry
        state = "[bold red]waits[/]" if entry.skipped is None else escape(_state(entry))
        name = escape(f"{each.topic}-{each.partition}")
        table.add_row(escape(each.flow), name, str(entry.start), str(entry.end), state, escape(entry.line))
    return Group(table)
