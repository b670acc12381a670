"""The source is truncated twice at the same offset, and nothing has been copied in between."""

import pytest

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import AnyFact, LaneTaken, LeaseTaken, SourceRun, Verdict
from mirrord.ledger.facts.quarantine import Quarantined
from mirrord.ledger.facts.seeks import LaneSought, SeekDone
from mirrord.ledger.fold import fold
from mirrord.ledger.seeks import passed
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.runs import Run
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

LANE = lane_id(0)
GONE = SourceRun(LANE, 1, (Run(2, 10),), (Verdict(10, 12, "truncated"),))
ADA = Origin("ada", "", 0)
SOUGHT, DONE = LaneSought(LANE, 10, 15, 0, ADA), SeekDone(LANE, 1, 10, 15)
LEAPT = SourceRun(LANE, 1, (Run(2, 15),), (Verdict(10, 15, "skipped"),))
REFUSED = Quarantined(LANE, 1, 10, 11, 10, "too large", skip=True)
REJECTED = SourceRun(LANE, 1, (Run(2, 11),), (Verdict(10, 11, "rejected"),))
AGAIN = SourceRun(LANE, 1, (Run(2, 10),), (Verdict(10, 15, "truncated"),))


class Ledger:
    """The state of one lane at grant 1, which has copied the source offsets 10 and 11 as ordinals 0 and 1."""

    def __init__(self) -> None:
        self.state = FlowState()
        self.add(FLOW, epoch=0)
        self.add(LeaseTaken(1, HOLDER, 6000), opened(), LaneTaken(LANE, 1, "r1"))
        self.add(SourceRun(LANE, 1, (Run(0, 10),)))

    def add(self, *facts: AnyFact, epoch: int = 1) -> None:
        assert all(fold(self.state, entry(*facts, epoch=epoch), self.state.next_offset))

    @property
    def lane(self) -> LaneState:
        return self.state.lanes[LANE]


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def test_a_truncation_that_is_recorded_again_leaves_later_commands_in_effect(ledger: Ledger) -> None:
    ledger.add(GONE)
    ledger.add(SOUGHT)
    ledger.add(GONE)
    assert [(each.end, each.done) for each in ledger.lane.seeks] == [(15, False)]
    assert ledger.lane.truncations == ((2, 10),)


def test_the_next_entry_repeats_a_truncation_beside_the_seek_that_follows_it(ledger: Ledger) -> None:
    """An entry repeats the verdicts before it that have not taken effect when it is appended."""
    ledger.add(GONE)
    ledger.add(SOUGHT)
    ledger.add(DONE, SourceRun(LANE, 1, LEAPT.runs, (*GONE.verdicts, *LEAPT.verdicts)))
    assert [(each.start, each.end) for each in passed(ledger.lane.seeks)] == [(10, 15)]
    ledger.add(SourceRun(LANE, 1, (Run(2, 16),), (*GONE.verdicts, *LEAPT.verdicts, Verdict(15, 16, "aborted"))))
    assert [(each.start, each.end) for each in passed(ledger.lane.seeks)] == [(10, 15)]


def test_records_that_replace_skipped_ones_are_not_skipped(ledger: Ledger) -> None:
    """The second truncation is a different one, because the lane has leapt over offsets since the first."""
    ledger.add(GONE)
    ledger.add(SOUGHT)
    ledger.add(DONE, LEAPT)
    ledger.add(AGAIN)
    assert ledger.lane.seeks == ()


def test_records_that_replace_refused_ones_are_copied(ledger: Ledger) -> None:
    ledger.add(GONE)
    ledger.add(REFUSED, REJECTED)
    assert [each.start for each in ledger.lane.quarantine] == [10]
    ledger.add(AGAIN)
    assert ledger.lane.quarantine == ()


def test_both_losses_are_named(ledger: Ledger) -> None:
    ledger.add(GONE)
    ledger.add(DONE, LEAPT)
    ledger.add(AGAIN)
    assert (10, 15) in {(each.start, each.end) for each in ledger.lane.newest_verdicts if each.reason == "truncated"}
