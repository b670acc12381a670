"""What the simulation counts as stale in a compacted target."""

from types import SimpleNamespace
from typing import cast

import pytest

from mirrord.ledger.facts.core import Verdict, VerdictGiven
from tests.sim.host import LANE, Host
from tests.sim.newer_records import was_theirs
from tests.sim.scheduler import shape_named
from tests.sim.target import FakeTarget, Stored
from tests.sim.truth import Violation, check_order_of_keys, left_no_trace
from tests.sim.world import World


def overwritten(*numbers: int) -> World:
    """Return a world whose target log has these records. Positive numbers are records of the source, of which the first
    three have the same key. Negative ones are foreign. All source records were acknowledged when there were no foreign
    ones yet."""
    world = World(1, shape_named("compacted copy, beside others"))
    world.target.keys = 1
    world.source.append(3, 0)
    first = min(world.source.offset_of)
    for offset, number in enumerate(numbers):
        producer = 7 if number > 0 else -1
        there = first + number - 1 if number > 0 else number
        world.target.brokers[0].append(Stored(offset, 1, producer, 0, max(number - 1, -1), 0, (there,), 1))
        if number > 0:
            world.known.taken[there], world.known.takers[there] = 0, ("r1", number - 1)
    return world


def test_a_record_of_the_source_after_a_newer_foreign_one_is_a_violation() -> None:
    with pytest.raises(Violation, match="source offset 1 was put over a newer record"):
        check_order_of_keys(overwritten(-1, 2))


def test_a_record_of_the_source_may_follow_late_bytes_that_a_foreign_record_did_not_keep_out() -> None:
    """The late bytes are the last value of the key, and are older than what follows. The cleaner removes the foreign
    record, and then nothing shows that it was there."""
    world = overwritten(-1, 1, 2)
    late = min(world.source.offset_of)
    world.late.add(late)
    world.known.limits[late] = 0
    check_order_of_keys(world)


def test_a_foreign_record_after_late_bytes_counts() -> None:
    world = overwritten(-1, 1, -2, 2)
    late = min(world.source.offset_of)
    world.late.add(late)
    world.known.limits[late] = 0
    with pytest.raises(Violation, match="source offset 1 was put over a newer record"):
        check_order_of_keys(world)


def test_a_record_may_follow_an_older_one_that_no_lookup_could_keep_from_following_a_foreign_one() -> None:
    """The foreign record was written between the lookup of both lost records and the append of the first one. After
    that, the key has an older value of the source, whether or not the second one is copied again."""
    world = overwritten(-1, 1, 2)
    world.known.limits[min(world.source.offset_of)] = 0
    world.known.limits[min(world.source.offset_of) + 1] = 1
    check_order_of_keys(world)


def test_a_record_may_not_follow_a_foreign_one_that_a_lookup_could_see() -> None:
    world = overwritten(-1, 1, -2, 2)
    world.known.limits[min(world.source.offset_of)] = 0
    world.known.limits[min(world.source.offset_of) + 1] = 2
    with pytest.raises(Violation, match="source offset 1 was put over a newer record"):
        check_order_of_keys(world)


def test_a_record_may_follow_a_newer_one_that_the_former_leader_hid() -> None:
    """The former leader's cleaner had removed records 1 and 2, and it had lost record 3. The holder copied all of them
    again there. Then a replica became the leader that still had record 2."""
    world = overwritten(2, 1, 2)
    with pytest.raises(Violation, match="source offset 0 stands after 1"):
        check_order_of_keys(world)
    world.target.hid.add(min(world.source.offset_of) + 1)
    check_order_of_keys(world)


@pytest.mark.parametrize("deleted", [True, False])
@pytest.mark.parametrize("cleaned", [True, False])
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("holder", ["r1", "r2"])
def test_only_a_record_that_both_logs_removed_left_no_trace(
    *, deleted: bool, cleaned: bool, recorded: bool, holder: str
) -> None:
    """The record was acknowledged to r1. If `recorded`, the ledger says that it was deleted before it was copied."""
    world = overwritten(1)
    (number,) = world.known.taken
    world.hosts = [cast("Host", SimpleNamespace(name=holder))]
    world.source.expired = {number} if deleted else set()
    world.target.cleaned = {number} if cleaned else set()
    if recorded:
        offset = world.source.offset_of[number]
        world.gaps.take(VerdictGiven(LANE, 1, (Verdict(offset, offset + 1, "expired"),)), 0)
    assert left_no_trace(world, number) is (deleted and cleaned and recorded and holder == "r2")


@pytest.mark.parametrize(
    ("seen", "lost", "may_be_missing"),
    [(1, {-1}, True), (0, {-1}, False), (1, set(), False)],
    ids=["lost", "not seen by the lookup", "not lost"],
)
def test_a_key_may_be_missing_if_a_foreign_record_because_of_which_a_plan_left_it_out_was_lost(
    seen: int, lost: set[int], *, may_be_missing: bool
) -> None:
    """An election removed the copied record, a foreign one of its key was written, and the next election removed it."""
    world = overwritten()
    number = min(world.source.offset_of)
    world.target.lost = lost | {number}
    assert not was_theirs(world, number)
    world.known.planner, world.known.looked_up["r1"] = "r1", seen
    world.known.leave_out([number])
    assert was_theirs(world, number) is may_be_missing


@pytest.mark.parametrize(
    ("standing", "lost", "hidden"),
    [((), {2}, {1}), ((2,), {3}, set()), ((1,), {2}, set()), ((-1,), {2}, set()), ((), set(), set())],
    ids=["all is gone", "a newer one is there", "it is there", "a foreign one is there", "nothing was lost"],
)
def test_a_log_hides_cleaned_records_of_which_it_has_lost_the_newer_ones(
    standing: tuple[int, ...], lost: set[int], hidden: set[int]
) -> None:
    target = FakeTarget()
    target.keys, target.lost = 1, lost
    target.brokers[0].append(Stored(0, 1, 7, 0, 0, 0, (1,), 1))
    target.brokers[0].log.clear()
    for number in standing:
        stored = Stored(0 if number == 1 else 1, 1, 7, 0, 1, 0, (number,), 1)
        target.brokers[0].log.append(stored)
    assert target.hidden(0) == hidden
