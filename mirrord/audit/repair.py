"""Copies to a separate topic the records that an audit has found to be missing or altered. Each record is copied once.

The repair topic has the same format as the dead-letter topic, and `mirrord.replication.dead_letters.topic` writes to
both. Each record carries its original topic, partition and offset. Before it writes anything, a repair determines which
records the repair topic already holds. After the records have been written, the fact `RangeRepaired` records the repair
in the ledger. If the process crashes between these two steps, the repair can be run again: it then finds the records in
the repair topic and only updates the ledger.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

import msgspec

from mirrord.audit.repair_receipts import record_repairs
from mirrord.audit.result_files import RangeKey
from mirrord.audit.rules.results import RangeResult
from mirrord.config.schema import Config, FlowConfig
from mirrord.kafka.client.log_offsets import log_offsets
from mirrord.ledger.facts.audit import RangeRepaired, RepairedKind
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.proven_ranges import repaired_at
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import ConfigError
from mirrord.model.intervals import ranges
from mirrord.model.names import LaneId, LaneKey, TopicPartition, repair_topic
from mirrord.operations.hazard_survey import read_state
from mirrord.replication.dead_letters.records import LetterPlace
from mirrord.replication.dead_letters.topic import DeadLetters, Lying

PATIENCE_S = 10.0
REPAIRED: tuple[RepairedKind, ...] = get_args(RepairedKind)


class Damage(msgspec.Struct, frozen=True, order=True):
    """A damaged range of a lane: the source offsets [start, end)."""

    flow: str
    lane: LaneId
    start: int
    end: int
    kind: RepairedKind


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """A damaged range of source offsets, and the state of its repair."""

    flow: str
    topic: str
    partition: int
    start: int
    end: int
    kind: RepairedKind
    into: str
    records: int
    """Number of records in the range that are in the repair topic."""
    at: int | None
    """Offset, in the repair topic, of the first record of the range. None if the topic holds no record of the range."""
    lacks: int | None = None
    """Source offset of the first record of the range that is missing from the repair topic. None if no record is
    missing, or if the source was not read."""
    trouble: str = ""
    """Why the range cannot be repaired; empty if it can."""
    by: str = ""
    """The operator who repaired the range, according to the ledger; empty if the ledger records no repair."""
    at_ms: int | None = None
    """When the range was repaired, according to the clock of the machine that repaired it."""


def damages(found: Mapping[RangeKey, RangeResult]) -> list[Damage]:
    """Return the ranges that have to be repaired, according to the results of an audit."""
    reported = sorted(
        Damage(flow, result.lane, each.source, each.source + each.length, kind)
        for (flow, *_), result in found.items()
        for each in result.compared.differences
        for kind in REPAIRED
        if each.kind == kind and each.source is not None
    )
    return list(_joined(reported))


def _joined(damaged: Iterable[Damage]) -> Iterator[Damage]:
    """Join adjacent or overlapping ranges of the same lane and kind. Where ranges of different kinds overlap, the
    shared offsets stay with the earlier range."""
    last: Damage | None = None
    for damage in damaged:
        each = damage
        if last is not None and (last.flow, last.lane) == (each.flow, each.lane) and each.start <= last.end:
            if each.kind == last.kind or each.end <= last.end:
                last = msgspec.structs.replace(last, end=max(last.end, each.end))
                continue
            each = msgspec.structs.replace(each, start=last.end)
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last


async def repair(config: Config, found: Iterable[Damage], origin: Origin | None) -> tuple[list[Repair], list[str]]:
    """Examine each damaged range. If `origin` (operator, time and reason of the repair) is given, also copy the records
    of the range and record the repair in the ledger.

    Return the repairs, and one line for each ledger in which the repairs could not be recorded. Raises ConfigError and
    EnvironmentFault.
    """
    flows: dict[str, list[Damage]] = {}
    for each in found:
        flows.setdefault(each.flow, []).append(each)
    known = {flow.name: flow for flow in config.flows}
    made: list[Repair] = []
    lines: list[str] = []
    for name, some in flows.items():
        if name not in known:
            continue
        receipts: list[RangeRepaired] = []
        try:
            made += await _flow(config, known[name], some, origin, receipts)
        finally:
            # The facts are recorded even if a range cannot be read, because the ranges before it have already been
            # copied.
            line = await record_repairs(config, known[name], receipts) if receipts else ""
            lines += [line] if line else []
    if flows and not made:
        raise ConfigError(f"the results belong to {', '.join(flows)}, which is not a flow of this configuration")
    return made, lines


async def _flow(
    config: Config, flow: FlowConfig, found: list[Damage], origin: Origin | None, facts: list[RangeRepaired]
) -> list[Repair]:
    """Examine the damaged ranges of one flow and, if `origin` is given, repair them and add the repairs to `facts`. The
    caller records `facts` in the ledger even if this function raises an exception."""
    state = await read_state(flow, ClusterAccess(config, PATIENCE_S).ledger)
    source, target = config.clusters[flow.source], config.clusters[flow.target]
    letters = DeadLetters(flow, source, target, repair_topic(flow.name))
    lanes = [state.lanes[each.lane] for each in found if each.lane in state.lanes]
    starts = await log_offsets(source, {TopicPartition(lane.source_topic, lane.partition) for lane in lanes}, "start")
    made: list[Repair] = []
    for each in found:
        lane = state.lanes.get(each.lane)
        if lane is None:
            continue  # the ledger no longer knows the lane
        start = starts.get(TopicPartition(lane.source_topic, lane.partition))
        place = LetterPlace(lane.source_topic, LaneKey.parse(each.lane).partition, each.start, each.lane)
        result = Repair(
            flow=flow.name,
            topic=place.topic,
            partition=place.partition,
            start=each.start,
            end=each.end,
            kind=each.kind,
            into=letters.topic,
            records=0,
            at=None,
        )
        before = repaired_at(lane.repaired, each.start, each.end)
        if before is not None:
            result = _as_recorded(result, before)
            if origin is None:
                made.append(result)
                continue
        if start is not None and start <= each.start and origin is not None:
            lying = await letters.park(place, each.end, msgspec.structs.replace(origin, reason=each.kind))
            facts += _facts(each, letters.topic, lying, origin)
            result = msgspec.structs.replace(result, by=origin.by, at_ms=origin.at_ms) if before is None else result
        else:
            lying = await letters.lying(place, each.end, compared=start is not None and start <= each.start)
            if start is None or each.start < start:
                gone = "the source topic no longer exists" if start is None else f"the source now begins at {start}"
                result = msgspec.structs.replace(result, trouble="" if before is not None and lying.letters else gone)
        at, lacks = lying.at if lying.letters else None, lying.lacks if lying.lacks >= 0 else None
        made.append(msgspec.structs.replace(result, records=lying.letters, at=at, lacks=lacks))
    return made


def _as_recorded(result: Repair, before: RangeRepaired) -> Repair:
    """Return the result of a repair, with the details replaced by those of an earlier repair that the ledger already
    contains."""
    return msgspec.structs.replace(
        result,
        into=before.topic,
        records=before.records,
        at=before.at,
        by=before.origin.by,
        at_ms=before.origin.at_ms,
    )


def _facts(each: Damage, topic: str, lying: Lying, origin: Origin) -> list[RangeRepaired]:
    """Return the facts that record which source offsets were repaired.

    There may be several facts for one damaged range, because each fact covers consecutive offsets. Some offsets in the
    range may no longer hold a record, for example because the source is compacted.
    """
    return [
        RangeRepaired(each.lane, start, end, each.kind, topic, lying.at, origin) for start, end in ranges(lying.offsets)
    ]
