"""The lanes that there should be against the replicators that there are: the next few steps from one to the other.

Called again and again with what is observed; it remembers nothing. A lane is given to a replicator only while no other
one has it, and a replicator has a lane from the moment it was told until it gave the lane back or is known dead. So two
never host one lane, in whatever order the steps succeed or fail.

A crashed replicator's lanes do not wait for its replacement: who is there takes them. When the replacement is there,
lanes move until no replicator has two more than another, a few at a time.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Literal

import msgspec

from mirrord.cluster.placement import place, replicators_wanted
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


def reconcile(
    desired: Sequence[LaneId],
    hosts: Sequence[Host],
    config: ReplicatorsConfig,
    cores: int,
    orphans: Collection[LaneId] = (),
) -> list[Step]:
    """The next steps; empty when nothing has to change. `orphans` are lanes whose replicator died: they come first."""
    wanted = replicators_wanted(config, len(desired), cores)
    most = None if config.partitions_per_replicator == "auto" else config.partitions_per_replicator
    serving = [host for host in hosts if host.state == "serving"]
    starts = _starts(hosts, wanted)
    steps: list[Step] = [StartReplicator(slot) for slot in starts]
    steps += _unwanted(frozenset(desired), serving)

    hosted = {lane for host in hosts for lane in host.lanes}
    homeless = [lane for lane in desired if lane not in hosted]
    urgent = [lane for lane in homeless if lane in orphans]
    fresh = [lane for lane in homeless if lane not in orphans]
    loads = {host.name: len(host.lanes) for host in serving}
    placed = place(urgent, loads, most)
    for host in placed.values():
        loads[host] += 1
    if starts or any(host.state == "starting" for host in hosts):
        # Each takes its share; the rest waits for those that are on their way.
        share = -(-len(desired) // max(wanted, 1))
        most = share if most is None else min(share, most)
    placed |= place(fresh, loads, most)
    steps += _assignments(placed)

    if not steps and not homeless and all(host.state == "serving" and not host.leaving for host in hosts):
        steps += _moves(serving, wanted)
    steps += _stops(serving, placed, sum(host.state != "stopping" for host in hosts) - wanted)
    return steps


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


def _moves(serving: Sequence[Host], wanted: int) -> Iterator[Release]:
    """Lanes that leave the fullest host, half the way to what the emptiest has."""
    if len(serving) < 2 or len(serving) > wanted:
        return
    fullest = max(serving, key=lambda host: (len(host.lanes), host.name))
    emptiest = min(serving, key=lambda host: (len(host.lanes), host.name))
    moves = min((len(fullest.lanes) - len(emptiest.lanes)) // 2, MOVES_AT_ONCE)
    if moves > 0:
        yield Release(fullest.name, tuple(sorted(fullest.lanes)[-moves:]))


def _stops(serving: Sequence[Host], placed: dict[LaneId, str], surplus: int) -> Iterator[StopReplicator]:
    used = set(placed.values())
    idle = [host.name for host in serving if not host.lanes and host.name not in used]
    yield from (StopReplicator(name) for name in sorted(idle)[: max(0, surplus)])
