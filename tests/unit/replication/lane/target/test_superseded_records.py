"""What counts as newer than a record that a compacted target topic lacks."""

import pytest

from mirrord.ledger.facts.core import HoleFound, Progress, SourceRun, TargetRun, Verdict, VerdictGiven
from mirrord.model.intervals import Interval, uncovered
from mirrord.model.runs import Run
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.signals import (
    Append,
    AskScan,
    AskShared,
    EndAnswer,
    OwnBatch,
    ProducerEntry,
    ProducersAnswer,
    ScanAnswer,
    SharedAnswer,
    Start,
    VisibleAnswer,
)
from mirrord.replication.lane.source.declared_runs import rest
from mirrord.replication.lane.source.recorded_epochs import is_of_another_epoch
from mirrord.replication.lane.state import Lane, ResumePosition
from mirrord.replication.lane.target import missing_ordinals, superseded_records
from mirrord.replication.lane.target.missing_records import pieces, without_record
from mirrord.replication.lane.target.scan_result import Missing
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededAnswer, SupersededJudge
from tests.sim import toy
from tests.unit.replication.lane.test_rebuilding import LANE, Play


@pytest.fixture
def play() -> Play:
    """The lane has copied 10 records; the first leader epoch is 1."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 0, 1))
    play.begin("second")
    play.lane.resume_position = ResumePosition(10, 10, 1)
    return play


def resumed(play: Play, end: int) -> AskScan:
    """Another leader leads. Its log ends here, and it does not know the producer."""
    play.tell(EndAnswer(play.lane.asked, 0, 3, end))
    play.tell(ProducersAnswer(play.lane.asked, 0, None))
    play.tell(EndAnswer(play.lane.asked, 0, 3, end))
    (scan,) = play.tell(VisibleAnswer(play.lane.asked, 0, end, 0))
    assert isinstance(scan, AskScan)
    return scan


def looked_up(
    play: Play, shared: int, end: int, own: tuple[OwnBatch, ...], others: tuple[Interval, ...] = ()
) -> AskSuperseded:
    """What is looked up if the log is that of the resume position up to `shared`, and holds these batches from there
    on."""
    scan = resumed(play, end)
    (asked,) = play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, (), others, compacts=True))
    assert isinstance(asked, AskShared)
    (scan,) = play.tell(SharedAnswer(asked.question, 0, 1, shared))
    assert isinstance(scan, AskScan)
    (look_up,) = play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, end, own, others, compacts=True))
    assert isinstance(look_up, AskSuperseded)
    return look_up


def test_an_earlier_ordinal_of_a_later_leader_is_not_newer(play: Play) -> None:
    """An election removed ordinals 6 to 9. The lane copied 6 again and ended before it saved that. Ordinal 6 does not
    supersede a lost record of its key."""
    asked = looked_up(play, 6, 7, (OwnBatch(6, 1, 6, 0, 2),))
    (lost,) = asked.missing
    assert (lost.kind, lost.first, lost.last) == ("lost", 7, 9)
    judge = SupersededJudge(asked)
    for ordinal, key in ((7, "a"), (8, "b"), (9, "c")):
        judge.expect(lost, ordinal, ordinal, key, 0)
    judge.see(6, "b", 0, 2, sequence=6)
    judge.see(7, "c", 0, 3)
    assert judge.answer().again == ((7, 8),)


def test_a_later_ordinal_is_newer() -> None:
    lost = Missing("lost", 7, 7, 6, has_room=False, leader_epoch=1)
    judge = SupersededJudge(AskSuperseded(0, (lost,), 10))
    judge.expect(lost, 7, 7, "a", 0)
    judge.see(8, "a", 0, 2, sequence=8)
    assert judge.answer().again == ()


def test_foreign_records_before_an_own_batch_are_not_newer_than_records_lost_after_it(play: Play) -> None:
    """The resume position was saved before ordinals 10 to 13 were acknowledged. Others wrote at offset 10, ordinals 10
    and 11 follow at 11, and the end of the log is lost."""
    play.lane.acked, play.lane.acknowledged = 14, ((14, 1),)
    asked = looked_up(play, 10, 13, (OwnBatch(11, 2, 10, 0, 1),), ((10, 11),))
    (lost,) = asked.missing
    assert (lost.kind, lost.first, lost.last, lost.above) == ("lost", 12, 13, 13)
    judge = SupersededJudge(asked)
    judge.expect(lost, 12, 12, "a", 0)
    judge.expect(lost, 13, 13, "b", 0)
    judge.see(10, "a", 0, 1)
    assert judge.answer().again == ((12, 13),)


@pytest.mark.parametrize("kind", ["between", "lost", "last"])
def test_records_without_a_key_do_not_supersede_each_other(kind: str) -> None:
    gone = Missing(kind, 3, 4, 3, has_room=False, leader_epoch=1)  # pyright: ignore[reportArgumentType] -- one of the three
    judge = SupersededJudge(AskSuperseded(0, (gone,), 10))
    judge.expect(gone, 3, 3, None, 0)
    judge.expect(gone, 4, 4, "a", 0)
    judge.see(8, None, 0, 2)
    answer = judge.answer()
    assert answer.again == (() if kind == "last" else ((3, 4),))
    assert answer.until == -1


@pytest.mark.parametrize("compacts", [True, False])
def test_a_topic_that_is_no_longer_compacted_keeps_all_that_was_lost(play: Play, *, compacts: bool) -> None:
    """The cleaner removed records before `cleanup.policy` became "delete". An election removed ordinals 6 to 9, and
    others wrote their keys since."""
    play.tell(EndAnswer(play.lane.asked, 0, 3, 9))
    play.tell(ProducersAnswer(play.lane.asked, 0, None))
    play.tell(EndAnswer(play.lane.asked, 0, 3, 9))
    (scan,) = play.tell(VisibleAnswer(play.lane.asked, 0, 9, 0))
    assert isinstance(scan, AskScan)
    stands = (OwnBatch(4, 2, 4, 0, 1),)
    (asked,) = play.tell(ScanAnswer(scan.question, 0, "verify", 0, 9, stands, ((6, 9),), compacts=compacts))
    assert isinstance(asked, AskShared)
    (scan,) = play.tell(SharedAnswer(asked.question, 0, 1, 6))
    assert isinstance(scan, AskScan)
    # An empty offset after the lost ones: foreign records were removed as well.
    (asked,) = play.tell(ScanAnswer(scan.question, 0, "verify", 6, 9, (), ((6, 8),), compacts=compacts))
    assert isinstance(asked, AskSuperseded)
    judge = SupersededJudge(asked)
    for each in asked.missing:
        for ordinal in range(each.first, each.last + 1):
            judge.expect(each, ordinal, ordinal, "a", 0)
    judge.see(7, "a", 0, 2)
    assert judge.answer().again == (() if compacts else ((6, 9),))


def test_an_empty_log_does_not_stand_for_what_was_acknowledged(play: Play) -> None:
    """The resume position was held back at 0, and ordinals 0 to 3 were acknowledged. An election removed them, and
    others have written up to the resume position's offset since."""
    play.lane.resume_position = ResumePosition(0, 1, 1)
    play.lane.acked, play.lane.acknowledged = 4, ((4, 1),)
    scan = resumed(play, 1)
    (asked,) = play.tell(ScanAnswer(scan.question, 0, "resume", 0, 1, (), ((0, 1),), compacts=True))
    assert isinstance(asked, AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 0, 3)]


