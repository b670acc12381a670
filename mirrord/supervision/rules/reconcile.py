"""Compares the desired lanes of a flow with the lanes that its replicators host, and determines the next few steps.

The functions are called repeatedly with the current state of the replicators, and keep no state between calls. A lane
is assigned to a replicator only while no other replicator has it. A replicator has a lane from the time the lane is
assigned to it until the replicator has given the lane back, is known to be dead, or counts as lost. Therefore, two
replicators of a flow never have the same lane, regardless of the order in which the steps succeed or fail.

The lanes of a crashed replicator do not wait for its replacement. They are assigned to the remaining replicators,
preferably to an empty spare replicator. When the replacement has started, lanes move to it a few at a time until the
loads are balanced. A lane that should run alone gets a replicator to itself. The operators' constraints (`Wishes`) are
obeyed unless that would leave a lane without a replicator.

If a Ray node has too many replicators according to `mirrord.supervision.rules.node_spread`, a new replicator starts on
another node. Next, the lanes of one replicator on the crowded node move away, as with `mirrord drain`, and that
replicator is stopped.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Literal

import msgspec

from mirrord.config.schema import ReplicatorsConfig
from mirrord.model.names import LaneId
from mirrord.supervision.rules.node_spread import crowded_node, fullest_node, node_for_next
from mirrord.supervision.rules.placement import EQUAL, PlacementCandidate, Weights, moves, place, replicators_wanted

STARTS_AT_ONCE = 4
"""Maximum number of replicators that may be starting at the same time. Each start uses about a second of CPU time."""
MOVES_AT_ONCE = 4
"""Maximum number of lanes that may be moving at the same time to balance the load."""
QUIET_AT_ONCE = 32
"""Maximum number of nearly idle lanes that may leave a replicator at the same time when all its lanes must leave.

A short pause in a nearly idle lane does no harm. Moving a thousand of these lanes four at a time would take minutes.
"""
_QUIET = 1.25
"""A lane is nearly idle if its weight is at most this multiple of the weight of a lane without a known data rate."""
LANES_AT_ONCE = 250
"""Maximum number of lanes in one step.

