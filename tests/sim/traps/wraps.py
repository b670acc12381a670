"""Traps at the moment at which the sequence numbers of a lane start again at 0. They wait until only a few records are
left before that, let the lane copy these, and strike. Often the next batch contains sequence number 0.

In stories in which the lane does not get there (`Shape.until_wrap`), these traps do nothing.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

from mirrord.replication.lane.phases import Phase
from tests.sim.host import Host, Request
from tests.sim.stored import SEQUENCES
from tests.sim.traps.driving import copy_all, drive, land, save_position, sending
from tests.sim.traps.in_between import NOT_ENOUGH_REPLICAS, copied
from tests.sim.traps.moments import LONG, Script, copying, deliver, forget, keep, kill, may_start, sends, until

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World

_NEAR = 25
"""Number of records before sequence number 0 from which on these traps drive the lane."""
_MOST = 3
"""Number of records that are left when they strike, at most."""


def _left(host: Host) -> int:
    """The number of records that the lane sends before sequence number 0; 0 or less after that."""
    return SEQUENCES - host.lane.next_ordinal


def _before_the_wrap(world: "World", most: int = _MOST) -> Generator[None, None, Host | None]:
    """Let the lane copy all but the last records before sequence number 0. Return its holder, which has copied all
    there is, or None."""

    def is_decided() -> bool:
        host = copying(world)
        return host is not None and _left(host) <= _NEAR

    if not world.shape.until_wrap or not (yield from until(is_decided, LONG)):
        return None
    for _ in range(_NEAR):
        host = copy_all(world)
        if host is None or _left(host) <= 0:
            return None
        if _left(host) <= most:
            return host
        world.source.append(min(world.rng.randint(1, 3), _left(host) - 1), world.record_ms())
    return None


def _write_across(world: "World", host: Host) -> None:
    """Write a batch that contains the record with sequence number 0, or ends before it."""
    world.source.append(_left(host) + world.rng.randint(0, 3), world.record_ms())


def _sending_across(world: "World", host: Host) -> list[Request]:
    """The next batches of the lane, on their way."""
    _write_across(world, host)
    return sending(world, 2) or sending(world)


def in_doubt_at_the_wrap(story: "Story") -> Script:
    """A holder loses its connection, or is killed, with batches on their way. Some of them have arrived, the others
    arrive before or after the lane sends them again."""
    world = story.world
    host = yield from _before_the_wrap(world)
    requests = _sending_across(world, host) if host is not None and may_start(world) else []
    if not requests:
        return
    arrived = world.rng.randint(0, len(requests))
    land(world, requests[:arrived])
    left = [each for each in requests[arrived:] if each in world.wire]
    former = keep(left or requests)
    world.note("trap: batches are in doubt at the wrap")
    if world.rng.random() < 0.5:
        former.disconnect()
    else:
        kill(former)
    later = former if former.alive else world.start_host(former_dead=True)
    forget(world)
    if world.rng.random() < 0.5:
        drive(world, later, lambda: sends(later), without=("arrive",))
        forget(world)
    yield from deliver(world, left)
    drive(world, later, lambda: copied(later))


def position_before_the_wrap(story: "Story") -> Script:
    """A holder saves no position after sequence number 0. The next one begins before it, and reads the log across it.
    In some worlds, an unclean election has removed what the former holder sent last."""
    world = story.world
    host = yield from _before_the_wrap(world)
    if host is None or not may_start(world):
        return
    save_position(host)
    saves, world.saves = world.saves, 0.0
    loses = world.shape.unclean and world.rng.random() < 0.6
    kept = world.rng.randrange(3)
    for at in range(world.rng.randint(1, 4)):
        if loses and at == kept:
            world.target.in_sync = False
            world.target.advance()
        _write_across(world, host) if at == 0 else world.source.append(world.rng.randint(1, 3), world.record_ms())
        drive(world, host, lambda: copied(host) and host.lane.position >= world.source.end, without=_without(world))
    world.note("trap: no position is saved after the wrap")
    if loses:
        world.target.elect()
        world.target.learn(world.wall_ms)
    kill(host)
    forget(world)
    world.saves = saves
    later = world.start_host(former_dead=True)
    drive(world, later, lambda: later.lane.phase is Phase.COPYING)
    yield


def _without(world: "World") -> tuple[str, ...]:
    """Kinds of events that do not happen: a follower that is out of sync stays so."""
    return () if world.target.in_sync else ("replicate",)


def refused_at_the_wrap(story: "Story") -> Script:
    """The broker refuses the batch at the wrap. In some worlds, it then forgets the producer, and accepts the next
    batch."""
    world, target = story.world, story.world.target
    host = yield from _before_the_wrap(world)
    requests = _sending_across(world, host) if host is not None else []
    if not requests:
        return
    world.note("trap: a batch is refused at the wrap")
    target.refusal, target.refusals_left, target.forget_after = NOT_ENOUGH_REPLICAS, 1, world.shape.forgetting
    land(world, requests)
    later = requests[0].host
    drive(world, later, lambda: copied(later) or later.lane.phase is Phase.HALTED)


def another_trap_at_the_wrap(story: "Story") -> Script:
    """Another trap of the story strikes there."""
    world = story.world
    trap = story.traps.another(world.rng) if story.traps is not None else None
    if trap is not None and (yield from _before_the_wrap(world, world.rng.randint(1, 12))):
        world.note("trap: another one at the wrap")
        yield from trap(story)


TRAPS = (in_doubt_at_the_wrap, position_before_the_wrap, refused_at_the_wrap, another_trap_at_the_wrap)
