"""Traps at the target: elections, other clients, and bytes that arrive at a bad moment."""

from typing import TYPE_CHECKING

from mirrord.replication.lane.phases import Phase, Stage
from tests.sim import late_bytes
from tests.sim.traps.moments import (
    LONG,
    Script,
    deliver,
    forget,
    idle,
    keep,
    may_elect,
    on_the_wire,
    resuming,
    until,
)

if TYPE_CHECKING:
    from tests.sim.scheduler import Story

_SANDWICH = (Stage.PRODUCERS, Stage.END_AGAIN, Stage.VISIBLE)


def election_in_the_sandwich(story: "Story") -> Script:
    """The leader changes between two requests of a resume sandwich. The lane resumes because it lost a connection while
    batches were in flight."""
    world = story.world
    requests = yield from until(lambda: on_the_wire(world))
    if not requests:
        return
    host = requests[0].host
    for _ in range(world.rng.randrange(3)):
        yield
    if not host.alive or host.paused:
        return
    host.disconnect()
    stage = world.rng.choice(_SANDWICH)
    if (yield from until(lambda: resuming(world, (stage,)))) and may_elect(world):
        world.note("trap: election in the sandwich")
        world.target.elect()
        if world.rng.random() < 0.5:
            forget(world)


def election_while_idle(story: "Story") -> Script:
    """An unclean election removes the last records while the lane has nothing to copy."""
    world = story.world
    world.target.in_sync = False
    world.target.advance()
    host = yield from until(lambda: idle(world), LONG)
    if host:
        world.note("trap: election while idle")
        if world.rng.random() < 0.5:
            world.target.bounce(world.wall_ms, world.rng.randint(0, 2))
        else:
            world.target.elect()
        forget(world)


def foreign_in_between(story: "Story") -> Script:
    """Another client writes while batches of the lane are on their way."""
    world = story.world
    if (yield from until(lambda: on_the_wire(world))):
        world.note("trap: foreign records in between")
        world.target.foreign(world.rng.randint(1, 3), world.wall_ms)


def own_bytes_of_a_dead_connection(story: "Story") -> Script:
    """What was sent over a dead connection reaches the broker once the lane copies again."""
    world = story.world
    requests = yield from until(lambda: on_the_wire(world))
    if not requests:
        return
    host = keep(requests)
    world.note(f"trap: bytes of a dead connection of {host.name} are kept")
    host.disconnect()
    forget(world)
    is_early = world.rng.random() < 0.5

    def is_back() -> bool:
        return not host.alive or (host.lane.phase is Phase.COPYING and (is_early or bool(host.lane.in_flight)))

    yield from until(is_back, LONG)
    forget(world)
    yield from deliver(world, requests)


def bytes_that_everyone_gave_up(story: "Story") -> Script:
    """Bytes of a dead connection are appended just before the lane sends the same records."""
    world = story.world
    requests = yield from until(lambda: on_the_wire(world))
    if not requests:
        return
    for each in requests:
        world.forsake(each)
    requests[0].host.disconnect()
    forget(world)

    def is_telling() -> bool:
        return any(late_bytes.reads_again(world, host, each) for host in world.hosts for each in world.limbo)

    if (yield from until(is_telling, LONG)):
        forget(world)
        late_bytes.arrive(world)