A single call with a thousand lanes would delay the calls that follow it.
"""


class ObservedReplicator(msgspec.Struct, frozen=True):
    """The current state of one replicator, as the input of `reconcile`."""

    name: str
    slot: int
    """Number of the replicator in its flow. A replacement takes over the number of the replicator that it replaces."""
    state: Literal["starting", "serving", "stopping"]
    lanes: frozenset[LaneId] = frozenset()
    """The lanes that have been assigned to the replicator and that it has not given back yet."""
    leaving: frozenset[LaneId] = frozenset()
    """The lanes among `lanes` that the replicator is draining."""
    node: str = ""
    """The Ray node on which the replicator runs. Empty if the node is not known."""


class StartReplicator(msgspec.Struct, frozen=True):
    """The step that starts a replicator with the number `slot`."""

    slot: int
    node: str = ""
    """The Ray node on which to start the replicator. If it is empty, the engine chooses a node."""


class Assign(msgspec.Struct, frozen=True):
    """The step that assigns these lanes to the replicator `host`."""

    host: str
    lanes: tuple[LaneId, ...]


class Release(msgspec.Struct, frozen=True):
    """The step that makes the replicator `host` drain these lanes and give them back."""

    host: str
    lanes: tuple[LaneId, ...]


class StopReplicator(msgspec.Struct, frozen=True):
    """The step that stops the replicator `host`, because it is no longer needed."""

    host: str


ReconcileStep = StartReplicator | Assign | Release | StopReplicator


class Wishes(msgspec.Struct, frozen=True):
    """Constraints on the placement of lanes, in addition to those in the configuration."""

    weights: Weights = EQUAL
    alone: frozenset[LaneId] = frozenset()
    """Lanes that must each have a replicator to themselves."""
    even_out: bool = True
    """Whether lanes may move for the sole purpose of balancing the loads. A new replicator gets lanes in any case."""
    pins: Mapping[LaneId, int] = {}
    """The replicator number of each lane that an operator has pinned. The lane is placed on this replicator if the
    replicator accepts lanes and has room (see `takers`). Otherwise, the lane is placed like any other."""
    drained: frozenset[str] = frozenset()
    """Replicators that an operator has drained.

    If no other replicator can take their lanes, one more replicator is started.
    """
    nodes: Mapping[str, int] = {}
    """Maps each node on which replicators can run to its number of cores. If it is empty, nodes are not considered."""


def reconcile(
    desired: Sequence[LaneId],
    hosts: Sequence[ObservedReplicator],
    config: ReplicatorsConfig,
    cores: int,
    orphans: Collection[LaneId] = (),
    wishes: Wishes = Wishes(),  # noqa: B008 - it is immutable
) -> list[ReconcileStep]:
    """Return the next steps from the current state of the replicators to the desired state, or an empty list if nothing
    has to change.

    `orphans` are lanes whose replicator died or was lost. They are placed before all other lanes.
    """
    alone = [lane for lane in desired if lane in wishes.alone]
    together = [lane for lane in desired if lane not in wishes.alone]
    shared, wanted = _counts(config, len(together), len(alone), cores, _drained(hosts, wishes))
    wanted = max(wanted, _for_newly_alone(alone, hosts, wishes))
    serving = [host for host in hosts if host.state == "serving"]
    misplaced = _misplaced(hosts, wanted, wishes)
    wishes = msgspec.structs.replace(wishes, drained=wishes.drained | misplaced)
    open_hosts = [host for host in serving if host.name not in wishes.drained]
    starts = _starts(hosts, wanted + len(misplaced))
    steps: list[ReconcileStep] = list(_placed_starts(starts, hosts, wishes))
    steps += _unwanted(frozenset(desired), serving)

    hosted = {lane for host in hosts for lane in host.lanes}
    homeless = [lane for lane in together if lane not in hosted]
    fewer = bool(starts) or any(host.state == "starting" for host in hosts)
    placed = _place_alone([lane for lane in alone if lane not in hosted], open_hosts)
    places = _Places(config, _hosts_of_many(open_hosts, wishes.alone, placed, shared), wishes)
    placed |= places.pinned(homeless)
    placed |= places.urgent([lane for lane in homeless if lane in orphans and lane not in placed])
    # While replicators are starting, each running replicator gets only its share of the lanes. Lanes that are pinned to
    # a starting replicator wait for it.
    share = -(-len(together) // max(shared, 1)) if fewer else None
    coming = {host.slot for host in hosts if host.state == "starting"}
    fresh = [lane for lane in homeless if lane not in orphans and wishes.pins.get(lane) not in coming]
    placed |= places.fresh([lane for lane in fresh if lane not in placed], share)
    steps += _assignments(placed)
    steps += places.to_pins(serving, desired)

    waiting = any(lane not in hosted for lane in desired)
    if not steps and not waiting and all(host.state == "serving" and not host.leaving for host in hosts):
        steps += (
            _makes_room(open_hosts, wishes.alone)
            or _leaves_drained(serving, open_hosts, places, wishes)
            or _empties(open_hosts, places.hosts, wishes)
            or _moves(places, wishes)
        )
    steps += _stops(serving, placed, sum(host.state != "stopping" for host in hosts) - wanted, misplaced)
    return steps


def takers(
    desired: Sequence[LaneId],
    hosts: Sequence[ObservedReplicator],
    config: ReplicatorsConfig,
    cores: int,
    wishes: Wishes,
) -> dict[str, bool]:
    """Return, for each replicator to which a lane may be pinned, whether it has room for another lane. The keys are the
    replicators' names."""
    alone = sum(lane in wishes.alone for lane in desired)
    shared, _ = _counts(config, len(desired) - alone, alone, cores, _drained(hosts, wishes))
    open_hosts = [host for host in hosts if host.state == "serving" and host.name not in wishes.drained]
    places = _Places(config, _hosts_of_many(open_hosts, wishes.alone, {}, shared), wishes)
    return {host.name: places.has_room(host) for host in places.hosts}


def destinations(
    leaving: Collection[LaneId],
    desired: Sequence[LaneId],
    hosts: Sequence[ObservedReplicator],
    config: ReplicatorsConfig,
    cores: int,
    wishes: Wishes,
) -> dict[str, list[LaneId]]:
    """Return the lanes that each replicator would get if the lanes in `leaving` had already left their replicators. The
    state may change before they have left, so the actual placement may differ."""
    gone = frozenset(leaving).intersection(desired)
    found: dict[str, list[LaneId]] = {}
    if not gone:
        return found
    without = [msgspec.structs.replace(host, lanes=host.lanes - gone, leaving=host.leaving - gone) for host in hosts]
    for step in reconcile(desired, without, config, cores, (), wishes):
        if isinstance(step, Assign) and (lanes := [lane for lane in step.lanes if lane in gone]):
            found[step.host] = [*found.get(step.host, ()), *lanes]
    return found