@pytest.mark.parametrize(
    ("first", "last", "ordinals"), [(0, 6, [2, 3, 4, 5, 6]), (2, 6, [0, 1, 4, 5, 6]), (8, 4, [*range(5)])]
)
def test_a_lookup_of_what_may_have_been_appended_skips_a_hole(
    play: Play, first: int, last: int, ordinals: list[int]
) -> None:
    """STALE VALUE. It is unknown what was sent, and the broker has forgotten the producer. Five empty offsets follow.
    The ledger names a hole of two ordinals, which have no offsets. The records after the hole were appended over newer
    values, because only records before it were looked up."""
    play.fold(HoleFound(LANE, 2, first, first + 1, 10, 12))
    play.lane.resume_position, play.lane.acknowledged, play.lane.takeover.knows_sent = ResumePosition(0, 0), (), False
    play.tell(EndAnswer(play.lane.asked, 0, 3, 5))
    play.tell(ProducersAnswer(play.lane.asked, 0, None))
    play.tell(EndAnswer(play.lane.asked, 0, 3, 5))
    (scan,) = play.tell(VisibleAnswer(play.lane.asked, 0, 5, 0))
    assert isinstance(scan, AskScan)
    effects = play.tell(ScanAnswer(scan.question, 0, "resume", 0, 5, (), (), compacts=True))
    (asked,) = effects
    assert isinstance(asked, AskSuperseded)
    (missing,) = asked.missing
    assert (missing.kind, missing.first, missing.last) == ("last", 0, last)
    found = [ordinal + at for ordinal, _, length in pieces(play.record, missing) for at in range(length)]
    assert found == ordinals
    assert [*found, *without_record(play.record, missing)] == [*ordinals, *({*range(last + 1)} - {*ordinals})]


