"""Traps in which the target loses records by an unclean election."""

from collections.abc import Generator
from typing import TYPE_CHECKING

from tests.sim.host import Host
from tests.sim.traps.moments import LONG, Script, copying, forget, kill, may_start, resuming, until, write_others

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World


def _lag(world: "World") -> None:
    """The follower falls behind and leaves the ISR, so that all that is acknowledged from now on is on one broker."""
    world.target.in_sync = False
    world.target.advance()


def _copying_to_one_broker(world: "World") -> Generator[None, None, Host | None]:
    """Wait until a host has copied records that are on one broker only. Return it, or None."""
    _lag(world)
    return (yield from until(lambda: copying(world, acked=2), LONG))


def _lose(world: "World") -> None:
    """The broker that lacks the last records becomes the leader."""
    world.target.elect()
    if world.rng.random() < 0.7:
        world.target.learn(world.wall_ms)


def foreign_where_copies_were(story: "Story") -> Script:
    """The target loses the lane's last records, and another client writes at their offsets at once."""
    world = story.world
    host = yield from _copying_to_one_broker(world)
    if not host:
        return
    before = world.target.end
    world.note("trap: the target loses copies, others take their offsets")
    _lose(world)
    lost = min(max(before - world.target.end, 1), 60)
    write_others(world, lost if world.rng.random() < 0.6 else world.rng.randint(1, 4))
    forget(world)
    if world.rng.random() < 0.5 and may_start(world):
        if world.rng.random() < 0.5:
            kill(host)
        world.start_host(former_dead=not host.alive)


def lost_before_the_position_is_saved(story: "Story") -> Script:
    """The target loses acknowledged records at the moment at which their holder is killed."""
    world = story.world
    host = yield from _copying_to_one_broker(world)
    if not host:
        return
    if world.rng.random() < 0.5:
        host.save_progress()
    world.note(f"trap: the target loses copies, {host.name} is killed")
    kill(host)
    _lose(world)
    forget(world)
    if may_start(world):
        world.start_host(former_dead=True)


def lost_twice(story: "Story") -> Script:
    """The target loses records, and loses records again before the lane has copied them again."""
    world = story.world
    host = yield from _copying_to_one_broker(world)
    if not host:
        return
    world.note("trap: the target loses copies twice")
    _lose(world)
    forget(world)
    yield from until(lambda: resuming(world))
    yield from until(lambda: copying(world))
    for _ in range(world.rng.randrange(12)):
        yield
    world.target.learn(world.wall_ms)
    _lag(world)
    world.target.elect()
    if world.shape.foreign and world.rng.random() < 0.5:
        world.target.foreign(world.rng.randint(1, 3), world.wall_ms)
    if world.rng.random() < 0.5 and may_start(world):
        kill(host)
        world.start_host(former_dead=True)
