"""Traps in a compacted target: the cleaner removes copied records just before somebody has to know about them."""

from typing import TYPE_CHECKING

from tests.sim.traps.moments import LONG, Script, copying, forget, kill, may_start, until

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World


def _clean(world: "World") -> None:
    while world.target.replicate():
        pass
    for at in (0, 1):
        world.target.forget(at, world.wall_ms)
        world.target.clean(at, world.target.high_watermark)


def cleaned_before_a_takeover(story: "Story") -> Script:
    """Another client writes newer values of all keys, the cleaner removes the copies, and another holder takes the
    lane."""
    world = story.world
    host = yield from until(lambda: copying(world, acked=2), LONG)
    if not host:
        return
    world.note("trap: copies are superseded and cleaned before a takeover")
    if world.shape.foreign:
        world.target.foreign(world.rng.choice((1, world.target.keys)), world.wall_ms)
    _clean(world)
    if may_start(world):
        kill(host)
        world.start_host(former_dead=True)
    else:
        host.disconnect()


def lost_and_cleaned(story: "Story") -> Script:
    """The cleaner removes records, an unclean election removes others, and another holder takes the lane."""
    world = story.world
    host = yield from until(lambda: copying(world, acked=2), LONG)
    if not host:
        return
    _clean(world)
    world.target.in_sync = False
    world.target.advance()
    acked = host.lane.acked
    yield from until(lambda: not host.alive or host.lane.acked >= acked + world.rng.randint(1, 4))
    world.note("trap: records are lost from a cleaned log")
    world.target.elect()
    world.target.learn(world.wall_ms)
    if world.shape.foreign and world.rng.random() < 0.6:
        world.target.foreign(world.rng.choice((1, 2, world.target.keys)), world.wall_ms)
    forget(world)
    if not may_start(world):
        return
    if world.rng.random() < 0.5:
        host.save_progress()
    kill(host)
    world.start_host(former_dead=True)
