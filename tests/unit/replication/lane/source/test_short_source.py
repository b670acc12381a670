"""The source log ends below the position to which a lane has leapt: the lane goes back if this is safe."""

import pytest
from msgspec.structs import replace

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import HoleFound, LaneFact, LaneHalted, SourceRun, TargetRun, Verdict
from mirrord.ledger.facts.quarantine import Quarantined
from mirrord.ledger.facts.seeks import LaneSought, SeekDone
from mirrord.model.runs import Run
from mirrord.replication.lane import rebuilding
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AskCheck,
    AskDivergence,
    AskRebuild,
    AskScan,
    CheckAnswer,
    Chunk,
    DivergenceAnswer,
    Effects,
    FetchFrom,
    Lost,
    OwnBatch,
    RebuildAnswer,
    Released,
    ScanAnswer,
    Wake,
    Woken,
)
from mirrord.replication.lane.source import last_copied
from mirrord.replication.lane.source.left_out_ranges import LeftOut
from mirrord.replication.lane.state import ResumePosition
from mirrord.replication.lane.target.relocation_result import Located
from tests.unit.replication.lane.source.test_source_epochs import chunk, data
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import Faulty, one, opened, progress_at

OUT_OF_RANGE, NOT_LEADER = 1, 6
ADA = Origin("ada@host", "", 0)


def leapt(*, on: int = 15, epochs: tuple[tuple[int, int], ...] = ((0, 1), (8, 4))) -> Faulty:
    """Source offsets 0 to 12 were copied, of epochs 1 and 4 (from offset 8 on). A command skipped those up to `on`."""
    play = opened(SourceRun(LANE, 1, (Run(0, 0),), (), epochs), TargetRun(LANE, 1, 0, 0, 1))
    play.fold(LaneSought(LANE, 13, on, 0, ADA))
    run = SourceRun(LANE, 1, (Run(13, on),), (Verdict(13, on, "skipped"),), ((13, -1),))
    play.fold(SeekDone(LANE, 1, 13, on), run)
    return play


def scanned(play: Faulty, effects: Effects, *log: OwnBatch) -> Effects:
    """A scan of the target finds these batches of the lane."""
    scan = one(effects, AskScan)
    own = tuple(each for each in log if each.base_offset + each.count > scan.start)
    return play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, own))


def resumed(play: Faulty) -> FetchFrom:
    """The next holder finds nothing after ordinal 12. When it begins to read, the source still has what was copied."""
    play.take(replace(progress_at(13), source_epoch=4))
    return confirmed(play, play.ask_target(13, last=12))


def confirmed(play: Faulty, effects: Effects) -> FetchFrom:
    """If the lane asks whether the source still has the copied records, it does."""
    for question in [each for each in effects if isinstance(each, AskDivergence)]:
        effects += play.tell(DivergenceAnswer(question.question, 0))
    return one(effects, FetchFrom)


def ended(play: Faulty, fetch: FetchFrom, end: int) -> Effects:
    """The source log ends below the position."""
    return play.tell(Chunk(fetch.question, OUT_OF_RANGE, end, end, 0, (), bytearray(), 0, 0))


def asked(play: Faulty, end: int = 14) -> AskDivergence:
    fetch = resumed(play)
    assert (fetch.position, fetch.last_epoch) == (15, -1)
    return one(ended(play, fetch, end), AskDivergence)


def halted_at(effects: Effects) -> tuple[str, int, int]:
    (fact,) = one(effects, Append).facts
    assert isinstance(fact, LaneHalted)
    return fact.reason, fact.start, fact.end


def test_the_source_is_asked_at_the_position_about_the_last_record_whose_epoch_is_known() -> None:
    question = asked(leapt())
    assert (question.position, question.epoch) == (15, 4)


