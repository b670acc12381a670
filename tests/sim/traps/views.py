"""Traps in which two holders see different records at the same place in the source, and the target takes the batch of
the former one."""

from typing import TYPE_CHECKING

from tests.sim.host import Host, Request
from tests.sim.traps.driving import drive, on_the_way, pipelined, save_position
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
    host = pipelined(world)
    if not host or not may_start(world) or world.source.open:
        return
    world.source.append(world.rng.randint(1, 3), world.record_ms())
    world.source.elect()
    count = world.rng.randint(1, 3)
    world.source.append(count, world.record_ms())
    requests = drive(world, host, lambda: on_the_way(world, host, 2), without=("arrive",))
    if not requests:
        return
    world.source.branch(count, world.record_ms())
    world.note("trap: the source loses records under way, and has others of an older epoch")
    yield from _arrive_first(world, keep(requests), requests)


def _has_all(world: "World", host: Host) -> bool:
    lane = host.lane
    return not lane.in_flight and not lane.notes and lane.position >= world.source.end


def _arrive_first(world: "World", former: Host, requests: list[Request]) -> Script:
    """The former holder ends. What it sent arrives after the next one has resumed, and before anything of that one."""
    kill(former)
    later = world.start_host(former_dead=True)
    drive(world, later, lambda: on_the_way(world, later), without=("arrive",), waits=False)
    yield from deliver(world, requests)


def removed_under_a_dead_holder(story: "Story") -> Script:
    """The source removes the first of two records that are on their way, and their holder is killed. The next one does
    not see the first record, and copies the second one under its ordinal. What the former one sent arrives after that.
    Now and then, the source then removes the second record as well."""
    yield from _remove_in_between(story, is_dead=True)


def removed_under_a_former_holder(story: "Story") -> Script:
    """The same with a holder that lives, and does not know yet that another one has taken the lane."""
    yield from _remove_in_between(story, is_dead=False)


def _remove_in_between(story: "Story", *, is_dead: bool) -> Script:
    world = story.world
    yield from pause(world)
    host = pipelined(world)
    if not host or not may_start(world) or world.source.open:
        return
    for _ in range(2):
        world.source.append(1, world.record_ms())
    first, second = world.source.log[-2:]
    requests = drive(world, host, lambda: on_the_way(world, host, 2), without=("arrive",))
    if not requests or not first.records:
        return
    for _ in range(2):
        world.source.append(1, world.record_ms())
    world.source.remove(first, 0)
    world.note("trap: the source removes a record under way, the next one is copied in its place")
    former = keep(requests)
    if is_dead:
        kill(former)
    later = world.start_host(former_dead=is_dead)
    drive(world, later, lambda: later.lane.acked > requests[0].batch.first, waits=False)
    yield from deliver(world, requests)
    if world.rng.random() < 0.5 and second.records:
        world.source.remove(second, 0)
    elif drive(world, later, lambda: _has_all(world, later), waits=False):
        save_position(later)


def newer_epoch_under_way(story: "Story") -> Script:
    """The source loses a record that is on its way, and has others at its offset and after it. The next holder copies
    those. What the former one sent arrives first, and takes the place of the first one."""
    world = story.world
    yield from pause(world)
    host = pipelined(world)
    if not host or not may_start(world) or world.source.open:
        return
    world.source.append(1, world.record_ms())
    requests = drive(world, host, lambda: on_the_way(world, host), without=("arrive",))
    if not requests:
        return
    world.source.truncate(1)
    for _ in range(3):
        world.source.append(1, world.record_ms())
    world.note("trap: the source loses a record under way, and has another one in its place")
    kill(keep(requests))
    later = world.start_host(former_dead=True)
    drive(world, later, lambda: on_the_way(world, later), without=("arrive",), waits=False)
    yield from deliver(world, requests)
    drive(world, later, lambda: later.lane.acked > requests[0].batch.first + 1, without=("inbox",), waits=False)
