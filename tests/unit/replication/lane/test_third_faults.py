"""Faults while the lane records what it has found: a failed append, an interrupted comparison, a drain, an error."""

import msgspec
import pytest

from mirrord.ledger.facts.core import HoleFound, LaneFact, MapRebuilt, SourceRun, TargetRun, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane import in_flight
from mirrord.replication.lane.halt import halt
from mirrord.replication.lane.lane_report import progress_record
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AppendFailed,
    AskCheck,
    AskEnd,
    AskRebuild,
    AskScan,
    Bound,
    CheckAnswer,
    Drain,
    Drained,
    Effects,
    EndAnswer,
    FetchFrom,
    OwnBatch,
    Produce,
    ProduceAnswer,
    RebuildAnswer,
    Released,
    ScanAnswer,
    TargetMoved,
    Wake,
    Woken,
)
from mirrord.replication.lane.source.declared_runs import mended_until
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target.relocation_result import Located
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened, progress_at


def plain(play: Faulty, effects: Effects, log: tuple[OwnBatch, ...]) -> Effects:
    """Answer what is asked about a target log that is not compacted."""
    while asked := [each for each in effects if isinstance(each, AskScan)]:
        own = tuple(each for each in log if each.base_offset + each.count > asked[0].start)
        effects = play.tell(ScanAnswer(asked[0].question, 0, asked[0].purpose, asked[0].start, asked[0].end, own))
    return effects


LATE = (OwnBatch(0, 5, 0, 0, 1), OwnBatch(5, 3, 10, 0, 2))


def went_back(*facts: LaneFact) -> tuple[Faulty, Effects]:
    """Ordinals 0 to 14 were in the log. A new leader has 0 to 4 and then a late batch of 10 to 12: a hole of 5 to 9."""
    play = opened(*BEGUN)
    for fact in facts:
        play.fold(fact)
    play.take(progress_at(15, state="copying"))
    return play, plain(play, play.ask_target(8, epoch=2), LATE)


def test_a_hole_in_a_log_that_went_back_is_mended() -> None:
    play, effects = went_back()
    play.bind_all(effects)
    assert play.lane.position == 5


def test_a_hole_is_found_again_after_a_failed_append() -> None:
    play, effects = went_back()
    wake = one(play.tell(AppendFailed(one(effects, Append).tag, play.record)), Wake)
    play.now = wake.at
    play.bind_all(play.tell(Woken(wake.question)))
    play.bind_all(plain(play, play.ask_target(8, epoch=2), LATE))
    assert play.lane.position == 5


def test_no_position_above_a_hole_is_saved_before_the_ledger_has_the_hole() -> None:
    play, _ = went_back()
    saved = progress_record(play.lane, 1, 1)
    assert saved is None or saved.ordinal <= 5


def test_a_hole_is_found_again_after_an_interrupted_comparison() -> None:
    play, effects = went_back(SourceRun(LANE, 1, (Run(2, 2),), (), (), True))
    check = one(effects, AskCheck)
    wake = one(play.tell(CheckAnswer(check.question, 7, 0, 10, "unverifiable")), Wake)
    play.now = wake.at
    play.tell(Woken(wake.question))
    effects = plain(play, play.ask_target(8, epoch=2), LATE)
    check = one(effects, AskCheck)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, check.first, check.last, "equal", "", 0, equal_until=13)))
    assert play.lane.position == 5


def test_a_rebuilt_map_keeps_all_runs_of_the_ordinals_that_the_target_leaps_over() -> None:
    """Ordinals 5 | 6 | 7, 8 of the hole are offsets 5 | 8 | 10, 11; a late batch of ordinal 8 fills the end of it."""
    play = opened(*BEGUN, TargetRun(LANE, 1, 9, 5, 1))
    verdicts = (Verdict(6, 8, "skipped"), Verdict(9, 10, "filtered"))
    play.fold(SourceRun(LANE, 1, (Run(6, 8), Run(7, 10)), verdicts))
    again = (Run(9, 12), Run(13, 5), Run(14, 8), Run(15, 10), Run(17, 16))
    play.fold(HoleFound(LANE, 1, 5, 8, 13, 17), SourceRun(LANE, 1, again))
    before = [play.record.source_runs.offset_of(ordinal) for ordinal in range(5, 9)]
    play.take(msgspec.structs.replace(progress_at(17, state="copying"), target_offset=13))
    log = (OwnBatch(0, 5, 0, 0, 1), OwnBatch(5, 1, 8, 0, 2))
    play.bind_all(plain(play, play.ask_target(6, epoch=2), log))
    asked = one(plain(play, play.ask_target(6, epoch=2), log), AskRebuild)
    located = Located((Run(8, 11),), (), ((5, 6), (8, 9), (10, 11)), 12)
    play.bind_all(play.tell(RebuildAnswer(asked.question, 0, log[1:], located)))
    assert [play.record.source_runs.offset_of(ordinal) for ordinal in range(5, 9)] == before
    assert play.record.verdicts.counts["skipped"] == 2


