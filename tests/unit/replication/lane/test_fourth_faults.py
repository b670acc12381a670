"""Faults where plans touch, where a plan was moved or shortened, and where the ledger knows more than the numbers."""

import msgspec
import pytest
from msgspec.structs import replace

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import HoleFound, LaneFact, MapRebuilt, SourceRun, TargetRun, Verdict, VerdictGiven
from mirrord.ledger.facts.quarantine import Quarantined
from mirrord.ledger.facts.seeks import LaneSought
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AppendFailed,
    AskCheck,
    AskRebuild,
    CheckAnswer,
    Chunk,
    FetchFrom,
    OwnBatch,
    Produce,
    ProduceAnswer,
    RebuildAnswer,
    Released,
    TargetMoved,
    Wake,
    Woken,
)
from mirrord.replication.lane.source.copied_pieces import mapped
from mirrord.replication.lane.target.relocation_result import Located
from mirrord.replication.lane.target.superseded_records import (
    AskShared,
    AskSuperseded,
    SharedAnswer,
    SupersededAnswer,
    SupersededJudge,
)
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened, progress_at
from tests.unit.replication.lane.test_third_faults import compared, differing, plain


def offsets(play: Faulty, first: int, last: int) -> list[int]:
    """Return the source offsets that the ledger has for these ordinals."""
    return [at + each for _, at, length in play.record.source_runs.between(first, last) for each in range(length)]


def retake(
    play: Faulty,
    ordinal: int,
    target_offset: int,
    source_offset: int,
    epoch: int = 1,
    epoch_ends: tuple[tuple[int, int], ...] = (),
    rewinds: int = 0,
) -> None:
    """Another holder takes the lane with this mark."""
    mark = progress_at(ordinal, state="copying", epoch=epoch)
    mark = msgspec.structs.replace(mark, target_offset=target_offset, source_offset=source_offset, rewinds=rewinds)
    play.take(msgspec.structs.replace(mark, grant=play.record.grant, epoch_ends=epoch_ends))


# Ordinals 0 to 9 are a hole, and are copied again as 20 to 29. The log begins with ordinal 10.
OLDER: tuple[LaneFact, ...] = (
    *BEGUN,
    TargetRun(LANE, 1, 10, 0, 1),
    HoleFound(LANE, 1, 0, 9, 20, 30),
    SourceRun(LANE, 1, (Run(20, 0), Run(30, 20))),
)


# --- a plan that begins where another one ends ------------------------------------------------------------------------


def test_a_hole_up_to_the_end_of_an_older_plan_does_not_cut_that_plan_off() -> None:
    """Ordinals 22 to 27 are refused; 28 and 29 end the older plan. Then the log goes back to ordinal 22."""
    play = opened(*OLDER)
    log = (OwnBatch(0, 10, 10, 0, 1), OwnBatch(10, 2, 20, 0, 1), OwnBatch(12, 2, 28, 0, 1))
    retake(play, 22, 12, 2)
    play.bind_all(compared(play, plain(play, play.ask_target(14), log)))
    play.tell(TargetMoved(2))
    play.bind_all(compared(play, plain(play, play.ask_target(12, epoch=2), log[:2])))
    copied = offsets(play, 10, 31)
    assert sorted(copied) == sorted(set(copied))  # offsets 10 to 19 are in the log already


def test_a_map_rebuilt_from_the_end_of_an_older_plan_keeps_what_follows() -> None:
    """Ordinals 0 to 3 are copied again as 7 to 10. Ordinals 11 and 12 are offsets 9 and 10; offsets 7 and 8 follow."""
    play = opened(*BEGUN, TargetRun(LANE, 1, 4, 0, 1))
    play.fold(HoleFound(LANE, 1, 0, 3, 7, 11), SourceRun(LANE, 1, (Run(7, 0), Run(11, 7))))
    play.fold(SourceRun(LANE, 1, (Run(11, 9), Run(13, 7), Run(15, 11))), MapRebuilt(LANE, 1, 11, 12, 15))
    retake(play, 13, 9, 7)
    log = (OwnBatch(0, 3, 4, 0, 1), OwnBatch(3, 2, 7, 0, 1))  # the log goes back to ordinal 9
    play.bind_all(compared(play, plain(play, play.ask_target(5, epoch=2), log)))
    assert play.lane.phase is Phase.COPYING
    assert {7, 8} <= set(offsets(play, 9, 30))


