"""The counts that the ledger's state must have, although it keeps the ranges of its newest verdicts only."""

from typing import NamedTuple

from mirrord.ledger.facts.core import Entry, FlowOpened, Holder, LaneOpened, LeaseTaken, Reason, SourceRun, Verdict
from mirrord.ledger.fold import fold
from mirrord.ledger.gaps import Gaps
from mirrord.ledger.state import FlowState
from mirrord.model.names import ClusterId
from mirrord.model.runs import Run
from tests.sim.forgotten_verdicts import MOST_RANGES, ForgottenVerdicts
from tests.sim.host import LANE


class Counted(NamedTuple):
    """What the state counts, and what it must count."""

    counts: int
    wanted: int
    applies: int
    """Number of offsets with a verdict according to the ledger."""


class Book:
    """A ledger of one lane, whose filter decides about one record after the other."""

    def __init__(self) -> None:
        self.state, self.forgotten, self.entries = FlowState(), ForgottenVerdicts(), 0
        self.gaps = Gaps(self.state)
        self._fold(0, FlowOpened("f", ClusterId("A"), ClusterId("B")))
        self._fold(1, LeaseTaken(1, Holder("h", 1, "i", ""), 6000))
        self._fold(1, LaneOpened(LANE, "orders", "eu.orders", 0, 500, 0, "p", "sequence"))

    def _fold(self, epoch: int, *facts: FlowOpened | LeaseTaken | LaneOpened | SourceRun) -> None:
        kept = self.forgotten.kept_by(self.state.lanes.get(LANE))
        fold(self.state, Entry(epoch, 0, facts), self.entries)
        self.entries += 1
        for fact in facts:
            self.gaps.take(fact, 0)
        self.forgotten.note(kept, facts, self.state.lanes.get(LANE), self.gaps)

    def decide(self, ordinal: int, offset: int, *skipped: Verdict) -> Counted:
        self._fold(1, SourceRun(LANE, 0, (Run(ordinal, offset),), skipped))
        lane = self.state.lanes[LANE]
        applies: dict[int, Reason] = {at: gap.reason for gap in self.gaps for at in range(gap.start, gap.end)}
        return Counted(
            lane.verdicts.counts["filtered"], self.forgotten.counted(applies, lane)["filtered"], len(applies)
        )


def book(many: int) -> Book:
    """Every other record was filtered, until there are so many of them."""
    found = Book()
    for at in range(many):
        found.decide(at, 2 * at + 1, Verdict(2 * at, 2 * at + 1, "filtered"))
    return found


def test_a_forgotten_verdict_counts_even_if_the_filter_has_decided_differently() -> None:
    many = MOST_RANGES + 5
    assert book(many).decide(0, 0) == (5, 5, 0)
    assert book(many).decide(many, 2 * many) == (many, many, many)


def test_it_counts_twice_if_it_was_recorded_again() -> None:
    many = MOST_RANGES + 5
    assert book(many).decide(0, 1, Verdict(0, 1, "filtered")) == (6, 6, 1)


def test_the_state_must_subtract_a_verdict_whose_range_it_keeps() -> None:
    found = book(MOST_RANGES)
    assert found.decide(0, 0) == (0, 0, 0)
    found = book(MOST_RANGES)
    found.state.lanes[LANE].verdicts.counts["filtered"] += 1
    assert found.decide(0, 0) == (1, 0, 0)
