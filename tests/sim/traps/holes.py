"""Traps at a hole: a broker refuses a batch and accepts the next ones, and the source no longer has what is to be
copied again."""

from collections.abc import Generator
from typing import TYPE_CHECKING

from tests.sim import late_bytes, slow_brokers
from tests.sim.host import LANE, Host, Request
from tests.sim.traps.moments import LONG, Script, forget, kill, lose_from, may_start, on_the_wire, running, until

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World

_NOT_ENOUGH_REPLICAS = 19


def _hole(world: "World", begin: int = 0) -> Generator[None, None, list[Request] | None]:
    """A broker refuses a batch, forgets the producer, and accepts the batches that follow. The records have source
    offsets from `begin` on. Return the requests, of which the first was refused, or None."""
    for _ in range(3):
        world.source.append(world.rng.randint(1, 3), world.record_ms())

    def pipelined() -> list[Request] | None:
        requests = [each for each in on_the_wire(world) if not each.kept]
        is_there = len(requests) > 1 and requests[0].batch.offset >= begin
        return requests if is_there and slow_brokers.is_read(world, requests[0]) else None

    requests = yield from until(pipelined, LONG)
    if not requests:
        return None
    target = world.target
    target.refusal, target.refusals_left, target.forget_after = _NOT_ENOUGH_REPLICAS, 1, True
    for each in requests:
        if each in world.wire:
            world.do(("arrive", each))
    target.refusals_left, target.forget_after = 0, False
    return requests


def _next_holder(world: "World", former: Request, share: float) -> None:
    """In some of the cases, the holder is killed, and another one takes the lane."""
    if world.rng.random() < share and may_start(world):
        kill(former.host)
        world.start_host(former_dead=True)


def lost_beside_a_hole(story: "Story") -> Script:
    """The source loses the refused records and those of the later batches, and uses their offsets again. In some of the
    cases, it loses them only when the lane is to copy the refused ones again, or it has elected a leader before."""
    world = story.world
    requests = yield from _hole(world)
    if not requests:
        return
    host = requests[0].host
    if world.rng.random() < 0.3:
        world.source.elect()
        world.source.append(world.rng.randint(1, 2), world.record_ms())
    if world.rng.random() < 0.5:
        yield from until(lambda: bool(host.lane.plan) or not host.alive, LONG)
    world.note("trap: the source loses records beside a hole")
    at = 0 if world.rng.random() < 0.7 else world.rng.randrange(len(requests))
    lose_from(world, requests[at].batch.offset)
    _next_holder(world, requests[0], 0.3)


def removed_beside_a_hole(story: "Story") -> Script:
    """The source's cleaner removes one of the refused records, so that the map has to be rebuilt. The source also has
    an aborted transaction."""
    world = story.world
    source = world.source
    if not source.open:
        source.append(world.rng.randint(1, 2), world.record_ms(), producer=0)
        source.finish(0, world.record_ms(), commit=False)
    source.append(world.rng.randint(1, 3), world.record_ms())
    requests = yield from _hole(world)
    if not requests:
        return
    refused = requests[0].batch
    spans = [each for each in source.log if each.base < refused.next_offset and refused.offset <= each.last]
    there = [(each, at) for each in spans for at, (offset, _) in enumerate(each.records) if offset >= refused.offset]
    there = [(each, at) for each, at in there if each.producer < 0 and each is not source.log[-1]]
    if there:
        world.note("trap: the source's cleaner removes a record of a hole")
        source.remove(*world.rng.choice(there))
        _next_holder(world, requests[0], 0.2)


def deleted_under_late_bytes(story: "Story") -> Script:
    """Batches are in doubt. The source deletes their records, and the lane gives the ordinals to later ones. Just
    before the ledger says so, bytes of the dead connection are appended. The holder is killed, the source deletes the
    later records as well, and the next holder cannot know which of the two the target has."""
    world = story.world
    source = world.source
    requests = yield from until(lambda: on_the_wire(world), LONG)
    if not requests:
        return
    host, doubted = requests[0].host, requests[0].batch
    for each in [each for each in world.wire if each.host is host]:
        world.wire.remove(each)
    host.disconnect()
    forget(world)
    while source.end < doubted.next_offset + doubted.count:
        source.append(world.rng.randint(1, 3), world.record_ms())
    source.expire(len([each for each in source.log if each.base < doubted.next_offset]))

    def giving() -> Host | None:
        giving = (each for each in running(world) if each.lane.intents)
        return next((each for each in giving if late_bytes.reads_again(world, each, requests[0])), None)

    holder = yield from until(giving, 2 * LONG)
    if not holder:
        return
    error, base = late_bytes.land(world, requests[0])
    world.note(f"trap: {requests[0].batch} arrives late: {error} {base}")
    runs = world.truth.lanes[LANE].source_runs
    yield from until(lambda: runs.offset_of(doubted.first) != doubted.offset or not holder.alive)
    begin = runs.offset_of(doubted.first)
    if not holder.alive or begin is None or begin == doubted.offset or not may_start(world):
        return
    world.note("trap: the source deletes both records that an ordinal may have")
    kill(holder)
    source.append(world.rng.randint(1, 3), world.record_ms())
    source.expire(len([each for each in source.log if each.base < begin + doubted.count]))
    world.start_host(former_dead=True)
