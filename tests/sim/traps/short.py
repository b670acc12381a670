"""Traps in which the source no longer has records that a lane has copied or sent, and has nothing else yet in their
place."""

from collections.abc import Generator
from typing import TYPE_CHECKING

from mirrord.replication.lane.phases import Phase
from tests.sim import late_bytes, liveness
from tests.sim.operator import seek
from tests.sim.traps.driving import copy_all, drive, on_the_way, pipelined, save_position
from tests.sim.traps.moments import Script, kill, may_start, pause

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World


def source_ends_below_the_copies(story: "Story") -> Script:
    """A holder copies records and is killed before it has saved its position. The source loses these records, and
    nothing is written for a while. The next holder has to resume nevertheless."""
    world = story.world
    yield from pause(world)
    host = pipelined(world)
    if not host or not may_start(world) or world.source.open:
        return
    for _ in range(2):
        world.source.append(world.rng.randint(1, 3), world.record_ms())
    if not drive(world, host, lambda: host.lane.position >= world.source.end and not host.lane.in_flight):
        return
    kill(host)
    world.source.truncate(2)
    world.note("trap: the source ends below the copied records")
    later = world.start_host(former_dead=True)
    drive(world, later, lambda: later.lane.phase is Phase.COPYING)
    liveness.check_resumed(world, later)


def lost_after_a_leap(story: "Story") -> Script:
    """An operator commands the lane to leap to the end of the source. It asks whether the source has the copied records
    before that, and fetches without an epoch. The source then loses these records, and has nothing else at their
    offsets yet."""
    world = story.world
    source = world.source
    yield from pause(world)
    host = pipelined(world)
    if not host or source.open:
        return
    begin = len(source.log)
    for _ in range(2):
        source.append(world.rng.randint(1, 2), world.record_ms())
    if copy_all(world) is not host or source.open:
        return
    save_position(host)
    source.append(world.rng.randint(1, 2), world.record_ms())
    seek(world, to_end=True)

    def leapt() -> bool:
        fetches = (content for kind, content in host.inbox if kind == "fetch")
        return any(each.position == source.end and each.last_epoch < 0 for each in fetches)

    if not drive(world, host, leapt):
        return
    world.note("trap: the source loses records before those over which the lane has leapt")
    source.truncate(len(source.log) - begin - world.rng.randint(0, 1))
    drive(world, host, lambda: host.lane.phase is Phase.HALTED or host.lane.position <= source.end)


def expired_before_it_arrives(story: "Story") -> Script:
    """Retention removes everything from the source while a record is on its way. The next holder waits, and continues
    at the end of the source. Then the record arrives, later than anyone waits for it, and another holder takes the
    lane. It copies a new record, but its position is not saved, so that one more holder compares everything again.
    Retention then removes the new record as well."""
    world = story.world
    begun = world.progress
    yield from pause(world)
    if not (yield from _arrive_expired(world)):
        return
    kill(world.hosts[-1])
    world.start_host(former_dead=True)
    host = copy_all(world)
    if host is not None and not world.source.open:
        world.source.append(1, world.record_ms())
        copy_all(world)
        kill(world.hosts[-1])
        world.progress = begun
        world.start_host(former_dead=True)
        copy_all(world)
        world.source.expire(len(world.source.log))


def expired_and_compared_again(story: "Story") -> Script:
    """The same, but the source keeps the new record, and no holder saves its position."""
    world = story.world
    begun = world.progress
    yield from pause(world)
    if not (yield from _arrive_expired(world)):
        return
    for _ in range(2):
        kill(world.hosts[-1])
        world.progress = begun
        world.start_host(former_dead=True)
        if copy_all(world) is None:
            return
        world.source.append(1, world.record_ms())
        copy_all(world)


def _arrive_expired(world: "World") -> Generator[None, None, bool]:
    """Let a record arrive that retention has removed from the source, and behind which the next holder continues."""
    host = pipelined(world)
    if not host or not may_start(world) or world.source.open:
        return False
    world.source.append(1, world.record_ms())
    requests = drive(world, host, lambda: on_the_way(world, host), without=("arrive",))
    if not requests:
        return False
    kill(host)
    for each in requests:
        world.wire.remove(each)
    world.source.expire(len(world.source.log))
    world.start_host(former_dead=True)
    if copy_all(world) is None:
        return False
    yield
    world.note("trap: a record arrives that retention has removed from the source")
    for each in requests:
        late_bytes.land(world, each)
    return True
