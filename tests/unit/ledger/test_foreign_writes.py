"""Foreign records between a lane's records, by its runs."""

import random

from mirrord.ledger.facts.core import HoleFound, LaneOpened, LaneTaken, LeaseTaken, Progress, SourceRun, TargetRun
from mirrord.ledger.fold import fold
from mirrord.ledger.foreign_writes import foreign_counts, foreign_ranges
from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneId, LaneKey, TopicId
from mirrord.model.runs import Run
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

LANE = lane_id(0)


class Made:
    """A flow whose lanes wrote at the target offsets that a test names."""

    def __init__(self) -> None:
        self.state = FlowState()
        self._offset = 0
        self._fold(FLOW)
        self._fold(LeaseTaken(1, HOLDER, 6_000))
        self._fold(opened(0), LaneTaken(LANE, 1, "r"), SourceRun(LANE, 1, (Run(0, 0),)))

    def _fold(self, *facts: object) -> None:
        assert all(fold(self.state, entry(*facts), self._offset))  # pyright: ignore[reportArgumentType]
        self._offset += 1

    def runs(self, *runs: tuple[int, int], lane: LaneId = LANE) -> None:
        for ordinal, offset in runs:
            self._fold(TargetRun(lane, 1, ordinal, offset, 0))

    def save_progress(self, ordinal: int, target_offset: int, lane: LaneId = LANE) -> None:
        progress = Progress(lane, 1, 1, ordinal, target_offset, 0, 0, 0, 0, 0, protected=True, state="copying")
        assert self.state.accept_progress(progress)

    def other_lane(self) -> LaneId:
        """A lane of a source topic of the same name, into the same target topic."""
        lane = LaneKey(TopicId("new-topic"), 0, TopicId("target-topic")).id
        self._fold(LaneOpened(lane, "orders", "eu.orders", 0, 2_000, 0, "all"), LaneTaken(lane, 1, "r"))
        return lane

    def hole(self, first: int, last: int, again: int) -> None:
        runs = SourceRun(LANE, 1, (Run(again, first), Run(again + last + 1 - first, again)))
        self._fold(runs, HoleFound(LANE, 1, first, last, again, again + last + 1 - first))


def test_ranges_lie_between_the_lanes_records() -> None:
    made = Made()
    made.runs((0, 5), (10, 18), (20, 29))
    assert not foreign_counts(made.state), "without a progress record nothing is known"
    made.save_progress(30, 39)
    assert list(foreign_ranges(made.state, LANE)) == [(15, 18), (28, 29)]
    assert foreign_counts(made.state) == {LANE: 4}


def test_what_comes_before_and_after_is_not_meant() -> None:
    made = Made()
    made.runs((0, 100))
    made.save_progress(30, 130)
    assert not foreign_counts(made.state)
    assert list(foreign_ranges(made.state, LANE)) == []


def test_runs_after_the_resume_position_do_not_count() -> None:
    made = Made()
    made.runs((0, 0), (10, 50))
    made.save_progress(10, 10)
    assert not foreign_counts(made.state)
    assert list(foreign_ranges(made.state, LANE)) == []


def test_ordinals_that_stand_nowhere_leave_no_gap() -> None:
    made = Made()
    made.runs((0, 0), (15, 10))
    made.hole(10, 14, 20)
    made.save_progress(25, 20)
    assert list(foreign_ranges(made.state, LANE)) == []
    assert not foreign_counts(made.state)


def test_a_target_that_lost_its_end_was_written_by_the_lane_alone() -> None:
    made = Made()
    made.runs((0, 0), (10, 12), (8, 8))
    made.save_progress(30, 30)
    assert not foreign_counts(made.state)
    assert list(foreign_ranges(made.state, LANE)) == []


def test_copies_of_another_lane_are_not_foreign() -> None:
    made = Made()
    made.runs((0, 0), (10, 14))
    made.save_progress(20, 24)
    other = made.other_lane()
    made.runs((0, 11), lane=other)
    made.save_progress(2, 13, other)
    assert list(foreign_ranges(made.state, LANE)) == [(10, 11), (13, 14)]
    assert foreign_counts(made.state) == {LANE: 2}
    made.runs((2, 24), lane=other)
    made.save_progress(4, 26, other)
    assert foreign_counts(made.state) == {LANE: 2, other: 1}, "13 lies between the records of both"


def test_every_kind_of_write_is_distinguished(seed: int) -> None:
    """The sum by first record and resume position is that of the ranges, and the ranges are what others wrote."""
    chance = random.Random(seed)
    for _ in range(50):
        made = Made()
        ordinal, offset, wanted = 0, chance.randrange(5), set[int]()
        behind = offset
        for _ in range(chance.randrange(1, 20)):
            strange = chance.choice((0, 0, 1, 3)) if ordinal else 0
            wanted |= set(range(offset, offset + strange))
            offset += strange
            made.runs((ordinal, offset))
            count = chance.randrange(1, 9)
            ordinal, offset = ordinal + count, offset + count
            behind = offset
        made.save_progress(ordinal, behind)
        found = [each for start, end in foreign_ranges(made.state, LANE) for each in range(start, end)]
        assert found == sorted(wanted)
        assert foreign_counts(made.state) == ({LANE: len(wanted)} if wanted else {})
