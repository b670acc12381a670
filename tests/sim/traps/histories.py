"""Traps at a source that loses copied records, and whose next leader has another history at their offsets."""

from typing import TYPE_CHECKING

from tests.sim.host import LANE, Host
from tests.sim.traps.moments import LONG, Script, copying, kill, lose_from, may_start, until

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World

_LONGEST_BRANCH = 60


def _copied_to(world: "World") -> tuple[Host | None, int]:
    """Return the host that copies, and the source offset after its last acknowledged record."""
    host, record = copying(world, acked=1), world.truth.lanes.get(LANE)
    offset = None if host is None or record is None else record.source_runs.offset_of(host.lane.acked - 1)
    return (None, 0) if offset is None else (host, offset + 1)


def another_branch(story: "Story") -> Script:
    """The source elects a leader, and the lane copies records of its epoch. The next leader lacks this epoch. Instead,
    it has at least as many records of the epoch before it as the lane has read since."""
    world = story.world
    source = world.source
    if len(source.epochs) < 2 or source.epochs[-2][0] in source.spoilt:  # or it was elected before
        source.elect()
        source.append(world.rng.randint(1, 3), world.record_ms())
    epoch, begun = source.epochs[-1]

    def has_copied() -> Host | None:
        host, end = _copied_to(world)
        return host if end > begun or source.epochs[-1] != (epoch, begun) else None

    host = yield from until(has_copied, LONG)
    count = host.lane.position - begun + world.rng.randint(0, 2) if host else 0
    if not host or source.epochs[-1] != (epoch, begun) or not 0 < count <= _LONGEST_BRANCH:
        return
    if world.rng.random() < 0.2 and may_start(world):
        kill(host)
        world.start_host(former_dead=True)
    world.note("trap: the source has another branch of its history")
    source.branch(count, world.record_ms())
    source.append(world.rng.randint(1, 2), world.record_ms())


def lost_before_the_first_fetch(story: "Story") -> Script:
    """The source loses copied records just before a lane that has resumed fetches for the first time. Its log now ends
    below the position of the lane."""
    world = story.world
    host = yield from until(lambda: copying(world, acked=2), LONG)
    if not host:
        return
    if world.rng.random() < 0.5 or not may_start(world):
        host.disconnect()
    else:
        kill(host)
        world.start_host(former_dead=True)
    yield

    def is_fresh() -> Host | None:
        found = copying(world, acked=1)
        if found is None or found.lane.in_flight or found.lane.ready or not found.lane.fetching:
            return None
        return found if found.lane.acked == found.lane.resumed_at.ordinal else None

    host = yield from until(is_fresh, LONG)
    if not host:
        return
    offset = host.lane.position - world.rng.randint(1, 8)
    lost = [batch for batch in world.source.log if batch.last >= offset]
    world.note("trap: the source loses records before a first fetch")
    world.source.truncate(len(lost))


def lost_before_a_comparison(story: "Story") -> Script:
    """The source loses records that the lane has copied since it last saved its position, and uses their offsets again.
    The next holder compares the copies with the source."""
    world = story.world
    if world.rng.random() < 0.5:
        world.source.elect()
        world.source.append(world.rng.randint(1, 3), world.record_ms())

    def unsaved() -> Host | None:
        host = copying(world, acked=1)
        known = world.progress.ordinal if world.progress is not None else 0
        return host if host is not None and host.lane.acked > known else None

    host = yield from until(unsaved, LONG)
    record = world.truth.lanes.get(LANE)
    if not host or record is None or not may_start(world):
        return
    known = world.progress.ordinal if world.progress is not None else 0
    offset = record.source_runs.offset_of(world.rng.randrange(known, host.lane.acked))
    if offset is None or not lose_from(world, offset):
        return
    world.note("trap: the source loses records before they are compared")
    kill(host)
    world.start_host(former_dead=True)
