"""Traps in which two holders see different records at the same place in the source, and the target takes the batch of
the former one."""

from typing import TYPE_CHECKING

from tests.sim.host import Host, Request
from tests.sim.traps.driving import drive, holder
from tests.sim.traps.moments import Script, deliver, keep, kill, may_start, pause

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World


def older_epoch_under_way(story: "Story") -> Script:
    """The source elects a leader, and loses the records of its epoch while they are on their way. It has as many other
    records at their offsets, of the epoch before. The next holder copies those. What the former one sent arrives
    first."""
    world = story.world
    yield from pause(world)
    host = _pipelined(world)
    if not host or not may_start(world) or world.source.open:
        return
    world.source.append(world.rng.randint(1, 3), world.record_ms())
    world.source.elect()
    count = world.rng.randint(1, 3)
    world.source.append(count, world.record_ms())
    requests = drive(world, host, lambda: _on_the_way(world, host, 2), without=("arrive",))
    if not requests:
        return
    world.source.branch(count, world.record_ms())
    world.note("trap: the source loses records under way, and has others of an older epoch")
    yield from _arrive_first(world, keep(requests), requests)


def _pipelined(world: "World") -> Host | None:
    """The newest replicator, once it may send several batches at once, and has copied all there is."""
    world.source.append(1, world.record_ms())
    host = holder(world, acked=1)
    if host is None:
        return None
    lane = host.lane
    return drive(
        world, host, lambda: host if lane.pipelined and lane.position >= world.source.end and not lane.in_flight else None
    )


def _on_the_way(world: "World", host: Host, batches: int = 1) -> list[Request]:
    found = [each for each in world.wire if each.host is host and each.connection == host.connection]
    return found if len(found) >= batches else []


def _arrive_first(world: "World", former: Host, requests: list[Request]) -> Script:
    """The former holder ends. What it sent arrives after the next one has resumed, and before anything of that one."""
    kill(former)
    later = world.start_host(former_dead=True)
    drive(world, later, lambda: _on_the_way(world, later), without=("arrive",), waits=False)
    yield from deliver(world, requests)
