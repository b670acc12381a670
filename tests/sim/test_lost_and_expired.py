"""Records that a compacted target has lost, and that the source no longer has. Others get their ordinals, and must not
be taken for records that the target had."""

from collections.abc import Callable

import pytest

from mirrord.ledger.facts.core import Run, SourceRun
from mirrord.ledger.state import LaneState
from mirrord.replication.lane.phases import Phase
from tests.sim.host import LANE, Host, Shape
from tests.sim.themes import OLD_MS
from tests.sim.world import World

_MOST_STEPS = 2000


@pytest.fixture
def world() -> World:
    """No position is saved by chance."""
    shape = Shape(cleans=True, unclean=True, foreign=True, forgetting=True, retention=True, record_age_ms=OLD_MS)
    world = World(1, shape)
    world.saves = 0.0
    return world


def _play(world: World, until: Callable[[], bool]) -> None:
    """Let the world go on without faults."""
    for _ in range(_MOST_STEPS):
        if until():
            return
        choices, later = world.choices(), world.next_time()
        if choices and (later is None or world.rng.random() < 0.9):
            world.do(world.rng.choice(choices))
        elif later is not None:
            world.advance(later)
    pytest.fail("this never happened")


def _copy(world: World, host: Host, count: int = 0) -> None:
    """Let the lane copy everything, and this many more records."""
    if count:
        world.source.append(count, world.record_ms())
    host.lane.on_loss = "continue"
    _play(world, lambda: _has_copied(host))


def _has_copied(host: Host) -> bool:
    lane, source = host.lane, host.world.source
    idle = lane.phase is Phase.COPYING and not (lane.ready or lane.in_flight or lane.intents or lane.notes)
    return idle and lane.position >= source.end and lane.log.end_epoch == host.world.target.epoch


def _save(world: World, host: Host, ordinal: int) -> None:
    world.saves = 1.0
    host.save_progress()
    world.saves = 0.0
    assert world.progress is not None
    assert world.progress.ordinal == ordinal


def _everywhere(world: World) -> None:
    while world.target.replicate():
        pass
    for at in (0, 1):
        world.target.forget(at, world.wall_ms)


def _overwrite(world: World, *, cleans: bool) -> None:
    """Other clients write a newer record of every key."""
    world.target.foreign(world.target.keys, world.wall_ms)
    _everywhere(world)
    for at in (0, 1) if cleans else ():
        world.target.clean(at, world.target.high_watermark)


def _lose(world: World, end: int) -> None:
    """An unclean election removes what is at or above this target offset."""
    target = world.target
    target.brokers[1 - target.leader].truncate(end)
    target.reload(1 - target.leader, world.wall_ms)
    target.elect()
    target.learn(world.wall_ms)
    _everywhere(world)


def _next_holder(world: World, former: Host) -> Host:
    former.alive = False
    former.sent.clear()
    return world.start_host(former_dead=True)


def _record(world: World) -> LaneState:
    return world.truth.lanes[LANE]


def _runs(world: World) -> int:
    return sum(isinstance(fact, SourceRun) for entry in world.ledger for fact in entry.facts)


def _play_to_next_run(world: World) -> None:
    """Let the world go on until the ledger has one more fact with runs."""
    known = _runs(world)
    _play(world, lambda: _runs(world) > known)


def _check_next_holder(world: World, former: Host, count: int = 5) -> None:
    """Records are written to the source, and others to the target, and another holder copies all records."""
    world.source.append(count, world.record_ms())
    _overwrite(world, cleans=False)
    new = set(world.source.wanted())
    _copy(world, _next_holder(world, former))
    assert new <= world.target.taken()


def _planned(world: World) -> Host:
    """The target loses ordinals 0 to 7, and the holder plans to copy them again. The position after them is saved."""
    first = world.start_host(former_dead=False)
    for count in (3, 1):
        _copy(world, first, count)
    # The cleaner removes the records, and the next holder finds only by their keys that they were there.
    end = world.target.end
    world.target.foreign(2, world.wall_ms)
    _overwrite(world, cleans=True)
    second = _next_holder(world, first)
    _copy(world, second)
    _copy(world, second, 4)
    _save(world, second, 8)
    _lose(world, end)
    _play(world, lambda: any(hole.until == 8 for hole in _record(world).holes))
    return second


