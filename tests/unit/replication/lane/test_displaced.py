"""The target lost records of the lane, and others have used their offsets since: that is a loss, not retention."""

import pytest

from mirrord.ledger.facts.core import HoleFound, SourceRun, TargetRun, VerdictGiven
from mirrord.model.intervals import Interval
from mirrord.model.runs import Run, Runs
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AskScan,
    AskShared,
    Effect,
    EndAnswer,
    FetchFrom,
    OwnBatch,
    ProducerEntry,
    ProducersAnswer,
    ScanAnswer,
    SharedAnswer,
    TargetMoved,
    VisibleAnswer,
)
from mirrord.replication.lane.state import ResumePosition
from mirrord.replication.lane.target.evidence import known_until
from mirrord.replication.lane.target.superseded_records import AskSuperseded
from mirrord.replication.lane.target.target_scan import begins_late, displaced_at
from tests.unit.replication.lane.test_rebuilding import LANE, Play


@pytest.fixture
def play() -> Play:
    """The lane has copied 10 records; others wrote at 3 and 4, between its ordinals 2 and 3."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 0, 1), TargetRun(LANE, 1, 3, 5, 1))
    play.begin("second")
    play.lane.resume_position = ResumePosition(10, 12, 1)
    return play


@pytest.mark.parametrize(
    ("others", "at"),
    [
        ((), None),
        (((3, 5),), None),
        (((3, 6),), 5),
        (((0, 1),), 0),
        (((2, 12),), 2),
        (((11, 12),), 11),
        (((12, 20),), None),
        (((3, 5), (9, 30)), 9),
    ],
)
def test_foreign_records_are_where_the_lanes_records_were(
    play: Play, others: tuple[Interval, ...], at: int | None
) -> None:
    assert displaced_at(play.lane, others) == at


def verified(
    play: Play, own: tuple[OwnBatch, ...], others: tuple[Interval, ...], *, log_start: int = 0
) -> list[object]:
    """Another leader answers, whose log ends at 14, and this is all that it holds."""
    (scan,) = verified_by(play, others, log_start=log_start)
    assert isinstance(scan, AskScan)
    assert scan.start == log_start
    return list(play.tell(ScanAnswer(scan.question, 0, "verify", scan.start, scan.end, own, others)))


def verified_by(play: Play, others: tuple[Interval, ...], *, log_start: int = 0, end: int = 14) -> list[Effect]:
    """What the lane asks after it has seen that the record before its resume position is not there."""
    play.tell(EndAnswer(play.lane.asked, 0, 2, end))
    play.tell(ProducersAnswer(play.lane.asked, 0, None))
    play.tell(EndAnswer(play.lane.asked, 0, 2, end))
    (scan,) = play.tell(VisibleAnswer(play.lane.asked, 0, end, log_start))
    assert isinstance(scan, AskScan)
    return list(play.tell(ScanAnswer(scan.question, 0, "resume", scan.start, scan.end, (), others)))


def test_records_whose_offsets_hold_foreign_records_are_copied_again(play: Play) -> None:
    effects = verified(play, (), ((1, 14),), log_start=1)
    (append,) = [each for each in effects if isinstance(each, Append)]
    assert isinstance(append.facts[0], VerdictGiven)
    assert "went back from ordinal 10 to 1" in append.facts[0].note
    (fetch,) = [each for each in effects if isinstance(each, FetchFrom)]
    assert (fetch.position, play.lane.acked, play.lane.phase) == (1, 1, Phase.COPYING)


@pytest.mark.parametrize("end", [4, 5])
def test_offsets_of_others_are_not_counted_as_ordinals(play: Play, end: int) -> None:
    """Retention has removed ordinals 0 to 2, and an election all others, so that records of others end the log."""
    effects = verified_by(play, ((3, end),), log_start=3, end=end)
    (fetch,) = [each for each in effects if isinstance(each, FetchFrom)]
    assert (fetch.position, play.lane.acked) == (3, 3)


def test_a_record_behind_lost_ones_and_those_of_others_is_late(play: Play) -> None:
    own = OwnBatch(20, 1, 4, 0, 2)
    assert begins_late(play.lane, (own,), 4)


def test_ordinals_acknowledged_before_a_loss_are_known_in_the_next_round(play: Play) -> None:
    """Others may write newer values before the lost records are acknowledged again, and the log may go back further."""
    epoch = play.lane.resume_position.leader_epoch
    play.lane.recorded_position, play.lane.acknowledged = play.lane.resume_position, ()
    verified(play, (), ((1, 14),), log_start=1)
    play.tell(TargetMoved(3))
    assert play.lane.phase is Phase.RESUMING
    assert play.lane.acked == 1
    assert play.lane.acknowledged == ((10, epoch),)
    assert known_until(play.lane) == 10


def test_a_scan_says_up_to_which_ordinal_records_were_acknowledged(play: Play) -> None:
    """While a comparison is pending, the resume position is below these records."""
    play.lane.acknowledged = ((14, 1),)
    play.tell(EndAnswer(play.lane.asked, 0, 2, 14))
    play.tell(ProducersAnswer(play.lane.asked, 0, None))
    play.tell(EndAnswer(play.lane.asked, 0, 2, 14))
    (scan,) = play.tell(VisibleAnswer(play.lane.asked, 0, 14, 0))
    assert isinstance(scan, AskScan)
    assert (scan.expected, scan.until) == (10, 14)


def test_a_record_of_a_later_leader_is_not_enough(play: Play) -> None:
    """Below the resume position the last record is in its place, but under a leader that may have lacked the records
    before it."""
    play.tell(EndAnswer(play.lane.asked, 0, 2, 14))
    play.tell(ProducersAnswer(play.lane.asked, 0, None))
    play.tell(EndAnswer(play.lane.asked, 0, 2, 14))
    (scan,) = play.tell(VisibleAnswer(play.lane.asked, 0, 14, 0))
    assert isinstance(scan, AskScan)
    last = OwnBatch(10, 2, 8, 0, 2)
    (again,) = play.tell(ScanAnswer(scan.question, 0, "resume", 11, 14, (last,), ((12, 14),)))
    assert isinstance(again, AskScan)
    assert (again.purpose, again.start) == ("verify", 0)
    effects = play.tell(ScanAnswer(again.question, 0, "verify", 0, 14, (last,), ((0, 10), (12, 14))))
    (append,) = [each for each in effects if isinstance(each, Append)]
    assert HoleFound(LANE, 2, 0, 7, 10, 18) in append.facts


def test_numbers_that_agree_say_nothing_of_another_leaders_log(play: Play) -> None:
    """A resume position before the first record, as many records as were written since, and yet another log."""
    play.lane.resume_position = ResumePosition(0, 2, 1)
    play.tell(EndAnswer(play.lane.asked, 0, 2, 12))
    play.tell(ProducersAnswer(play.lane.asked, 0, ProducerEntry(9, 0)))
    play.tell(EndAnswer(play.lane.asked, 0, 2, 12))
    (scan,) = play.tell(VisibleAnswer(play.lane.asked, 0, 12, 0))
    assert isinstance(scan, AskScan)
    assert (scan.purpose, scan.start) == ("resume", 0)


def test_later_runs_are_dropped_if_the_log_went_back() -> None:
    runs = Runs([Run(0, 0), Run(3, 5), Run(6, 9)])
    runs.add_ascending(8, 4)
    assert list(runs) == [Run(0, 0), Run(8, 4)]
    runs.add_ascending(9, 7)
    runs.add_ascending(12, 2)
    assert list(runs) == [Run(0, 0), Run(12, 2)]
    runs = Runs([Run(1, 5)])
    runs.add_ascending(2, 1)
    assert list(runs) == [Run(2, 1)]


def test_records_that_expired_on_the_target_are_not_copied_again(play: Play) -> None:
    # Offset 11 is empty although the log begins there, so the leader is asked whether it is still that log.
    (shared,) = verified_by(play, ((12, 14),), log_start=11)
    assert isinstance(shared, AskShared)
    (scan,) = play.tell(SharedAnswer(shared.question, 0, 1, 12))
    assert isinstance(scan, AskScan)
    assert (scan.start, scan.end) == (12, 14)
    effects = play.tell(ScanAnswer(scan.question, 0, "resume", 12, 14, (), ((12, 14),)))
    (fetch,) = [each for each in effects if isinstance(each, FetchFrom)]
    assert (fetch.position, play.lane.acked) == (10, 10)


def test_an_acknowledgement_above_the_resume_position_is_checked_where_others_wrote_as_much_as_the_log_lost(
    play: Play,
) -> None:
    # The resume position stays at the start during the comparison of the takeover.
    play.lane.resume_position, play.lane.acked, play.lane.acknowledged = ResumePosition(0, 3, 1), 2, ()
    play.tell(EndAnswer(play.lane.asked, 0, 2, 3))
    play.tell(ProducersAnswer(play.lane.asked, 0, None))
    play.tell(EndAnswer(play.lane.asked, 0, 2, 3))
    (scan,) = play.tell(VisibleAnswer(play.lane.asked, 0, 3, 0))
    assert isinstance(scan, AskScan)
    assert scan.start == 0
    (asked,) = play.tell(ScanAnswer(scan.question, 0, "resume", 0, 3, (), ((0, 3),), compacts=True))
    assert isinstance(asked, AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 0, 1)]
