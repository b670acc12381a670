"""Faults of a hole that is found in a log that went back to before a truncation of the source."""

import pytest

from mirrord.ledger.facts.core import HoleFound, SourceRun, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import OwnBatch
from tests.property.test_rest_of_a_plan import Copying
from tests.unit.replication.lane.test_fourth_faults import offsets, retake
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, opened
from tests.unit.replication.lane.test_third_faults import compared, plain


def resumed_in(play: Faulty, log: tuple[OwnBatch, ...]) -> None:
    """The lane resumes at a new leader, whose log consists of these batches."""
    end = log[-1].base_offset + log[-1].count
    found = compared(play, plain(play, play.ask_target(end, epoch=2), log))
    while found:
        found = play.bind_all(found)


def test_a_hole_found_before_a_truncation_does_not_bring_back_runs_that_the_source_lost() -> None:
    """Ordinal 1 was refused, and offset 1 followed as ordinal 5. Ordinals 6 to 9 were offsets 5 to 8. The source lost
    offsets 4 to 8, and ordinal 10 is the new offset 4. A new leader of the target has only ordinals 0, 3 and 4: ordinal
    2 is lost too. Offsets 2 and 1 follow, and then the source's new history, in order."""
    play = opened(*BEGUN, HoleFound(LANE, 1, 1, 1, 5, 6), SourceRun(LANE, 1, (Run(5, 1), Run(6, 5))))
    play.fold(SourceRun(LANE, 1, (Run(10, 4),), (Verdict(4, 9, "truncated"),), ((10, 1),)))
    retake(play, 11, 10, 5)
    log = (OwnBatch(0, 1, 0, 0, 1), OwnBatch(1, 2, 3, 0, 2))
    resumed_in(play, log)
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 5, 2)
    assert offsets(play, 5, 8) == [2, 1, 4, 5]
    assert [*play.lane.plan] == [Run(6, 1), Run(7, 4)]
    assert play.record.source_runs.last == Run(7, 4)


class Holed(Copying):
    def copy(self, count: int, _: int) -> None:
        for _ in range(count):
            while not self.plan and self.position in self.skipped:
                self.position += 1
            if not self.plan and self.play.record.source_runs.offset_of(self.next) != self.position:
                self.fold(Run(self.next, self.position))  # as `intake` does
            super().copy(1, 1)

    def back_to_hole(self, first: int, last: int, ordinal: int) -> None:
        """The log goes back to an ordinal, and lacks the ordinals first..last too."""
        assert self.shortened(self.next - ordinal) == ordinal
        self.mend(first, last, ordinal)

    def declare(self, count: int, gap: int) -> None:
        """The source has a gap after some more records. The ledger knows, and nothing of it was produced yet."""
        start = self.position + count
        self.skipped.update(range(start, start + gap))
        self.fold(Run(self.next + count, start + gap))
        self.resume(self.next)


@pytest.mark.parametrize("more", [0, 6])
def test_a_plan_that_may_leave_out_does_not_bring_back_runs_that_the_source_lost(more: int) -> None:
    """With the hole without ordinals (`_may_leave_out`), the lane follows the moved plan to its end."""
    copying = Holed()
    copying.copy(6, 1)
    copying.supersede(2, 1)
    copying.copy(6, 1)
    copying.back_to_hole(4, 6, 8)
    copying.copy(1, 1)
    copying.lose(6, 1)
    copying.declare(1, 1)
    copying.back_to_hole(1, 2, 4)
    copying.copy(more, 1)
    copying.check()


def test_a_hole_whose_records_the_source_lost_does_not_move_the_position_into_its_lost_history() -> None:
    """Ordinals 0 to 3 were offsets 0 to 3. The source lost offsets 1 to 3, and ordinals 4 to 6 are the new ones. A new
    leader of the target has only ordinals 0 and 2. Nothing of the hole can be copied again, and offset 1 follows."""
    play = opened(*BEGUN)
    play.fold(SourceRun(LANE, 1, (Run(4, 1),), (Verdict(1, 4, "truncated"),), ((4, 1),)))
    retake(play, 7, 7, 4)
    log = (OwnBatch(0, 1, 0, 0, 1), OwnBatch(1, 1, 2, 0, 2))
    resumed_in(play, log)
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 3)
    assert play.lane.position == 1