def test_the_map_names_each_ordinal_that_the_broker_remembers() -> None:
    """Others' records were before ordinal 12 once; the log went back, and the former holder wrote 10 to 14 again."""
    play = opened(*BEGUN, TargetRun(LANE, 1, 12, 14, 1))
    play.take(progress_at(10, state="copying", epoch=2))
    log = (OwnBatch(0, 10, 0, 0, 1), OwnBatch(10, 5, 10, 0, 2))
    effects = plain(play, play.ask_target(15, epoch=2, last=14), log)
    check = one(effects, AskCheck)
    play.bind_all(effects)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, check.first, check.last, "equal", "", 0, equal_until=15)))
    assert [play.record.target_runs.offset_of(ordinal) for ordinal in range(10, 15)] == [10, 11, 12, 13, 14]


def test_the_plan_of_an_older_hole_follows_the_ordinals_of_a_rebuilt_map() -> None:
    play = opened(*BEGUN)
    play.fold(HoleFound(LANE, 1, 0, 3, 7, 11), SourceRun(LANE, 1, (Run(7, 0), Run(11, 7))))
    play.fold(SourceRun(LANE, 1, (Run(7, 0), Run(11, 3), Run(12, 7), Run(19, 14))), MapRebuilt(LANE, 1, 7, 10, 19))
    assert mended_until(play.record, 4) == 19


def differing() -> tuple[Faulty, Effects]:
    """Taken over uncleanly at 11. Ordinal 11 is acknowledged, and the late comparison finds it different."""
    play = opened(*BEGUN)
    play.take(progress_at(11, state="copying"), barrier_s=14.0, cleanly=False)
    effects = play.ask_target(11, last=10)
    fetch, wake = one(effects, FetchFrom), one(effects, Wake)
    produce = one(play.chunk(fetch, 11), Produce)
    check = one(play.tell(ProduceAnswer(produce.round, produce.batches[0], 0, 11)), AskCheck)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, 11, 11, "unverifiable", "gone", 0)))
    play.now = max(wake.at, 14.0)
    asked = one(play.tell(Woken(wake.question)), AskEnd)
    check = one(play.tell(EndAnswer(asked.question, 0, 1, 12)), AskCheck)
    return play, play.tell(CheckAnswer(check.question, 0, 11, 11, "different", "ordinal 11 differs in its value"))


def test_no_position_above_a_difference_is_saved_before_the_ledger_has_the_difference() -> None:
    play, effects = differing()
    assert any(isinstance(each, Append) for each in effects)
    saved = progress_record(play.lane, 1, 1)
    assert saved is None or saved.ordinal <= 11


def test_a_lane_does_not_leave_cleanly_while_target_and_source_differ() -> None:
    play, _ = differing()
    play.now += 30
    assert not one(play.tell(Drain()), Drained).clean


def test_a_lane_that_the_host_halts_after_an_error_stays_halted(monkeypatch: pytest.MonkeyPatch) -> None:
    play = opened(*BEGUN)
    play.take(progress_at(10))
    produce = one(play.chunk(one(play.ask_target(10, last=9), FetchFrom), 10), Produce)
    settled = in_flight._settled

    def broken(lane: Lane, now: float) -> Effects:
        settled(lane, now)
        raise IndexError

    with monkeypatch.context() as patch:
        patch.setattr(in_flight, "_settled", broken)
        with pytest.raises(IndexError):
            play.tell(ProduceAnswer(produce.round, produce.batches[0], 6, -1))
    append = one(halt(play.lane, "internal", "an error inside mirrord", 10, 10), Append)
    assert play.tell(Bound(append.tag, play.fold(*append.facts), play.record)) == []
    assert play.lane.phase is Phase.HALTED


def test_the_map_is_kept_where_others_wrote_as_many_records_as_a_hole_lacks() -> None:
    """Ordinals 0 to 6 are at 0 to 6, ordinal 9 is at 7 after a hole, and others' records are at 8 and 9."""
    play = opened(*BEGUN)
    play.fold(TargetRun(LANE, 1, 9, 7, 1), HoleFound(LANE, 1, 7, 8, 10, 12))
    play.fold(SourceRun(LANE, 1, (Run(10, 7), Run(12, 10))))
    play.take(progress_at(5, state="copying"), cleanly=False, barrier_s=14.0)
    log = (OwnBatch(0, 7, 0, 0, 1), OwnBatch(7, 1, 9, 0, 1))
    effects = plain(play, play.ask_target(10, last=9), log)
    play.bind_all(effects)
    check = one(effects, AskCheck)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, check.first, check.last, "equal", "", 0, equal_until=10)))
    assert play.record.target_runs.offset_of(9) == 7


