"""Records that a compacted target has lost, and that the source has deleted since."""

from collections.abc import Callable

import pytest

from mirrord.replication.lane.phases import Phase
from tests.sim.host import Host, Shape
from tests.sim.themes import OLD_MS
from tests.sim.world import World

_MOST_STEPS = 2000


def _play(world: World, until: Callable[[], bool]) -> None:
    """Let the world go on without faults."""
    for _ in range(_MOST_STEPS):
        if until():
            return
        choices, later = world.choices(), world.next_time()
        if choices and (later is None or world.rng.random() < 0.9):
            world.do(world.rng.choice(choices))
        elif later is not None:
            world.advance(later)
    pytest.fail("this never happened")


def _has_copied(host: Host) -> bool:
    lane, source = host.lane, host.world.source
    idle = lane.phase is Phase.COPYING and not (lane.ready or lane.in_flight or lane.intents or lane.notes)
    return idle and lane.position >= source.end and lane.log.end_epoch == host.world.target.epoch


def _everywhere(world: World) -> None:
    while world.target.replicate():
        pass
    for at in (0, 1):
        world.target.forget(at, world.wall_ms)


def _next_holder(world: World, former: Host) -> Host:
    former.alive = False
    former.sent.clear()
    return world.start_host(former_dead=True)


@pytest.mark.xfail(strict=True, reason="the run after the deleted records does not revoke the saved position")
def test_a_record_that_was_never_copied_is_not_superseded() -> None:
    shape = Shape(cleans=True, unclean=True, foreign=True, forgetting=True, retention=True, record_age_ms=OLD_MS)
    world = World(1, shape)
    source, target = world.source, world.target
    first = world.start_host(former_dead=False)
    for count in (3, 1):
        source.append(count, world.record_ms())
        _play(world, lambda: _has_copied(first))
    # The cleaner removes the record, and the next holder finds only by its key that it was there.
    end = target.end
    target.foreign(2, world.wall_ms)
    target.foreign(target.keys, world.wall_ms)
    _everywhere(world)
    for at in (0, 1):
        target.clean(at, target.high_watermark)
    second = _next_holder(world, first)
    _play(world, lambda: _has_copied(second))
    source.append(4, world.record_ms())
    _play(world, lambda: _has_copied(second))
    world.saves = 1.0
    second.save_progress()
    world.saves = 0.0
    assert world.progress is not None
    assert world.progress.ordinal == 8
    # The target loses all that followed, and the source deletes all records. The holder plans to copy them again.
    follower = target.brokers[1]
    follower.truncate(end)
    target.reload(1, world.wall_ms)
    target.elect()
    target.learn(world.wall_ms)
    source.expire(100)
    _everywhere(world)
    _play(world, lambda: _has_copied(second))
    # Others are written, and another holder is to copy them.
    source.append(5, world.record_ms())
    target.foreign(target.keys, world.wall_ms)
    new = set(source.wanted())
    third = _next_holder(world, second)
    _play(world, lambda: _has_copied(third))
    assert new <= target.taken()
