"""What the ledger keeps of repairs, and how an audit uses it."""

import msgspec
import pytest

from mirrord.audit.rules.repaired import with_repairs
from mirrord.audit.rules.results import Compared, Difference, Explained, RangeResult
from mirrord.ledger.facts.audit import RangeRepaired, RepairedKind
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import LaneTaken, LeaseReleased, LeaseTaken, SourceRun, Verdict
from mirrord.ledger.fold import fold
from mirrord.ledger.proven_ranges import REPAIRED_KEPT, Repaired, repaired_at, with_repair
from mirrord.ledger.state import FlowState
from mirrord.model.runs import Run
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

LANE = lane_id(0)
TOPIC = "mirrord.f.repair"


def repair(start: int, end: int, at: int = 0, kind: RepairedKind = "missing", when_ms: int = 0) -> RangeRepaired:
    return RangeRepaired(LANE, start, end, kind, TOPIC, at, Origin("ada@host", "", when_ms))


def after(*facts: RangeRepaired) -> Repaired:
    known: Repaired = ()
    for fact in facts:
        known = with_repair(known, fact) or known
    return known


@pytest.mark.parametrize("again", [repair(3, 9, 5), repair(3, 9, 7, when_ms=9), repair(4, 6, 5, "altered")])
def test_the_same_repair_recorded_again_is_nothing_new(again: RangeRepaired) -> None:
    assert with_repair((repair(3, 9, 5),), again) is None


def test_ranges_that_continue_each_other_become_one() -> None:
    assert after(repair(0, 5, 7, when_ms=2), repair(9, 12), repair(5, 9, 3, when_ms=1)) == (
        repair(0, 12, 0, when_ms=2),
    )
    assert after(repair(0, 5), repair(5, 9, kind="altered")) == (repair(0, 5), repair(5, 9, kind="altered"))


def test_the_newer_repair_counts() -> None:
    """The topic was recreated, or is another one."""
    assert after(repair(0, 10, 50), repair(4, 6, 2, "altered")) == (
        repair(0, 4, 50),
        repair(4, 6, 2, "altered"),
        repair(6, 10, 50),
    )
    elsewhere = msgspec.structs.replace(repair(0, 10, 50), topic="other")
    assert after(repair(0, 10, 50), elsewhere) == (elsewhere,)


def test_of_many_ranges_the_last_ones_are_kept() -> None:
    known = after(*(repair(3 * number, 3 * number + 1) for number in range(REPAIRED_KEPT + 2)))
    assert (len(known), known[0].start) == (REPAIRED_KEPT, 6)
    assert with_repair(known, repair(0, 1)) is None


def test_what_was_repaired_in_part_is_not_repaired() -> None:
    known = after(repair(0, 5, 7), repair(5, 8, 3, "altered", 4), repair(9, 12))
    assert repaired_at(known, 2, 6) == repair(2, 6, 3, "altered", 4)
    assert repaired_at(known, 0, 1) == repair(0, 1, 7)
    for start, end in ((7, 10), (8, 9), (11, 13), (20, 21)):
        assert repaired_at(known, start, end) is None
    assert repaired_at((), 0, 1) is None


def test_it_binds_without_a_holder_and_falls_with_a_truncation_of_the_source() -> None:
    state = FlowState()
    steps = [
        entry(FLOW, epoch=0),
        entry(LeaseTaken(1, HOLDER, 6000), epoch=1),
        entry(opened(0), LaneTaken(LANE, 1, "r"), SourceRun(LANE, 1, (Run(0, 0),)), epoch=1),
        entry(repair(0, 5), repair(8, 12), LeaseReleased(1), epoch=1),
        entry(repair(20, 21), RangeRepaired(lane_id(1), 0, 1, "missing", TOPIC, 0, Origin("", "", 0)), epoch=1),
    ]
    bound = [fold(state, each, offset) for offset, each in enumerate(steps)]
    assert bound[-1] == (True, False)
    assert state.lanes[LANE].repaired == (repair(0, 5), repair(8, 12), repair(20, 21))
    fold(state, entry(LeaseTaken(2, HOLDER, 6000), epoch=2), 5)
    cut = SourceRun(LANE, 1, (Run(10, 10),), (Verdict(10, 30, "truncated"),))
    assert fold(state, entry(cut, epoch=2), 6) == (True,)
    # In part of [8, 12) there are other records now.
    assert state.lanes[LANE].repaired == (repair(0, 5),)


def result(*found: Difference) -> RangeResult:
    return RangeResult(lane=LANE, first=0, end=30, by="records", compared=Compared(9, found))


def test_what_was_repaired_is_explained_as_far_as_it_was() -> None:
    found = with_repairs(
        result(Difference("missing", 2, 102, 10), Difference("altered", 20, 120), Difference("reordered", 3, 103)),
        after(repair(4, 6), repair(8, 12), repair(20, 21, kind="altered")),
    )
    assert found.compared.equal == 9
    assert found.compared.differences == (
        Difference("missing", 2, 102, 2),
        Difference("missing", 6, 106, 2),
        Difference("reordered", 3, 103),
    )
    assert found.compared.explained == tuple(
        Explained("repaired", "source", start, end) for start, end in ((4, 6), (8, 12), (20, 21))
    )


def test_what_stands_at_the_target_alone_is_never_repaired() -> None:
    strange = result(Difference("foreign", None, 5), Difference("duplicated", 4, 9), Difference("missing", None, 4))
    assert with_repairs(strange, (repair(0, 30),)) == strange
    assert with_repairs(strange, ()) is strange
