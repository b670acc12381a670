"""Traps between two moments at which the lane looks at the target: what it looks at has changed in the meantime."""

from typing import TYPE_CHECKING

from mirrord.replication.lane.phases import Phase
from tests.sim import late_bytes
from tests.sim.host import Host, Request
from tests.sim.traps.driving import drive, end_all_but, holder, land, on_the_way, sending
from tests.sim.traps.moments import Script, forget, kill, pause

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World

NOT_ENOUGH_REPLICAS = 19


def copied(host: Host) -> bool:
    """Whether it has copied all that it has read, and the ledger records where."""
    lane = host.lane
    return lane.phase is Phase.COPYING and not lane.in_flight and not lane.ready and not lane.notes


def foreign_between_two_batches(story: "Story") -> Script:
    """Another client writes between two batches of the lane."""
    world = story.world
    yield from pause(world)
    requests = sending(world, 2) or sending(world)
    if not requests:
        return
    world.note("trap: foreign records between two batches")
    for each in requests:
        land(world, [each])
        world.target.foreign(world.rng.randint(1, 3), world.wall_ms)
    host = requests[0].host
    drive(world, host, lambda: copied(host))
    yield


def unreplicated_at_the_start(story: "Story") -> Script:
    """Another client writes to the topic before the lane's first holder has asked for the end of the target log. The
    follower is slow."""
    world = story.world
    host = world.hosts[-1]
    if not host.alive or host.lane.sent or host.lane.phase is Phase.COPYING or not world.target.exists:
        return
    world.note("trap: foreign records that are not replicated yet")
    world.target.foreign(world.rng.randint(1, 3), world.wall_ms)
    drive(world, host, lambda: host.lane.phase is Phase.COPYING, without=("replicate",), waits=False)
    yield


def _doubtful(world: "World") -> list[Request]:
    """A holder loses its connection with requests on their way. Return those, which no one waits for any longer."""
    lost = sending(world)
    if not lost:
        return []
    host = lost[0].host
    end_all_but(world, host)
    for each in lost:
        world.wire.remove(each)
    host.disconnect()
    return lost


def _reach(world: "World", request: Request) -> None:
    """A request that its sender has given up reaches the broker, which has forgotten the producer."""
    forget(world)
    if world.now >= request.deadline:
        late_bytes.land(world, request)
        return
    world.wire.append(request)
    world.do(("arrive", request))


def late_before_the_confirmation(story: "Story") -> Script:
    """Bytes of a dead connection are appended just before the lane, which is about to send the same records, asks for
    the end of the log once more, however long it waits. The broker forgets the producer again before it reads what the
    lane sends."""
    world = story.world
    yield from pause(world)
    lost = _doubtful(world)
    if not lost:
        return
    host = lost[0].host

    def is_back() -> bool:
        return host.lane.phase is Phase.COPYING and not host.lane.in_flight and not host.lane.confirming

    if not drive(world, host, is_back, without=("arrive",)) or host.lane.acked > lost[0].batch.first:
        return
    world.note("trap: bytes of a dead connection come before the end is confirmed")
    for each in lost:
        _reach(world, each)
    forget(world)
    drive(world, host, lambda: on_the_way(world, host), without=("arrive",))
    land(world, on_the_way(world, host))
    yield


def late_before_the_repeat(story: "Story") -> Script:
    """Bytes that everyone has given up are appended just before the same records, which the lane has sent again. The
    broker has forgotten the producer."""
    world = story.world
    yield from pause(world)
    lost = _doubtful(world)
    if not lost:
        return
    host = lost[0].host
    again = drive(world, host, lambda: on_the_way(world, host), without=("arrive",))
    if not again or again[0].batch.first != lost[0].batch.first:
        return
    world.note("trap: bytes that everyone has given up come just before the same records")
    forget(world)
    late_bytes.land(world, lost[0])
    land(world, again)
    drive(world, host, lambda: copied(host))
    yield


