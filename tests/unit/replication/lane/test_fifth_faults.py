"""Faults where the rest of a plan is not recognized as a plan, because the source has lost what was copied after it."""

from collections.abc import Callable, Iterable, Sequence

import pytest

from mirrord.ledger.facts.core import HoleFound, LaneFact, SourceRun, TargetRun, Verdict, VerdictGiven
from mirrord.model.intervals import Interval
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import DivergenceAnswer, FetchFrom, OwnBatch
from mirrord.replication.lane.source import declared_runs
from mirrord.replication.lane.source.declared_runs import Pieces, rest
from tests.unit.replication.lane.test_fourth_faults import acknowledged_at, offsets, retake
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, one, opened
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


# --- cost -------------------------------------------------------------------------------------------------------------


@pytest.mark.xfail(reason="open: the cost of a resume below an old hole grows with the runs; see decision 120, Limits")
def test_the_rest_of_a_plan_does_not_read_all_runs_up_to_a_later_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    """One hole is near the beginning, and another one after many runs. The log goes back to a point between them, from
    which on the runs are in the order of the source."""
    play, count = opened(*BEGUN), 2000
    play.fold(HoleFound(LANE, 1, 5, 5, 8, 9), SourceRun(LANE, 1, (Run(8, 5), Run(9, 8))))
    play.fold(SourceRun(LANE, 1, tuple(Run(10 + 2 * at, 10 + 3 * at) for at in range(count))))
    last = 9 + 2 * count
    runs = (Run(last + 4, 3 * count + 8), Run(last + 5, 3 * count + 13))
    play.fold(HoleFound(LANE, 1, last, last, last + 4, last + 5), SourceRun(LANE, 1, runs))
    read: list[int] = []
    once = declared_runs.once

    def counted(runs: Sequence[Run], copied: Callable[[int, int], Iterable[Interval]]) -> tuple[list[Run], Pieces]:
        read.append(len(runs))
        return once(runs, copied)

    monkeypatch.setattr(declared_runs, "once", counted)
    assert rest(play.record, 10 + count) is None
    assert sum(read) < 100
