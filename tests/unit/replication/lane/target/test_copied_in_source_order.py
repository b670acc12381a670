"""A lane resumes below the ordinals under which the records of a hole were to be copied again. The target is compacted,
so these must not follow newer records."""

import pytest

from mirrord.ledger.facts.core import HoleFound, SourceRun
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import AskCheck, CheckAnswer, Effects
from mirrord.replication.lane.source.declared_runs import RestOfPlan, in_source_order
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededAnswer
from tests.unit.replication.lane.test_eighth_faults import read
from tests.unit.replication.lane.test_fourth_faults import offsets
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened


@pytest.fixture
def mended() -> Faulty:
    """Ordinal 0 is a hole, and its record was to follow as ordinal 5."""
    play = opened(*BEGUN)
    play.fold(HoleFound(LANE, 1, 0, 0, 5, 6), SourceRun(LANE, 1, (Run(5, 0), Run(6, 5)), (), ((5, 0),)))
    return play


def without_batches(play: Faulty, until: int) -> None:
    """A lookup finds that ordinals below `until` were appended and removed: the log has only another client's
    records."""
    play.take(None, cleanly=False)
    asked = one(read(play, play.ask_target(12), (1, 12), own=(), others=((7, 12),)), AskSuperseded)
    assert [(each.kind, each.first) for each in asked.missing] == [("last", 0)]
    compared(play, play.tell(SupersededAnswer(asked.question, 0, (), until)))


def compared(play: Faulty, effects: Effects) -> None:
    """Compare the records with the source, and begin to copy."""
    for each in [each for each in effects if isinstance(each, AskCheck)]:
        effects += play.tell(CheckAnswer(each.question, 0, each.first, each.last, "equal", equal_until=each.last + 1))
    play.bind_all(effects)
    assert play.lane.phase is Phase.COPYING


def test_the_record_of_a_hole_does_not_follow_newer_ones(mended: Faulty) -> None:
    """STALE VALUE. All records from ordinal 2 on are copied again. That of the hole came last, and a newer one with its
    key was among those before it."""
    without_batches(mended, 2)
    assert (mended.lane.next_ordinal, mended.lane.position, [*mended.lane.plan]) == (2, 0, [Run(3, 2)])
    assert offsets(mended, 2, 6) == [0, 2, 3, 4, 5]


def test_the_order_of_a_plan_is_kept_if_no_newer_record_is_in_it(mended: Faulty) -> None:
    without_batches(mended, 5)
    assert (mended.lane.next_ordinal, mended.lane.position, [*mended.lane.plan]) == (5, 0, [Run(6, 5)])
    assert offsets(mended, 5, 7) == [0, 5, 6]


def test_records_in_source_order_may_be_followed_by_the_next_one() -> None:
    play = opened(SourceRun(LANE, 1, (Run(0, 0), Run(2, 5), Run(3, 1), Run(4, 6))))
    left = RestOfPlan([Run(2, 5), Run(3, 1), Run(4, 6)], [(2, 2, 1), (3, 3, 1), (4, 4, 2), (6, 6, 1)], 6, differs=False)
    found = in_source_order(play.record, left)
    assert found.runs == [Run(2, 1), Run(3, 5)]
    assert found.pieces == [(2, 3, 1), (3, 2, 1), (4, 4, 2), (6, 6, 1)]
    assert (found.until, found.differs) == (6, True)
    assert in_source_order(play.record, found._replace(pieces=[(6, 6, 1)], runs=[Run(6, 8)])).runs == [Run(6, 8)]
