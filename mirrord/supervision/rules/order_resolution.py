"""Resolves operator commands: determines what the name in a command refers to, which facts the command produces, and
how it affects the placement of lanes.

The effect of a command is determined by its facts alone. An impossible command is refused with one line that says what
would be possible.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from mirrord.config.fault_text import closest_name
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.orders import (
    CopyingPaused,
    CopyingResumed,
    HostDrained,
    HostRestored,
    LanePinned,
    LaneUnpinned,
    OrderFact,
)
from mirrord.ledger.facts.quarantine import QuarantineOrder
from mirrord.ledger.facts.recovery import RecoveryFact
from mirrord.ledger.facts.seeks import LaneSought
from mirrord.ledger.folding.failovers import Recoveries, stops
from mirrord.ledger.quarantine import Quarantine
from mirrord.ledger.seeks import Standing
from mirrord.ledger.standing_orders import (
    NO_GIVER,
    POLICY,
    Giver,
    ObjectKind,
    Order,
    Orders,
    OrderVerb,
    describe_origin,
    pausable,
    pause_key,
)
from mirrord.model.errors import ConfigError
from mirrord.model.jobs import Job
from mirrord.model.names import LaneId, TopicPartition
from mirrord.supervision.rules.failover_orders import check_no_failover, rule_cancel, rule_failover
from mirrord.supervision.rules.quarantine_orders import rule
from mirrord.supervision.rules.reconcile import ObservedReplicator
from mirrord.supervision.rules.seek_orders import rule as rule_seek
from mirrord.topics.rules.topic_plan import PlannedLane

KINDS: Mapping[OrderVerb, tuple[ObjectKind, ...]] = {
    "pause": ("flow", "topic", "lane"),
    "resume": ("flow", "topic", "lane", "host"),
    "move": ("lane",),
    "unpin": ("lane",),
    "drain": ("host",),
    "skip": ("lane",),
    "replay": ("lane",),
    "seek": ("lane",),
    "failover": ("flow",),
    "cancel-failover": ("flow",),
    "drill": ("flow",),
}
"""The kinds of objects that each command accepts. A "lane" has the name of its source partition, such as `orders-3`. A
"host" is a replicator."""
_WORDS: Mapping[ObjectKind, str] = {"flow": "flow", "topic": "topic", "lane": "partition", "host": "replicator"}


class FlowView(NamedTuple):
    """The information about one flow that is needed to resolve operator commands."""

    flow: str
    lanes: Mapping[TopicPartition, LaneId]
    """The lanes that the flow should have, by source partition. Paused lanes are included."""
    known: Collection[TopicPartition]
    """Other source partitions whose records were copied in the past."""
    hosts: Sequence[ObservedReplicator]
    takers: Mapping[str, bool]
    """The replicators that accept lanes, by name. Each value says whether the replicator has room for another lane."""
    alone: Collection[LaneId]
    """Lanes that must each have a replicator to themselves (`replicators.alone`)."""
    orders: Orders
    quarantines: Mapping[TopicPartition, Mapping[LaneId, Quarantine]] = {}
    """The quarantined records by source partition and lane, including those of deleted topics with the same name."""
    ends: Mapping[LaneId, int] = {}
    """The known log ends of the source partitions of hosted lanes."""
    standings: Mapping[LaneId, Standing] = {}
    """The position of each lane that has begun to copy, together with its earlier seeks."""
    recoveries: Recoveries = ()
    """The failovers of the flow."""
    retrying: Mapping[TopicPartition, str] = {}
    """Source partitions of hosted lanes that are currently copying nothing but are retrying on their own, each with the
    lane's status text."""


class NamedObject(NamedTuple):
    """The object to which the name in a command refers."""

    flow: str
    kind: ObjectKind
    topic: str = ""
    partition: int = -1
    host: str = ""

    def __str__(self) -> str:
        match self.kind:
            case "flow":
                return f"flow {self.flow}"
            case "host":
                return f"replicator {self.host}"
            case "topic" | "lane":
                return f"{pausable(self.topic, self.partition)} of {self.flow}"


