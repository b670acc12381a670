"""The target lost records of the lane, and others have used their offsets since: that is a loss, and no retention."""

import pytest

from mirrord.flow.reading import displaced_at
from mirrord.flow.signals import (
    Append,
    AskScan,
    EndTold,
    FetchFrom,
    OwnBatch,
    ProducersTold,
    Scanned,
    VisibleTold,
)
from mirrord.flow.state import Mark, Phase
from mirrord.model.facts import LaneOpened, LaneTaken, LeaseTaken, SourceRun, TargetRun, VerdictGiven
from mirrord.model.intervals import Interval
from mirrord.model.runs import Run
from tests.fixtures.ledger import FLOW, HOLDER
from tests.unit.test_rebuilding import LANE, Play


@pytest.fixture
def play() -> Play:
    """The lane has copied 10 records; others wrote at 3 and 4, between its ordinals 2 and 3."""
    play = Play()
    play.fold(FLOW)
    play.fold(LeaseTaken(1, HOLDER, 6000))
    play.fold(LaneOpened(LANE, "orders", "eu.orders", 0, 7, 0, "p"), LaneTaken(LANE, 1, "first"))
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 0, 1), TargetRun(LANE, 1, 3, 5, 1))
    play.begin("second")
    play.lane.mark = Mark(10, 12, 1)
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
def test_others_stand_where_the_lane_did(play: Play, others: tuple[Interval, ...], at: int | None) -> None:
    assert displaced_at(play.lane, others) == at


def verified(
    play: Play, own: tuple[OwnBatch, ...], others: tuple[Interval, ...], *, log_start: int = 0
) -> list[object]:
    """Another leader answers, whose log ends at 14, and this is all that it holds."""
    play.tell(EndTold(play.lane.asked, 0, 2, 14))
    play.tell(ProducersTold(play.lane.asked, 0, None))
    play.tell(EndTold(play.lane.asked, 0, 2, 14))
    (scan,) = play.tell(VisibleTold(play.lane.asked, 0, 14, log_start))
    assert isinstance(scan, AskScan)
    (scan,) = play.tell(Scanned(scan.question, 0, "resume", scan.start, scan.end, (), others))
    assert isinstance(scan, AskScan)
    assert scan.start == log_start
    return list(play.tell(Scanned(scan.question, 0, "verify", scan.start, scan.end, own, others)))


def test_what_others_stand_on_is_copied_again(play: Play) -> None:
    effects = verified(play, (), ((1, 14),))
    (told,) = [each for each in effects if isinstance(each, Append)]
    assert isinstance(told.facts[0], VerdictGiven)
    assert "went back from ordinal 10 to 1" in told.facts[0].note
    (fetch,) = [each for each in effects if isinstance(each, FetchFrom)]
    assert (fetch.position, play.lane.acked, play.lane.phase) == (1, 1, Phase.COPYING)


def test_what_the_target_has_expired_is_not_copied_again(play: Play) -> None:
    effects = verified(play, (), ((12, 14),), log_start=11)
    (fetch,) = [each for each in effects if isinstance(each, FetchFrom)]
    assert (fetch.position, play.lane.acked) == (10, 10)
