"""What a lane was told about its former holder counts for this holder only. The appends of `LaneTaken` are reported as
failed, and another replicator may take the lane before the lane repeats them."""

import msgspec

from mirrord.ledger.facts.core import (
    AnyFact,
    LaneHalted,
    LaneOpened,
    LaneTaken,
    Progress,
    SourceRun,
    TakeoverChecked,
    TargetRun,
)
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AppendFailed,
    AskEnd,
    AskProducerId,
    Bound,
    Drain,
    Drained,
    Effects,
    EndAnswer,
    FetchFrom,
    Gone,
    ProducerIdAnswer,
    Start,
    Wake,
    Woken,
)
from mirrord.replication.lane.state import Lane, ResumePosition
from tests.sim import toy
from tests.unit.replication.lane.test_rebuilding import LANE, Play
from tests.unit.replication.lane.test_second_faults import BEGUN, opened, progress_at

OWN_TIMES = (5_000, 7_000)
LONGER = (20_000, 3_000)
"""The times of the replicator that takes the lane in between."""
BARRIER_S = 27.0
"""The longer lease, and the longer request timeout."""


def begun(record: bool = True) -> Play:
    play = Play.opened() if record else Play()
    play.lane = Lane(LANE, "orders", "eu.orders", 0, "p", True, toy.rebuild)
    return play


def start(play: Play, progress: Progress | None, *, left: bool = True, barrier_s: float = 0.0) -> Append:
    record = play.state.lanes.get(LANE)
    (append,) = play.tell(Start(record, progress, "second", barrier_s, left, None, OWN_TIMES))
    assert isinstance(append, Append)
    return append


def fail(play: Play, append: Append) -> Append:
    """The ledger has not answered. Return the append that follows."""
    effects = play.tell(AppendFailed(append.tag, play.state.lanes.get(LANE)))
    (wake,) = [each for each in effects if isinstance(each, Wake)]
    play.now = wake.at
    return appended(play.tell(Woken(wake.question)))


def appended(effects: Effects) -> Append:
    (append,) = [each for each in effects if isinstance(each, Append)]
    return append


def bind(play: Play, append: Append) -> Effects:
    return play.tell(Bound(append.tag, play.fold(*append.facts), play.record))


def taken(*meanwhile: AnyFact, progress: Progress | None = None, left: bool = True, barrier_s: float = 0.0) -> Play:
    """The first `LaneTaken` is lost, and others append these facts. The second one takes effect."""
    play = begun()
    play.fold(*BEGUN)
    append = start(play, progress or progress_at(10), left=left, barrier_s=barrier_s)
    play.fold(*meanwhile)
    bind(play, fail(play, append))
    return play


def test_a_lane_waits_for_a_holder_in_between() -> None:
    """DOUBLED. Both holders copied from the position of the first one, and the broker has forgotten the producer."""
    play = taken(LaneTaken(LANE, 2, "between", LONGER))
    lane = play.lane
    assert (play.record.grant, play.record.replicator, play.record.times) == (3, "second", (20_000, 7_000))
    assert lane.late_writes.until == lane.late_writes.former_holder_until == play.now + BARRIER_S
    assert lane.comparison.later_pending
    assert lane.comparison.first_ack_pending
    known = lane.takeover
    assert (known.left_cleanly, known.knows_sent, known.leaps_recorded) == (False, False, False)


def test_a_lane_waits_longer_for_a_holder_in_between_than_for_one_that_has_ended() -> None:
    play = taken(LaneTaken(LANE, 2, "between", LONGER), left=False, barrier_s=8.0)
    assert play.lane.late_writes.former_holder_until == play.now + BARRIER_S


def test_a_lane_waits_for_a_holder_in_between_that_ran_an_older_version() -> None:
    """`LaneTaken` does not say how long that holder may write."""
    play = taken(LaneTaken(LANE, 2, "between"))
    assert play.lane.late_writes.former_holder_until > play.now + sum(OWN_TIMES) / 1000


def test_a_lane_waits_for_nobody_if_nobody_came_in_between() -> None:
    """The first append has taken effect although it was reported as failed, or it has not."""
    for meanwhile in ((), (LaneTaken(LANE, 2, "second", OWN_TIMES),)):
        play = taken(*meanwhile)
        assert play.record.replicator == "second"
        assert play.lane.late_writes.former_holder_until == 0.0
        assert play.lane.takeover.left_cleanly
        assert play.lane.takeover.leaps_recorded


def test_a_lane_waits_for_its_former_holder_as_it_was_told() -> None:
    for meanwhile in ((), (LaneTaken(LANE, 2, "second", OWN_TIMES),)):
        play = taken(*meanwhile, left=False, barrier_s=8.0)
        assert play.lane.late_writes.former_holder_until == play.now + 8.0


