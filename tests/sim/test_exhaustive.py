"""Small worlds, every interleaving: two writers, a few batches, a few faults, each at every possible moment.

The explorer starts with the first batch in flight and walks, breadth first and with the real lane code, every order of
the next `DEPTH` steps. Of worlds that look the same only one is continued.
"""

import copy
import os
from collections import deque
from typing import Any

import pytest

from tests.sim import truth
from tests.sim.host import Shape
from tests.sim.themes import OLD_MS
from tests.sim.world import World

DEPTH = int(os.environ.get("MIRRORD_SIM_DEPTH", "6"))


def small_world(age_ms: int, *, transactional: bool = False) -> World:
    """Two replicators take the same lane, the source holds three batches."""
    world = World(1, Shape(record_age_ms=age_ms, window=2, ledger_faults=False))
    world.saves = 1.0
    for count in (1, 2):
        world.source.append(count, world.record_ms(), 7 if transactional else -1)
    if transactional:
        world.source.finish(7, world.record_ms(), commit=True)
    world.source.append(1, world.record_ms())
    first = world.start_host(former_dead=False)
    while not first.lane.in_flight:
        world.do(world.choices()[0])
    return world


def looks(world: World) -> str:
    """What distinguishes two worlds."""
    hosts = [
        (host.name, host.alive, host.lane.phase, host.lane.stage, host.lane.round, host.lane.acked, host.lane.position,
         len(host.lane.ready), len(host.lane.in_flight), host.lane.resume_position, host.lane.intents,
         host.state.next_offset,
         [repr(each) for each in host.inbox], len(host.appends), len(host.sent), len(host.answers), sorted(host.timers))
        for host in world.hosts
    ]  # fmt: skip
    wire = [(request.host.name, request.batch.first, request.connection) for request in world.wire]
    brokers = [(broker.log, broker.memory, broker.leads, broker.epoch) for broker in world.target.brokers]
    return repr((hosts, wire, brokers, world.target.high_watermark, len(world.ledger), world.now))


FAULTS: dict[str, Any] = {
    "takeover": lambda world: world.start_host(former_dead=False),
    "disconnect": lambda world: world.hosts[-1].disconnect(),
    "election": lambda world: world.target.elect(),
    "forgetting": lambda world: world.target.forget(world.target.leader, world.wall_ms),
    "refusal": lambda world: setattr(world.target, "refusal", 19) or setattr(world.target, "refusals_left", 1),
}


def explore(world: World, faults: tuple[str, ...]) -> int:
    """Every order of what can happen, with each fault at most once; the number of different worlds seen."""
    seen: set[str] = set()
    waiting = deque([(world, faults, 0)])
    while waiting:
        here, left, depth = waiting.popleft()
        key = looks(here) + repr(left)
        if key in seen or depth >= DEPTH:
            continue
        seen.add(key)
        chance = here.rng.getstate()
        moves = len(here.choices())
        here.rng.setstate(chance)  # the copies have to see the same choices
        for at in range(moves + 1 + len(left)):
            # deepcopy keeps the identity of objects within the world, and the worlds separate.
            there = copy.deepcopy(here)
            remaining = left
            if at < moves:
                there.do(there.choices()[at])
            elif at == moves:
                later = there.next_time()
                if later is None:
                    continue
                there.advance(later)
            else:
                fault = left[at - moves - 1]
                remaining = tuple(each for each in left if each != fault)
                FAULTS[fault](there)
            truth.check(there)
            waiting.append((there, remaining, depth + 1))
    return len(seen)


@pytest.mark.parametrize("age_ms", [0, OLD_MS], ids=["fresh", "old"])
@pytest.mark.parametrize(
    "faults",
    [("takeover",), ("disconnect", "election"), ("takeover", "disconnect"), ("disconnect", "forgetting"), ("refusal",)],
    ids="-".join,
)
def test_every_interleaving(age_ms: int, faults: tuple[str, ...]) -> None:
    assert explore(small_world(age_ms), faults) > 40


def test_every_interleaving_of_a_transaction() -> None:
    assert explore(small_world(0, transactional=True), ("takeover",)) > 50
