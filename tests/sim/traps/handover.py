"""Traps while another holder takes the lane."""

from typing import TYPE_CHECKING

from mirrord.ledger.facts.core import LaneTaken
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Drain
from tests.sim.host import Host
from tests.sim.past import acked_in_story
from tests.sim.traps.moments import (
    LONG,
    Script,
    copying,
    deliver,
    forget,
    keep,
    kill,
    may_start,
    on_the_wire,
    running,
    sends,
    until,
)

if TYPE_CHECKING:
    from tests.sim.scheduler import Story


def bytes_of_the_former_holder(story: "Story") -> Script:
    """What the former holder sent reaches the broker once the next one has begun to send."""
    world = story.world
    requests = yield from until(lambda: on_the_wire(world))
    if not requests or not may_start(world):
        return
    former = keep(requests)
    world.note(f"trap: bytes of {former.name} are kept")
    if world.rng.random() < 0.5:
        kill(former)
    later = world.start_host(former_dead=not former.alive)
    forget(world)
    yield from until(lambda: sends(later), LONG)
    forget(world)
    yield from deliver(world, requests)


def two_takers(story: "Story") -> Script:
    """A second replicator takes the lane before the first one has read that it did."""
    world = story.world

    def taking() -> Host | None:
        for host in running(world):
            facts = (fact for _, entry in host.appends for fact in entry.facts)
            if any(isinstance(fact, LaneTaken) for fact in facts):
                return host
        return None

    if (yield from until(taking)) and may_start(world):
        world.note("trap: two takers")
        world.start_host(former_dead=False)


def drain_in_doubt(story: "Story") -> Script:
    """A lane is drained right after it lost a connection with batches on their way. They arrive when the next holder
    sends."""
    world = story.world
    requests = yield from until(lambda: on_the_wire(world))
    if not requests:
        return
    host = keep(requests)
    world.note(f"trap: {host.name} is drained with batches in doubt")
    host.disconnect()
    host.take(Drain())
    yield from until(lambda: not host.alive)
    if host.alive or not may_start(world):
        return
    forget(world)
    later = world.start_host(former_dead=True)
    yield from until(lambda: sends(later), LONG)
    forget(world)
    yield from deliver(world, requests)


def stale_position(story: "Story") -> Script:
    """The first holder of the lane saves its position once more after others have written, and ends."""
    world = story.world
    first = world.hosts[0]
    if not (yield from until(lambda: first.lane.grant == 1 and first.lane.phase is Phase.COPYING)):
        return
    if acked_in_story(first) or not first.alive or not may_start(world):
        return
    first.paused = True
    later = world.start_host(former_dead=False)
    yield from until(lambda: acked_in_story(later) > 0 or not later.alive, LONG)
    first.paused = False
    if first.alive and first.lane.phase is Phase.COPYING:
        world.note("trap: a stale position")
        first.save_progress()
        kill(first)
        kill(later)
        world.start_host(former_dead=True)


def loss_before_a_handoff(story: "Story") -> Script:
    """The target changes after a lane was drained, before the next holder has it."""
    world = story.world
    if world.shape.unclean:
        world.target.in_sync = False
        world.target.advance()
    host = yield from until(lambda: copying(world, acked=1), LONG)
    if not host:
        return
    host.take(Drain())
    yield from until(lambda: not host.alive)
    if host.alive or not may_start(world):
        return
    world.note("trap: the target changes before a handoff")
    if world.shape.unclean:
        world.target.elect()
    elif world.shape.foreign:
        world.target.foreign(world.rng.randint(1, 3), world.wall_ms)
    forget(world)
    world.start_host(former_dead=False)


def earlier_handoff(story: "Story") -> Script:
    """The handoff of an earlier holder arrives instead of the last one."""
    world = story.world
    host = yield from until(lambda: copying(world, acked=1), LONG)
    if not host or len(world.words) < 2:
        if host:
            host.take(Drain())
        return
    world.words.append(world.words[-2])
    host.take(Drain())
    yield from until(lambda: not host.alive)
    if not host.alive and may_start(world):
        world.note("trap: an earlier handoff")
        world.words.append(world.words[0])
        world.start_host(former_dead=False)