def test_records_that_may_have_been_appended_do_not_end_before_an_open_hole(play: Play) -> None:
    """STALE VALUE. Ordinal 0 is an open hole: it was appended, and nothing shows which record it is. The former holder
    saved no resume position, and the cleaner has removed all of the lane's records because of newer ones."""
    play.fold(HoleFound(LANE, 2, 0, 0, 1, 1))
    play.lane.resume_position, play.lane.acknowledged, play.lane.takeover.knows_sent = ResumePosition(0, 0), (), False
    scan = resumed(play, 7)
    effects = play.tell(ScanAnswer(scan.question, 0, "resume", 0, 7, (), ((5, 7),), compacts=True))
    (asked,) = [each for each in effects if isinstance(each, AskSuperseded)]
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("last", 0, 4)]


def test_an_ordinal_whose_record_the_source_has_lost_does_not_end_what_was_cleaned(play: Play) -> None:
    """The source lost its offset 10 after that was copied, and the next record there was copied as ordinal 11."""
    play.fold(SourceRun(LANE, 2, (Run(11, 10),), (Verdict(10, 11, "truncated"),)))
    last = Missing("last", 10, 12, 10, has_room=True)
    assert list(without_record(play.record, last)) == [10]
    judge = SupersededJudge(AskSuperseded(0, (last,), 14))
    for ordinal in without_record(play.record, last):
        judge.gone(last, ordinal, by_retention=False)
    judge.expect(last, 11, 11, "a", 0)
    judge.see(12, "a", 0, 1)
    assert judge.answer().until == 12


@pytest.mark.parametrize(
    ("ordinal", "epoch", "is_another"), [(4, 3, False), (4, 4, True), (8, 4, False), (8, 3, True), (8, -1, False)]
)
def test_nothing_of_an_epoch_that_the_ledger_does_not_know_was_appended(
    play: Play, ordinal: int, epoch: int, *, is_another: bool
) -> None:
    """Otherwise the lane would continue at an offset of another epoch, and conclude that the source has lost
    records."""
    play.fold(SourceRun(LANE, 2, (Run(0, 0),), (), ((0, 3), (6, 4))))
    assert is_of_another_epoch(play.record.epochs, ordinal, epoch) is is_another


def test_a_ledger_without_epochs_bounds_nothing(play: Play) -> None:
    assert not is_of_another_epoch(play.record.epochs, 4, 9)


def follows(play: Play, first: int) -> int | None:
    """Return the source offset at which the lane continues after the records that the log has lost from `first` on."""
    ordinal, lost = missing_ordinals.planned_until(play.lane), missing_ordinals.lost_ordinals(play.lane, first)
    left = rest(play.record, ordinal, lost)
    return play.record.source_runs.offset_of(ordinal) if left is None else left.runs[0].offset


