"""Traps at brokers that have forgotten the lane's producer: they accept a batch for a second time."""

from typing import TYPE_CHECKING

from mirrord.replication.lane.signals import Drain
from tests.sim import late_bytes
from tests.sim.host import Host, Request
from tests.sim.traps.driving import (
    appended_by,
    drive,
    end_all_but,
    holder,
    land,
    leave_cleanly,
    on_the_way,
    save_position,
    sending,
)
from tests.sim.traps.moments import LONG, Script, forget, keep, kill, may_start, pause

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World


def _land_after(world: "World", later: Host, requests: list[Request]) -> None:
    """The holder that continues copies the first of these records. The broker forgets the producer and reads what is on
    its way, if the connections have not been given up by then."""
    drive(world, later, appended_by(world, later, requests[0].batch.first))
    land(world, requests)


def bytes_after_the_next_holder(story: "Story") -> Script:
    """The next holder of the lane copies the records that the former one had sent. The broker forgets the producer, and
    then reads what the former one sent."""
    world = story.world
    yield from pause(world)
    requests = sending(world)
    if not requests or not may_start(world):
        return
    former = keep(requests)
    if world.rng.random() < 0.7:
        kill(former)
    world.note("trap: bytes of a former holder arrive after the copies of the next one")
    _land_after(world, world.start_host(former_dead=not former.alive), requests)


def bytes_after_a_reconnect(story: "Story") -> Script:
    """A holder loses its connection, and copies the records that it had sent once more over a new one. The broker
    forgets the producer, and then reads what was sent over the former connection."""
    world = story.world
    yield from pause(world)
    requests = sending(world)
    if not requests:
        return
    host = keep(requests)
    world.note("trap: bytes of a dead connection arrive after the new copies")
    host.disconnect()
    _land_after(world, host, requests)


def bytes_after_a_drain(story: "Story") -> Script:
    """A holder loses its connection, and is drained. The next one copies the records that the former one had sent. The
    broker forgets the producer, and then reads what was sent over the dead connection."""
    world = story.world
    yield from pause(world)
    requests = sending(world)
    if not requests:
        return
    former = keep(requests)
    former.disconnect()
    former.take(Drain())
    drive(world, former, lambda: not former.alive, waits=False)
    if former.alive or not may_start(world):
        return
    world.note("trap: bytes of a drained holder arrive after the copies of the next one")
    _land_after(world, world.start_host(former_dead=True), requests)


def handover_of_an_earlier_holder(story: "Story") -> Script:
    """A holder is drained, and the next one is killed with batches on their way. A replicator that is told to continue
    after the first of the two, because that message was late, takes the lane."""
    world = story.world
    yield from pause(world)
    former = holder(world, acked=1)
    if not former or not may_start(world):
        return
    if not leave_cleanly(world, former) or not world.words:
        return
    word = world.words[-1]
    world.source.append(world.rng.randint(1, 3), world.record_ms())
    world.start_host(former_dead=False)
    requests = sending(world)
    if not requests:
        return
    kill(keep(requests))
    world.note("trap: a handover of an earlier holder is late")
    for _ in range(5):
        world.words, world.progress, world.left_cleanly = [word], word, True
        world.start_host(former_dead=True)
        if last := holder(world):
            _land_after(world, last, requests)
            return
        # It has not read enough of the ledger to take the lane.


def position_behind_a_repeat(story: "Story") -> Script:
    """Bytes that everyone has given up are appended just in front of the same records. The holder saves its position
    and is killed before it has read what is in front of its batch."""
    world = story.world
    # From then on, less can be checked.
    for _ in range(LONG // 2):
        yield
    lost = sending(world)
    if not lost or not may_start(world):
        return
    host = lost[0].host
    end_all_but(world, host)
    for each in lost:
        world.wire.remove(each)
    host.disconnect()
    again = drive(world, host, lambda: on_the_way(world, host), without=("arrive", "late"))
    if not again:
        return
    world.note("trap: bytes that everyone has given up come just before the same records")
    forget(world)
    for each in lost:
        late_bytes.land(world, each)
    land(world, again)
    first = again[0].batch.first
    reads = ("inbox", "timer")
    drive(world, host, lambda: host.lane.acked > first and not host.lane.notes, without=reads, waits=False)
    save_position(host)
    kill(host)
    world.start_host(former_dead=True)
