"""What the source lost of what was copied, where no fetch from the position would show it: the lane asks, or knows."""

import pytest

from mirrord.flow.lineage import goes_on_at
from mirrord.flow.signals import (
    Append,
    AskCheck,
    AskParting,
    Checked,
    FetchFrom,
    Lost,
    OwnBatch,
    PartingTold,
    Scanned,
    Wake,
    Woken,
)
from mirrord.flow.state import Phase
from mirrord.model.facts import HoleFound, SourceRun, Verdict
from mirrord.model.runs import Run
from tests.unit.test_lane_epochs import chunk, data
from tests.unit.test_rebuilding import LANE, Play

OUT_OF_RANGE, NOT_LEADER = 1, 6


Leapt = tuple[Play, FetchFrom]


@pytest.fixture
def leapt() -> Leapt:
    """Source offsets 0 to 12 were copied, of epochs 1 and 4 (from offset 8 on). An order left out 13 and 14."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 1), (8, 4))))
    play.fold(SourceRun(LANE, 1, (Run(13, 15),), (Verdict(13, 15, "skipped"),), ((13, -1),)))
    play.begin("second")
    play.sandwich(13)
    own = (OwnBatch(8, 2, 8, 0), OwnBatch(10, 3, 10, 0))
    effects = play.tell(Scanned(play.lane.asked, 0, "resume", 9, 13, own))
    (check,) = [each for each in effects if isinstance(each, AskCheck)]
    # What the source has in front of the position may be of another history than what was copied.
    effects = play.tell(Checked(check.question, 0, 10, 12, "unverifiable", "", 5))
    (fetch,) = [each for each in effects if isinstance(each, FetchFrom)]
    assert (fetch.position, fetch.last_epoch) == (15, -1)
    return play, fetch


def fetched(play: Play, fetch: FetchFrom) -> AskParting:
    """The first batch after the leap has arrived."""
    (asked,) = play.tell(chunk(fetch, data((15, 2, 5, 0))))
    assert isinstance(asked, AskParting)
    assert (asked.position, asked.epoch) == (13, 4)
    return asked


def is_taken(play: Play) -> bool:
    """What was fetched is about to be produced as ordinals 13 and 14."""
    return (play.lane.position, play.lane.next_ordinal) == (17, 15)


@pytest.mark.parametrize("error", [0, OUT_OF_RANGE])
def test_what_the_source_still_has_is_no_reason_to_wait(leapt: Leapt, error: int) -> None:
    play, _ = leapt
    asked = fetched(*leapt)
    assert not is_taken(play)
    play.tell(PartingTold(asked.question, error))
    assert is_taken(play)


@pytest.mark.parametrize(("epoch", "end", "start"), [(4, 11, 11), (1, 10, 8), (1, 4, 4)])
def test_what_the_source_has_lost_is_reported_and_copied_again(leapt: Leapt, epoch: int, end: int, start: int) -> None:
    """(1, 10): the source has records of epoch 1 instead of those of epoch 4 that were copied."""
    play, _ = leapt
    effects = play.tell(PartingTold(fetched(*leapt).question, 0, epoch, end))
    (lost,) = [each for each in effects if isinstance(each, Lost)]
    assert "and the source has lost them" in lost.line
    (append,) = [each for each in effects if isinstance(each, Append)]
    (fact,) = append.facts
    assert isinstance(fact, SourceRun)
    assert fact.runs == (Run(13, start),)
    (fetch,) = [each for each in effects if isinstance(each, FetchFrom)]
    assert fetch.position == start
    play.bind(effects)
    assert play.lane.unproven is None


def test_a_flow_that_halts_for_losses_halts(leapt: Leapt) -> None:
    play, _ = leapt
    play.lane.on_loss = "halt"
    play.tell(PartingTold(fetched(*leapt).question, 0, 4, 11))
    assert play.lane.phase is Phase.HALTED
    assert "[11, 13)" in play.lane.halt_line


def test_a_source_that_does_not_answer_is_asked_again(leapt: Leapt) -> None:
    play, _ = leapt
    (wake,) = play.tell(PartingTold(fetched(*leapt).question, NOT_LEADER))
    assert isinstance(wake, Wake)
    (asked,) = play.tell(Woken(wake.question))
    assert isinstance(asked, AskParting)
    play.tell(PartingTold(asked.question, 0))
    assert is_taken(play)


def test_nothing_is_asked_before_a_record_is_there(leapt: Leapt) -> None:
    play, fetch = leapt
    (again,) = play.tell(chunk(fetch, bytearray()))
    assert isinstance(again, FetchFrom)


def test_a_lane_resumes_where_the_source_parts_if_both_sides_have_lost_a_record() -> None:
    """The source has lost offsets 8 to 12. They were copied as ordinals 8 to 12; what follows is copied from 8 on."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 1),)))
    play.fold(SourceRun(LANE, 1, (Run(13, 8),), (Verdict(8, 13, "truncated"),), ((13, 1),)))
    assert [goes_on_at(play.record, ordinal) for ordinal in (7, 8, 11, 13, 14)] == [7, 8, 8, 8, 9]
    # The records of ordinals 6 and 7 are to be copied again as 11 and 12.
    play.fold(HoleFound(LANE, 1, 6, 7, 11, 13), SourceRun(LANE, 1, (Run(11, 6), Run(13, 8))))
    assert [goes_on_at(play.record, ordinal) for ordinal in (11, 12, 13)] == [6, 7, 8]