def test_the_pending_records_of_a_hole_are_lost_with_the_records_before_them(play: Play) -> None:
    """Ordinals 0 and 1 were jumped over, and their records follow as 2 and 3."""
    play.fold(SourceRun(LANE, 2, (Run(2, 0), Run(4, 2))), HoleFound(LANE, 2, 0, 1, 2, 4))
    play.lane.resume_position, play.lane.acked, play.lane.record = ResumePosition(0, 0, 1), 0, play.record
    play.lane.acknowledged = ((2, 1),)
    assert missing_ordinals.lost_ordinals(play.lane, 0) == ((0, 1),)
    assert follows(play, 0) == 2
    play.lane.acknowledged = ((3, 1),)  # the record of ordinal 0 was there once more
    assert missing_ordinals.lost_ordinals(play.lane, 0) == ((1, 2),)
    assert follows(play, 0) == 2
    play.lane.acknowledged = ((4, 1),)
    assert missing_ordinals.lost_ordinals(play.lane, 0) == ((2, 3),)
    assert follows(play, 0) == 2


def test_the_pending_records_of_a_hole_stay_planned_if_the_log_went_back_to_a_point_after_it(play: Play) -> None:
    play.fold(SourceRun(LANE, 2, (Run(6, 2), Run(8, 6))), HoleFound(LANE, 2, 2, 3, 6, 8))
    play.lane.resume_position, play.lane.acked, play.lane.record = ResumePosition(0, 0, 1), 0, play.record
    play.lane.acknowledged = ((7, 1),)
    assert missing_ordinals.lost_ordinals(play.lane, 5) == ((5, 6),)
    assert follows(play, 5) == 3


def test_records_lost_after_the_last_ordinal_that_the_broker_remembers_are_looked_up(play: Play) -> None:
    """The new leader has the lane up to ordinal 7, and knows that; others wrote where 8 and 9 were."""
    play.tell(EndAnswer(play.lane.asked, 0, 3, 10))
    play.lane.resume_position, play.lane.acknowledged = ResumePosition(8, 8, 1), ((10, 1),)
    play.tell(ProducersAnswer(play.lane.asked, 0, ProducerEntry(7, 0)))
    play.tell(EndAnswer(play.lane.asked, 0, 3, 10))
    (scan,) = play.tell(VisibleAnswer(play.lane.asked, 0, 10, 0))
    assert isinstance(scan, AskScan)
    own = (OwnBatch(0, 8, 0, 0, 1),)
    (asked,) = play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, 10, own, ((8, 10),), compacts=True))
    assert isinstance(asked, AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 8, 9)]


@pytest.mark.parametrize(("settled", "kinds"), [(True, []), (False, [("last", 0, 9)])])
def test_a_resume_position_that_was_held_back_does_not_show_how_far_the_former_holder_came(
    play: Play, *, settled: bool, kinds: list[tuple[str, int, int]]
) -> None:
    """Nothing of the lane is left in the log, and the resume position of a holder that left cleanly says that it wrote
    nothing."""
    progress = Progress(LANE, 1, 2, 0, 0, 1, 0, 20, 1, 1, False, "drained", settled=settled)
    play.lane = Lane(LANE, "orders", "eu.orders", 0, "p", True, toy.rebuild)
    play.bind(play.tell(Start(play.record, progress, "third", 0.0, True)))
    play.tell(EndAnswer(play.lane.asked, 0, 1, 12))
    play.tell(ProducersAnswer(play.lane.asked, 0, None))
    play.tell(EndAnswer(play.lane.asked, 0, 1, 12))
    (scan,) = play.tell(VisibleAnswer(play.lane.asked, 0, 12, 0))
    assert isinstance(scan, AskScan)
    effects = play.tell(ScanAnswer(scan.question, 0, scan.purpose, 0, 12, (), ((10, 12),), compacts=True))
    asked = [each for effect in effects if isinstance(effect, AskSuperseded) for each in effect.missing]
    assert [(each.kind, each.first, each.last) for each in asked] == kinds


