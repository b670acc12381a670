"""A holder continues a plan for copying records of a compacted target again, and nothing shows how far a former holder
has carried it out."""

import pytest

from mirrord.ledger.facts.core import HoleFound, SourceRun, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import OwnBatch
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededAnswer
from tests.unit.replication.lane.target.test_copied_in_source_order import compared
from tests.unit.replication.lane.test_eighth_faults import read
from tests.unit.replication.lane.test_fourth_faults import offsets, retake
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened


@pytest.fixture
def planned() -> Faulty:
    """The target has lost ordinal 4, which is to be copied again. Another holder takes the lane. Its position is from
    the time when this was planned."""
    play = opened(*BEGUN)
    play.fold(HoleFound(LANE, 1, 3, 2, 4, 5), SourceRun(LANE, 1, (Run(4, 4), Run(5, 5)), (), ((4, 0),)))
    retake(play, 4, 4, 4)
    return play


def looked_up(play: Faulty) -> AskSuperseded:
    """The log has ordinals 0 to 3. Another client's records are at 12 to 19, and the cleaner has removed what was
    between them."""
    own = (OwnBatch(0, 4, 0, 0, 1),)
    return one(read(play, play.ask_target(20), (1, 20), own=own, others=((12, 20),)), AskSuperseded)


def test_records_after_a_plan_may_have_been_appended_and_removed(planned: Faulty) -> None:
    """STALE VALUE. A former holder had carried out the plan, and copied ordinals 5 to 8. Only ordinal 4 was looked up.
    The others were appended again, after newer records of another client."""
    asked = looked_up(planned)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 4, 4), ("last", 5, 11)]
    compared(planned, planned.tell(SupersededAnswer(asked.question, 0, (), 9)))
    assert planned.lane.next_ordinal == 9
    assert offsets(planned, 4, 9) == [4, 5, 6, 7, 8, 9]
    assert [(each.first, each.last) for each in planned.record.displaced] == [(4, 4), (5, 8)]
    assert not planned.record.newest_verdicts


@pytest.mark.parametrize(("again", "until"), [((), -1), (((4, 4),), 9)])
def test_the_plan_is_carried_out_if_nothing_followed_it(
    planned: Faulty, again: tuple[tuple[int, int], ...], until: int
) -> None:
    """If the lost record is not superseded, the log never had it after the loss, nor any later one."""
    asked = looked_up(planned)
    planned.bind_all(planned.tell(SupersededAnswer(asked.question, 0, again, until)))
    assert (planned.lane.phase, planned.lane.next_ordinal) == (Phase.COPYING, 4)
    assert offsets(planned, 4, 5) == ([4, 5] if again else [5, 6])


def test_records_below_a_displaced_one_are_looked_up_if_the_source_has_lost_it() -> None:
    """STALE VALUE. The source and then the target have lost ordinal 5, because of which the cleaner may have removed
    others. Ordinal 6 was appended in its place. Only lost records at the end of the log were noticed."""
    play = opened(*BEGUN)
    play.fold(SourceRun(LANE, 1, (Run(6, 5),), (Verdict(5, 6, "truncated"),), ((6, 2),)))
    retake(play, 6, 6, 5)
    own = (OwnBatch(0, 5, 0, 0, 1), OwnBatch(5, 1, 6, 0, 3))
    asked = one(read(play, play.ask_target(6, epoch=3), (1, 5), own=own, others=()), AskSuperseded)
    assert [(each.kind, each.first, each.last, each.has_room) for each in asked.missing] == [("lost", 5, 5, False)]
    assert asked.reads_below
    assert [(each.kind, each.first, each.last) for each in asked.below] == [("below", 0, 4)]
