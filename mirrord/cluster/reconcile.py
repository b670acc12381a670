"""The lanes that there should be against the replicators that there are: the next few steps from one to the other.

Called again and again with what is observed; it remembers nothing. A lane is given to a replicator only while no other
one has it, and a replicator has a lane from the moment it was told until it gave the lane back or is known dead. So two
never host one lane, in whatever order the steps succeed or fail.

A crashed replicator's lanes do not wait for its replacement: who is there takes them, an empty spare first. When the
replacement is there, lanes move until the loads are even, a few at a time. A lane that is to be alone has a replicator
for itself.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Literal

import msgspec

from mirrord.cluster.placement import EQUAL, Room, Weights, moves, place, replicators_wanted
from mirrord.model.config import ReplicatorsConfig
from mirrord.model.names import LaneId

STARTS_AT_ONCE = 4
"""Replicators that may be starting at the same time: each start costs a second of a core."""
MOVES_AT_ONCE = 4
"""Lanes that may be moving at the same time to even out the load."""
LANES_AT_ONCE = 250
"""Lanes named in one step: a thousand in one message would hold up everything behind it."""


class Host(msgspec.Struct, frozen=True):
    """A replicator as it was observed."""

    name: str
    slot: int
    """Its number among the flow's replicators; a replacement takes the number over."""
    state: Literal["starting", "serving", "stopping"]
    lanes: frozenset[LaneId] = frozenset()
    """Given to it and not yet given back."""
    leaving: frozenset[LaneId] = frozenset()
    """Those of `lanes` that it is draining."""


class StartReplicator(msgspec.Struct, frozen=True):
    """Start one in this slot."""

    slot: int


class Assign(msgspec.Struct, frozen=True):
    """Give these lanes to the host."""

    host: str
    lanes: tuple[LaneId, ...]


class Release(msgspec.Struct, frozen=True):
    """Let the host drain these lanes and give them back."""

    host: str
    lanes: tuple[LaneId, ...]


class StopReplicator(msgspec.Struct, frozen=True):
    """The host has nothing to do any more."""

    host: str


Step = StartReplicator | Assign | Release | StopReplicator


class Wishes(msgspec.Struct, frozen=True):
    """What placement goes by, beside the configuration."""

    weights: Weights = EQUAL
    alone: frozenset[LaneId] = frozenset()
    """Lanes that get a replicator for themselves."""
    even_out: bool = True
    """Lanes may move only to even out the loads."""


