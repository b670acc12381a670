"""`mirrord ledger show|tail` prints the facts in a flow's ledger. `mirrord ledger skip` orders that a record that
cannot be read is skipped, and `mirrord ledger sign` signs a ledger that was written without a key. Only the target
cluster is used."""

import argparse
import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from typing import cast

import msgspec

from mirrord.cli.arguments import Verbs, add_conf, add_flow, add_verb, load_conf
from mirrord.cli.fact_lines import describe
from mirrord.cli.order_verbs import author, checked_reason
from mirrord.cli.printing import clean
from mirrord.config.fault_text import closest_name
from mirrord.config.schema import Config, FlowConfig
from mirrord.ledger.errors import LedgerCorrupt, LedgerUnavailable
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import AnyFact
from mirrord.ledger.standing_orders import moment
from mirrord.ledger.store.history import LedgerReading, ReadEntry
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.ledger.store.log_interface import LogTrimmed
from mirrord.ledger.store.process_identity import this_process
from mirrord.ledger.store.spill_file import run_memory
from mirrord.model.errors import ConfigError
from mirrord.model.names import LaneId
from mirrord.operations.ledger_signing import sign_ledger
from mirrord.operations.ledger_skip import order_skip
from mirrord.operations.state_skip import order_state_skip
from mirrord.runtime.clock import SystemClock

_EPILOG = """Each line shows one fact: ledger offset, time, lease epoch, kind, and content. A fact that did not take
effect changed nothing: either it came from a previous holder, or a different fact was recorded before it. No daemon
needs to be running."""
_TAIL_FACTS = 10
_SIGN_EPILOG = """Once `key` in [ledger] is set, readers trust only signed records. A new ledger is signed from its
first record on. If a ledger was written without a key, this command signs its present state: stop the daemon, set the
key, run this command, and start the daemon. Whoever runs it vouches for the present contents of the ledger: look at
`mirrord ledger show` and run `mirrord audit` before. Until the command has run, daemons with the key refuse the ledger.
From then on, programs without the key refuse it. If the command is interrupted, run it again.

  mirrord ledger sign --flow eu-us --reason "set up signatures" conf.toml"""
_SKIP_EPILOG = """A record in the ledger topic that has mirrord's form but cannot be read stops the flow, because it may
hold facts that matter. The error message names its offset. With this command, all readers skip exactly this record. Its
facts are lost: if mirrord wrote it, consider `mirrord rebuild` instead. The order is recorded in the ledger, with its
author and reason. It is written to the target cluster directly, so it needs no daemon. A daemon that is waiting
continues within seconds.

With --state, the record is in the state topic, in which only the newest record of each key counts. The previous record
of the key is put in force again, or the record is removed. If facts would be missing without the record, for example
because it is part of the only snapshot of a trimmed ledger, nothing is changed, and the error message says so:
`mirrord rebuild` then creates a new ledger.

Records that mirrord did not write are skipped without an order. Records of a newer version of mirrord cannot be
skipped.

  mirrord ledger skip --flow eu-us --offset 4711 --reason "a tool wrote to the topic by mistake" conf.toml
  mirrord ledger skip --flow eu-us --state --offset 815 --reason "a disk was damaged" conf.toml"""


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
    sign = add_verb(steps, "sign", "Sign a ledger that was written without a key.", _SIGN_EPILOG)
    add_conf(sign)
    add_flow(sign)
    sign.add_argument("--reason", metavar="TEXT", required=True, help="the reason, which is recorded and shown")
    skip = add_verb(steps, "skip", "Make all readers skip one record that cannot be read.", _SKIP_EPILOG)
    add_conf(skip)
    add_flow(skip)
    skip.add_argument("--offset", metavar="N", type=int, required=True, help="offset of the record in its topic")
    skip.add_argument(
        "--state", action="store_true", help="the record is in the state topic; by default, in the ledger topic"
    )
    skip.add_argument("--reason", metavar="TEXT", required=True, help="the reason, which is recorded and shown")


def run(arguments: argparse.Namespace) -> int:
    """Print the facts in the selected flow's ledger. Raises ConfigError or EnvironmentFault."""
    config = load_conf(arguments)
    flow = _flow(config, arguments.flow)
    if arguments.ledger_verb == "skip":
        return _skip(config, flow, arguments)
    if arguments.ledger_verb == "sign":
        return _sign(config, flow, arguments)
    reading = LedgerReading(KafkaLog(flow.name, config.clusters[flow.target]), run_memory(flow))
    printer = _Printer(flow.name, reading, arguments.lane, as_json=arguments.json)
    if arguments.ledger_verb == "tail":
        with suppress(KeyboardInterrupt):
            asyncio.run(_tail(reading, printer))
    else:
        asyncio.run(_show(reading, printer))
    return 0


def _skip(config: Config, flow: FlowConfig, arguments: argparse.Namespace) -> int:
    cluster, origin = config.clusters[flow.target], _origin(arguments)
    if arguments.state:
        done = asyncio.run(order_state_skip(lambda: KafkaLog(flow.name, cluster), arguments.offset, origin))
        print(f"{flow.name}: {clean(done)}")
        return 0
    log = KafkaLog(flow.name, cluster)
    outcome = asyncio.run(order_skip(log, arguments.offset, origin))
    print(f"{flow.name}: {outcome}: all readers skip the record at offset {arguments.offset} of {log.topic}")
    return 0


def _sign(config: Config, flow: FlowConfig, arguments: argparse.Namespace) -> int:
    cluster, origin = config.clusters[flow.target], _origin(arguments)

    def open_log(*, adopts: bool) -> KafkaLog:
        return KafkaLog(flow.name, cluster, adopts=adopts)

    ttl_ms = config.runtime.lease_ttl_ms
    print(f"{flow.name}: {asyncio.run(sign_ledger(open_log, this_process(config.instance, ''), ttl_ms, origin))}")
    return 0


def _origin(arguments: argparse.Namespace) -> Origin:
    if not arguments.reason.strip():
        raise ConfigError("--reason: it is empty; say why: the reason is recorded and shown")
    return Origin(author(), checked_reason(arguments.reason), SystemClock().wall_ms())


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
            yield self._corrupt(read.offset, read.entry, skipped=read.skipped)
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

    def _corrupt(self, offset: int, error: LedgerCorrupt, *, skipped: bool) -> str:
        if self._as_json:
            document = {"flow": self._flow, "offset": offset, "error": str(error), "skipped": skipped}
            return msgspec.json.encode(document).decode()
        return f"{offset:>8}  {clean(str(error))}{'  (skipped)' if skipped else ''}"

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
