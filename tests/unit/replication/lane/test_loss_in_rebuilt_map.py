"""A rebuilt offset map can show that records are lost: `on_loss` applies to them as to other losses."""

import msgspec
import pytest

from mirrord.ledger.facts.core import HoleFound, LaneHalted, LaneResumed, SourceRun, TargetRun, VerdictGiven
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AppendFailed,
    Effects,
    FetchFrom,
    Halted,
    Located,
    Lost,
    OwnBatch,
    RebuildAnswer,
    Released,
    Woken,
)
from tests.unit.replication.lane.test_rebuilding import LANE, Play

EXPIRED = Located((Run(10, 16),), (), ((14, 16),), 22, source_start=14)
"""The source has deleted the records at the offsets 10 to 13, and the target has never had them."""
LINE = (
    "orders-0: the rebuilt offset map shows a loss: 4 source offsets in [10, 14) are not in the map, and the source no "
    "longer has them"
)


@pytest.fixture
def play() -> Play:
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 0, 1))
    play.bind(play.differ())
    play.sandwich(16)
    return play


def located(play: Play, found: Located, on_loss: str = "halt") -> Effects:
    play.lane.on_loss = "halt" if on_loss == "halt" else "continue"
    own = (OwnBatch(10, 3, 10, 0), OwnBatch(13, 3, 15, 0))
    return play.tell(RebuildAnswer(play.lane.asked, 0, own, found))


def test_the_lane_halts_after_the_map_and_the_verdicts_have_been_recorded(play: Play) -> None:
    effects = located(play, EXPIRED)
    (append,) = [each for each in effects if isinstance(each, Append)]
    assert [type(each) for each in append.facts[-2:]] == [VerdictGiven, LaneHalted]
    assert append.facts[-1] == LaneHalted(LANE, 2, "expired", LINE, 10, 14)
    assert play.lane.phase is Phase.REBUILDING
    effects = play.bind(effects)
    assert play.lane.phase is Phase.HALTED
    assert [each.line for each in effects if isinstance(each, Halted)] == [LINE]
    assert (play.record.halted, play.lane.halt.line) == (append.facts[-1], LINE)
    assert (play.record.last_check, play.record.verdicts.counts["expired"]) == (None, 4)


def test_a_lane_that_continues_reports_the_loss(play: Play) -> None:
    effects = located(play, EXPIRED, "continue")
    assert [each.line for each in effects if isinstance(each, Lost)] == [LINE]
    effects = play.bind(effects)
    assert (play.record.halted, play.lane.phase) == (None, Phase.RESUMING)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (msgspec.structs.replace(EXPIRED, source_start=0, source_compacts=False), "unexplained"),
        (msgspec.structs.replace(EXPIRED, source_start=12, source_compacts=False), "unexplained"),
        (msgspec.structs.replace(EXPIRED, source_start=12), "expired"),
    ],
)
def test_the_halt_says_whether_retention_explains_the_whole_loss(play: Play, found: Located, reason: str) -> None:
    (append,) = [each for each in located(play, found) if isinstance(each, Append)]
    halted = append.facts[-1]
    assert isinstance(halted, LaneHalted)
    assert halted.reason == reason


def test_records_that_the_cleaner_removed_are_no_loss(play: Play) -> None:
    (append,) = [
        each for each in located(play, msgspec.structs.replace(EXPIRED, source_start=0)) if isinstance(each, Append)
    ]
    assert append.facts[-1] == LaneResumed(LANE, 2)


def test_a_command_makes_the_lane_continue(play: Play) -> None:
    play.bind(located(play, EXPIRED))
    play.bind(play.tell(Released()))
    assert (play.record.halted, play.lane.phase) == (None, Phase.RESUMING)
    (scan, *_) = play.sandwich(16)
    assert play.lane.phase is not Phase.HALTED
    del scan


def test_a_restart_makes_the_lane_continue(play: Play) -> None:
    play.bind(located(play, EXPIRED))
    play.bind(play.begin("third"))
    assert (play.record.halted, play.lane.phase) == (None, Phase.RESUMING)


@pytest.mark.parametrize("is_bound", [False, True])
def test_the_lane_halts_if_the_outcome_of_the_append_was_unknown(play: Play, is_bound: bool) -> None:
    (append,) = [each for each in located(play, EXPIRED) if isinstance(each, Append)]
    if is_bound:
        play.fold(*append.facts)
    play.tell(AppendFailed(append.tag, play.record))
    effects = play.tell(Woken(play.lane.asked))
    if not is_bound:
        play.fold(*append.facts)  # it arrives before the new grant
    effects = play.bind(effects)
    assert play.lane.phase is Phase.HALTED
    assert [each.line for each in effects if isinstance(each, Halted)] == [LINE]
    assert not any(isinstance(each, FetchFrom) for each in effects)
    assert play.record.halted == append.facts[-1]
    assert play.lane.grant == play.record.grant == 3
    play.bind(play.tell(Released()))
    assert (play.record.halted, play.lane.phase) == (None, Phase.RESUMING)


def test_ordinals_whose_records_cannot_be_determined_are_a_loss(play: Play) -> None:
    found = Located((Run(10, 10), Run(16, 16)), (), (), 18, open=((15, 16),), source_compacts=False)
    (append,) = [each for each in located(play, found) if isinstance(each, Append)]
    assert any(isinstance(each, HoleFound) for each in append.facts)
    halted = append.facts[-1]
    assert isinstance(halted, LaneHalted)
    assert halted.reason == "unexplained"