class Decision(NamedTuple):
    """The decision on an operator command: the facts that carry it out, and its description for the operator."""

    flow: str
    facts: tuple[OrderFact | QuarantineOrder | LaneSought | RecoveryFact, ...] = ()
    """The facts to append. Empty if the command changes nothing."""
    done: tuple[str, ...] = ()
    """One line for operators about each change that the command makes."""
    lanes: tuple[TopicPartition, ...] = ()
    """The source partitions of the lanes that the command stops, starts or moves."""
    notes: tuple[str, ...] = ()
    job: Job | None = None
    """The job to begin at once."""


def wanted_lanes(lanes: Iterable[PlannedLane], orders: Orders, recoveries: Recoveries) -> list[LaneId]:
    """Return the ids of the lanes that no operator command has paused, and that no failover has stopped."""
    return [
        lane.lane
        for lane in lanes
        if orders.pause_of(lane.source_topic, lane.key.partition) is None and not stops(recoveries, lane.source_topic)
    ]


def pinned_lanes(lanes: Iterable[PlannedLane], orders: Orders) -> dict[LaneId, int]:
    """Return the replicator number (slot) of each pinned lane."""
    if not orders.pins:
        return {}
    pins = ((lane.lane, orders.pins.get(f"{lane.source_topic}-{lane.key.partition}")) for lane in lanes)
    return {lane: pin.slot for lane, pin in pins if pin is not None}


def find(order: Order, views: Sequence[FlowView]) -> NamedObject:
    """Return the object to which the name in the command refers. Raises ConfigError if no object has this name, or if
    the name is ambiguous."""
    prefix, colon, name = order.name.rpartition(":")
    flow = prefix if colon else order.flow
    kinds: list[ObjectKind] = [kind for kind in KINDS[order.verb] if order.kind in (None, kind)]
    if not kinds:
        allowed = ", ".join(_WORDS[kind] for kind in KINDS[order.verb])
        raise ConfigError(f"{order.verb} does not apply to a {_WORDS[order.kind or 'flow']}; it applies to: {allowed}")
    chosen = [view for view in views if flow in ("", view.flow)]
    if not chosen:
        raise ConfigError(_unknown("flow", flow, [view.flow for view in views]))
    found = [named for view in chosen for kind in kinds for named in _of_kind(view, kind, name)]
    if not found:
        what = " or ".join(_WORDS[kind] for kind in kinds)
        raise ConfigError(
            _unknown(what, name, [text for view in chosen for kind in kinds for text in _names(view, kind)])
        )
    if len(found) > 1:
        means = ", ".join(map(str, found))
        raise ConfigError(f'"{name}" may mean: {means}; choose with --flow or --kind')
    return found[0]


def decide(order: Order, named: NamedObject, view: FlowView, at_ms: int, giver: Giver = NO_GIVER) -> Decision:
    """Return what an operator command does: the facts to record, and the lines to print for the operator. Raises
    ConfigError if the command is impossible."""
    origin = giver.origin(order.by, order.reason, at_ms)
    match order.verb:
        case "pause":
            return _pause(named, view, origin)
        case "resume":
            return _restore(named, view, origin) if named.kind == "host" else _resume(named, view, origin)
        case "move":
            return _move(order, named, view, origin)
        case "unpin":
            return _unpin(named, view, origin)
        case "drain":
            return _drain(named, view, origin)
        case "seek":
            return _seek(order, named, view, origin)
        case "failover" | "cancel-failover":
            return _fail_over(order, view, origin)
        case "drill":
            check_no_failover(view.flow, view.recoveries)
            return Decision(view.flow, done=(f"a drill of {view.flow} begins",), job="drill")
        case "skip" | "replay":
            lane = TopicPartition(named.topic, named.partition)
            known = (view.quarantines.get(lane, {}), origin, view.ends, view.retrying.get(lane))
            fact, line = rule(order.verb, order, str(named), *known)
            return (
                Decision(view.flow, notes=(line,)) if fact is None else Decision(view.flow, (fact,), (line,), (lane,))
            )


def _fail_over(order: Order, view: FlowView, origin: Origin) -> Decision:
    if order.verb == "cancel-failover":
        finished = rule_cancel(view.flow, view.recoveries, origin.at_ms)
        return Decision(view.flow, (finished,), (f"failover {finished.number} of {view.flow} is cancelled",))
    copied = {lane.topic for lane in (*view.lanes, *view.known)}
    fact, line = rule_failover(view.flow, view.recoveries, copied, order.mode, order.topics, origin)
    return Decision(view.flow, notes=(line,)) if fact is None else Decision(view.flow, (fact,), (line,))