def test_records_of_an_earlier_loss_are_looked_up_with_those_lost_now(play: Play) -> None:
    """Ordinals 10 to 12 were lost. Offset 11 was superseded, and 10 and 12 follow as ordinals 10 and 11. The first of
    them was acknowledged when the log lost its end again, and others have written the key of the second one since."""
    runs = (Run(10, 10), Run(11, 12), Run(12, 13))
    play.fold(HoleFound(LANE, 2, 9, 8, 10, 12), SourceRun(LANE, 2, runs))
    play.lane.resume_position = ResumePosition(11, 11, 1)
    asked = looked_up(play, 10, 13, (), ((10, 13),))
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 10, 10), ("lost", 11, 11)]
    effects = play.tell(SupersededAnswer(asked.question, 0, ((10, 10),)))
    (append,) = [effect for effect in effects if isinstance(effect, Append)]
    recorded = [fact.runs for fact in append.facts if isinstance(fact, SourceRun)]
    left = [fact.verdicts for fact in append.facts if isinstance(fact, VerdictGiven)]
    assert (recorded, left) == ([(Run(10, 10), Run(11, 13))], [(Verdict(12, 13, "compacted"),)])


def test_records_after_the_log_end_at_a_loss_are_newer_than_those_still_to_be_copied_again(play: Play) -> None:
    """The log was lost down to offset 1, and ordinals 0 and 1 were to be copied again from there. Others wrote first,
    then another leader took over. The former place of ordinal 0 in the lost log does not count."""
    play.fold(TargetRun(LANE, 2, 0, 3, 1))
    play.fold(HoleFound(LANE, 2, -1, -2, 0, 2), SourceRun(LANE, 2, (Run(0, 0), Run(2, 9))))
    play.lane.resume_position, play.lane.acked, play.lane.acknowledged = ResumePosition(0, 1, 2), 0, ()
    scan = resumed(play, 4)
    (asked,) = play.tell(ScanAnswer(scan.question, 0, "resume", 0, 4, (), ((1, 4),), compacts=True))
    assert isinstance(asked, AskSuperseded)
    assert asked.missing == (Missing("lost", 0, 1, 1, has_room=False, leader_epoch=2),)


# --- many records -----------------------------------------------------------------------------------------------------


def test_any_number_of_lost_records_is_looked_up(play: Play) -> None:
    """HALT. Before, a partition halted if a compacted log had lost more than 500,000 records."""
    many = 2_000_000
    play.lane.resume_position = ResumePosition(many, many, 1)
    asked = looked_up(play, 6, 8, (), ((6, 8),))
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 6, many - 1)]
    superseded = range(8, 1_000_000, 100_000)
    again = [(first, last - 1) for first, last in uncovered((6, many), [(each, each + 1) for each in superseded])]
    effects = play.tell(SupersededAnswer(asked.question, 0, tuple(again)))
    (append,) = [each for each in effects if isinstance(each, Append)]
    (verdict,) = [each for each in append.facts if isinstance(each, VerdictGiven)]
    assert verdict.verdicts == tuple(Verdict(each, each + 1, "compacted") for each in superseded)


def lost(first: int, last: int) -> Missing:
    return Missing("lost", first, last, 0, has_room=False)


def last(first: int, end: int) -> Missing:
    return Missing("last", first, end, 0, has_room=True)


LAST = last(20, 25)


