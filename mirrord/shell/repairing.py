"""Copies what an audit has missed into a topic of its own, each record once.

It is a topic like that of the dead letters (`mirrord.shell.dead_letters`): a record bears where it stood, and whoever
writes it has seen what lies there already. So the topic itself is the receipt, and after a crash it is done once more.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from mirrord.audit.model import Kind, RangeResult
from mirrord.model.config import Config, FlowConfig
from mirrord.model.errors import ConfigError
from mirrord.model.fact import Origin
from mirrord.model.letters import Place
from mirrord.model.names import LaneId, LaneKey, TopicPartition, repair_topic
from mirrord.shell.audit_results import RangeKey
from mirrord.shell.dead_letters import DeadLetters
from mirrord.shell.hazards import read_state
from mirrord.shell.log_offsets import log_offsets
from mirrord.shell.supervise import Surroundings

PATIENCE_S = 10.0
REPAIRED: tuple[Kind, ...] = ("missing", "altered")
"""Differences by which the target lacks a record as the source has it."""


class Damage(msgspec.Struct, frozen=True, order=True):
    """Source offsets [start, end) of a lane."""

    flow: str
    lane: LaneId
    start: int
    end: int
    kind: Kind


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """A range, and what is done about it."""

    flow: str
    topic: str
    partition: int
    start: int
    end: int
    kind: Kind
    into: str
    records: int
    """That lie in the topic."""
    at: int | None
    """Where the first of them lies."""
    trouble: str = ""
    """Why it cannot be repaired."""


def damages(found: Mapping[RangeKey, RangeResult]) -> list[Damage]:
    """What is to be repaired, by the results of an audit."""
    told = sorted(
        Damage(flow, result.lane, each.source, each.source + each.length, each.kind)
        for (flow, *_), result in found.items()
        for each in result.compared.differences
        if each.kind in REPAIRED and each.source is not None
    )
    return list(_joined(told))


def _joined(told: Iterable[Damage]) -> Iterator[Damage]:
    """Those that go on with each other as one; nothing twice."""
    last: Damage | None = None
    for damage in told:
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


async def repair(config: Config, found: Iterable[Damage], origin: Origin | None) -> list[Repair]:
    """Look at each range, and with an `origin` copy it. Raises ConfigError, EnvironmentFault."""
    flows: dict[str, list[Damage]] = {}
    for each in found:
        flows.setdefault(each.flow, []).append(each)
    known = {flow.name: flow for flow in config.flows}
    made: list[Repair] = []
    for name, some in flows.items():
        if name in known:
            made += await _flow(config, known[name], some, origin)
    if flows and not made:
        raise ConfigError(f"the results are of {', '.join(flows)}, which is no flow of this configuration")
    return made


async def _flow(config: Config, flow: FlowConfig, found: list[Damage], origin: Origin | None) -> list[Repair]:
    state = await read_state(flow, Surroundings(config, PATIENCE_S).ledger)
    source, target = config.clusters[flow.source], config.clusters[flow.target]
    letters = DeadLetters(flow, source, target, repair_topic(flow.name))
    lanes = [state.lanes[each.lane] for each in found if each.lane in state.lanes]
    starts = await log_offsets(source, {TopicPartition(lane.source_topic, lane.partition) for lane in lanes}, "start")
    made: list[Repair] = []
    for each in found:
        lane = state.lanes.get(each.lane)
        if lane is None:
            continue  # of a topic of which nothing is left
        start = starts.get(TopicPartition(lane.source_topic, lane.partition))
        place = Place(lane.source_topic, LaneKey.parse(each.lane).partition, each.start, each.lane)
        told = Repair(
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
        lying = await letters.lying(place, each.end)
        if start is None or each.start < start:
            gone = "the source topic is gone" if start is None else f"the source begins at {start} now"
            told = msgspec.structs.replace(told, trouble=gone)
        elif origin is not None:
            lying = await letters.park(place, each.end, msgspec.structs.replace(origin, reason=each.kind))
        made.append(msgspec.structs.replace(told, records=lying.letters, at=lying.at if lying.letters else None))
    return made
