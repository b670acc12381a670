"""Lets parts of a world go on by themselves while everything else stands still: of all orders of events, the one that a
trap needs. Whatever happens is something that could happen next anyway (`World.choices`)."""

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from tests.sim.host import Host, Request
from tests.sim.traps.moments import Found, forget, kill, running

if TYPE_CHECKING:
    from tests.sim.world import World

MOST = 400
"""Events that a trap lets happen before it gives up."""


def drive(
    world: "World",
    host: Host,
    done: Callable[[], Found | None],
    *,
    without: Container[str] = (),
    waits: bool = True,
) -> Found | None:
    """Let things happen to one host, and to the replicas of the target, until the condition returns something. Return
    it, or None if nothing more can happen. Events of the kinds in `without` do not happen. If nothing else can happen,
    time passes if `waits` is true."""
    for _ in range(MOST):
        found = done()
        if found or not host.alive or host.paused:
            return found
        possible = [each for each in world.choices() if each[0] not in without and _owner(each) in {None, host}]
        if possible:
            world.do(world.rng.choice(possible))
            continue
        later = world.next_time()
        if not waits or later is None:
            return None
        world.advance(later)
    return None


def _owner(choice: tuple[str, Any]) -> Host | None:
    """The host to which an event happens, if it is one."""
    what = choice[1][0] if choice[0] == "inbox" else choice[1]
    return what.host if isinstance(what, Request) else what


def appended_by(world: "World", host: Host, ordinal: int) -> Callable[[], bool]:
    """Return whether the host has been told that the target has this ordinal."""
    del world
    return lambda: host.lane.sent and host.lane.acked > ordinal


def land(world: "World", requests: list[Request]) -> None:
    """The brokers forget the producers whose records are old, and read what is still on its way, in its order."""
    forget(world)
    for each in requests:
        each.kept = False
        if each in world.wire:
            world.do(("arrive", each))


def end_all_but(world: "World", host: Host | None) -> None:
    """The processes of all other replicators end."""
    for each in running(world):
        if each is not host:
            kill(each)