def test_a_holder_in_between_is_noticed_after_own_grants() -> None:
    """Both appends of the lane are reported as failed. The first one has taken effect, and then another replicator has
    taken the lane."""
    play = begun()
    play.fold(*BEGUN)
    append = start(play, progress_at(10))
    play.fold(*append.facts)
    append = fail(play, append)
    play.fold(LaneTaken(LANE, 3, "between", LONGER))
    assert play.fold(*append.facts) == (False,)
    bind(play, fail(play, append))
    assert (play.record.grant, play.record.replicator) == (4, "second")
    assert play.lane.late_writes.former_holder_until == play.now + BARRIER_S


def test_a_lane_waits_for_another_replicator_that_opened_it() -> None:
    """DOUBLED. The lane had no holder when it was assigned, so it was told that it need not wait."""
    play = Play.opened()
    state, play.state = play.state, Play().state
    play.lane = Lane(LANE, "orders", "eu.orders", 0, "p", True, toy.rebuild)
    (asked,) = play.tell(Start(None, None, "second", 0.0, False, None, OWN_TIMES))
    assert isinstance(asked, AskProducerId)
    append = appended(play.tell(ProducerIdAnswer(asked.question, 0, 9, 0)))
    assert isinstance(append.facts[0], LaneOpened)
    play.state = state
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)))
    bind(play, fail(play, append))
    assert (play.record.grant, play.lane.producer_id) == (2, 7)
    assert play.lane.late_writes.former_holder_until > play.now + sum(OWN_TIMES) / 1000


def test_a_first_position_does_not_count_after_a_holder_in_between() -> None:
    """DOUBLED. The former holder opened the lane. It saved the end of the target log as its position once more, after
    the next holder had written there."""
    play = begun()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)))
    progress = Progress(LANE, 1, 1, 0, 7, 1, 0, 20, 1, 1, True, "copying", source_epoch=3, epochs_told=True)
    append = start(play, progress)
    assert play.lane.resume_position == ResumePosition(0, 7, 1)
    play.fold(LaneTaken(LANE, 2, "between", LONGER), TargetRun(LANE, 2, 0, 0, 1))
    bind(play, fail(play, append))
    assert play.lane.resume_position == play.lane.recorded_position == ResumePosition(0, 0, -1)
    assert not play.lane.history.epochs_recorded


def test_a_difference_that_a_holder_in_between_has_found_is_not_ended() -> None:
    """The next holder rebuilds the map."""
    differs = TakeoverChecked(LANE, 2, 8, 9, "different", "ordinal 8 differs in its value")
    halted = LaneHalted(LANE, 2, "unexplained", "orders-0: target and source differ", 8, 10)
    play = taken(LaneTaken(LANE, 2, "between", LONGER), differs, halted)
    assert play.lane.phase is Phase.REBUILDING
    assert play.record.halted == halted


def test_the_record_of_an_earlier_holder_does_not_show_what_the_last_one_sent() -> None:
    """The last holder has left the lane, but the state topic has not been read up to its last position."""
    play = begun()
    play.fold(*BEGUN, LaneTaken(LANE, 2, "last"))
    progress = msgspec.structs.replace(progress_at(10), settled=True)
    bind(play, start(play, progress))
    assert play.lane.takeover.left_cleanly
    assert not play.lane.takeover.knows_sent
    play = begun()
    play.fold(*BEGUN)
    bind(play, start(play, progress))
    assert play.lane.takeover.knows_sent


def test_a_lane_that_has_held_a_grant_leaves() -> None:
    """Another replicator was given the lane after it."""
    play = opened(*BEGUN)
    play.take(progress_at(10))
    effects = play.ask_target(10, last=9)
    fetch = next(each for each in effects if isinstance(each, FetchFrom))
    append = appended(play.chunk(fetch, 12))
    effects = play.tell(AppendFailed(append.tag, play.record))
    (wake,) = [each for each in effects if isinstance(each, Wake)]
    play.fold(LaneTaken(LANE, 3, "between", LONGER))
    play.now = wake.at
    effects = play.tell(Woken(wake.question))
    assert any(isinstance(each, Gone) for each in effects)
    assert not any(isinstance(each, Append) for each in effects)


def test_a_new_grant_does_not_show_that_the_former_holder_left() -> None:
    """The lane has sent nothing. It does not become clean because an append was reported as failed."""
    for fails in (False, True):
        play = opened(*BEGUN)
        play.take(progress_at(10, state="copying"), cleanly=False, barrier_s=14.0)
        effects = play.ask_target(10, last=9)
        play.now = 20.0
        (wake,) = [each for each in effects if isinstance(each, Wake)]
        (asked,) = play.tell(Woken(wake.question))
        assert isinstance(asked, AskEnd)
        play.tell(EndAnswer(asked.question, 0, 1, 10))
        assert not play.lane.comparison.later_pending
        append = appended(play.chunk(next(each for each in effects if isinstance(each, FetchFrom)), 12))
        if fails:
            bind(play, fail(play, append))
            play.bind_all(play.ask_target(10, last=9))
        assert play.lane.phase is Phase.COPYING
        (drained,) = [each for each in play.tell(Drain()) if isinstance(each, Drained)]
        assert not drained.clean, fails