# --- numbers that agree by chance -------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False])
def test_a_hole_is_found_where_others_wrote_as_many_records_right_after_the_mark(known: bool) -> None:
    """Others' records are at 10 and 11; ordinals 10 and 11 are at 12 and 13, and ordinal 14 is at 14 after a hole.
    `known`: the ledger has the run that begins at the mark."""
    play = opened(*BEGUN, *([TargetRun(LANE, 1, 10, 12, 1)] if known else []))
    play.take(progress_at(10, state="copying"))
    log = (OwnBatch(0, 10, 0, 0, 1), OwnBatch(12, 2, 10, 0, 1), OwnBatch(14, 1, 14, 0, 1))
    effects = plain(play, play.ask_target(15, last=14), log)
    play.bind_all(compared(play, effects))
    assert [(each.first, each.last) for each in play.record.holes] == [(12, 13)]
    assert play.record.target_runs.offset_of(10) == 12


# --- a record that was doubled ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [12, 13])
def test_a_record_that_was_doubled_is_not_doubled_again(left: int) -> None:
    """The target holds offset 14 as ordinals 12 and 13. It loses one of them, or both."""
    play = opened(*BEGUN)
    play.fold(
        SourceRun(LANE, 1, (Run(12, 14), Run(13, 14), Run(16, 12), Run(18, 17))),
        VerdictGiven(LANE, 1, (Verdict(14, 15, "doubled"),), ""),
        MapRebuilt(LANE, 1, 10, 15, 18),
    )
    play.take(progress_at(16, state="copying"))
    log = (OwnBatch(0, left, 0, 0, 1),)
    play.bind_all(compared(play, plain(play, play.ask_target(left, epoch=2), log)))
    assert play.lane.phase is Phase.COPYING
    assert offsets(play, 12, 30).count(14) == 1


# --- a plan that was shortened ----------------------------------------------------------------------------------------


def shortened() -> Faulty:
    """A hole 22, 23 made the older plan longer, up to ordinal 32. Then the log went back to ordinal 22, so the plan
    ends at ordinal 30 again, and all of it is copied."""
    play = opened(*OLDER)
    log = (OwnBatch(0, 10, 10, 0, 1), OwnBatch(10, 2, 20, 0, 1), OwnBatch(12, 2, 24, 0, 1))
    retake(play, 22, 12, 2)
    play.bind_all(compared(play, plain(play, play.ask_target(14), log)))
    play.tell(TargetMoved(2))
    play.bind_all(compared(play, plain(play, play.ask_target(12, epoch=2), log[:2])))
    assert [*play.record.source_runs] == [Run(0, 0), Run(20, 0), Run(30, 20)]
    return play


def test_an_order_to_seek_is_carried_out_after_a_shortened_plan() -> None:
    play = shortened()
    retake(play, 30, 20, 20, epoch=2)
    play.bind_all(compared(play, play.ask_target(20, epoch=2, last=29)))
    play.lane.source_end = 60
    play.fold(LaneSought(LANE, 20, 50, 0, Origin("ada@host", "broken", 0)))
    assert play.tell(Released(ahead=True))  # it stops in order to seek


def test_a_loss_after_a_shortened_plan_does_not_halt_the_lane() -> None:
    """The ledger has a run after an aborted record when the lane is taken over, and retention removes 20 to 24."""
    play = shortened()
    play.fold(SourceRun(LANE, play.record.grant, (Run(31, 22),), (Verdict(21, 22, "aborted"),)))
    retake(play, 30, 20, 20, epoch=2, rewinds=len(play.record.rewinds))
    effects = compared(play, play.ask_target(20, epoch=2, last=29))
    play.bind_all(effects)
    fetch = one(effects, FetchFrom)
    play.tell(Chunk(fetch.question, 1, 60, 60, 25, (), bytearray(), 0, 0))
    assert play.lane.phase is Phase.COPYING