def test_a_loss_is_noticed_although_no_record_arrives() -> None:
    """LOSS. The source had lost copied records before the lane resumed, and its log ended at the position of the lane
    again. A fetch returned nothing, and what had replaced the lost records was not copied before the next record."""
    play = leapt()
    play.take(replace(progress_at(13), source_epoch=4))
    question = one(play.ask_target(13, last=12), AskDivergence)
    assert (question.position, question.epoch) == (13, 4)
    wake = one(play.tell(DivergenceAnswer(question.question, NOT_LEADER)), Wake)
    question = one(play.tell(Woken(wake.question)), AskDivergence)
    effects = play.tell(DivergenceAnswer(question.question, 0, 4, 11))
    assert "were copied, and the source has lost them" in one(effects, Lost).line
    fetch = one(effects, FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (11, 4)


def test_records_that_arrive_after_that_are_confirmed() -> None:
    """The source may have lost copied records after it was asked."""
    play = leapt()
    fetch = resumed(play)
    question = one(play.tell(chunk(fetch, data((15, 1, 5, 0)))), AskDivergence)
    assert (question.position, question.epoch) == (13, 4)
    assert one(play.tell(DivergenceAnswer(question.question, 0, 4, 11)), FetchFrom).position == 11


@pytest.mark.parametrize(("epoch", "end", "start"), [(4, 11, 11), (1, 10, 8), (1, 4, 4)])
def test_the_lane_goes_back_to_where_the_log_diverges(epoch: int, end: int, start: int) -> None:
    play = leapt()
    effects = play.tell(DivergenceAnswer(asked(play, 13).question, 0, epoch, end))
    assert "were copied, and the source has lost them" in one(effects, Lost).line
    (fact,) = one(effects, Append).facts
    known = 4 if start > 8 else 1
    assert fact == SourceRun(LANE, 2, (Run(13, start),), (Verdict(start, 13, "truncated"),), ((13, known),))
    fetch = one(effects, FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (start, known)
    play.bind_all(effects)
    assert play.record.seeks == ()


def test_if_the_copied_records_are_there_the_lane_goes_back_to_the_offset_after_them() -> None:
    """The command no longer applies: the source has other records in place of some of those that it skipped."""
    play = leapt()
    effects = play.tell(DivergenceAnswer(asked(play).question, 0, 4, 14))
    assert "source offsets [14, 15) were skipped, and the source has lost them" in one(effects, Lost).line
    (fact,) = one(effects, Append).facts
    assert fact == SourceRun(LANE, 2, (Run(13, 13),), (Verdict(14, 15, "truncated"),), ((13, 4),))
    fetch = one(effects, FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (13, 4)
    assert (play.lane.left_out, play.lane.history.short_end) == ([], -1)
    play.bind_all(effects)
    assert play.record.seeks == ()
    # The source has lost copied records as well, and its log has grown again: the next fetch shows this.
    effects = play.tell(chunk(fetch, bytearray(), diverging_epoch=1, diverging_end=9))
    assert one(effects, FetchFrom).position == 8


def test_a_log_that_has_grown_again_meanwhile_is_copied_from_the_last_copied_record_on() -> None:
    """LOSS. New records have taken the place of those that the lane leapt over."""
    play = leapt()
    effects = play.tell(DivergenceAnswer(asked(play).question, 0))
    assert one(effects, FetchFrom).position == 13


def test_a_log_that_begins_above_the_last_copied_record_is_expired_up_to_there() -> None:
    play = leapt(on=25)
    question = one(ended(play, resumed(play), 22), AskDivergence)
    effects = play.tell(DivergenceAnswer(question.question, 0, 4, 22))
    fetch = one(effects, FetchFrom)
    assert fetch.position == 13
    play.bind_all(effects)
    effects = play.tell(Chunk(fetch.question, OUT_OF_RANGE, 22, 22, 20, (), bytearray(), 0, 0))
    assert "[13, 20) were deleted before they were copied" in one(effects, Lost).line
    assert one(effects, FetchFrom).position == 20


def test_a_broker_that_reports_no_divergence_makes_the_lane_halt() -> None:
    """The log may have lost copied records, too, and may have grown again since."""
    play = leapt()
    effects = play.tell(DivergenceAnswer(asked(play).question, OUT_OF_RANGE))
    assert halted_at(effects) == ("truncated", 14, 15)


def test_copied_records_of_unknown_epochs_make_the_lane_halt() -> None:
    """The source may still have some of the records of ordinals 9 to 12, and they would be copied again."""
    play = leapt(epochs=((0, 1), (9, -1)))
    assert halted_at(ended(play, resumed(play), 14)) == ("truncated", 14, 15)


def test_a_flow_that_halts_for_losses_halts() -> None:
    play = leapt()
    fetch = resumed(play)
    play.lane.on_loss = "halt"
    assert halted_at(ended(play, fetch, 14)) == ("truncated", 14, 15)


def test_a_source_that_does_not_answer_is_asked_again() -> None:
    play = leapt()
    wake = one(play.tell(DivergenceAnswer(asked(play).question, NOT_LEADER)), Wake)
    question = one(play.tell(Woken(wake.question)), AskDivergence)
    assert one(play.tell(DivergenceAnswer(question.question, 0, 4, 14)), FetchFrom).position == 13


def test_the_lane_waits_for_what_a_former_holder_may_still_send() -> None:
    """Meanwhile, the source log grows beyond the position. The lane goes back nevertheless."""
    play = leapt()
    fetch = resumed(play)
    play.lane.late_writes.former_holder_until = 9.0
    wake = one(ended(play, fetch, 14), Wake)
    assert (wake.at, play.lane.phase) == (9.0, Phase.WAITING)
    play.now = 9.0
    play.tell(Woken(wake.question))
    effects = play.ask_target(13, last=12)
    assert not [each for each in effects if isinstance(each, FetchFrom)]
    question = one(effects, AskDivergence)
    effects = play.tell(DivergenceAnswer(question.question, 0))
    (fact,) = one(effects, Append).facts
    assert isinstance(fact, SourceRun)
    assert (fact.runs, fact.verdicts) == ((Run(13, 13),), (Verdict(14, 15, "truncated"),))


def test_a_comparison_that_finds_the_end_does_not_make_the_lane_halt() -> None:
    play = leapt()
    play.take(progress_at(10), cleanly=False)
    check = one(scanned(play, play.ask_target(13), OwnBatch(9, 4, 9, 0, 1)), AskCheck)
    effects = play.tell(CheckAnswer(check.question, 0, 10, 12, "equal", "", -1, 14, equal_until=13))
    effects += play.bind_all(effects)
    assert not [each for each in effects if isinstance(each, FetchFrom)]
    question = one(effects, AskDivergence)
    assert (question.position, question.epoch) == (15, 4)
    assert one(play.tell(DivergenceAnswer(question.question, 0, 4, 14)), FetchFrom).position == 13


def test_if_nothing_was_copied_the_lane_goes_back_to_where_it_began() -> None:
    play = opened(SourceRun(LANE, 1, (Run(0, 3),)))
    play.fold(SourceRun(LANE, 1, (Run(0, 6),), (Verdict(3, 6, "expired"),), ((0, -1),)))
    play.fold(SourceRun(LANE, 1, (Run(0, 9),), (Verdict(6, 9, "skipped"),), ((0, -1),)))
    play.take(None, cleanly=False)
    effects = ended(play, one(play.ask_target(0), FetchFrom), 7)
    (fact,) = one(effects, Append).facts
    assert isinstance(fact, SourceRun)
    assert replace(fact, rewound=None) == SourceRun(LANE, 2, (Run(0, 3),), (Verdict(7, 9, "truncated"),), ((0, -1),))
    assert one(effects, FetchFrom).position == 3


def test_what_left_out_records_that_the_source_lost_no_longer_applies() -> None:
    """LOSS. The lane has gone back, and a new record has the offset of one that was refused."""
    play = leapt()
    for start in (2, 12, 20):
        play.fold(Quarantined(LANE, 1, start, start + 1, 87, "refused", skip=True))
    fetch = resumed(play)
    assert play.lane.left_out == [LeftOut(20, 21, "rejected")]
    effects = ended(play, fetch, 14)
    play.tell(DivergenceAnswer(one(effects, AskDivergence).question, 0, 4, 11))
    assert play.lane.left_out == []


def test_a_leap_over_a_refused_record_keeps_its_epoch() -> None:
    """LOSS. If the source loses this record, and has a new one at its offset, the fetch after it shows this."""
    play = opened(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 1),)), TargetRun(LANE, 1, 0, 0, 1))
    play.take(progress_at(10))
    fetch = one(play.ask_target(10, last=9), FetchFrom)
    play.bind_all(play.tell(chunk(fetch, data((10, 1, 4, 0)))))
    play.fold(Quarantined(LANE, 2, 10, 11, 87, "refused", skip=True, epoch=4))
    play.lane.phase = Phase.HALTED
    play.bind_all(play.tell(Released()))
    effects = play.ask_target(10, last=9)
    (fact,) = one(effects, Append).facts
    assert fact == SourceRun(LANE, 2, (Run(10, 11),), (Verdict(10, 11, "rejected"),), ((10, 4),), True)
    fetch = one(effects, FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (11, 4)


@pytest.mark.parametrize("epoch", [3, 4, 5])
def test_only_a_record_of_the_refused_epoch_is_left_out(epoch: int) -> None:
    """LOSS. The target has lost records. By the time the lane has copied them again, the source has another record at
    the offset of one that was refused."""
    play = opened(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 3),)), TargetRun(LANE, 1, 0, 0, 1))
    play.fold(Quarantined(LANE, 1, 12, 13, 87, "refused", skip=True, epoch=4))
    play.take(replace(progress_at(10), source_epoch=3))
    fetch = one(play.ask_target(10, last=9), FetchFrom)
    effects = play.tell(chunk(fetch, data((10, 2, 3, 0), (12, 2, epoch, 0))))
    runs = [fact for each in effects if isinstance(each, Append) for fact in each.facts if isinstance(fact, SourceRun)]
    left_out = [verdict for run in runs for verdict in run.verdicts]
    assert left_out == ([Verdict(12, 13, "rejected")] if epoch == 4 else [])
    assert [batch.offset for batch in (*play.lane.in_flight, *play.lane.ready)] == [10, 13 if epoch == 4 else 12]


