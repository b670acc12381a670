"""Faults where the rest of a plan is not recognized as a plan, because the source has lost what was copied after it."""

from collections.abc import Iterator

import pytest

from mirrord.ledger.facts.core import HoleFound, LaneFact, SourceRun, TargetRun, Verdict, VerdictGiven
from mirrord.model.runs import Run, Runs
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import DivergenceAnswer, FetchFrom, OwnBatch, Wake, Woken
from mirrord.replication.lane.source import last_copied, source_epochs
from mirrord.replication.lane.source.copied_pieces import HeldOffsets
from mirrord.replication.lane.source.declared_runs import rest
from mirrord.replication.lane.state import ResumePosition
from mirrord.replication.lane.target import displaced_ordinals, missing_ordinals
from mirrord.replication.lane.target.superseded_records import (
    AskShared,
    AskSuperseded,
    SharedAnswer,
    SupersededJudge,
)
from tests.unit.replication.lane.test_fourth_faults import acknowledged_at, offsets, retake
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened
from tests.unit.replication.lane.test_third_faults import compared, plain

# --- the record of the ordinal is lost on both sides ------------------------------------------------------------------


@pytest.mark.parametrize("left", [3, 4, 5])
def test_a_record_still_to_be_copied_again_is_not_dropped_if_both_logs_go_back(left: int) -> None:
    """Ordinal 1 is refused, and offset 1 is to follow as ordinal 6. Before that, the source loses offsets 2 to 5, which
    were ordinals 2 to 5, and the target loses the last of these ordinals."""
    play = opened(*BEGUN, HoleFound(LANE, 1, 1, 1, 6, 7), SourceRun(LANE, 1, (Run(6, 1), Run(7, 6))))
    truncated = (Verdict(2, 6, "truncated"),)
    play.fold(TargetRun(LANE, 1, 2, 1, 1), SourceRun(LANE, 1, (Run(6, 1), Run(7, 2)), truncated, ((6, 0), (7, 0))))
    retake(play, 6, 5, 1)
    log = (OwnBatch(0, 1, 0, 0, 1), OwnBatch(1, left - 2, 2, 0, 1))
    play.bind_all(compared(play, plain(play, play.ask_target(left - 1, epoch=2), log)))
    assert play.lane.phase is Phase.COPYING
    assert play.lane.next_ordinal == left
    assert play.lane.position == 1
    assert offsets(play, left, left + 1) == [1, 2]


# --- a superseded record that only a later plan leaves out ------------------------------------------------------------

# A compacted copy lost ordinals 10 to 12, and others' record supersedes offset 12. So ordinals 10 to 13 are offsets 10,
# 11, 13 and 14. Ordinals 11 and 12 are refused, so offsets 11 and 13 are to follow as ordinals 14 and 15.
SUPERSEDED: tuple[LaneFact, ...] = (
    *BEGUN,
    HoleFound(LANE, 1, 9, 8, 10, 12),
    SourceRun(LANE, 1, (Run(10, 10), Run(12, 13))),
    VerdictGiven(LANE, 1, (Verdict(12, 13, "compacted"),), ""),
    TargetRun(LANE, 1, 10, 11, 1),
    HoleFound(LANE, 1, 11, 12, 14, 16),
    SourceRun(LANE, 1, (Run(14, 11), Run(15, 13), Run(16, 15))),
    TargetRun(LANE, 1, 13, 12, 1),
)
LOG = (OwnBatch(0, 10, 0, 0, 1), OwnBatch(11, 1, 10, 0, 1), OwnBatch(12, 1, 13, 0, 1))


@pytest.mark.parametrize("by_the_lane", [True, False])
def test_a_superseded_record_is_not_copied_after_the_source_lost_what_followed_it(*, by_the_lane: bool) -> None:
    """The source loses offset 14 while the hole is being mended. The lane finds that out, or a former holder did."""
    play = opened(*SUPERSEDED)
    if not by_the_lane:
        lost = (Verdict(14, 15, "truncated"),)
        play.fold(SourceRun(LANE, 1, (Run(14, 11), Run(15, 13), Run(16, 14)), lost, ((14, 0), (16, 0))))
    retake(play, 14, 13, 11)
    effects = compared(play, plain(play, play.ask_target(13, last=13), LOG))
    play.bind_all(effects)
    if by_the_lane:
        assert [*play.lane.plan] == [Run(15, 13), Run(16, 15)]
        effects = play.bind_all(play.tell(DivergenceAnswer(play.lane.history.divergence_question, 0, 0, 14)))
        play.bind_all(effects)
    assert (play.lane.phase, play.lane.position) == (Phase.COPYING, 11)
    if play.lane.plan:  # the lane asks the source before it copies again
        effects = play.tell(DivergenceAnswer(play.lane.history.divergence_question, 0, 0, 20))
    fetch = acknowledged_at(play, one(effects, FetchFrom), 11, 13)
    assert fetch.position == 13