def reconcile(
    desired: Sequence[LaneId],
    hosts: Sequence[Host],
    config: ReplicatorsConfig,
    cores: int,
    orphans: Collection[LaneId] = (),
    wishes: Wishes = Wishes(),  # noqa: B008 - it cannot be changed
) -> list[Step]:
    """The next steps; empty when nothing has to change. `orphans` are lanes whose replicator died: they come first."""
    alone = [lane for lane in desired if lane in wishes.alone]
    together = [lane for lane in desired if lane not in wishes.alone]
    shared = replicators_wanted(config, len(together), cores)
    wanted = shared + len(alone) + (config.spares if desired else 0)
    serving = [host for host in hosts if host.state == "serving"]
    starts = _starts(hosts, wanted)
    steps: list[Step] = [StartReplicator(slot) for slot in starts]
    steps += _unwanted(frozenset(desired), serving)

    hosted = {lane for host in hosts for lane in host.lanes}
    homeless = [lane for lane in together if lane not in hosted]
    fewer = bool(starts) or any(host.state == "starting" for host in hosts)
    placed = _place_alone([lane for lane in alone if lane not in hosted], serving)
    places = _Places(config, _hosts_of_many(serving, wishes.alone, placed, shared), wishes.weights)
    placed |= places.urgent([lane for lane in homeless if lane in orphans])
    # While some are on their way, each takes its share; the rest waits for those.
    share = -(-len(together) // max(shared, 1)) if fewer else None
    placed |= places.fresh([lane for lane in homeless if lane not in orphans], share)
    steps += _assignments(placed)

    waiting = any(lane not in hosted for lane in desired)
    if not steps and not waiting and all(host.state == "serving" and not host.leaving for host in hosts):
        steps += (
            _makes_room(serving, wishes.alone)
            or _empties(serving, places.hosts, wishes.alone)
            or _moves(places, wishes)
        )
    steps += _stops(serving, placed, sum(host.state != "stopping" for host in hosts) - wanted)
    return steps


class _Places:
    """The replicators that host many lanes, and what has been given to them in this step."""

    def __init__(self, config: ReplicatorsConfig, hosts: Sequence[Host], weights: Weights) -> None:
        limit = config.partitions_per_replicator
        self.hosts = hosts
        self._most = None if limit == "auto" else limit
        self._weights = weights
        self._rooms = [Room(host.name, weights.sum(host.lanes), len(host.lanes)) for host in hosts]

    def has_room(self, host: Host) -> bool:
        """Whether it may take another lane."""
        return self._most is None or len(host.lanes) < self._most

    def urgent(self, lanes: Sequence[LaneId]) -> dict[LaneId, str]:
        """Places for lanes that stand still."""
        return place(lanes, self._rooms, self._most, self._weights)

    def fresh(self, lanes: Sequence[LaneId], share: int | None) -> dict[LaneId, str]:
        """Places for lanes that begin; with a share no replicator gets more lanes than that."""
        limits = [each for each in (self._most, share) if each is not None]
        return place(lanes, self._rooms, min(limits, default=None), self._weights)


def _hosts_of_many(
    serving: Sequence[Host], alone: Collection[LaneId], placed: Mapping[LaneId, str], wanted: int
) -> list[Host]:
    """Those that have lanes, and as many of the empty ones as there should be; the others are spares, or too many."""
    free = [host for host in serving if host.lanes.isdisjoint(alone) and host.name not in placed.values()]
    used = sorted((host for host in free if host.lanes), key=lambda host: (-len(host.lanes), host.slot))[:wanted]
    empty = sorted((host for host in free if not host.lanes), key=lambda host: host.slot)
    return [*used, *empty[: max(0, wanted - len(used))]]


def _place_alone(lanes: Sequence[LaneId], serving: Sequence[Host]) -> dict[LaneId, str]:
    empty = sorted((host for host in serving if not host.lanes), key=lambda host: host.slot)
    return {lane: host.name for lane, host in zip(lanes, empty, strict=False)}


def _makes_room(serving: Sequence[Host], alone: Collection[LaneId]) -> list[Step]:
    """A lane that is to be alone and is not leaves for an empty replicator."""
    crowded = [(host, lane) for host in serving if len(host.lanes) > 1 for lane in sorted(host.lanes) if lane in alone]
    empty = sum(not host.lanes for host in serving)
    return [Release(host.name, (lane,)) for host, lane in crowded[: min(empty, MOVES_AT_ONCE)]]


def _starts(hosts: Sequence[Host], wanted: int) -> list[int]:
    missing = wanted - sum(host.state != "stopping" for host in hosts)
    room = STARTS_AT_ONCE - sum(host.state == "starting" for host in hosts)
    taken = {host.slot for host in hosts}
    free = (slot for slot in count() if slot not in taken)
    return list(islice(free, max(0, min(missing, room))))


def _unwanted(desired: Collection[LaneId], serving: Iterable[Host]) -> Iterator[Release]:
    for host in serving:
        yield from _releases(host.name, sorted(host.lanes - host.leaving - frozenset(desired)))


def _releases(host: str, lanes: Sequence[LaneId]) -> Iterator[Release]:
    for first in range(0, len(lanes), LANES_AT_ONCE):
        yield Release(host, tuple(lanes[first : first + LANES_AT_ONCE]))


def _assignments(placed: dict[LaneId, str]) -> Iterator[Assign]:
    for host in sorted(set(placed.values())):
        lanes = [lane for lane, where in placed.items() if where == host]
        for first in range(0, len(lanes), LANES_AT_ONCE):
            yield Assign(host, tuple(lanes[first : first + LANES_AT_ONCE]))


def _empties(serving: Sequence[Host], kept: Sequence[Host], alone: Collection[LaneId]) -> list[Step]:
    """There are more replicators than there should be: the one with the fewest lanes gives them up."""
    names = {host.name for host in kept}
    surplus = [host for host in serving if host.lanes and host.name not in names and host.lanes.isdisjoint(alone)]
    if not surplus or not kept:
        return []
    host = min(surplus, key=lambda each: (len(each.lanes), each.name))
    return [Release(host.name, tuple(sorted(host.lanes)[:MOVES_AT_ONCE]))]


def _moves(places: _Places, wishes: Wishes) -> list[Step]:
    """Lanes that leave the fullest host for the emptiest one that has room."""
    weights = wishes.weights
    loads = {host.name: weights.sum(host.lanes) for host in places.hosts}
    free = [loads[host.name] for host in places.hosts if places.has_room(host)]
    if len(loads) < 2 or not free or not wishes.even_out or not weights.apart(loads.values()):
        return []
    fullest = max(places.hosts, key=lambda host: (loads[host.name], host.name))
    leaving = moves(fullest.lanes, loads[fullest.name] - min(free), MOVES_AT_ONCE, weights)
    return [Release(fullest.name, tuple(sorted(leaving)))] if leaving else []


def _stops(serving: Sequence[Host], placed: dict[LaneId, str], surplus: int) -> Iterator[StopReplicator]:
    used = set(placed.values())
    idle = [host.name for host in serving if not host.lanes and host.name not in used]
    yield from (StopReplicator(name) for name in sorted(idle)[: max(0, surplus)])
