"""Bytes of requests that reach a broker later than anyone waits for them: from connections that died long ago, and from
suspended hosts."""

from typing import TYPE_CHECKING

from mirrord.replication.lane.phases import Phase
from tests.sim import target_retention
from tests.sim.host import LANE, REQUEST_S, TTL_S, Host, Request

if TYPE_CHECKING:
    from tests.sim.world import World


def arrive(world: "World") -> None:
    """Bytes of a connection that died long ago reach the broker nevertheless."""
    if not world.limbo:
        return
    # The most revealing moment is between a resume and its first produce request.
    telling = [each for each in world.limbo if any(reads_again(world, host, each) for host in world.hosts)]
    request = world.rng.choice(telling or world.limbo)
    world.limbo.remove(request)
    error, base = land(world, request)
    world.note(f"{request.host.name} late {request.batch}: {error} {base}")


def land(world: "World", request: Request) -> tuple[int, int]:
    """Let bytes that everyone has given up reach the broker, and note which records were appended by them."""
    found = any(reads_again(world, host, request) for host in world.hosts)
    end = world.target.brokers[request.broker].end
    error, base = world.target.produce(request.broker, request.data, world.wall_ms)
    if world.target.brokers[request.broker].end > end:
        if world.failover is not None:
            world.failover.appended(request, late=True)
        arrived = world.late if found else world.excused
        world.known.is_hidden |= not found
        arrived.update(world.known.came_late(request.data, world.target.foreign_numbers))
        target_retention.came_late(world, request, base, found=found)
    return error, base


def reads_again(world: "World", host: Host, request: Request) -> bool:
    """The lane will read the end once more before it sends these ordinals itself, so it must not duplicate them."""
    return _waits_to_read(world, host) and _sends_next(world, host, request)


def any_is_read(world: "World") -> bool:
    """Whether a lane will read the end once more before it sends the ordinals of a request in limbo itself."""
    waiting = [host for host in world.hosts.living if _waits_to_read(world, host)] if world.limbo else ()
    return any(_sends_next(world, host, each) for host in waiting for each in world.limbo)


def _waits_to_read(world: "World", host: Host) -> bool:
    """Whether the lane has nothing in flight, and will read the end, which has not moved since, before it sends."""
    lane = host.lane
    if not host.alive or lane.phase is not Phase.COPYING or lane.protected or lane.in_flight or lane.confirming:
        return False
    unrecorded = world.shape.seeks and bool(lane.intents)
    return lane.acked == lane.resumed_at.ordinal and world.target.end == lane.expected and not unrecorded


def _sends_next(world: "World", host: Host, request: Request) -> bool:
    """Whether the request has the ordinals that the lane sends next, for the same records. After a hole the ordinals
    belong to other offsets: numbers do not distinguish such bytes from the right ones."""
    first = request.batch.first
    is_next = first == host.lane.acked
    return is_next and world.truth.lanes[LANE].source_runs.offset_of(first) == request.batch.offset


def suspend(world: "World") -> None:
    """Now and then, suspend a host that holds the bytes of its requests, or let one continue that was suspended so."""
    alive = [host for host in world.hosts if host.alive and host.unsent]
    if any(host.paused for host in alive):
        if world.rng.random() < 0.03:
            thaw(world)
    elif alive and world.rng.random() < 0.15:
        freeze(world, None)


def freeze(world: "World", host: Host | None) -> None:
    """Suspend a host, if possible one that has checked its lease and still holds the bytes of its requests."""
    running = [each for each in world.hosts if each.alive and not each.paused]
    holding = [each for each in running if each.unsent]
    frozen = world.rng.choice(holding) if holding else host
    if frozen is None:
        return
    frozen.paused = True
    if len([each for each in world.hosts if each.alive]) < 3 and world.rng.random() < 0.7:
        world.start_host(former_dead=False)


def thaw(world: "World") -> None:
    """Wake all hosts, often when the next holder of the lane has just waited for them long enough."""
    rng = world.rng
    waiting = [host.lane.late_writes.until for host in world.hosts if host.alive and not host.paused]
    if any(host.paused and host.unsent for host in world.hosts if host.alive):
        latest = max(waiting, default=0.0)
        if latest > world.now and rng.random() < 0.4:
            world.advance(latest)
        elif rng.random() < 0.3:
            world.advance(world.now + rng.random() * (TTL_S + 2 * REQUEST_S))
        if world.shape.forgetting and rng.random() < 0.5:
            world.target.forget(world.target.leader, world.wall_ms)
    for host in world.hosts:
        if host.alive:
            wake(host)


def wake(host: Host) -> None:
    """Let a suspended host continue. The event loop writes what it holds before it looks at its timers. Then it closes
    a connection on which a request has been unanswered for too long."""
    world, was_paused = host.world, host.paused
    host.paused = False
    if not was_paused or not world.shape.frozen:
        return
    overdue = host.is_cut or (bool(host.sent) and host.sent[0].deadline <= world.now)
    for request in () if host.is_cut else host.unsent:
        if request.deadline <= world.now:
            request.overdue, request.deadline = True, world.now + REQUEST_S
        world.note(f"{host.name} sends {request.batch} as it wakes, overdue: {request.overdue}")
        world.wire.append(request)
    host.unsent.clear()
    host.is_cut = False
    if overdue:
        host.disconnect()
