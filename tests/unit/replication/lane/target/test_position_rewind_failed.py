"""What a holder remembers of acknowledged ordinals if the ledger does not take its fact about them."""

import pytest

from mirrord.ledger.facts.core import SourceRun, TargetRun
from mirrord.model.runs import Run
from mirrord.replication.lane.lane_report import progress_record
from mirrord.replication.lane.signals import Append, AppendFailed, Bound, FetchFrom, Wake, Woken
from mirrord.replication.lane.state import ResumePosition
from mirrord.replication.lane.target.evidence import known_until
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededAnswer
from tests.unit.replication.lane.target.test_superseded_records import looked_up
from tests.unit.replication.lane.test_eighth_faults import chunk, lost_five_to_nine, read
from tests.unit.replication.lane.test_rebuilding import LANE, Play
from tests.unit.replication.lane.test_second_faults import one


@pytest.fixture
def play() -> Play:
    """An election removed ordinals 6 to 9 of 10. Others wrote newer records of all four keys, so that the holder
    records that source offset 10 follows as ordinal 6."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 0, 1))
    play.begin("second")
    play.lane.resume_position = ResumePosition(10, 10, 1)
    return play


def planned(play: Play) -> Append:
    asked = looked_up(play, 6, 10, (), ((6, 10),))
    (append,) = [each for each in play.tell(SupersededAnswer(asked.question, 0)) if isinstance(each, Append)]
    return append


def taken_again(play: Play, append: Append) -> None:
    """It is unknown whether the entry was appended, and the lane takes its next grant."""
    effects = play.tell(AppendFailed(append.tag, play.record))
    (wake,) = [each for each in effects if isinstance(each, Wake)]
    play.bind(play.tell(Woken(wake.question)))


def test_records_are_looked_up_again_if_the_fact_took_no_effect(play: Play) -> None:
    """Otherwise the lost records would be appended after the newer ones."""
    taken_again(play, planned(play))
    assert (play.lane.resume_position, known_until(play.lane)) == (ResumePosition(10, 10, 1), 10)
    asked = looked_up(play, 6, 10, (), ((6, 10),))
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 6, 9)]


def test_a_fact_that_took_effect_counts(play: Play) -> None:
    append = planned(play)
    play.fold(*append.facts)
    taken_again(play, append)
    assert (play.lane.resume_position, known_until(play.lane)) == (ResumePosition(6, 10, 3), 6)


def test_the_lower_resume_position_is_not_saved_before_the_ledger_has_the_plan(play: Play) -> None:
    """The next holder would believe that everything acknowledged below it is there, and look nothing up."""
    append = planned(play)
    assert progress_record(play.lane, 1, 0) is None
    play.tell(Bound(append.tag, play.fold(*append.facts), play.record))
    progress = progress_record(play.lane, 1, 0)
    assert progress is not None
    assert (progress.ordinal, progress.rewinds) == (6, 1)


@pytest.mark.parametrize(
    ("epochs", "takes", "lost"),
    [(((0, 0),), False, (5, 9)), (((0, 0),), True, (5, 6)), ((), False, (5, 6))],
    ids=["lost", "taken", "of unknown epoch"],
)
def test_ordinals_that_the_ledger_did_not_assign_to_other_records_are_still_known(
    epochs: tuple[tuple[int, int], ...], lost: tuple[int, int], *, takes: bool
) -> None:
    """STALE VALUE. While ordinals 5 to 9 are copied again, the source's cleaner has removed offset 7, so that offset 8
    would follow as ordinal 7. It is unknown whether the ledger has that fact. If not, ordinals 7 to 9 are still lost
    records. Nothing would show that the source has other records at offsets of an unknown epoch."""
    play, effects = lost_five_to_nine(epochs)
    effects = play.tell(chunk(one(effects, FetchFrom).question, (5, 6, 0), (8, 9, 0)))
    append = [each for each in effects if isinstance(each, Append)][-1]
    assert [run for fact in append.facts if isinstance(fact, SourceRun) for run in fact.runs][-1:] == [Run(7, 8)]
    if takes:
        play.fold(*append.facts)
    taken_again(play, append)
    effects = read(play, play.ask_target(7, epoch=4), (3, 7))
    missing = one(effects, AskSuperseded).missing
    assert (missing[0].first, missing[-1].last) == lost