def test_a_record_of_an_earlier_epoch_than_the_one_before_it_is_not_left_out() -> None:
    """LOSS. The epochs of a log ascend. The source has lost the record that was refused."""
    play = opened(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 5),)), TargetRun(LANE, 1, 0, 0, 1))
    play.fold(Quarantined(LANE, 1, 10, 11, 87, "refused", skip=True, epoch=4))
    play.take(replace(progress_at(10), source_epoch=5))
    effects = play.ask_target(10, last=9)
    assert not any(isinstance(each, Append) for each in effects)
    fetch = one(effects, FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (10, 5)


LATE = (OwnBatch(9, 4, 9, 0, 1), OwnBatch(13, 2, 13, 0, 1))


@pytest.mark.parametrize("end", [14, 15, 16])
@pytest.mark.parametrize("has_policies", [False, True])
def test_late_records_under_ordinals_that_were_not_read_are_not_copied_ones(end: int, *, has_policies: bool) -> None:
    """FALSE TRUNCATION. After the leap, no holder has read a record: the ledger would have its epoch. The target's
    ordinals 13 and 14 were sent earlier, and the source need not have lost anything."""
    play = leapt()
    play.take(progress_at(10), cleanly=False)
    play.lane.has_policies = has_policies
    check = one(scanned(play, play.ask_target(15), *LATE), AskCheck)
    answer = CheckAnswer(check.question, 0, 10, 14, "unverifiable", "", -1, end, equal_until=13)
    effects = play.tell(answer)
    assert play.lane.phase is Phase.REBUILDING
    play.bind_all(effects)
    assert play.record.last_check is not None
    assert (play.record.last_check.first, play.record.last_check.last) == (13, 14)
    question = one(rebuilding.search(play.lane), AskRebuild)
    assert (question.first, question.unread_from) == (13, 13)


def test_records_that_are_equal_are_copied_ones() -> None:
    play = leapt()
    play.take(progress_at(10), cleanly=False)
    check = one(scanned(play, play.ask_target(15), *LATE), AskCheck)
    effects = play.tell(CheckAnswer(check.question, 0, 10, 14, "equal", "", 5, -1, equal_until=15))
    play.bind_all(effects)
    assert (play.lane.phase, play.lane.position) == (Phase.COPYING, 17)


def test_the_records_of_unread_ordinals_are_unknown_and_the_lane_continues_after_the_leap() -> None:
    play = leapt()
    play.take(progress_at(10), cleanly=False)
    check = one(scanned(play, play.ask_target(15), *LATE), AskCheck)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, 10, 14, "unverifiable", "", -1, 15, equal_until=13)))
    lane = play.lane
    lane.resume_position, lane.log.end, lane.log.end_epoch = ResumePosition(13, 13, 1), 15, 1
    question = one(rebuilding.search(lane), AskRebuild)
    located = Located((), (), (), 15, open=((13, 15),), source_start=15)
    effects = play.tell(RebuildAnswer(question.question, 0, LATE[1:], located))
    play.bind_all(effects)
    assert [(hole.first, hole.last) for hole in play.record.holes if hole.is_open] == [(13, 14)]
    assert (play.record.halted, play.record.source_runs.offset_of(15)) == (None, 15)
    assert last_copied.unread_from(lane, 14) is None  # it is settled


