"""Plans with more verdicts or runs than one ledger entry may contain."""

import pytest

from mirrord.ledger.facts.core import LaneFact, SourceRun, TargetRun, VerdictGiven
from mirrord.model.runs import Run
from mirrord.replication.lane import resume_point
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Append, AppendFailed, Bound, Effects, Wake, Woken
from mirrord.replication.lane.target.evidence import known_until
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededAnswer
from tests.unit.replication.lane.test_eighth_faults import read
from tests.unit.replication.lane.test_fourth_faults import offsets, retake
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import Faulty, one, opened

ALL = ((0, 9),)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry contains at most 4 verdicts, and at most 4 runs that are recorded again."""
    monkeypatch.setattr(resume_point, "MOST_RANGES", 4)


def lost(epoch: int = 0) -> tuple[Faulty, AskSuperseded]:
    """The source has every other offset: ordinals 0 to 9 are at offsets 0 to 18. Its epoch 1 begins with ordinal 9. The
    target has lost everything."""
    runs = tuple(Run(at, 2 * at) for at in range(10))
    play = opened(SourceRun(LANE, 1, runs, (), ((0, epoch), (9, 1))), TargetRun(LANE, 1, 0, 0, 1))
    retake(play, 10, 10, 20, epoch=1)
    effects = read(play, play.ask_target(0, epoch=3), (1, 0), own=(), others=())
    return play, one(effects, AskSuperseded)


def appended(effects: Effects) -> list[tuple[LaneFact, ...]]:
    return [each.facts for each in effects if isinstance(each, Append)]


def bound(play: Faulty, effects: Effects) -> Effects:
    (append,) = [each for each in effects if isinstance(each, Append)]
    return play.tell(Bound(append.tag, play.fold(*append.facts), play.record))


def test_verdicts_take_effect_in_several_entries_and_the_plan_comes_last() -> None:
    play, asked = lost()
    effects = play.tell(SupersededAnswer(asked.question, 0, ()))
    found: list[int] = []
    for count in (4, 4):
        ((fact,),) = appended(effects)
        assert isinstance(fact, VerdictGiven)
        assert len(fact.verdicts) == count
        found += [verdict.start for verdict in fact.verdicts]
        assert play.lane.phase is Phase.RESUMING
        effects = bound(play, effects)
    ((last, *plan),) = appended(effects)
    assert isinstance(last, VerdictGiven)
    assert [*found, *(verdict.start for verdict in last.verdicts)] == [2 * at for at in range(10)]
    assert [each for each in plan if isinstance(each, SourceRun)]
    bound(play, effects)
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 0, 19)


def test_a_new_round_before_the_plan_looks_all_records_up_again() -> None:
    """The first verdicts have taken effect, and it is not known whether the next ones have."""
    play, asked = lost()
    effects = bound(play, play.tell(SupersededAnswer(asked.question, 0, ())))
    (append,) = [each for each in effects if isinstance(each, Append)]
    (wake,) = [each for each in play.tell(AppendFailed(append.tag, play.record)) if isinstance(each, Wake)]
    play.bind_all(play.tell(Woken(wake.question)))
    asked = one(read(play, play.ask_target(0, epoch=3), (1, 0), own=(), others=()), AskSuperseded)
    assert (asked.missing[0].first, asked.missing[-1].last) == (0, 9)
    play.bind_all(play.tell(SupersededAnswer(asked.question, 0, ALL)))
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 0, 0)


def test_runs_that_are_not_recorded_again_are_no_longer_acknowledged() -> None:
    """All of the records are copied again, and their runs are recorded again because the epoch of the first one is not
    known. The ledger keeps the first 4 runs. The last of them assigns the later ordinals to other offsets, so these
    ordinals no longer count as acknowledged."""
    play, asked = lost(epoch=-1)
    play.bind_all(play.tell(SupersededAnswer(asked.question, 0, ALL)))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 0)
    assert offsets(play, 0, 4) == [0, 2, 4, 6, 7]
    assert known_until(play.lane) == 4