def _drained(hosts: Iterable[ObservedReplicator], wishes: Wishes) -> int:
    return sum(host.name in wishes.drained and host.state != "stopping" for host in hosts)


def _counts(config: ReplicatorsConfig, together: int, alone: int, cores: int, drained: int) -> tuple[int, int]:
    """Return how many replicators are needed for lanes that may share a replicator, and how many replicators there
    should be in total.

    The total includes drained replicators. A drained replicator is replaced only if lanes would otherwise have no
    replicator.
    """
    shared = replicators_wanted(config, together, cores)
    least = replicators_wanted(msgspec.structs.replace(config, count=1), together, cores)
    wanted = max(shared + alone + (config.spares if together or alone else 0), drained + least + alone)
    return min(shared, wanted - drained - alone), wanted


def _for_newly_alone(alone: Sequence[LaneId], hosts: Sequence[ObservedReplicator], wishes: Wishes) -> int:
    """Return how many replicators there must be so that each lane that should run alone, and has no replicator, gets an
    empty one. Return 0 if there is no such lane.

    All replicators may have lanes when a lane that has no replicator begins to be alone.
    """
    hosted = {lane for host in hosts for lane in host.lanes}
    homeless = sum(lane not in hosted for lane in alone)
    alive = [host for host in hosts if host.state != "stopping"]
    empty = sum(not host.lanes and host.name not in wishes.drained for host in alive)
    return len(alive) + homeless - empty if homeless else 0


class _Places:
    """The replicators that can host several lanes, with their loads. The loads include the lanes that were assigned to
    them in this step."""

    def __init__(self, config: ReplicatorsConfig, hosts: Sequence[ObservedReplicator], wishes: Wishes) -> None:
        limit = config.partitions_per_replicator
        self.hosts = hosts
        self._most = None if limit == "auto" else limit
        self._wishes = wishes
        self._weights = weights = wishes.weights
        self._rooms = [PlacementCandidate(host.name, weights.sum(host.lanes), len(host.lanes)) for host in hosts]

    def has_room(self, host: ObservedReplicator) -> bool:
        """Return whether the replicator may get another lane."""
        return self._most is None or len(host.lanes) < self._most

    def has_newcomer(self) -> bool:
        """Return whether one of the replicators is new. A replicator counts as new if it has less than half the average
        number of lanes."""
        lanes = [len(host.lanes) for host in self.hosts]
        return 2 * min(lanes) * len(lanes) < sum(lanes)

    def pinned(self, lanes: Sequence[LaneId]) -> dict[LaneId, str]:
        """Place the lanes that are pinned to one of these replicators. Return the replicator name of each placed
        lane."""
        placed: dict[LaneId, str] = {}
        for host, room in zip(self.hosts, self._rooms, strict=True):
            here = [lane for lane in lanes if self._wishes.pins.get(lane) == host.slot]
            placed |= place(here, [room], self._most, self._weights)
        return placed

    def to_pins(self, serving: Sequence[ObservedReplicator], desired: Collection[LaneId]) -> Iterator[Release]:
        """Yield steps that release lanes that are pinned to a replicator other than their current one. At most
        `MOVES_AT_ONCE` of these lanes move at the same time."""
        pins = self._wishes.pins
        free = {
            host.slot: MOVES_AT_ONCE if self._most is None else self._most - room.lanes
            for host, room in zip(self.hosts, self._rooms, strict=True)
        }
        movable = frozenset(desired) & pins.keys() - self._wishes.alone
        astray = [
            (host, lane)
            for host in serving
            for lane in sorted(host.lanes & movable)
            if pins[lane] != host.slot and pins[lane] in free
        ]
        going = [lane for host, lane in astray if lane in host.leaving]
        for lane in going:
            free[pins[lane]] -= 1
        for host, lane in astray:
            if lane not in host.leaving and len(going) < MOVES_AT_ONCE and free[pins[lane]] > 0:
                going.append(lane)
                free[pins[lane]] -= 1
                yield Release(host.name, (lane,))

    def urgent(self, lanes: Sequence[LaneId]) -> dict[LaneId, str]:
        """Choose a replicator for each lane whose replicator died or was lost. Return the replicator name of each
        lane."""
        return place(lanes, self._rooms, self._most, self._weights)

    def fresh(self, lanes: Sequence[LaneId], share: int | None) -> dict[LaneId, str]:
        """Choose a replicator for each lane that still has no replicator. Return the replicator name of each lane. With
        `share`, no replicator gets more than `share` lanes in total."""
        limits = [each for each in (self._most, share) if each is not None]
        return place(lanes, self._rooms, min(limits, default=None), self._weights)