def test_a_record_that_was_never_copied_is_not_superseded(world: World) -> None:
    """LOSS. The source deletes what the plan was to copy again. The next records get the ordinals of the plan, so that
    the saved position does not count for these."""
    second = _planned(world)
    world.source.expire(100)
    _copy(world, second)
    _check_next_holder(world, second)


def test_a_plan_ends_where_other_records_get_its_ordinals(world: World) -> None:
    """LOSS. The source's cleaner removes ordinals 3 to 7 of the plan, and one of the records that follow. The next
    holder does not look up ordinals 3 and 4 as lost ones: they are records that were never copied."""
    second = _planned(world)
    source = world.source
    for batch in source.log[1:]:
        for _ in list(batch.records):
            source.remove(batch, 0)
    del source.log[1:]
    for _ in range(2):
        source.append(2, world.record_ms())
    source.remove(source.log[-1], 0)
    _play_to_next_run(world)
    assert [_record(world).source_runs.offset_of(ordinal) for ordinal in (2, 3, 4, 5)] == [2, 8, 9, 11]
    _check_next_holder(world, second)


def test_a_position_that_a_former_holder_saves_late_does_not_count(world: World) -> None:
    """LOSS. The target loses what the first holder has copied after its saved position, and the source deletes it. The
    second holder gives the ordinals to other records. Then the first one saves its last position."""
    first = world.start_host(former_dead=False)
    _copy(world, first, 4)
    _save(world, first, 4)
    _everywhere(world)
    end = world.target.end
    _copy(world, first, 4)
    first.paused = True
    _lose(world, end)
    world.source.expire(100)
    second = world.start_host(former_dead=False)
    _copy(world, second)
    second.alive = first.paused = False
    _save(world, first, 8)
    _check_next_holder(world, first)


@pytest.mark.parametrize("elected", [False, True])
def test_empty_offsets_are_not_those_of_records_that_got_the_ordinals_later(world: World, *, elected: bool) -> None:
    """LOSS. The target's cleaner removes the first records, and the source deletes them. No position is saved. The
    second holder gives their ordinals to other records. These were never at the empty offsets."""
    first = world.start_host(former_dead=False)
    _copy(world, first, 3)
    _overwrite(world, cleans=True)
    world.source.expire(100)
    second = _next_holder(world, first)
    _copy(world, second)
    assert _record(world).source_runs.offset_of(0) == 3
    if elected:
        _lose(world, world.target.end)
    _check_next_holder(world, second, 3)


@pytest.mark.parametrize("revoked", [False, True])
@pytest.mark.parametrize("holders", [0, 1, 2])
def test_other_records_at_the_same_offsets_were_never_copied(world: World, holders: int, *, revoked: bool) -> None:
    """LOSS. The target loses records of two epochs of the source. The holder is to copy them again, and ends. In
    ledgers of earlier versions, their epochs are then not known until the holder has read the records. The source loses
    the records as well, and has others at their offsets. The next holders only record the epoch of these before they
    end."""
    source = world.source
    host = world.start_host(former_dead=False)
    _copy(world, host, 4)
    _everywhere(world)
    end = world.target.end
    _copy(world, host, 2)
    source.elect()
    _copy(world, host, 2)
    _save(world, host, 8)
    _lose(world, end)
    _play(world, lambda: host.lane.phase is Phase.COPYING and host.lane.position == 4)
    assert _record(world).epochs == ((0, 0), (4, 0), (6, 1))
    if revoked:
        world.write((SourceRun(LANE, host.lane.grant, (Run(4, 4),), epochs=((4, -1),)),), host.lane.grant)
        assert _record(world).epochs == ((0, 0), (4, -1))
    host.alive = False
    source.truncate(2)
    assert (source.end, source.epoch_of(3)) == (4, 0)
    source.append(4, world.record_ms())
    new = set(source.wanted())
    for _ in range(holders):
        _overwrite(world, cleans=False)
        host = _next_holder(world, host)
        known = _runs(world)
        _play(world, lambda known=known, host=host: _runs(world) > known or _has_copied(host))
    _overwrite(world, cleans=False)
    _copy(world, _next_holder(world, host))
    assert new <= world.target.taken()