def test_the_plan_of_a_hole_that_passes_over_a_superseded_record_shows_how_far_it_reaches() -> None:
    """The lane itself finds the hole. An earlier version that continues the plan relies on the hole without ordinals,
    and so does a plan for a hole in this one."""
    play = opened(*SUPERSEDED[:5])
    retake(play, 11, 12, 11)
    play.bind_all(compared(play, plain(play, play.ask_target(13, last=13), LOG)))
    assert [(hole.again, hole.until) for hole in play.record.holes if hole.first > hole.last] == [(10, 12), (14, 16)]
    assert [*play.lane.plan] == [Run(15, 13), Run(16, 15)]


def test_a_plan_that_passes_over_nothing_is_not_recorded_as_one_that_does() -> None:
    """Ordinals 16 and 17 are refused, long after the superseded record."""
    play = opened(*SUPERSEDED[:5])
    retake(play, 16, 17, 17)
    log = (OwnBatch(0, 10, 0, 0, 1), OwnBatch(11, 6, 10, 0, 1), OwnBatch(17, 1, 18, 0, 1))
    play.bind_all(compared(play, plain(play, play.ask_target(18, last=18), log)))
    assert [(hole.first, hole.last, hole.again) for hole in play.record.holes] == [(9, 8, 10), (16, 17, 19)]


# --- a superseded record whose log was lost before --------------------------------------------------------------------


def lost_again(*facts: LaneFact, is_recorded: bool = True) -> AskSuperseded:
    """Ordinals 0 to 3 were acknowledged in epoch 1, and the leader of epoch 3 lacked them. Others wrote at 0 and 1, and
    ordinal 5 was then at 2. The leader of epoch 5 has only what the others wrote."""
    play = opened(*BEGUN, TargetRun(LANE, 1, 5, 2, 3), *facts)
    retake(play, 15, 12, 15, epoch=3)
    if not is_recorded:  # a fact about the target log has not taken effect yet, so the lane waits
        play.lane.notes.add(99)
        assert not [*displaced_ordinals.unrecorded(play.lane, 2), *displaced_ordinals.known(play.lane)]
        wake = one(play.ask_target(2, epoch=5), Wake)
        play.lane.notes.clear()
        play.now = wake.at
        play.tell(Woken(wake.question))
    effects = play.read(play.ask_target(2, epoch=5), (), ((0, 2),))
    shared = one(effects, AskShared)
    return one(play.read(play.tell(SharedAnswer(shared.question, 0, 3, 2)), (), ((0, 2),)), AskSuperseded)


def not_superseded(asked: AskSuperseded, leader_epoch: int) -> set[int]:
    """Return the ordinals that are copied again if others wrote all keys in this epoch."""
    judge = SupersededJudge(asked)
    for missing in asked.missing:
        for ordinal in range(missing.first, missing.last + 1):
            judge.expect(missing, ordinal, ordinal, b"key", 100 + ordinal)
    judge.see(1, b"key", 200, leader_epoch)
    return {ordinal for first, last in judge.answer().again for ordinal in range(first, last + 1)}


def test_a_record_that_others_superseded_is_not_copied_again_if_the_log_loses_what_followed() -> None:
    """Ordinals 2 to 4 were not in the log of epoch 3. What others wrote in that epoch is newer than these, but older
    than ordinal 5."""
    assert not_superseded(lost_again(), 3) == set(range(5, 15))
    assert not_superseded(lost_again(), 2) == set(range(2, 15))


def test_a_record_that_was_refused_is_not_taken_for_a_superseded_one() -> None:
    """Ordinals 2 to 4 are a hole, and their records are still to be copied again."""
    hole = HoleFound(LANE, 1, 2, 4, 15, 18), SourceRun(LANE, 1, (Run(15, 2), Run(18, 15)))
    assert not_superseded(lost_again(*hole), 3) == set(range(2, 15))


