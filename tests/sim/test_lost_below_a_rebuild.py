"""A refused batch arrives late, after an unclean election has removed the batches that followed it. Before the map is
rebuilt, the source loses its records and earlier ones, and uses their offsets again."""

import pytest

from tests.sim import late_bytes, truth
from tests.sim.host import LANE, Shape
from tests.sim.themes import OLD_MS
from tests.sim.traps.driving import copy_all, drive, holder, on_the_way, save_position
from tests.sim.traps.moments import forget, kill
from tests.sim.world import World

SHAPE = Shape(truncation=True, record_age_ms=OLD_MS, forgetting=True, unclean=True)
NOT_ENOUGH_REPLICAS = 19


def late(seed: int) -> World:
    """The holder that was to copy a refused batch again is dead, and the batch is in the target after all."""
    world = World(seed, SHAPE)
    source, target = world.source, world.target
    for _ in range(4):
        source.append(2, world.record_ms())
    world.start_host(former_dead=False)
    host = holder(world, acked=8)
    assert host is not None
    assert copy_all(world) is host
    while target.replicate():
        pass
    save_position(host)
    for _ in range(3):
        source.append(4, world.record_ms())
    requests = drive(world, host, lambda: on_the_way(world, host, 3), without=("arrive",))
    assert requests
    target.in_sync, target.refusal, target.refusals_left, target.forget_after = False, NOT_ENOUGH_REPLICAS, 1, True
    target.advance()
    for each in requests:
        world.do(("arrive", each))
    target.refusals_left, target.forget_after = 0, False
    assert drive(world, host, lambda: bool(host.lane.plan), without=("replicate",))
    target.elect()
    target.learn(world.wall_ms)
    forget(world)
    kill(host)
    world.wire.clear()
    requests[0].broker = target.leader
    assert late_bytes.land(world, requests[0])[0] == 0
    return world


@pytest.mark.parametrize("batches", [4, 5, 6])
@pytest.mark.parametrize("seed", range(3))
def test_the_loss_of_earlier_records_is_noticed(seed: int, batches: int) -> None:
    """LOSS. The new log has transaction markers between the records at the offsets of the late ones. The lane copied
    these records as missing ones, with fetches that carried no epoch, and never asked about the earlier ones."""
    world = late(seed)
    source = world.source
    begin = source.log[-3].base
    end = source.end
    source.truncate(batches)
    source.append(begin - 2 - source.end, world.record_ms())
    for producer in (0, 1):
        source.append(1, world.record_ms(), producer)
    for producer in (0, 1):
        source.finish(producer, world.record_ms(), commit=True)
        source.append(1, world.record_ms())
    while source.end <= end:
        source.append(2, world.record_ms())
    world.start_host(former_dead=True)
    assert copy_all(world)
    source.append(1, world.record_ms())
    assert copy_all(world)
    truth.check(world, final=True)
    assert world.rebuilds
    assert world.truth.lanes[LANE].verdicts.counts["truncated"]
