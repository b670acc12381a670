"""`mirrord ledger show|tail`: prints the facts in a flow's ledger. Only the target cluster is read."""

import argparse
import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from typing import cast

import msgspec

from mirrord.cli.arguments import Verbs, add_conf, add_flow, add_verb, load_conf
from mirrord.cli.fact_lines import describe
from mirrord.cli.printing import clean
from mirrord.config.fault_text import closest_name
from mirrord.config.schema import Config, FlowConfig
from mirrord.ledger.errors import LedgerCorrupt, LedgerUnavailable
from mirrord.ledger.facts.core import AnyFact
from mirrord.ledger.standing_orders import moment
from mirrord.ledger.store.history import LedgerReading, ReadEntry
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.ledger.store.log_interface import LogTrimmed
from mirrord.ledger.store.spill_file import run_memory
from mirrord.model.errors import ConfigError
from mirrord.model.names import LaneId

_EPILOG = """Each line shows one fact: ledger offset, time, lease epoch, kind, and content. A fact that did not take
effect changed nothing: either it came from a previous holder, or a different fact was recorded before it. No daemon
needs to be running."""
_TAIL_FACTS = 10


def register(verbs: Verbs) -> None:
    """Add the parsers for `mirrord ledger` and its subcommands."""
    parser = add_verb(verbs, "ledger", "Show the facts that a flow's ledger records.", _EPILOG)
    steps: Verbs = parser.add_subparsers(dest="ledger_verb", metavar="VERB", required=True, title="verbs")
    for step in (
        add_verb(steps, "show", "Print the facts in the ledger."),
        add_verb(steps, "tail", f"Print the last {_TAIL_FACTS} facts and new ones as they arrive, until Ctrl-C."),
    ):
        add_conf(step)
        add_flow(step)
        step.add_argument("--lane", metavar="LANE", help="only this lane: TOPIC-PARTITION of the source, or a lane id")
        step.add_argument("--json", action="store_true", help="print one JSON object for each fact")


def run(arguments: argparse.Namespace) -> int:
    """Print the facts in the selected flow's ledger. Raises ConfigError or EnvironmentFault."""
    config = load_conf(arguments)
    flow = _flow(config, arguments.flow)
    reading = LedgerReading(KafkaLog(flow.name, config.clusters[flow.target]), run_memory(flow))
    printer = _Printer(flow.name, reading, arguments.lane, as_json=arguments.json)
    if arguments.ledger_verb == "tail":
        with suppress(KeyboardInterrupt):
            asyncio.run(_tail(reading, printer))
    else:
        asyncio.run(_show(reading, printer))
    return 0


def _flow(config: Config, name: str | None) -> FlowConfig:
    if name is not None:
        return config.flow(name)
    match config.flows:
        case (flow,):
            return flow
        case flows:
            names = ", ".join(flow.name for flow in flows)
            raise ConfigError(f"there are several flows: choose one with --flow ({names})")


async def _show(reading: LedgerReading, printer: "_Printer") -> None:
    async for read in _entries(reading, follow=False):
        for line in printer.lines(read):
            print(line)
    printer.check_lane()


async def _tail(reading: LedgerReading, printer: "_Printer") -> None:
    last: deque[str] = deque(maxlen=_TAIL_FACTS)
    async for read in _entries(reading, follow=True):
        last.extend(printer.lines(read))
        while last and not read.left:
            print(last.popleft(), flush=True)


async def _entries(reading: LedgerReading, *, follow: bool) -> AsyncGenerator[ReadEntry]:
    try:
        async with aclosing(reading.entries(follow=follow)) as entries:
            async for read in entries:
                yield read
    except LogTrimmed:
        raise LedgerUnavailable("the ledger was trimmed while it was being read: try again") from None


class _Printer:
    def __init__(self, flow: str, reading: LedgerReading, lane: str | None, *, as_json: bool) -> None:
        self._flow = flow
        self._reading = reading
        self._lane = lane
        self._as_json = as_json

    def lines(self, read: ReadEntry) -> Iterator[str]:
        """Yield one line for each fact in a ledger entry. If a lane was requested, yield lines only for the facts about
        that lane."""
        if isinstance(read.entry, LedgerCorrupt):
            yield self._corrupt(read.offset, read.entry)
            return
        for number, fact in enumerate(read.entry.facts):
            lane = cast(LaneId | None, getattr(fact, "lane", None))
            if self._lane is None or (lane is not None and self._lane in (lane, self._name(lane))):
                yield self._line(read, fact, read.bound[number] if read.bound is not None else None)

    def check_lane(self) -> None:
        """Raise ConfigError if the requested lane is not in the ledger."""
        known = [self._name(lane) for lane in self._reading.state.lanes]
        if self._lane is not None and self._lane not in {*known, *self._reading.state.lanes}:
            like = closest_name(self._lane, known)
            hint = f'; did you mean "{like}"?' if like else ""
            raise ConfigError(f'the ledger of {self._flow} has no lane "{self._lane}"{hint}')

    def _line(self, read: ReadEntry, fact: AnyFact, bound: bool | None) -> str:
        entry, kind = read.entry, cast(str, fact.__struct_config__.tag)
        assert not isinstance(entry, LedgerCorrupt)  # noqa: S101
        if self._as_json:
            document = {
                "flow": self._flow,
                "offset": read.offset,
                "at_ms": entry.at_ms,
                "lease_epoch": entry.lease_epoch,
                "writer": entry.writer,
                "bound": bound,
                "kind": kind,
                "fact": _plain(fact),
            }
            return msgspec.json.encode(document).decode()
        remark = "  (did not take effect)" if bound is False else ""
        when = f"{moment(entry.at_ms)}  {entry.lease_epoch:>3}"
        return f"{read.offset:>8}  {when}  {kind:<16}  {clean(describe(fact, self._name))}{remark}"

    def _corrupt(self, offset: int, error: LedgerCorrupt) -> str:
        if self._as_json:
            return msgspec.json.encode({"flow": self._flow, "offset": offset, "error": str(error)}).decode()
        return f"{offset:>8}  {clean(str(error))}"

    def _name(self, lane: LaneId) -> str:
        known = self._reading.state.lanes.get(lane)
        return f"{known.source_topic}-{known.partition}" if known else lane


def _plain(value: object) -> object:
    """Return the fact with the names of its fields, for JSON output. In the ledger, facts are arrays without field
    names."""
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [_plain(item) for item in cast(tuple[object, ...], value)]
    return value
