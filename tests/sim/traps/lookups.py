"""Traps in a compacted target: a holder has to find out which of the missing records were appended, and which of them
newer records supersede.

Between their strikes, these traps let the lane go on without faults. What a lookup finds shows only if nothing else
happens until it has consequences.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from mirrord.ledger.facts.quarantine import Quarantined
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import AskSuperseded
from tests.sim import truth
from tests.sim.compacted_copy import settled
from tests.sim.host import Host
from tests.sim.past import acked_in_story
from tests.sim.traps.moments import Found, Script, kill, may_start

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World

_PAUSE = 70
"""Most steps between two strikes."""
_PATIENCE = 400
"""Steps without faults until a lane has copied everything."""


def _calmly(story: "Story", condition: Callable[[], Found | None]) -> Found | None:
    """Let the story go on without faults until the condition returns something. Return it, or None if that takes too
    long."""
    world = story.world
    for _ in range(_PATIENCE):
        if found := condition():
            return found
        choices, later = world.choices(), world.next_time()
        if choices and (later is None or story.rng.random() < 0.93):
            world.do(story.rng.choice(choices))
        elif later is not None:
            world.advance(later)
        truth.check(world)
    return None


def _copied(world: "World") -> Host | None:
    """The last holder, if it has copied all that it can read."""
    host = world.hosts[-1] if world.hosts else None
    if host is None or (settled(world) is not host and not (host.alive and host.lane.skipped)):
        return None
    lane = host.lane
    is_done = lane.phase is Phase.COPYING and not (lane.ready or lane.in_flight or lane.intents or lane.plan)
    return host if is_done and acked_in_story(host) > 0 and lane.position >= world.source.last_stable else None


def all_copied(story: "Story") -> Host | None:
    """Clients of the source end their transactions, the follower of the target catches up, and an operator alters the
    target topic so that it accepts all records. Let the lane copy everything. Return its holder, or None."""
    world = story.world
    if world.target.poison:
        world.target.former_poison |= world.target.poison
        world.target.poison.clear()
        world.target.settings += 1
    world.target.largest = 1 << 62
    for producer in list(world.source.open):
        world.source.finish(producer, world.record_ms(), commit=True)
    _everywhere(world)
    if not world.hosts[-1].alive and may_start(world):
        world.start_host(former_dead=True)
    host = _calmly(story, lambda: _copied(world))
    _everywhere(world)
    return host


def _append(world: "World", least: int, most: int, producer: int = -1) -> None:
    world.source.append(world.rng.randint(least, most), world.record_ms(), producer)


def _everywhere(world: "World") -> None:
    """The follower catches up."""
    world.target.learn(world.wall_ms)
    while world.target.replicate():
        pass


def _forget(world: "World") -> None:
    for at in (0, 1):
        world.target.forget(at, world.wall_ms)


def clean(world: "World") -> None:
    """The cleaners of both replicas remove what is superseded."""
    _everywhere(world)
    _forget(world)
    for at in (0, 1):
        world.target.clean(at, world.target.high_watermark)


def lose(world: "World", end: int, *, back: bool = False) -> None:
    """The follower has not copied what is at or above this target offset, and leads. Both replicas then lack it. If
    `back` is set, the former leader leads again at once, and connections stay open."""
    target = world.target
    follower = target.brokers[1 - target.leader]
    follower.truncate(end)
    target.reload(1 - target.leader, world.wall_ms)
    for _ in range(2 if back else 1):
        target.elect()
        target.learn(world.wall_ms)


def save(world: "World", host: Host) -> None:
    """The host saves its resume position, in time."""
    before, world.saves = world.saves, 1.0
    host.save_progress()
    world.saves = before


def _is_looking_up(world: "World") -> bool:
    asked = (item for host in world.hosts.living for item in host.inbox if item[0] in {"ask", "held"})
    return any(isinstance(content[0], AskSuperseded) for _, content in asked)


def looked_up(story: "Story") -> None:
    """Let the holder look up what is missing, and copy everything. Another client may write meanwhile, and the cleaner
    removes what that supersedes."""
    world = story.world
    _calmly(story, lambda: _is_looking_up(world) or _copied(world))
    if _is_looking_up(world) and story.rng.random() < 0.4:
        world.note("trap: another client writes during a lookup")
        world.target.foreign(story.rng.choice((1, world.target.keys)), world.wall_ms)
        clean(world)
    _calmly(story, lambda: _copied(world))


def last_records_cleaned(story: "Story") -> Script:
    """The cleaner removes the lane's last records, because another client has overwritten their keys. The next holder
    does not know whether these or the records that follow them in the source were appended. These are of a later
    epoch, are aborted, are not committed yet, or follow one that the target has refused."""
    world, rng = story.world, story.rng
    for _ in range(rng.randrange(_PAUSE)):
        yield
    host = all_copied(story)
    if not host or not may_start(world):
        return
    if rng.random() < 0.5:
        save(world, host)
    _append(world, 1, 3)
    if not (host := all_copied(story)):
        return
    others = (*(["refused"] * world.shape.poison), *(["filtered"] * world.shape.steady))
    if not world.shape.isolations:
        others += ("aborted", "open")
    scene = rng.choice(("epoch", "plain", *others))
    if scene == "refused" and not (host := _refused(story)):
        return
    kill(host)
    world.note(f"trap: the last records are cleaned, what follows is {scene}")
    _go_on(world, scene)
    for _ in range(1 if scene == "plain" else rng.randint(2, 3)):
        world.target.foreign(world.target.keys, world.wall_ms)
    clean(world) if scene != "plain" else _forget(world)
    world.start_host(former_dead=True)
    looked_up(story)
    all_copied(story)


def _go_on(world: "World", scene: str) -> None:
    """Write to the source what has not been copied yet."""
    if scene == "epoch":
        world.source.elect()
    elif scene in {"aborted", "open"}:
        _append(world, 1, 2, producer=0)
    if scene == "aborted":
        world.source.finish(0, world.record_ms(), commit=False)
    _append(world, *((4, 5) if scene == "filtered" else (2, 3)))


def _refused(story: "Story") -> Host | None:
    """The target refuses a record, and the ledger says that it is skipped. The lane has not recorded anything after it
    yet. Return the holder, or None."""
    world = story.world
    begun, host = len(world.ledger), world.hosts[-1]
    _append(world, 1, 1)
    world.target.poison.add(world.source.number)

    def is_skipped() -> bool:
        facts = (fact for entry in world.ledger[begun:] for fact in entry.facts)
        return any(isinstance(fact, Quarantined) and fact.skip for fact in facts)

    return host if _calmly(story, is_skipped) and host.alive else None


def last_records_cleaned_behind_a_filter(story: "Story") -> Script:
    """The same, and a filter drops some of the records that have not been copied."""
    yield from last_records_cleaned(story)


def lost_beside_others(story: "Story") -> Script:
    """An unclean election removes copied records. Other clients have written the same keys before, and write them
    again, perhaps at offsets below those of the lost records."""
    world, rng = story.world, story.rng
    for _ in range(rng.randrange(_PAUSE)):
        yield
    if not all_copied(story):
        return
    if rng.random() < 0.5:
        world.target.foreign(world.target.keys, world.wall_ms)
        _everywhere(world)
    if rng.random() < 0.3:
        clean(world)
    end = world.target.end
    if rng.random() < 0.5:
        world.target.foreign(world.target.keys, world.wall_ms)
    for _ in range(rng.randint(1, 2)):
        _append(world, 1, 3)
    if not (host := all_copied(story)):
        return
    if rng.random() < 0.5:
        save(world, host)
    world.note("trap: records are lost beside those of others")
    lose(world, end)
    if rng.random() < 0.6:
        world.target.foreign(rng.choice((1, world.target.keys)), world.wall_ms)
    if world.shape.retention:
        world.source.expire(100)
    _forget(world)
    if rng.random() < 0.5 and may_start(world):
        kill(host)
        world.start_host(former_dead=True)
    looked_up(story)


def lost_and_expired(story: "Story") -> Script:
    """The same, and retention deletes the lost records at the source."""
    yield from lost_beside_others(story)


def removed_from_its_batch(story: "Story") -> Script:
    """The cleaner removes a copied record because of a later one of its key, and that one, from its batch, because of a
    third one, which another client wrote. An unclean election removes the third one. Another holder takes the lane."""
    world, rng = story.world, story.rng
    for _ in range(rng.randrange(_PAUSE)):
        yield
    keys = world.target.keys
    key = world.target.key(world.target.foreign_numbers + 1)
    for producer in list(world.source.open):
        world.source.finish(producer, world.record_ms(), commit=True)
    while (world.source.number + 1) % keys != key:
        _append(world, 1, 1)
    _append(world, 1, 1)
    _append(world, keys, keys)
    if not (host := all_copied(story)) or not may_start(world):
        return
    world.note("trap: what superseded a record is removed from its batch")
    end = world.target.end
    world.target.foreign(1, world.wall_ms)
    clean(world)
    lose(world, end)
    _forget(world)
    kill(host)
    world.start_host(former_dead=True)
    looked_up(story)


def newest_lost_on_both_sides(story: "Story") -> Script:
    """A record is copied, and then a newer one with the same key, because of which the cleaner removes the older one.
    The source loses the newer record in an election, and then the target does."""
    world, rng = story.world, story.rng
    for _ in range(rng.randrange(_PAUSE)):
        yield
    for count in (1, world.target.keys - 1):
        if count:
            _append(world, count, count)
        if not all_copied(story):
            return
    end = world.target.end
    _append(world, 1, 1)
    if not all_copied(story):
        return
    clean(world)
    world.note("trap: both logs lose the newest record of a key")
    world.source.truncate(1)
    _append(world, 1, 2)
    if not (host := all_copied(story)):
        return
    if rng.random() < 0.5:
        save(world, host)
    lose(world, end)
    if rng.random() < 0.3 and may_start(world):
        kill(host)
        world.start_host(former_dead=True)
    looked_up(story)


def later_batches_follow_lost_ones(story: "Story") -> Script:
    """An unclean election removes copied records, and the broker forgets the producer. What the lane has sent after
    these records is appended in their place."""
    world, rng = story.world, story.rng
    for _ in range(rng.randrange(_PAUSE)):
        yield
    if not all_copied(story):
        return
    end = world.target.end
    _append(world, 1, 3)
    if not (host := all_copied(story)):
        return
    _append(world, 2, 3)
    requests = _calmly(story, lambda: [each for each in world.wire if each.host is host])
    if not requests:
        return
    world.note("trap: later batches follow lost ones")
    lose(world, end, back=True)
    _forget(world)
    for each in requests:
        world.do(("arrive", each))
    looked_up(story)


def isolation_changed(story: "Story") -> Script:
    """A holder copies records of a transaction that has not ended. An unclean election removes the copies, another
    client writes their keys, and the next holder copies only committed records. The transaction is committed."""
    world, rng = story.world, story.rng
    for _ in range(rng.randrange(_PAUSE)):
        yield
    host = all_copied(story)
    if host and host.lane.read_committed and may_start(world) and not world.shape.transactions:
        kill(host)
        world.start_host(former_dead=True)
        host = all_copied(story)
    if not host or host.lane.read_committed or not may_start(world):
        return
    end = world.target.end
    _append(world, 1, 3, producer=0)
    if not _calmly(story, lambda: settled(world) is host and host.lane.position >= world.source.end):
        return
    _everywhere(world)
    save(world, host)
    world.note("trap: copies of records that are not committed are lost, and the isolation is changed")
    lose(world, end)
    if rng.random() < 0.8:
        world.target.foreign(world.target.keys, world.wall_ms)
    _forget(world)
    kill(host)
    world.start_host(former_dead=True)
    looked_up(story)
    all_copied(story)
