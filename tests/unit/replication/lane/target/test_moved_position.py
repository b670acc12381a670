"""An election has removed other clients' records directly below the target offset of the resume position, so that the
lane's next records got lower offsets. Retention has deleted some of these before another holder reads the log."""

import pytest
from msgspec.structs import replace

from mirrord.replication.lane.lane_report import resume_position
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    AskCheck,
    AskScan,
    CheckAnswer,
    Effects,
    EndAnswer,
    Halted,
    OwnBatch,
    ProducerEntry,
    ProducersAnswer,
    ScanAnswer,
    TargetMoved,
    VisibleAnswer,
)
from mirrord.replication.lane.state import ResumePosition
from mirrord.replication.lane.target.superseded_records import AskShared, SharedAnswer
from tests.unit.replication.lane.test_fourth_faults import retake
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened, progress_at

Others = tuple[tuple[int, int], ...]


def resumed(
    target_offset: int, log_start: int, end: int, own: tuple[OwnBatch, ...], others: Others, last: int = -1
) -> tuple[Faulty, Effects]:
    """The next holder begins with a resume position after ordinal 9, at this target offset, in leader epoch 1. The
    leader has epoch 2, and remembers the ordinal `last`, or nothing. Ordinal 10 has target offset 10, according to the
    ledger. Return the effects of the last scan before the lane asks where epoch 1 ends."""
    play = opened(*BEGUN)
    retake(play, 10, target_offset, 10)
    play.tell(EndAnswer(play.lane.asked, 0, 2, end))
    play.tell(ProducersAnswer(play.lane.asked, 0, ProducerEntry(last, 1000) if last >= 0 else None))
    play.tell(EndAnswer(play.lane.asked, 0, 2, end))
    return play, read(play, play.tell(VisibleAnswer(play.lane.asked, 0, end, log_start)), own, others)


def read(play: Faulty, effects: Effects, own: tuple[OwnBatch, ...], others: Others) -> Effects:
    """Answer all scans of a log that is not compacted."""
    while asked := [each for each in effects if isinstance(each, AskScan)]:
        left = tuple(each for each in own if each.base_offset + each.count > asked[0].start)
        answer = ScanAnswer(asked[0].question, 0, asked[0].purpose, asked[0].start, asked[0].end, left, others, False)
        effects = play.tell(answer)
    return effects


def told(play: Faulty, effects: Effects, epoch_end: int, own: tuple[OwnBatch, ...], others: Others) -> Effects:
    """The leader returns this offset as the end of epoch 1."""
    asked = one(effects, AskShared)
    assert asked.epoch == 1
    return read(play, play.tell(SharedAnswer(asked.question, 0, 1, epoch_end)), own, others)


def copying(play: Faulty, effects: Effects) -> list[tuple[int, int]]:
    """The lane compares what the log has, and begins to copy. Return the holes that it has recorded."""
    for check in [each for each in effects if isinstance(each, AskCheck)]:
        effects += play.tell(CheckAnswer(check.question, 0, check.first, check.last, "unverifiable"))
    play.bind_all(effects)
    assert play.lane.phase is Phase.COPYING
    return [(hole.first, hole.last) for hole in play.record.holes]


@pytest.mark.parametrize(
    ("target_offset", "log_start", "end", "own", "others"),
    [
        pytest.param(13, 17, 17, (), (), id="all deleted"),
        pytest.param(13, 13, 17, (OwnBatch(13, 4, 13, 0, 2),), (), id="deleted up to the saved offset"),
        pytest.param(13, 15, 17, (OwnBatch(15, 2, 15, 0, 2),), (), id="deleted beyond the saved offset"),
        pytest.param(19, 17, 22, (), ((17, 22),), id="all deleted, below the saved offset"),
        pytest.param(19, 15, 22, (OwnBatch(15, 2, 15, 0, 2),), ((17, 22),), id="some deleted, below the saved offset"),
    ],
)
def test_records_at_lower_offsets_than_the_position_have_been_deleted(
    target_offset: int, log_start: int, end: int, own: tuple[OwnBatch, ...], others: Others
) -> None:
    """DOUBLE, NEEDLESS HALT. Ordinals 10 to 16 were at target offsets 10 to 16. The leader no longer knows epoch 1, and
    returns the log start offset."""
    play, effects = resumed(target_offset, log_start, end, own, others, 16)
    effects = told(play, effects, log_start, own, others)
    assert copying(play, effects) == []
    assert (play.lane.next_ordinal, play.lane.position) == (17, 17)