HOLE: tuple[LaneFact, ...] = (
    SourceRun(LANE, 1, (Run(13, 15),), (), ((13, 5),)),
    HoleFound(LANE, 1, 13, 13, 15, 16),
    SourceRun(LANE, 1, (Run(15, 15), Run(16, 17)), (), ((15, -1),)),
)
"""The lane has read the records after the leap. Ordinal 13 is a hole, and its record is copied again as ordinal 15."""


@pytest.mark.parametrize(
    ("facts", "last", "first"),
    [
        ((), 13, 13),
        ((), 12, None),
        ((SourceRun(LANE, 1, (Run(13, 15),), (), ((13, 5),)),), 13, None),
        ((SourceRun(LANE, 1, (Run(13, 16),), (Verdict(15, 16, "control"),), ((13, -1),)),), 13, None),
        (HOLE, 15, None),
        ((*HOLE, SourceRun(LANE, 1, (Run(15, 18),), (Verdict(15, 18, "expired"),), ((15, -1),))), 15, 15),
    ],
)
def test_which_ordinals_are_unread(facts: tuple[LaneFact, ...], last: int, first: int | None) -> None:
    """Only those after a leap, if the epoch of the first record after it has not been recorded since. The record of a
    hole may have no known epoch either. If the source has deleted it, the lane leaps over it, and the plan of the hole
    does not count any more."""
    play = leapt()
    play.fold(*facts)
    play.lane.record = play.record
    assert last_copied.unread_from(play.lane, last) == first


