"""Retention of the target topic, which deletes records that are copied or that the lane has not looked at yet."""

from typing import TYPE_CHECKING

from mirrord.ledger.offset_map import CopiedPosition, LaneMap
from tests.sim import toy
from tests.sim.host import LANE, Host, Request
from tests.sim.target import Broker

if TYPE_CHECKING:
    from tests.sim.world import World


def expire(world: "World") -> None:
    """Delete some of the oldest batches. Each replica deletes for itself, and follows the leader."""
    rng, target = world.rng, world.target
    target.has_snapshots = rng.random() < 0.5
    below = target.high_watermark
    if world.shape.mode == "at-least-once":
        # A lane that ignores what the broker remembers repeats what retention has deleted above its position, and a
        # broker that does remember recognizes the repeat, for ever.
        below = world.progress.target_offset if world.progress is not None else 0
    for each in rng.choice(((0,), (1,), (0, 1), (0, 1))):
        target.expire(each, rng.choice((1, 2, 3, 100)), below)
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


def appended(world: "World", request: Request) -> None:
    """Records are appended once more because nothing shows the holder that retention has deleted them, or which of
    several records it has deleted. They may as well never have been there before."""
    broker = world.target.brokers[request.broker]
    if not broker.deleted:
        return
    numbers = {number for _, number in toy.records(request.data)}
    unseen = world.known.deleted.get(request.host.name, set())
    if unseen.isdisjoint(numbers):
        unseen = numbers & _beside_a_hole(world, broker)
    else:
        del world.known.deleted[request.host.name]
    if unseen:
        world.note(f"{request.host.name} copies again what retention has deleted")
        world.target.deleted_unseen |= unseen
        broker.deleted[:] = [each for each in broker.deleted if unseen.isdisjoint(each.numbers)]


def _beside_a_hole(world: "World", broker: Broker) -> set[int]:
    """Numbers of deleted records in holes of which other records were never appended."""
    there = {stored.sequence + at: number for stored in broker.history for at, number in enumerate(stored.numbers)}
    found = set[int]()
    for hole in world.truth.lanes[LANE].holes:
        ordinals = range(hole.first, hole.last + 1)
        if not all(ordinal in there for ordinal in ordinals):
            found.update(there[ordinal] for ordinal in ordinals if ordinal in there)
    return found


def wrong_translation(world: "World") -> str:
    """What is wrong with the translated offsets of the records that the target has, or empty. Of those that it has
    deleted, the ledger need not know where they were."""
    log = [stored for stored in world.target.brokers[world.target.leader].log if stored.producer >= 0]
    if not log:
        return ""
    copied = CopiedPosition(log[-1].sequence + log[-1].count, log[-1].end, world.source.end)
    lane = LaneMap(world.truth.lanes[LANE], copied)
    places = {number: stored.base + at for stored in log for at, number in enumerate(stored.numbers)}
    for number in places.keys() - world.source.cut:
        offset, place = world.source.offset_of[number], places[number]
        there, back = lane.to_target(offset), lane.to_source(place)
        if there.record != place or back.record != offset:
            return f"source offset {offset} is at {place}, the answers are {there} and {back}"
    return ""
