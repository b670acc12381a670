"""Traps at the source: it loses or removes records while they are on their way, or while the lane changes hands."""

from typing import TYPE_CHECKING

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
    resuming,
    sends,
    until,
)

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World


def _lose(world: "World", batches: int) -> None:
    """An unclean election removes the last batches, and at least as many records are written at once."""
    before = world.source.end
    world.source.truncate(batches)
    while world.source.end < before:
        world.source.append(world.rng.randint(1, 3), world.record_ms())
    world.source.append(world.rng.randint(1, 3), world.record_ms())


def truncated_while_away(story: "Story") -> Script:
    """The source loses copied records, and uses their offsets again, while the lane resumes."""
    world = story.world
    host = yield from until(lambda: copying(world, acked=1), LONG)
    if not host:
        return
    if world.rng.random() < 0.5:
        host.disconnect()
    elif may_start(world):
        kill(host)
        world.start_host(former_dead=True)
    if (yield from until(lambda: resuming(world))):
        world.note("trap: the source is truncated while the lane resumes")
        _lose(world, world.rng.randint(1, 2))


def truncated_after_an_epoch(story: "Story") -> Script:
    """The source elects a leader, the lane copies records of its epoch, and the source loses these records while the
    next holder takes the lane."""
    world = story.world
    world.source.elect()
    world.source.append(world.rng.randint(1, 3), world.record_ms())
    end = world.source.end
    host = yield from until(lambda: copying(world, acked=1), LONG)
    if not host:
        return
    yield from until(lambda: host.lane.position >= end and not host.lane.ready and not host.lane.in_flight)
    if not host.alive:
        return
    if world.rng.random() < 0.7:
        host.save_progress()
    kill(host)
    world.start_host(former_dead=True)
    _lose(world, 1)


def reused_offsets_under_way(story: "Story") -> Script:
    """The source loses records that are on their way to the target, and uses their offsets again. The next holder reads
    the new ones. What the former one sent arrives first."""
    world = story.world
    requests = yield from until(lambda: on_the_wire(world))
    if not requests or not may_start(world):
        return
    former = keep(requests)
    lost = [batch for batch in world.source.log if batch.last >= requests[0].batch.offset]
    world.note(f"trap: bytes of {former.name} are kept, the source loses their records")
    _lose(world, max(len(lost), 1))
    if world.rng.random() < 0.5:
        kill(former)
    later = world.start_host(former_dead=not former.alive)
    forget(world)
    is_early = world.rng.random() < 0.5
    yield from until(lambda: copying(world) is later if is_early else sends(later), LONG)
    yield from deliver(world, requests)


def removed_under_way(story: "Story") -> Script:
    """The source's cleaner removes a record that is on its way to the target. The next holder does not see it. What the
    former one sent arrives first."""
    world = story.world
    requests = yield from until(lambda: on_the_wire(world))
    if not requests or not may_start(world):
        return
    former = keep(requests)
    world.note(f"trap: bytes of {former.name} are kept, the source removes one of their records")
    for _ in range(world.rng.randint(1, 2)):
        world.source.compact(world.source.end, requests[0].batch.offset)
    if world.rng.random() < 0.5:
        kill(former)
    later = world.start_host(former_dead=not former.alive)
    if world.rng.random() < 0.5:
        forget(world)
    is_early = world.rng.random() < 0.5
    yield from until(lambda: copying(world) is later if is_early else sends(later), LONG)
    yield from deliver(world, requests)


def expired_while_away(story: "Story") -> Script:
    """Retention deletes records at the source while the lane resumes."""
    world = story.world
    if (yield from until(lambda: resuming(world), LONG)):
        world.source.expire(world.rng.randint(1, 3))