# --- a compacted copy -------------------------------------------------------------------------------------------------


def looked_up(play: Faulty, superseded: int) -> None:
    """The log has lost everything, and others' record at 0 supersedes one source offset only."""
    others = ((0, 1),)
    effects = play.read(play.ask_target(1, epoch=2), (), others)
    while shared := [each for each in effects if isinstance(each, AskShared)]:
        effects = play.read(play.tell(SharedAnswer(shared[0].question, 0, 1, 0)), (), others)
    asked = one(effects, AskSuperseded)
    runs = play.record.source_runs
    missing = [ordinal for each in asked.missing for ordinal in range(each.first, each.last + 1)]
    again = tuple((ordinal, ordinal) for ordinal in missing if runs.offset_of(ordinal) != superseded)
    play.bind_all(compared(play, play.tell(SupersededAnswer(asked.question, 0, again))))
    assert play.lane.phase is Phase.COPYING


def test_a_record_left_out_of_a_plan_moves_what_a_compacted_copy_lost() -> None:
    """Offset 3 is skipped when it is to be copied again, so offsets 4 to 9 are ordinals 23 to 28. Two are copied."""
    play = opened(*OLDER)
    play.fold(Quarantined(LANE, 1, 3, 4, 10, "too large", skip=True))
    retake(play, 23, 13, 3)
    play.bind_all(play.ask_target(13, last=22))
    assert [*play.record.source_runs][1:] == [Run(20, 0), Run(23, 4), Run(29, 20)]
    retake(play, 25, 15, 6)
    looked_up(play, superseded=12)
    assert sorted(offsets(play, 0, 18)) == sorted(set(range(21)) - {3, 12})


@pytest.mark.parametrize("acknowledged", [27, 28, 29])
def test_a_hole_inside_a_plan_moves_what_a_compacted_copy_lost(acknowledged: int) -> None:
    """Ordinals 22 and 23 of the older plan are a hole, so offsets 2, 3 are ordinals 26, 27, and 6 to 9 are 28 to 31."""
    play = opened(*OLDER)
    play.fold(HoleFound(LANE, 1, 22, 23, 26, 32), SourceRun(LANE, 1, (Run(26, 2), Run(28, 6), Run(32, 20))))
    retake(play, acknowledged, acknowledged - 12, 3)
    looked_up(play, superseded=12)
    assert set(range(20)) - set(offsets(play, 0, 18)) == {12}


def acknowledged_at(play: Faulty, fetch: FetchFrom, offset: int, base_offset: int) -> FetchFrom:
    """Copy one record; return the next fetch."""
    effects = play.chunk(fetch, offset)
    play.bind_all(effects)
    produce = one(effects, Produce)
    more = play.tell(ProduceAnswer(produce.round, produce.batches[0], 0, base_offset))
    play.bind_all(compared(play, more))
    return one([*effects, *more], FetchFrom)


def test_a_record_is_not_superseded_by_what_was_before_it_in_its_own_epoch() -> None:
    """The mark waits at ordinal 10 for the comparison after a take-over. In epoch 2, others write a key at offset 12,
    and the lane copies a later value of it as ordinal 12 to offset 13. The leader of epoch 3 lacks only that."""
    play = opened(*BEGUN)
    play.take(progress_at(10, state="copying"), barrier_s=14.0, cleanly=False)
    fetch = acknowledged_at(play, one(play.ask_target(10, last=9), FetchFrom), 10, 10)
    acknowledged_at(play, fetch, 11, 11)
    log = (OwnBatch(0, 10, 0, 0, 1), OwnBatch(10, 1, 10, 0, 1), OwnBatch(11, 1, 11, 0, 1))
    play.tell(TargetMoved(2))
    effects = play.read(play.ask_target(12, epoch=2, last=11), log)
    play.bind_all(effects)
    acknowledged_at(play, one(effects, FetchFrom), 12, 13)
    play.tell(TargetMoved(3))
    effects = play.read(play.ask_target(13, epoch=3, last=11), log, ((12, 13),))
    asked = one(effects, AskSuperseded)
    assert [(each.first, each.last) for each in asked.missing] == [(12, 12)]
    judge = SupersededJudge(asked)
    judge.expect(asked.missing[0], 12, 12, b"key", 112)
    judge.see(12, b"key", 100, 2)
    assert judge.answer().again == ((12, 12),)


