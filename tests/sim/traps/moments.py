"""What the scripts of traps wait for, and what several of them do."""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeVar

from mirrord.replication.lane.phases import Phase, Stage
from tests.sim.host import Host, Request
from tests.sim.past import acked_in_story

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World

Script = Generator[None, None, None]
"""Advanced before each step of a story."""
Trap = Callable[["Story"], Script]
Found = TypeVar("Found")

PATIENCE = 60
"""Steps that a script waits for a moment."""
LONG = 4 * PATIENCE


def until(condition: Callable[[], Found | None], patience: int = PATIENCE) -> Generator[None, None, Found | None]:
    """Wait until the condition returns something. Return it, or None if that takes too long."""
    for _ in range(patience):
        found = condition()
        if found:
            return found
        yield
    return None


def pause(world: "World") -> Script:
    """Let other things happen for a while, so that a trap does not always strike at the same moment."""
    for _ in range(world.rng.randrange(PATIENCE)):
        yield


def running(world: "World") -> list[Host]:
    return [host for host in world.hosts.living if not host.paused]


def copying(world: "World", *, acked: int = 0) -> Host | None:
    """The newest host that copies, and has been acknowledged at least so many records."""
    hosts = (host for host in reversed(running(world)) if host.lane.phase is Phase.COPYING)
    return next((host for host in hosts if acked_in_story(host) >= acked), None)


def idle(world: "World") -> Host | None:
    """The newest host, if it has copied all there is."""
    host = copying(world, acked=1)
    if host is None or host.lane.ready or host.lane.in_flight or host.lane.position < world.source.end:
        return None
    return host


def on_the_wire(world: "World") -> list[Request]:
    """Requests of one live host that no broker has read yet, in their order."""
    hosts = [host for host in running(world) if any(each.host is host for each in world.wire)]
    if not hosts:
        return []
    host = world.rng.choice(hosts)
    return [each for each in world.wire if each.host is host and each.connection == host.connection]


def keep(requests: list[Request]) -> Host:
    """Keep these requests of one host on the wire. Return the host."""
    for each in requests:
        each.kept = True
    return requests[0].host


def deliver(world: "World", requests: list[Request]) -> Script:
    """The broker reads the requests that are still on the wire, one after the other."""
    for each in requests:
        each.kept = False
        if each in world.wire:
            world.do(("arrive", each))
            if world.rng.random() < 0.3:
                yield


def may_start(world: "World") -> bool:
    """Whether another replicator may take the lane: there are not too many."""
    return len(world.hosts.living) < 3


def may_elect(world: "World") -> bool:
    follower = world.target.brokers[1 - world.target.leader]
    return world.shape.unclean or follower.end >= world.target.high_watermark


def forget(world: "World") -> None:
    """The brokers forget the producers whose records are old."""
    if world.shape.forgetting:
        for at in (0, 1):
            world.target.forget(at, world.wall_ms)


def sends(host: Host) -> bool:
    """Whether it has begun to send, or never will."""
    return bool(host.lane.in_flight) or host.lane.sent or not host.alive


def resuming(world: "World", stages: tuple[Stage, ...] = ()) -> Host | None:
    phases = (Phase.RESUMING, Phase.WAITING)
    found = (host for host in running(world) if host.lane.phase in phases and (host.lane.stage in stages or not stages))
    return next(found, None)


def kill(host: Host) -> None:
    """End a process with kill -9. What it has sent stays on the wire."""
    host.alive = False
    host.sent.clear()


def write_others(world: "World", count: int) -> None:
    """Another client writes so many records, in batches of a usual size."""
    for at in range(0, count, 20):
        world.target.foreign(min(20, count - at), world.wall_ms)


def lose_from(world: "World", offset: int) -> bool:
    """An unclean election removes the batch that holds this offset, and all later ones. At least as many records are
    written at once. Return whether that was possible."""
    source, before = world.source, world.source.end
    source.truncate(len([batch for batch in source.log if batch.last >= offset]))
    if source.end == before:
        return False
    while source.end <= before:
        source.append(world.rng.randint(1, 3), world.record_ms())
    return True