def _hosts_of_many(
    serving: Sequence[ObservedReplicator], alone: Collection[LaneId], placed: Mapping[LaneId, str], wanted: int
) -> list[ObservedReplicator]:
    """Return at most `wanted` replicators for lanes that may share a replicator. These are the replicators with the
    most lanes and, if there are too few of them, empty replicators.

    All other empty replicators are spare or surplus.
    """
    free = [host for host in serving if host.lanes.isdisjoint(alone) and host.name not in placed.values()]
    used = sorted((host for host in free if host.lanes), key=lambda host: (-len(host.lanes), host.slot))[:wanted]
    empty = sorted((host for host in free if not host.lanes), key=lambda host: host.slot)
    return [*used, *empty[: max(0, wanted - len(used))]]


def _place_alone(lanes: Sequence[LaneId], serving: Sequence[ObservedReplicator]) -> dict[LaneId, str]:
    empty = sorted((host for host in serving if not host.lanes), key=lambda host: host.slot)
    return {lane: host.name for lane, host in zip(lanes, empty, strict=False)}


def _makes_room(serving: Sequence[ObservedReplicator], alone: Collection[LaneId]) -> list[ReconcileStep]:
    """Return the steps that release lanes from shared replicators, if these lanes should run alone. After the release,
    they can move to empty replicators."""
    crowded = [(host, lane) for host in serving if len(host.lanes) > 1 for lane in sorted(host.lanes) if lane in alone]
    empty = sum(not host.lanes for host in serving)
    return [Release(host.name, (lane,)) for host, lane in crowded[: min(empty, MOVES_AT_ONCE)]]


def _starts(hosts: Sequence[ObservedReplicator], wanted: int) -> list[int]:
    missing = wanted - sum(host.state != "stopping" for host in hosts)
    room = STARTS_AT_ONCE - sum(host.state == "starting" for host in hosts)
    # The replacement for a stopping replicator gets that replicator's number, and therefore also the lanes that are
    # pinned to this number.
    taken = {host.slot for host in hosts if host.state != "stopping"}
    free = (slot for slot in count() if slot not in taken)
    return list(islice(free, max(0, min(missing, room))))


def _unwanted(desired: Collection[LaneId], serving: Iterable[ObservedReplicator]) -> Iterator[Release]:
    for host in serving:
        yield from _releases(host.name, sorted(host.lanes - host.leaving - frozenset(desired)))


def _misplaced(hosts: Sequence[ObservedReplicator], wanted: int, wishes: Wishes) -> frozenset[str]:
    """Return a set with the name of the replicator that should be replaced by one on another node, or an empty set if
    no replicator should be replaced.

    The same name is returned until that replicator has ended. A replicator is never chosen if an operator has drained
    it, if lanes are pinned to it, or if it hosts a lane that must run alone.
    """
    alive = [host for host in hosts if host.state != "stopping" and host.name not in wishes.drained]
    if len(wishes.nodes) < 2 or len(alive) < wanted or any(host.node not in wishes.nodes for host in alive):
        return frozenset()
    pinned = set(wishes.pins.values())
    taken = [host.node for host in alive]
    # If there is one replicator too many, the replacement is already running.
    node = fullest_node(taken, wishes.nodes) if len(alive) > wanted else crowded_node(taken, wishes.nodes)
    free = [
        host
        for host in alive
        if host.node == node
        if host.state == "serving" and host.slot not in pinned and host.lanes.isdisjoint(wishes.alone)
    ]
    return frozenset(host.name for host in sorted(free, key=lambda host: (len(host.lanes), -host.slot))[:1])