# --- suspected ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrived", [True, False])
def test_a_rebuilt_map_is_looked_for_in_the_ledger_before_it_is_rebuilt_again(arrived: bool) -> None:
    """It is not known whether the append of the rebuilt map arrived."""
    play, effects = differing()
    for wake in [each for each in play.bind_all(effects) if isinstance(each, Wake)]:
        play.now = max(play.now, wake.at)
        play.tell(Woken(wake.question))
    play.now += 30
    log = (OwnBatch(0, 12, 0, 0, 1),)
    asked = one(plain(play, play.ask_target(12, last=11), log), AskRebuild)
    located = Located((Run(11, 12),), (), ((11, 12),), 13)
    append = one(play.tell(RebuildAnswer(asked.question, 0, log, located)), Append)
    if arrived:
        play.fold(*append.facts)
    wake = one(play.tell(AppendFailed(append.tag, play.record)), Wake)
    play.now = wake.at
    effects = play.bind_all(play.tell(Woken(wake.question)))
    assert (play.lane.phase is Phase.RESUMING) is arrived
    effects = plain(play, play.ask_target(12, last=11), log)
    assert any(isinstance(each, AskRebuild) for each in effects) is not arrived
    play.bind_all(compared(play, effects))
    assert (play.lane.phase is Phase.COPYING) is arrived


def test_a_plan_without_a_hole_of_its_own_reaches_to_the_end_of_a_later_one() -> None:
    """Offsets 7 and 8 are superseded: 5, 6, 9, 12 follow as ordinals 5 to 8. Ordinal 7 is refused and follows as 9."""
    play = opened(*BEGUN)
    play.fold(HoleFound(LANE, 1, 4, 3, 5, 9), SourceRun(LANE, 1, (Run(5, 5), Run(7, 9), Run(8, 12), Run(9, 15))))
    play.fold(HoleFound(LANE, 1, 7, 7, 9, 10), SourceRun(LANE, 1, (Run(9, 9), Run(10, 15))))
    retake(play, 9, 8, 9)
    play.bind_all(compared(play, plain(play, play.ask_target(6, epoch=2), (OwnBatch(0, 6, 0, 0, 1),))))
    assert offsets(play, 6, 10) == [6, 9, 12, 15, 16]


def test_a_run_that_continues_the_one_before_a_truncation_is_not_cut() -> None:
    """The source loses offsets 5 to 19 while 0 to 9 are copied again; what it has instead follows in the same run."""
    play = opened(*OLDER)
    play.fold(SourceRun(LANE, 1, (Run(25, 5),), (Verdict(5, 20, "truncated"),)))
    assert [*mapped(play.record, 20, 29)] == [(20, 0, 5), (25, 5, 5)]


def test_a_rebuild_begins_at_a_batch_below_the_offset_that_the_ledger_has() -> None:
    """DOUBLE. The log has lost all of its records, and batches of the former holder were appended from offset 0 on. The
    search began at the offset that ordinal 0 had had before, so the first batch seemed to be missing."""
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 4, 1))
    play.take(replace(progress_at(0), target_offset=2), cleanly=False)
    log = (OwnBatch(0, 1, 5, 0, 3), OwnBatch(1, 4, 6, 0, 3))
    effects = plain(play, play.ask_target(5, epoch=3), log)
    check = one(effects, AskCheck)
    effects = play.tell(CheckAnswer(check.question, 0, check.first, check.last, "different", "ordinal 9"))
    effects += play.bind_all(effects)
    for wake in [each for each in effects if isinstance(each, Wake)]:
        play.now = max(play.now, wake.at)
        play.tell(Woken(wake.question))
    assert one(plain(play, play.ask_target(5, epoch=3), log), AskRebuild).start == 0
