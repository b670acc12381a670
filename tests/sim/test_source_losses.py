"""What the ledger must say about records that the source has lost in unclean elections."""

import pytest

from mirrord.ledger.facts.core import LaneOpened, LaneTaken, SourceRun, Verdict
from mirrord.model.runs import Run
from tests.sim.at_end import check_truncated
from tests.sim.host import LANE
from tests.sim.themes import shape_named
from tests.sim.untraced import taken_offsets
from tests.sim.violation import Violation
from tests.sim.world import World


def begun(batches: int) -> World:
    """Return a world whose source has batches of two records."""
    world = World(1, shape_named("retention"))
    world.write((LaneOpened(LANE, "orders", "eu.orders", 0, 7, 0, "p"), LaneTaken(LANE, 1, "r1", (0, 0))), 1)
    write(world, batches)
    return world


def write(world: World, batches: int) -> set[int]:
    first = world.source.number + 1
    for _ in range(batches):
        world.source.append(2, 0)
    return set(range(first, world.source.number + 1))


def record(world: World, start: int, end: int, reason: str = "truncated") -> None:
    verdict = Verdict(start, end, "truncated" if reason == "truncated" else "compacted")
    world.write((SourceRun(LANE, 1, (Run(20, start),), (verdict,)),), 1)


def test_a_loss_is_that_of_the_newest_election_below_it() -> None:
    """An election truncates the log at offset 6, and the ledger says so. Another one truncates it at 2, and retention
    deletes the records below offset 8. The lane then finds only the loss from there on."""
    world = begun(5)
    copied = set(world.source.offset_of)
    world.source.truncate(2)
    copied |= write(world, 3)
    record(world, 6, 10)
    world.source.truncate(5)
    write(world, 6)
    world.source.expire(4)
    record(world, 8, 12)
    check_truncated(world, copied)


@pytest.mark.parametrize("start", [2, 4])
def test_the_first_copied_record_that_an_election_removed_is_recorded(start: int) -> None:
    world = begun(5)
    copied = set(world.source.offset_of)
    world.source.truncate(4)
    write(world, 5)
    record(world, start, 10)
    if start == 2:
        check_truncated(world, copied)
        return
    with pytest.raises(Violation, match="recorded as truncated"):
        check_truncated(world, copied)


def test_a_loss_may_be_recorded_after_a_later_one() -> None:
    world = begun(5)
    copied = set(world.source.offset_of)
    world.source.truncate(1)
    world.source.truncate(2)
    write(world, 3)
    record(world, 8, 10)
    record(world, 4, 8)
    check_truncated(world, copied)


def test_a_loss_of_records_that_replaced_lost_ones_is_recorded_as_well() -> None:
    """The verdict on the former records does not count for the later ones at the same offsets."""
    world = begun(5)
    copied = set(world.source.offset_of)
    world.source.truncate(3)
    copied |= write(world, 3)
    record(world, 4, 10)
    world.source.truncate(3)
    write(world, 3)
    with pytest.raises(Violation, match="does not say so: \\[4, 5, 6, 7, 8, 9\\]"):
        check_truncated(world, copied)


def test_a_truncation_that_never_happened_is_a_violation() -> None:
    world = begun(3)
    world.source.truncate(1)
    record(world, 2, 6)
    with pytest.raises(Violation, match="recorded as truncated"):
        check_truncated(world, set())


@pytest.mark.parametrize(("explained", "taken"), [(True, {2, 3, 4, 5}), (False, {2, 3, 4})])
def test_nothing_shows_that_deleted_records_replaced_those_that_the_lane_had_read(
    taken: set[int], *, explained: bool
) -> None:
    """The source's cleaner removed the record at offset 5, and an election the last records. Retention deletes what
    has replaced them."""
    world = begun(3)
    world.source.remove(world.source.log[2], 1)
    copied = set(world.source.wanted())
    if explained:
        record(world, 5, 6, "compacted")
    world.source.truncate(2)
    write(world, 3)
    world.source.expire(4)
    assert taken_offsets(world, copied) == taken