def _placed_starts(
    slots: Iterable[int], hosts: Sequence[ObservedReplicator], wishes: Wishes
) -> Iterator[StartReplicator]:
    taken = [host.node for host in hosts if host.state != "stopping" and host.name not in wishes.drained]
    for slot in slots:
        node = node_for_next(taken, wishes.nodes)
        taken.append(node)
        yield StartReplicator(slot, node)


def _releases(host: str, lanes: Sequence[LaneId]) -> Iterator[Release]:
    for first in range(0, len(lanes), LANES_AT_ONCE):
        yield Release(host, tuple(lanes[first : first + LANES_AT_ONCE]))


def _assignments(placed: dict[LaneId, str]) -> Iterator[Assign]:
    for host in sorted(set(placed.values())):
        lanes = [lane for lane, where in placed.items() if where == host]
        for first in range(0, len(lanes), LANES_AT_ONCE):
            yield Assign(host, tuple(lanes[first : first + LANES_AT_ONCE]))


def _leaves_drained(
    serving: Sequence[ObservedReplicator], open_hosts: Sequence[ObservedReplicator], places: _Places, wishes: Wishes
) -> list[ReconcileStep]:
    """Return a step that releases lanes of a drained replicator if another replicator can take them."""
    for host in serving:
        if host.name not in wishes.drained:
            continue
        rooms = sum(not each.lanes for each in open_hosts if each not in places.hosts)
        alone = sorted(host.lanes & wishes.alone)[:rooms]
        others = sorted(host.lanes - wishes.alone) if any(map(places.has_room, places.hosts)) else []
        if leaving := _next([*alone, *others], wishes):
            return [Release(host.name, tuple(sorted(leaving)))]
    return []


def _next(lanes: Sequence[LaneId], wishes: Wishes) -> Sequence[LaneId]:
    """From the lanes that must leave a replicator, select those that leave it in the next step."""
    weights = wishes.weights
    quiet = [lane for lane in lanes if weights.by_lane.get(lane, math.inf) <= _QUIET * weights.unknown]
    return quiet[:QUIET_AT_ONCE] if len(quiet) > MOVES_AT_ONCE else lanes[:MOVES_AT_ONCE]


def _empties(
    serving: Sequence[ObservedReplicator], kept: Sequence[ObservedReplicator], wishes: Wishes
) -> list[ReconcileStep]:
    """Return a step that releases lanes of the surplus replicator with the fewest lanes."""
    names = {host.name for host in kept}
    surplus = [
        host for host in serving if host.lanes and host.name not in names and host.lanes.isdisjoint(wishes.alone)
    ]
    if not surplus or not kept:
        return []
    host = min(surplus, key=lambda each: (len(each.lanes), each.name))
    return [Release(host.name, tuple(sorted(_next(sorted(host.lanes), wishes))))]


def _moves(places: _Places, wishes: Wishes) -> list[ReconcileStep]:
    """Return a step that releases lanes of the replicator with the highest load. Once released, these lanes can move to
    the replicator with the lowest load that has room."""
    weights = wishes.weights
    loads = {host.name: weights.sum(host.lanes) for host in places.hosts}
    free = [loads[host.name] for host in places.hosts if places.has_room(host)]
    if len(loads) < 2 or not free or not weights.apart(loads.values()):
        return []
    if not wishes.even_out and not places.has_newcomer():
        return []
    # Pinned lanes do not move, so the replicator with the highest load may have no lane to move.
    for host in sorted(places.hosts, key=lambda host: (loads[host.name], host.name), reverse=True):
        free_to_go = host.lanes - wishes.pins.keys()
        if leaving := moves(free_to_go, loads[host.name] - min(free), MOVES_AT_ONCE, weights):
            return [Release(host.name, tuple(sorted(leaving)))]
        if not wishes.pins:
            break
    return []


def _stops(
    serving: Sequence[ObservedReplicator], placed: dict[LaneId, str], surplus: int, misplaced: Collection[str]
) -> Iterator[StopReplicator]:
    used = set(placed.values())
    idle = [host.name for host in serving if not host.lanes and host.name not in used]
    # While a replicator is being replaced, its replacement is initially empty and must not be stopped.
    idle = sorted(name for name in idle if name in misplaced or not misplaced)
    yield from (StopReplicator(name) for name in idle[: max(0, surplus)])
