"""Retention of the target topic, which deletes records that are copied or that the lane has not looked at yet."""

from typing import TYPE_CHECKING

from tests.sim import toy
from tests.sim.host import LANE, Host, Request
from tests.sim.stored import Copy, Stored
from tests.sim.target import Broker

if TYPE_CHECKING:
    from tests.sim.world import World


def expire(world: "World") -> None:
    """Delete some of the oldest batches. Each replica deletes for itself, and follows the leader."""
    rng, target = world.rng, world.target
    target.has_snapshots = rng.random() < 0.5
    for each in rng.choice(((0,), (1,), (0, 1), (0, 1))):
        target.expire(each, rng.choice((1, 2, 3, 100)))
    world.known.is_hidden |= any(broker.deleted for broker in target.brokers)
    world.note(f"the target log begins at {[broker.start for broker in target.brokers]}")


def outlive(world: "World", host: Host | None) -> None:
    """The lane stops, the target deletes what it has copied last, and another holder begins."""
    rng, target = world.rng, world.target
    while rng.random() < 0.8 and target.replicate():
        pass
    if host is not None and world.shape.kills and rng.random() < 0.7:
        host.alive = False
        host.sent.clear()
    expire(world)
    if rng.random() < 0.5:
        target.reload(rng.randrange(2), world.wall_ms)
    if len([each for each in world.hosts if each.alive]) < 3 and rng.random() < 0.7:
        world.start_host(former_dead=not any(each.alive for each in world.hosts))


def appended(world: "World", request: Request, base: int) -> None:
    """A holder appends a batch, although nothing shows it that retention has deleted some of the lane's records, or
    which of several records it has deleted. These may as well never have been there before."""
    broker = world.target.brokers[request.broker]
    if not broker.deleted:
        return
    numbers = {number for _, number in toy.records(request.data)}
    unknown = world.known.deleted.pop(request.host.name, None) or _beside_a_hole(world, broker, numbers)
    unknown = unknown | sent_meanwhile(broker, numbers, request.log_end)
    if unknown:
        world.note(f"{request.host.name} copies without knowing what retention has deleted")
        world.target.unknown.appended(_at(broker, base), unknown)


def sent_meanwhile(broker: Broker, numbers: set[int], log_end: int) -> set[Copy]:
    """Deleted copies of the records in a batch that were appended after the sender of the batch had read the log up to
    this end, because an earlier request with the same records was still under way. The broker has forgotten the
    producer since, or it would have treated the batch as a repeat. The log has the records only once."""
    return {copy for stored in broker.deleted if stored.base >= log_end for copy in stored.copies(numbers)}


def came_late(world: "World", request: Request, base: int, *, found: bool) -> None:
    """Bytes that everyone had given up are appended although retention has deleted their records in the meantime. No
    rule can keep them out, and the log has the records only once. If a lane is about to send the same ordinals
    (`found`), it knows of none of the later ones either."""
    broker = world.target.brokers[request.broker]
    numbers = {number for _, number in toy.records(request.data)}
    for stored in broker.deleted:
        is_later = found and stored.ordinal + stored.count > request.batch.first
        world.target.unknown.appended(_at(broker, base), stored.copies(None if is_later else numbers))


def rebuilt(world: "World", first: int) -> None:
    """The map was rebuilt from this ordinal on. Nothing shows which records had the ordinals of those that retention
    had deleted."""
    for stored in world.target.brokers[world.target.leader].deleted:
        copies = (((stored.id, each), stored.ordinal + at) for at, each in enumerate(stored.numbers))
        world.target.unknown.always.update(
            copy for copy, ordinal in copies if stored.producer >= 0 and ordinal >= first
        )


def _at(broker: Broker, base: int) -> Stored:
    return next(stored for stored in broker.whole if stored.base == base)


def _beside_a_hole(world: "World", broker: Broker, numbers: set[int]) -> set[Copy]:
    """Deleted copies of these records, if they were in holes of which other records were never appended."""
    there = {
        stored.ordinal + at: (stored.id, number)
        for stored in broker.history
        for at, number in enumerate(stored.numbers)
        if number
    }
    found = set[Copy]()
    for hole in world.truth.lanes[LANE].holes:
        ordinals = range(hole.first, hole.last + 1)
        if not all(ordinal in there for ordinal in ordinals):
            found.update(there[ordinal] for ordinal in ordinals if ordinal in there and there[ordinal][1] in numbers)
    return found
