"""What a former holder binds between the start of a new holder and the binding of its grant."""

from mirrord.ledger.facts.core import (
    AnyFact,
    LaneHalted,
    LaneResumed,
    LaneTaken,
    PolicyChanged,
    Progress,
    Rewound,
    SourceRun,
    TakeoverChecked,
    TargetRun,
)
from mirrord.ledger.facts.quarantine import Quarantined
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Append, Bound, Effects, Start
from mirrord.replication.lane.state import Lane, ResumePosition
from mirrord.replication.lane.step import step
from mirrord.replication.lane.target.evidence import known_until
from tests.sim import toy
from tests.unit.replication.lane.test_rebuilding import LANE, Play


def taken(*meanwhile: AnyFact) -> tuple[Play, Effects]:
    """The lane was copied up to ordinal 10; the former holder binds facts while the new one takes the lane."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 0, 1))
    progress = Progress(LANE, 1, 1, 10, 10, 1, 10, 20, 1, 1, True, "copying", source_epoch=4)
    play.lane = Lane(LANE, "orders", "eu.orders", 0, "p", True, toy.rebuild)
    (append,) = play.tell(Start(play.record, progress, "second", 8.0, False))
    assert isinstance(append, Append)
    play.fold(*meanwhile)
    return play, play.tell(Bound(append.tag, play.fold(*append.facts), play.record))


def test_ordinals_that_were_reassigned_meanwhile() -> None:
    play, _ = taken(SourceRun(LANE, 1, (Run(6, 10),), rewound=Rewound(6, 6, 6, 3)))
    assert play.lane.resume_position == ResumePosition(6, 6, 3)
    assert known_until(play.lane) == 6
    assert play.lane.trusted == 6


def test_a_difference_that_was_found_meanwhile() -> None:
    play, effects = taken(
        TakeoverChecked(LANE, 1, 8, 9, "different", "ordinal 8 differs in its value"),
        LaneHalted(LANE, 1, "unexplained", "orders-0: target and source differ", 8, 10),
    )
    assert play.lane.phase is Phase.REBUILDING
    assert play.lane.comparison.differs is not None
    assert not any(isinstance(effect, Append) for effect in effects)


def test_a_halt_that_was_recorded_meanwhile_is_ended() -> None:
    """A lane that copies must not be reported as halted."""
    play, effects = taken(LaneHalted(LANE, 1, "unreadable", "orders-0: source offset 10 cannot be read", 10, 11))
    (append,) = [effect for effect in effects if isinstance(effect, Append)]
    assert append.facts == (LaneResumed(LANE, 2),)
    play.tell(Bound(append.tag, play.fold(*append.facts), play.record))
    assert play.record.halted is None


def test_a_replicator_that_takes_the_lane_second_does_not_end_a_halt_of_the_first() -> None:
    """LIE. Two replicators take a halted lane at the same time, under the same grant. The first one takes it and halts
    again, at a record that the target refuses. The entry of the second one arrives later. It ended the halt in the
    ledger, and changed the recorded policy. The lane was waiting, and no decision on the record was possible."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 0, 1))
    play.fold(LaneHalted(LANE, 1, "unreadable", "orders-0: source offset 10 cannot be read", 10, 11))
    lane = Lane(LANE, "orders", "eu.orders", 0, "other policy", True, toy.rebuild)
    (late,) = step(lane, 0.0, Start(play.record, None, "second", 8.0, False))
    assert isinstance(late, Append)
    play.begin("first")
    refused = Quarantined(LANE, 2, 10, 11, 10, "orders-0: too large")
    halted = LaneHalted(LANE, 2, "refused", "orders-0: source offset 10 is refused", 10, 11)
    play.fold(refused, halted)
    effects = step(lane, 0.0, Bound(late.tag, play.fold(*late.facts), play.record))
    assert not any(isinstance(effect, Append) for effect in effects)
    assert (play.record.halted, play.record.policy) == (halted, "p")
    assert [(each.start, each.end) for each in play.record.quarantine] == [(10, 11)]


def test_a_halt_ends_after_the_lane_has_been_taken() -> None:
    play, effects = taken()
    assert not any(isinstance(effect, Append) for effect in effects)
    play.fold(LaneHalted(LANE, 2, "unreadable", "orders-0: source offset 10 cannot be read", 10, 11))
    play.lane = Lane(LANE, "orders", "eu.orders", 0, "other policy", True, toy.rebuild)
    (append,) = play.tell(Start(play.record, None, "third", 8.0, False))
    assert isinstance(append, Append)
    assert [type(fact) for fact in append.facts] == [LaneTaken]
    effects = play.tell(Bound(append.tag, play.fold(*append.facts), play.record))
    (append,) = [effect for effect in effects if isinstance(effect, Append)]
    assert append.facts == (LaneResumed(LANE, 3), PolicyChanged(LANE, 3, "other policy"))
