"""The source has deleted the records of batches in flight, and has not lost any record in an election. One of the
batches arrives later than anyone waits for it, under an ordinal that belongs to a record which the source does not have
yet."""

import pytest

from tests.sim import late_bytes, truth
from tests.sim.host import LANE, Host, Request, Shape
from tests.sim.themes import OLD_MS
from tests.sim.traps.driving import copy_all, drive, holder, on_the_way
from tests.sim.traps.moments import forget, keep, kill
from tests.sim.world import World

SHAPE = Shape(retention=True, forgetting=True, record_age_ms=OLD_MS)
SEEDS = range(5)


def begun(seed: int) -> tuple[World, Host, list[Request]]:
    """Two batches are in flight. Their records are deleted, and the source log has one later record."""
    world = World(seed, SHAPE)
    world.source.append(2, world.record_ms())
    world.start_host(former_dead=False)
    host = holder(world, acked=1)
    assert host is not None
    assert copy_all(world) is host
    for _ in range(2):
        world.source.append(1, world.record_ms())
    requests = drive(world, host, lambda: on_the_way(world, host, 2), without=("arrive",))
    assert requests
    keep(requests)
    world.source.append(1, world.record_ms())
    world.source.expire(len(world.source.log) - 1)
    return world, host, requests


def arrive_late(world: World, request: Request) -> None:
    """The broker reads what everyone has given up."""
    forget(world)
    if request in world.wire:
        world.wire.remove(request)
    error, _ = late_bytes.land(world, request)
    assert not error


def finish(world: World) -> None:
    """The source gets more records, and all are copied."""
    assert copy_all(world)
    world.source.append(2, world.record_ms())
    assert copy_all(world)
    truth.check(world, final=True)
    assert "truncated" not in world.truth.lanes[LANE].verdicts.counts


@pytest.mark.parametrize("elects", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_late_batch_of_the_lane_itself(seed: int, *, elects: bool) -> None:
    """WRONG VERDICT. The lane had given the ordinal of the first batch to another record, and had sent that one."""
    world, host, requests = begun(seed)
    host.disconnect()
    first = requests[0].batch.first
    assert drive(world, host, lambda: host.lane.acked > first and not host.lane.in_flight)
    arrive_late(world, requests[1])
    while world.target.replicate():
        pass
    world.target.elect()
    world.target.learn(world.wall_ms)
    if elects:
        world.source.elect()
        world.source.append(1, world.record_ms())
    world.do(("moved", host))
    finish(world)


@pytest.mark.parametrize("elects", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_late_batch_after_a_holder_that_has_read_and_not_sent(seed: int, *, elects: bool) -> None:
    """WRONG VERDICT. The second holder had given the ordinals of both batches to other records, and had read the first
    of these."""
    world, host, requests = begun(seed)
    kill(host)
    second = world.start_host(former_dead=True)
    assert drive(world, second, lambda: second.lane.confirming)
    kill(second)
    arrive_late(world, requests[1])
    if elects:
        world.source.elect()
        world.source.append(1, world.record_ms())
    world.start_host(former_dead=True)
    finish(world)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_late_batch_after_all_doubt_has_ended(seed: int) -> None:
    """LOST. The second holder had waited, and had compared all that it had copied."""
    world, host, requests = begun(seed)
    kill(host)
    second = world.start_host(former_dead=True)
    first = requests[0].batch.first
    assert drive(world, second, lambda: second.lane.acked > first and not second.lane.comparison.later_pending)
    assert drive(world, second, lambda: world.truth.lanes[LANE].regiven < 0)
    kill(second)
    arrive_late(world, requests[1])
    world.start_host(former_dead=True)
    finish(world)
