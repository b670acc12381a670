"""Traps while somebody decides what a lane leaves out: an operator, a filter, or the target that refuses a record."""

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING

from mirrord.ledger.seeks import pending
from mirrord.replication.lane.dead_letter_signals import Park, ParkAnswer
from tests.sim.host import LANE, Host
from tests.sim.operator import seek
from tests.sim.traps.moments import LONG, Script, copying, kill, may_start, running, until

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World


def sought_before_a_takeover(story: "Story") -> Script:
    """An operator commands the lane to continue further ahead. In half of the cases, its holder is killed before it has
    recorded that it did."""
    world = story.world
    host = yield from until(lambda: copying(world, acked=1), LONG)
    if not host or world.progress is None:
        return
    world.source.append(world.rng.randint(2, 4), world.record_ms())
    seek(world)

    def is_ordered() -> bool:
        record = world.truth.lanes.get(LANE)
        return record is not None and bool(pending(record.seeks))

    if not is_ordered():
        return
    world.note("trap: an operator seeks ahead")
    if world.rng.random() < 0.5:
        return
    yield from until(lambda: bool(host.appends) or not host.alive or not is_ordered())
    if host.alive and may_start(world):
        kill(host)
        world.start_host(former_dead=True)


def _parking(world: "World") -> Host | None:
    """A host that waits for the answer of the dead-letter topic."""
    return next((host for host in running(world) if _question(host) is not None), None)


def _question(host: Host) -> Park | None:
    found = (content[0] for kind, content in host.inbox if kind == "ask")
    return next((each for each in found if isinstance(each, Park)), None)


def letters_in_doubt(story: "Story") -> Script:
    """The target refuses a record. The dead-letter topic does not take it at first, or takes it, and nobody hears of
    that. In half of the cases, the holder is killed then."""
    world = story.world
    world.source.append(1, world.record_ms())
    world.target.poison.add(world.source.number)
    for takes in world.rng.choice(((True,), (False, True), (True, False))):
        host = yield from until(lambda: _parking(world), LONG)
        question = _question(host) if host else None
        if not host or question is None:
            return
        host.inbox = deque(each for each in host.inbox if each[0] != "ask" or each[1][0] is not question)
        world.note(f"trap: the dead-letter topic takes a record: {takes}")
        if takes:
            world.letters.park(question, None)
        if takes and world.rng.random() < 0.5 and may_start(world):
            kill(host)
            world.start_host(former_dead=True)
        else:
            host.take(ParkAnswer(question.question, -1, "nobody answers"))
        yield


def _change_of_rules(story: "Story") -> Generator[None, None, Host | None]:
    """The filter drops every other record. It changes its mind about one of them after the ledger has its decision, and
    before the target has the records. Return the host that decided, whose requests are lost."""
    world = story.world
    world.filter.rules = _is_even
    world.source.append(world.rng.randint(2, 4), world.record_ms())

    def kept_now() -> tuple[Host, int] | None:
        host, record = copying(world), world.truth.lanes.get(LANE)
        if host is None or record is None or not host.lane.in_flight:
            return None
        first, last = record.source_runs.offset_of(host.lane.acked), record.source_runs.last
        if first is None or last is None:
            return None
        pairs = (at for batch in world.source.log for at in range(batch.base, batch.last) if _is_even(at))
        dropped = next((at + 1 for at in pairs if first < at < last.offset - 1), None)
        return None if dropped is None else (host, dropped)

    found = yield from until(kept_now, LONG)
    if not found:
        return None
    host, dropped = found
    world.note("trap: a filter changes its mind")
    for each in [each for each in world.wire if each.host is host and not each.kept]:
        world.forsake(each)
    world.filter.rules = lambda offset: _is_even(offset) or offset >= dropped
    return host


def _is_even(offset: int) -> bool:
    return offset % 2 == 0


def killed_with_decided_records(story: "Story") -> Script:
    """A holder is killed after the ledger has the decisions of a filter, and before the target has the records. The
    filter answers differently when the next holder asks it."""
    world = story.world
    host = yield from _change_of_rules(story)
    if host and may_start(world):
        kill(host)
        later = world.start_host(former_dead=True)
        yield from until(lambda: later.lane.acked > host.lane.acked + 2 or not later.alive, LONG)


def disconnected_with_decided_records(story: "Story") -> Script:
    """A lane loses its connection after the ledger has the decisions of a filter, and before the target has the
    records. The filter answers differently when it is asked again."""
    host = yield from _change_of_rules(story)
    if host:
        host.disconnect()
        acked = host.lane.acked
        yield from until(lambda: host.lane.acked > acked + 2 or not host.alive, LONG)