def test_while_the_ledger_lacks_target_runs_it_does_not_show_which_records_the_log_lacked() -> None:
    assert not_superseded(lost_again(is_recorded=False), 3) == set(range(5, 15))


# --- cost -------------------------------------------------------------------------------------------------------------


def read_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the ordinal of each run that is read from now on."""
    read: list[int] = []
    between = Runs.between

    def counted(runs: Runs, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        for piece in between(runs, first, last):
            read.append(piece[0])
            yield piece

    monkeypatch.setattr(Runs, "between", counted)
    return read


COUNT = 2000


def between_two_holes() -> Faulty:
    """One hole is near the beginning, and another one after many runs."""
    play = opened(*BEGUN)
    play.fold(HoleFound(LANE, 1, 5, 5, 8, 9), SourceRun(LANE, 1, (Run(8, 5), Run(9, 8))))
    play.fold(SourceRun(LANE, 1, tuple(Run(10 + 2 * at, 10 + 3 * at) for at in range(COUNT))))
    last = 9 + 2 * COUNT
    runs = (Run(last + 4, 3 * COUNT + 8), Run(last + 5, 3 * COUNT + 13))
    play.fold(HoleFound(LANE, 1, last, last, last + 4, last + 5), SourceRun(LANE, 1, runs))
    return play


def test_the_rest_of_a_plan_does_not_read_all_runs_up_to_a_later_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log goes back to a point between them, from which on the runs are in source order."""
    play, read = between_two_holes(), read_runs(monkeypatch)
    assert rest(play.record, 10 + COUNT) is None
    assert len(read) < 100


def test_the_rest_of_an_old_plan_does_not_read_all_runs_up_to_a_later_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log goes back into the plan of the first hole."""
    play, read = between_two_holes(), read_runs(monkeypatch)
    left = rest(play.record, 7)
    assert left is not None
    assert (left.runs, left.until) == ([Run(7, 7), Run(8, 5), Run(9, 8)], 9)
    assert len(read) < 100


@pytest.mark.parametrize("first", [4, COUNT])
def test_lost_records_are_found_without_reading_all_runs(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """The log goes back to a point before or after the first hole, and the resume position is between the two holes.
    Before, each run up to the second hole was read, which took seconds for a large map."""
    play, known = between_two_holes(), 10 + COUNT
    play.lane.record, play.lane.resume_position = play.record, ResumePosition(known, known, 1)
    read = read_runs(monkeypatch)
    expected = [(4, 4), (6, known - 1)] if first == 4 else [(first, known - 1)]
    assert [*missing_ordinals.lost_ordinals(play.lane, first)] == expected
    assert missing_ordinals.planned_until(play.lane) == known
    assert len(read) < 100


def test_copied_records_are_found_without_reading_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    play = between_two_holes()
    lane, last = play.lane, 9 + 2 * COUNT
    lane.record, lane.next_ordinal, lane.acked, lane.position = play.record, last + 4, last + 4, 3 * COUNT + 8
    read = read_runs(monkeypatch)
    assert last_copied.furthest(lane) == (3 * COUNT + 12, 0)
    assert last_copied.last_copied(lane) == (3 * COUNT + 8, 0)
    assert last_copied.divergence(lane, 0, 3 * COUNT) == 3 * COUNT
    assert last_copied.before(lane, 3 * COUNT + 5) == 0
    source_epochs.recall_copied(lane, 3 * COUNT + 11)
    assert lane.seen.before(3 * COUNT + 11) == 0
    assert len(read) < 100


def test_held_offsets_are_found_without_reading_all_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are many old holes, and the records of each one follow right after it."""
    play = opened(*BEGUN)
    for number, at in enumerate(range(100, 3100, 100)):
        runs = (Run(at + 2, at - number), Run(at + 3, at + 2 - number))
        play.fold(HoleFound(LANE, 1, at, at, at + 2, at + 3), SourceRun(LANE, 1, runs))
    read = read_runs(monkeypatch)
    held = HeldOffsets(play.record, 3200)
    assert [*held.within(1500, 1501)] == [(1500, 1501)]
    assert held.highest() == 3169
    assert len(read) < 5