@pytest.mark.parametrize(
    ("missing", "parts"),
    [
        ((), []),
        ((lost(5, 8),), [[lost(5, 8)]]),
        ((lost(5, 9),), [[lost(5, 8)], [lost(9, 9)]]),
        ((lost(5, 6), lost(8, 13)), [[lost(5, 6), lost(8, 9)], [lost(10, 13)]]),
        ((lost(5, 8), lost(10, 10)), [[lost(5, 8)], [lost(10, 10)]]),
        ((lost(5, 6), LAST), [[lost(5, 6), LAST]]),
        ((lost(5, 13), LAST), [[lost(5, 8)], [lost(9, 12)], [lost(13, 13), LAST]]),
        ((lost(5, 7), last(20, 26)), [[lost(5, 7), last(20, 25)], [last(26, 26)]]),
        ((last(20, 35),), [[last(20, 25)], [last(26, 29)], [last(30, 33)], [last(34, 35)]]),
    ],
)
def test_a_question_about_many_records_is_divided(
    missing: tuple[Missing, ...], parts: list[list[Missing]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most four records at once. The first six of those that may never have been appended stay together."""
    monkeypatch.setattr(superseded_records, "MOST_AT_ONCE", 4)
    monkeypatch.setattr(superseded_records, "MOST_LAST", 6)
    asked = AskSuperseded(7, missing, 30, keeps_all=True)
    found = list(superseded_records.in_parts(asked))
    assert [list(each.missing) for each in found] == parts
    assert all((each.question, each.end, each.keeps_all) == (7, 30, True) for each in found)


def test_a_missing_record_is_not_newer_than_one_of_its_key_that_is_superseded() -> None:
    """STALE VALUE. Ordinal 7 was last known in epoch 3, ordinal 8 was never acknowledged. Others wrote their key in
    epoch 3, after the place of ordinal 8. So their record is newer than both."""
    lost = Missing("lost", 7, 7, 20, has_room=False, leader_epoch=3)
    between = Missing("between", 8, 8, 10, has_room=False)
    judge = SupersededJudge(AskSuperseded(0, (lost, between), 20))
    judge.expect(lost, 7, 7, "a", 0)
    judge.expect(between, 8, 8, "a", 0)
    judge.see(12, "a", 0, 3)
    assert judge.answer().again == ()


def test_the_order_of_records_is_that_of_the_source() -> None:
    """Ordinals 20 and 21 are copies of source offsets 2 and 5 that follow later, and ordinal 8 is source offset 8."""
    planned = Missing("between", 20, 21, 10, has_room=True)
    former = Missing("between", 8, 8, 10, has_room=True)
    judge = SupersededJudge(AskSuperseded(0, (former, planned), 30))
    judge.expect(former, 8, 8, "a", 0)
    judge.expect(planned, 20, 2, "a", 0)
    judge.expect(planned, 21, 5, "a", 0)
    judge.see_appended("a", 5)
    assert judge.answer().again == ((8, 8), (21, 21))


def test_copied_records_do_not_supersede_what_a_topic_keeps(play: Play) -> None:
    """The topic is no longer compacted, so all that was lost is copied again."""
    lost = Missing("lost", 7, 8, 10, has_room=False, leader_epoch=1)
    judge = SupersededJudge(AskSuperseded(0, (lost,), 20, keeps_all=True))
    judge.expect(lost, 7, 7, "a", 0)
    judge.expect(lost, 8, 8, "b", 0)
    assert judge.lowest_left() == NEVER
    judge.see_appended("a", 9)
    assert judge.answer().again == ((7, 8),)


def test_a_batch_that_the_cleaner_has_thinned_out_supersedes_what_is_missing_before_it(play: Play) -> None:
    """STALE VALUE. Others had a newer record of a key, and an election removed it after the cleaner had removed all
    copied ones. The newest of these was in a batch of which other records are left. The older ones were in batches
    that are gone: they were copied again."""
    play.lane.resume_position, play.lane.acknowledged, play.lane.acked = ResumePosition(0, 0, 1), (), 0
    scan = resumed(play, 14)
    own = (OwnBatch(10, 4, 10, 0, 1),)
    (asked,) = play.tell(ScanAnswer(scan.question, 0, "resume", 0, 14, own, (), compacts=True))
    assert isinstance(asked, AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("between", 0, 9)]
    assert asked.appended == ((10, 13),)


@pytest.mark.parametrize(("has_room", "again"), [(True, ()), (False, ((5, 6),))])
def test_records_that_the_source_has_deleted_count_as_appended_if_the_log_has_room_for_them(
    *, has_room: bool, again: tuple[tuple[int, int], ...]
) -> None:
    """A limit of decision 94: the records may as well be those of a hole next to removed records of other clients."""
    gap = Missing("between", 5, 6, 5, has_room=has_room)
    judge = SupersededJudge(AskSuperseded(0, (gap,), 11))
    for ordinal in (5, 6):
        judge.gone(gap, ordinal, by_retention=True)
    assert judge.answer().again == again
