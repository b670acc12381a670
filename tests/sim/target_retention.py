"""Retention of the target topic, which deletes records that are copied or that the lane has not looked at yet."""

from typing import TYPE_CHECKING

from mirrord.ledger.offset_map import CopiedPosition, LaneMap
from tests.sim import toy
from tests.sim.host import LANE, Host, Request

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
    """Records are appended once more because nothing shows the holder that retention has deleted them. They may as well
    never have been there before."""
    unseen = world.known.deleted.get(request.host.name, set())
    if not unseen.isdisjoint(number for _, number in toy.records(request.data)):
        world.note(f"{request.host.name} copies again what retention has deleted")
        world.target.deleted_unseen |= unseen
        broker = world.target.brokers[request.broker]
        broker.deleted[:] = [each for each in broker.deleted if unseen.isdisjoint(each.numbers)]


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