@pytest.mark.parametrize(
    ("assigned_from", "sent_below", "first"), [(NEVER, 0, None), (14, 13, None), (13, 14, None), (13, 13, 13)]
)
def test_without_any_epoch_only_what_the_lane_itself_has_assigned_is_certain(
    assigned_from: int, sent_below: int, first: int | None
) -> None:
    """The source may have records of old message formats, which have no epochs."""
    play = leapt(epochs=())
    play.lane.record, play.lane.comparison.assigned_from, play.lane.sent_below = play.record, assigned_from, sent_below
    assert last_copied.unread_from(play.lane, 13) == first


@pytest.mark.parametrize(("epoch", "lost"), [(4, 10), (1, 12), (-1, 12)])
def test_a_refused_record_is_lost_if_its_epoch_is(epoch: int, lost: int) -> None:
    """LOSS. The source has another history: offset 10, where it had a refused record of epoch 4, now has a record of
    epoch 1. The new record was skipped as well. If the refused one was of epoch 1, the source still has it."""
    play = opened(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 1),)), TargetRun(LANE, 1, 0, 0, 1))
    play.fold(Quarantined(LANE, 1, 10, 11, 87, "refused", skip=True, epoch=epoch))
    play.fold(SourceRun(LANE, 1, (Run(10, 12),), (Verdict(10, 11, "rejected"), Verdict(11, 12, "control")), ((10, 4),)))
    play.take(replace(progress_at(12), source_offset=14, source_epoch=4))
    fetch = one(play.ask_target(12, last=11), FetchFrom)
    effects = play.tell(chunk(fetch, bytearray(), diverging_epoch=1, diverging_end=20))
    (fact,) = one(effects, Append).facts
    assert fact == SourceRun(LANE, 2, (Run(12, 10),), (Verdict(lost, 14, "truncated"),), ((12, 1),))
    is_kept = lost == 12
    assert play.lane.left_out == ([LeftOut(10, 11, "rejected", epoch)] if is_kept else [])
    play.bind_all(effects)
    assert bool(play.record.quarantine) is is_kept
