"""The holes of a lane: added together, they are as if they had been added one after the other."""

import random
from collections.abc import Callable, Sequence

import pytest

from mirrord.ledger.facts.core import HoleFound, LaneTaken, LeaseTaken, SourceRun
from mirrord.ledger.fold import fold
from mirrord.ledger.hole_list import HoleList, all_carried_on
from mirrord.ledger.hole_plans import after_runs, carried_on
from mirrord.ledger.state import FlowState
from mirrord.model.runs import Run
from tests.fixtures.calls import calls_of
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

LANE = lane_id(0)


def hole(first: int, last: int, again: int, until: int) -> HoleFound:
    return HoleFound(LANE, 1, first, last, again, until)


def wild(chance: random.Random, most: int) -> HoleFound:
    """Small numbers, so that plans meet: also holes without ordinals, open ones, and ones whose plans have ended."""
    first = chance.randrange(most)
    again = chance.randrange(most)
    return hole(first, first + chance.choice((-1, 0, 2)), again, max(0, again + chance.choice((-3, -1, 0, 1, 2, 5, 9))))


def one_by_one(known: Sequence[HoleFound], added: Sequence[HoleFound]) -> tuple[HoleFound, ...]:
    for each in added:
        known = (*(carried_on(older, each.first, each.again, each.until) for older in known), each)
    return tuple(known)


@pytest.mark.parametrize("seed", range(400))
def test_holes_added_together_are_carried_on_as_if_added_one_by_one(seed: int) -> None:
    chance = random.Random(seed)
    most = chance.choice((4, 12, 40))
    known = [wild(chance, most) for _ in range(chance.randrange(8))]
    added = [wild(chance, most) for _ in range(chance.randrange(1, 25))]
    assert all_carried_on(known, added) == one_by_one(known, added)


@pytest.mark.parametrize("seed", range(200))
def test_runs_that_are_said_to_change_no_hole_change_none(seed: int) -> None:
    chance = random.Random(seed)
    holes = HoleList(wild(chance, 12) for _ in range(chance.randrange(3)))
    for _ in range(chance.randrange(4)):
        holes.add(wild(chance, 12))
    lowest = chance.randrange(20)
    last, is_lost = lowest + chance.randrange(6), chance.random() < 0.3
    if not holes.is_changed(lowest, last, is_lost=is_lost):
        assert after_runs(holes.read(), lowest, last, is_lost=is_lost) == holes.read()


def test_runs_that_follow_all_holes_do_not_read_them() -> None:
    holes = HoleList([hole(1, 2, 5, 7)])
    assert not holes.is_changed(5, 7, is_lost=True)
    assert not holes.is_changed(5, 6, is_lost=False)
    assert holes.is_changed(5, 6, is_lost=True)
    assert holes.is_changed(2, 9, is_lost=False)
    holes.add(hole(4, 3, 5, 9))
    assert holes.is_changed(5, 8, is_lost=False)


def begun() -> FlowState:
    state = FlowState()
    fold(state, entry(FLOW, epoch=0), 0)
    fold(state, entry(LeaseTaken(1, HOLDER, 6000), opened(), LaneTaken(LANE, 1, "first")), 1)
    return state


def holes_of_one_round(count: int) -> list[HoleFound]:
    """Every second ordinal is missing, and all missing records follow together."""
    return [hole(2 * at, 2 * at, 2 * count, 3 * count) for at in range(count)]


def holes_in_unfinished_plans(count: int) -> list[HoleFound]:
    """Each hole is found while the records of the former ones are still being copied again."""
    return [hole(2 * at, 2 * at, 4 * count + at, 6 * count + at) for at in range(count)]


@pytest.mark.parametrize("holes", [holes_of_one_round, holes_in_unfinished_plans])
@pytest.mark.parametrize("together", [True, False])
def test_the_work_to_fold_holes_grows_with_their_number(
    holes: Callable[[int], list[HoleFound]], together: bool
) -> None:
    def work(count: int) -> int:
        state, facts = begun(), holes(count)
        entries = [facts] if together else [[each] for each in facts]

        def play() -> None:
            for each in entries:
                fold(state, entry(*each), state.next_offset)
            assert len(state.lanes[LANE].holes) == count

        return calls_of(play)

    assert work(800) < 2.5 * work(400)


def test_the_work_to_fold_runs_after_many_holes_does_not_depend_on_the_holes() -> None:
    def work(count: int) -> int:
        state = begun()
        fold(state, entry(SourceRun(LANE, 1, (Run(0, 0),)), *holes_of_one_round(count)), state.next_offset)
        runs = [SourceRun(LANE, 1, (Run(3 * count + at, 9 * count + 2 * at),)) for at in range(20)]

        def play() -> None:
            for run in runs:
                fold(state, entry(run), state.next_offset)

        return calls_of(play)

    assert work(800) < work(100) + 50


def test_a_state_does_not_depend_on_when_its_holes_were_read() -> None:
    read, unread = begun(), begun()
    for each in holes_in_unfinished_plans(4):
        for state in (read, unread):
            fold(state, entry(each), state.next_offset)
        assert read.lanes[LANE].holes
    assert read == unread