def _pause(named: NamedObject, view: FlowView, origin: Origin) -> Decision:
    standing = view.orders.paused.get(pause_key(named.topic, named.partition))
    if standing is not None:
        return Decision(view.flow, notes=(f"{named} is already paused, {describe_origin(standing.origin)}",))
    fact = CopyingPaused(named.topic, named.partition, origin)
    running = _covered(named, view)
    lanes = tuple(lane for lane in running if view.orders.pause_of(lane.topic, lane.partition) is None)
    return Decision(view.flow, (fact,), (f"{named} is paused",), lanes)


def _resume(named: NamedObject, view: FlowView, origin: Origin) -> Decision:
    wider = _also_paused(named, view.orders)
    if pause_key(named.topic, named.partition) not in view.orders.paused:
        notes = wider or [f"{named} is not paused"]
        return Decision(view.flow, notes=tuple(notes))
    fact = CopyingResumed(named.topic, named.partition, origin)
    after = Orders.of((*view.orders.facts(), fact))
    lanes = tuple(lane for lane in _covered(named, view) if after.pause_of(lane.topic, lane.partition) is None)
    still = [lane for lane in _covered(named, view) if lane not in lanes]
    if still and not wider:
        shown = ", ".join(map(str, still[:3]))
        more = f" and {len(still) - 3} more" if len(still) > 3 else ""
        wider = [f"paused by separate commands: {shown}{more}"]
    return Decision(view.flow, (fact,), (f"{named} is no longer paused",), lanes, tuple(wider))


def _also_paused(named: NamedObject, orders: Orders) -> list[str]:
    """Return one line for each pause of the whole flow, or of the lane's whole topic, that still keeps the object
    `named` paused."""
    wider = [pause_key("", -1), *([pause_key(named.topic, -1)] if named.kind == "lane" else [])]
    standing = [orders.paused[key] for key in wider if key in orders.paused and named.kind != "flow"]
    return [
        f"{named} is still paused: {pausable(each.topic, each.partition)} is, {describe_origin(each.origin)}"
        for each in standing
    ]


def _move(order: Order, named: NamedObject, view: FlowView, origin: Origin) -> Decision:
    lane = TopicPartition(named.topic, named.partition)
    targets = list(_of_kind(view, "host", order.to))
    if not targets:
        raise ConfigError(_unknown(f"replicator of {view.flow}", order.to, _names(view, "host")))
    host = next(host for host in view.hosts if host.name == targets[0].host)
    if view.lanes.get(lane) in view.alone:
        raise ConfigError(f"{named} has a dedicated replicator (replicators.alone): it cannot be moved to another one")
    if host.name in view.orders.drained:
        raise ConfigError(f"{host.name} is drained, {describe_origin(view.orders.drained[host.name].origin)}")
    if host.name not in view.takers:
        why = (
            f"it is {host.state}"
            if host.state != "serving"
            else ("it is a spare, is reserved for one lane, or is about to end")
        )
        raise ConfigError(f"{host.name} accepts no lanes: {why}")
    here = view.lanes.get(lane) in host.lanes
    if not here and not view.takers[host.name]:
        raise ConfigError(f"{host.name} has as many lanes as replicators.partitions_per_replicator allows")
    pin = view.orders.pins.get(str(lane))
    if pin is not None and pin.slot == host.slot:
        words = f"{named} is already pinned to replicator {host.slot}, {describe_origin(pin.origin)}"
        return Decision(view.flow, notes=(words, *_standing_still(lane, view)))
    fact = LanePinned(lane.topic, lane.partition, host.slot, origin)
    done = f"{named} stays on replicator {host.slot}" if here else f"{named} moves to replicator {host.slot}"
    return Decision(view.flow, (fact,), (done,), () if here else (lane,), tuple(_standing_still(lane, view)))


def _seek(order: Order, named: NamedObject, view: FlowView, origin: Origin) -> Decision:
    """Return the decision on a seek. `order.until` is the offset to seek to, and `order.offset` is the log start offset
    of the source partition."""
    name = TopicPartition(named.topic, named.partition)
    lane = view.lanes.get(name)
    if lane is None:
        raise ConfigError(f"{named} is currently not copied")
    at = view.standings.get(lane)
    if at is None:
        raise ConfigError(f"{named} has not begun yet; `start` of the flow says where it begins")
    fact, line = rule_seek(str(named), lane, at, order.until, max(order.offset, 0), origin)
    notes = tuple(_standing_still(name, view))
    return (
        Decision(view.flow, notes=(line, *notes))
        if fact is None
        else Decision(view.flow, (fact,), (line,), (name,), notes)
    )