def compared(play: Faulty, effects: Effects) -> Effects:
    """Answer a comparison, if there is one: everything is equal."""
    for check in [each for each in effects if isinstance(each, AskCheck)]:
        answer = CheckAnswer(check.question, 0, check.first, check.last, "equal", "", 0, equal_until=check.last + 1)
        effects = [*effects, *play.tell(answer)]
    return effects


def test_a_hole_among_the_copies_of_an_older_hole_does_not_shorten_the_older_plan() -> None:
    """Ordinals 0 to 9 are copied again as 20 to 29; 22 and 23 are refused. Then the log goes back to ordinal 22."""
    play = opened(*BEGUN, TargetRun(LANE, 1, 10, 0, 1))
    play.fold(HoleFound(LANE, 1, 0, 9, 20, 30), SourceRun(LANE, 1, (Run(20, 0), Run(30, 20))))
    log = (OwnBatch(0, 10, 10, 0, 1), OwnBatch(10, 2, 20, 0, 1), OwnBatch(12, 2, 24, 0, 1))
    play.take(msgspec.structs.replace(progress_at(22, state="copying"), target_offset=12, source_offset=2))
    play.bind_all(compared(play, plain(play, play.ask_target(14), log)))
    play.tell(TargetMoved(2))
    play.bind_all(compared(play, plain(play, play.ask_target(12, epoch=2), log[:2])))
    last = play.record.source_runs.last
    assert last is not None
    assert last.offset == 20  # the end of the older plan


def test_an_older_append_does_not_count_as_the_plan_for_a_hole() -> None:
    """The first plan is not bound when the log goes back again, with a hole. It binds then, and the second fails."""
    play = opened(*BEGUN)
    play.fold(TargetRun(LANE, 1, 10, 8, 1), HoleFound(LANE, 1, 8, 9, 12, 14))
    play.fold(SourceRun(LANE, 1, (Run(12, 8), Run(14, 12))))
    play.take(msgspec.structs.replace(progress_at(14, state="copying"), target_offset=12))
    effects = plain(play, play.ask_target(5, epoch=2), (OwnBatch(0, 5, 0, 0, 1),))
    appends = [each for each in effects if isinstance(each, Append)]
    (older,) = [each for each in appends if any(isinstance(fact, SourceRun) for fact in each.facts)]
    play.bind_all([each for each in appends if each is not older])
    play.tell(TargetMoved(3))
    log = (OwnBatch(0, 1, 0, 0, 1), OwnBatch(1, 2, 2, 0, 3))
    effects = compared(play, plain(play, play.ask_target(3, epoch=3), log))
    appends = [each for each in effects if isinstance(each, Append)]
    (plan,) = [each for each in appends if any(isinstance(fact, HoleFound) for fact in each.facts)]
    play.bind_all([*(each for each in appends if each is not plan), older])
    saved = progress_record(play.lane, 1, 1)
    assert saved is None or saved.ordinal <= 1
    wake = one(play.tell(AppendFailed(plan.tag, play.record)), Wake)
    play.now = wake.at
    play.bind_all(play.tell(Woken(wake.question)))
    play.bind_all(plain(play, play.ask_target(3, epoch=3), log))
    assert play.lane.position == 1


def test_a_position_is_saved_again_after_a_hole_of_which_the_source_has_nothing_left() -> None:
    """The source lost offsets 5 to 9, and has others from ordinal 10 on. The plan for the hole changes nothing."""
    play = opened(*BEGUN)
    play.fold(SourceRun(LANE, 1, (Run(10, 5),), (Verdict(5, 10, "truncated"),), ((10, 3),)))
    play.take(msgspec.structs.replace(progress_at(15, state="copying"), source_offset=10, source_epoch=3))
    play.bind_all(play.bind_all(compared(play, plain(play, play.ask_target(8, epoch=2), LATE))))
    assert play.lane.phase is Phase.COPYING
    assert progress_record(play.lane, 1, 1) is not None


def test_a_difference_outlasts_the_release_of_a_lane_whose_map_cannot_be_rebuilt() -> None:
    play, effects = differing()
    log = (OwnBatch(0, 12, 0, 0, 1),)
    for wake in [each for each in play.bind_all(effects) if isinstance(each, Wake)]:
        play.now = max(play.now, wake.at)
        play.tell(Woken(wake.question))
    play.now += 30
    ask = one(plain(play, play.ask_target(12, last=11), log), AskRebuild)
    play.bind_all(play.tell(RebuildAnswer(ask.question, 0, (), None, "no way")))
    assert play.lane.phase is Phase.HALTED
    effects = play.bind_all(play.tell(Released(ahead=True)))
    play.bind_all(effects)
    assert play.record.halted is not None
    assert "differ" in play.record.halted.line
    one(plain(play, play.ask_target(12, last=11), log), AskRebuild)