def late_after_others(story: "Story") -> Script:
    """Bytes that everyone has given up are appended after the same records and later ones. The broker has forgotten the
    producer, and now remembers these bytes as its last ones. Then the lane loses its connection."""
    world = story.world
    yield from pause(world)
    lost = _doubtful(world)
    if not lost:
        return
    host, behind = lost[0].host, lost[-1].batch.first + lost[-1].batch.count
    world.source.append(world.rng.randint(1, 3), world.record_ms())
    if not drive(world, host, lambda: host.lane.acked > behind and copied(host)):
        return
    world.note("trap: bytes that everyone has given up come after later records")
    forget(world)
    late_bytes.land(world, lost[0])
    host.disconnect()
    yield


def refused_and_forgotten(story: "Story") -> Script:
    """The broker refuses the first of two batches on their way. It forgets the producer before it reads the second
    one."""
    world = story.world
    yield from pause(world)
    requests = sending(world, 2)
    if not requests:
        return
    world.note("trap: a batch is refused, and the producer forgotten")
    target = world.target
    target.refusal, target.refusals_left, target.forget_after = NOT_ENOUGH_REPLICAS, 1, True
    land(world, requests)
    host = requests[0].host
    drive(world, host, lambda: copied(host) or host.lane.phase is Phase.HALTED)
    yield


def unreadable_gap(story: "Story") -> Script:
    """Another client writes between batches of a lane that the broker does not protect, so the lane has to read what is
    in between. The target cannot be read for the moment. That must not keep the lane from copying."""
    world, target = story.world, story.world.target
    yield from pause(world)
    requests = sending(world, 2) or sending(world)
    if not requests or world.shape.poison or world.shape.seeks:
        return
    host = requests[0].host
    lane = host.lane
    epoch = lane.seen.before(lane.position)
    if epoch >= 0 and epoch != world.source.epoch_of(lane.position - 1):
        return  # the source has lost records that the lane has read, and the lane must read the target for that
    if lane.log.end_epoch != target.epoch:
        return  # the target has another leader, and the lane must read the target as soon as it notices that
    world.note("trap: the target cannot be read")
    target.unreadable = True
    for each in requests:
        target.foreign(world.rng.randint(1, 3), world.wall_ms)
        land(world, [each])
    world.source.append(world.rng.randint(1, 3), world.record_ms())
    drive(world, host, lambda: copied(host) and lane.position >= world.source.end, waits=False)
    is_appended = lane.acked >= requests[0].batch.first + requests[0].batch.count
    if is_appended and lane.phase in {Phase.WAITING, Phase.RESUMING}:
        raise AssertionError(f"{host.name} copies nothing because records cannot be read for their comparison")
    target.unreadable = False
    yield


def two_takers_at_once(story: "Story") -> Script:
    """Two replicators take the lane at the same time. If both copied, each would send the same records, and the broker
    would forget the producer in between."""
    world = story.world
    yield from pause(world)
    host = holder(world)
    if host is None:
        return
    drive(world, host, lambda: copied(host) and host.lane.position >= world.source.end)
    for each in world.hosts:
        kill(each)
    world.note("trap: two takers at once")
    takers = [world.start_host(former_dead=True) for _ in range(2)]
    for each in takers:
        drive(world, each, lambda each=each: each.lane.phase is Phase.COPYING)
    if not all(each.alive and each.lane.phase is Phase.COPYING for each in takers):
        return
    for each in takers:
        drive(world, each, lambda each=each: each.state.next_offset == len(world.ledger), waits=False)
    world.advance(world.now)  # all leases are renewed
    world.source.append(world.rng.randint(1, 3), world.record_ms())
    for each in takers:
        drive(world, each, lambda each=each: on_the_way(world, each), without=("arrive",), waits=False)
    for each in takers:
        land(world, on_the_way(world, each))
    yield