def _standing_still(lane: TopicPartition, view: FlowView) -> Iterator[str]:
    if lane not in view.lanes:
        yield f"{lane} is currently not copied"
    elif (pause := view.orders.pause_of(lane.topic, lane.partition)) is not None:
        yield f"{lane} is paused, {describe_origin(pause.origin)}"


def _unpin(named: NamedObject, view: FlowView, origin: Origin) -> Decision:
    if f"{named.topic}-{named.partition}" not in view.orders.pins:
        return Decision(view.flow, notes=(f"{named} is not pinned to a replicator",))
    fact = LaneUnpinned(named.topic, named.partition, origin)
    return Decision(view.flow, (fact,), (f"{named} is no longer pinned to a replicator",))


def _drain(named: NamedObject, view: FlowView, origin: Origin) -> Decision:
    standing = view.orders.drained.get(named.host)
    if standing is not None:
        return Decision(view.flow, notes=(f"{named} is already drained, {describe_origin(standing.origin)}",))
    there = {host.name for host in view.hosts}
    ended = Origin(POLICY, "it has ended", origin.at_ms)
    # Names are never reused, so the entries of drained replicators that have ended are removed.
    facts: list[OrderFact] = [HostRestored(name, ended) for name in view.orders.drained if name not in there]
    hosted = next(host.lanes for host in view.hosts if host.name == named.host)
    lanes = tuple(sorted(name for name, lane in view.lanes.items() if lane in hosted))
    return Decision(view.flow, (*facts, HostDrained(named.host, origin)), (f"{named} is drained",), lanes)


def _restore(named: NamedObject, view: FlowView, origin: Origin) -> Decision:
    if named.host not in view.orders.drained:
        return Decision(view.flow, notes=(f"{named} is not drained",))
    return Decision(view.flow, (HostRestored(named.host, origin),), (f"{named} may host lanes again",))


def _covered(named: NamedObject, view: FlowView) -> list[TopicPartition]:
    return sorted(
        lane
        for lane in view.lanes
        if named.kind == "flow"
        or (lane.topic == named.topic and (named.kind == "topic" or lane.partition == named.partition))
    )


def _of_kind(view: FlowView, kind: ObjectKind, name: str) -> Iterator[NamedObject]:
    match kind:
        case "flow":
            if name == view.flow:
                yield NamedObject(view.flow, "flow")
        case "topic":
            if name in _topics(view):
                yield NamedObject(view.flow, "topic", name)
        case "lane":
            for lane in _lanes(view):
                if name == str(lane):
                    yield NamedObject(view.flow, "lane", lane.topic, lane.partition)
        case "host":
            for host in view.hosts:
                slot = f"replicator-{host.slot}" if host.state != "stopping" else host.name
                if name in {host.name, host.name.rpartition("/")[2], slot}:
                    yield NamedObject(view.flow, "host", host=host.name)


def _names(view: FlowView, kind: ObjectKind) -> list[str]:
    match kind:
        case "flow":
            return [view.flow]
        case "topic":
            return sorted(_topics(view))
        case "lane":
            return sorted(map(str, _lanes(view)))
        case "host":
            return [name for host in view.hosts for name in (host.name, f"replicator-{host.slot}")]


def _topics(view: FlowView) -> set[str]:
    return {lane.topic for lane in _lanes(view)} | {fact.topic for fact in view.orders.paused.values() if fact.topic}


def _lanes(view: FlowView) -> set[TopicPartition]:
    """Return every partition to which a name may refer, including partitions that appear only in active commands."""
    orders = [*view.orders.paused.values(), *view.orders.pins.values()]
    return {
        *view.lanes,
        *view.known,
        *(TopicPartition(fact.topic, fact.partition) for fact in orders if fact.partition >= 0),
    }


def _unknown(what: str, name: str, known: Sequence[str]) -> str:
    like = closest_name(name, known)
    if like is not None:
        return f'no {what} "{name}"; did you mean "{like}"?'
    shown = ", ".join(known[:5])
    return f'no {what} "{name}"; there are: {shown}{f" and {len(known) - 5} more" if len(known) > 5 else ""}'