def test_records_that_do_not_fit_below_the_log_start_are_copied_again() -> None:
    """LOSS. Ordinals 10 to 16 do not fit into the deleted offsets 10 to 14."""
    own = (OwnBatch(15, 2, 17, 0, 2),)
    play, effects = resumed(19, 15, 22, own, ((17, 22),), 18)
    effects = told(play, effects, 15, own, ((17, 22),))
    assert copying(play, effects) == [(10, 16)]


def test_the_log_still_shows_where_it_diverged() -> None:
    """LOSS. The log has lost offsets 12 to 15 of epoch 1. Ordinals 10 and 11 are not among what has been deleted
    before, offset 10, because the position was saved when other clients' records were there."""
    own, others = (OwnBatch(12, 5, 12, 0, 2),), ((11, 12),)
    play, effects = resumed(16, 11, 17, own, others, 16)
    effects = told(play, effects, 12, own, others)
    assert copying(play, effects) == [(10, 11)]


def test_a_position_that_the_leader_confirms_is_not_moved() -> None:
    """LOSS. Epoch 1 extends beyond target offset 13, so ordinals 10 to 12 were not at offsets 10 to 12."""
    own = (OwnBatch(15, 1, 13, 0, 2),)
    play, effects = resumed(13, 14, 16, own, ((14, 15),), 13)
    effects = told(play, effects, 15, own, ((14, 15),))
    assert copying(play, effects) == [(10, 12)]


@pytest.mark.parametrize("last", [-1, 1])
def test_records_that_are_copied_again_after_deleted_ones_of_others_show_a_loss(last: int) -> None:
    """NEEDLESS HALT. The log has lost everything, and a former holder has begun to copy the lost records again, after
    records of other clients. Retention has deleted these. The leader does not know epoch 1."""
    own = (OwnBatch(30, 2, 0, 0, 2),)
    play, effects = resumed(10, 30, 32, own, (), last)
    effects = told(play, effects, 30, own, ())
    assert copying(play, effects) == []
    assert (play.lane.next_ordinal, play.lane.position) == (2, 2)


@pytest.mark.parametrize("last", [-1, 1])
def test_records_below_a_position_that_the_leader_confirms_are_there_a_second_time(last: int) -> None:
    """DOUBLED. Epoch 1 extends beyond the log start, so the log has lost nothing below the position."""
    own = (OwnBatch(31, 2, 0, 0, 2),)
    play, effects = resumed(10, 30, 33, own, ((30, 31),), last)
    assert "target offset 31 holds" in one(told(play, effects, 31, own, ((30, 31),)), Halted).line


def test_a_position_under_a_pending_comparison_moves_with_the_log() -> None:
    """The position was to be saved unchanged until the comparison with the source, which is made when the former holder
    can no longer write."""
    play = opened(*BEGUN)
    saved = replace(progress_at(10, state="copying"), target_offset=13)
    play.take(saved, barrier_s=8.0, cleanly=False)
    assert copying(play, play.ask_target(13, last=9)) == []
    assert play.lane.comparison.later_pending
    assert resume_position(play.lane) == ResumePosition(10, 13, 1)
    play.tell(TargetMoved(2))
    assert copying(play, read(play, play.ask_target(10, 2, last=9), (OwnBatch(0, 10, 0, 0, 1),), ())) == []
    assert play.lane.comparison.later_pending
    assert resume_position(play.lane) == ResumePosition(10, 10, 2)
