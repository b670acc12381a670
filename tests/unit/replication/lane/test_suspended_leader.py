"""The leader of the target partition is suspended over the end of the time for which a lane waits for a former holder's
batches. Afterwards, it appends the batches that are in its receive buffer."""

from dataclasses import dataclass, field

import pytest

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.ledger.facts.core import SourceRun, TargetRun
from mirrord.model.runs import Run
from mirrord.replication.lane.correlation import ask
from mirrord.replication.lane.phases import Phase, Stage
from mirrord.replication.lane.signals import (
    AskEnd,
    Drain,
    Drained,
    Effects,
    EndAnswer,
    FetchFrom,
    Input,
    Produce,
    ProduceAnswer,
    ProducersAnswer,
    VisibleAnswer,
    Wake,
    Woken,
)
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.step import step
from mirrord.replication.lane.target import in_doubt
from mirrord.replication.lane.transitions import RebuildMap, Resume
from tests.unit.replication.lane.test_answers import copying
from tests.unit.replication.lane.test_barriers import resuming
from tests.unit.replication.lane.test_rebuilding import LANE, Play
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened, progress_at

END = 5
NO_ANSWER = ErrorCode.NETWORK_EXCEPTION
UNANSWERED = (NO_ANSWER, ErrorCode.LEADER_NOT_AVAILABLE)
MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)
TIMEOUT_S = 8.0


@dataclass
class Asking:
    """A lane that took over from a holder which may still write, and a leader that has no state of the producer. The
    first request has been answered at 0.1 s, so the lane waits until 8.1 s."""

    lane: Lane = field(default_factory=lambda: resuming(0.0))
    now: float = 0.1

    def __post_init__(self) -> None:
        self.lane.late_writes.unanswered = True
        self.tell(EndAnswer(ask(self.lane), 0, 1, END))
        assert self.until == 8.1

    @property
    def until(self) -> float:
        return self.lane.late_writes.until

    @property
    def is_done(self) -> bool:
        """Whether the lane no longer waits: it asked for the end of the log after no batch could be appended."""
        return self.lane.late_writes.end_read_at >= self.until

    def tell(self, signal: Input) -> Effects:
        return step(self.lane, self.now, signal)

    def answer(self, stage: Stage, error: int = 0) -> Effects:
        question = self.lane.asked
        match stage:
            case Stage.PRODUCERS:
                return self.tell(ProducersAnswer(question, error, None))
            case Stage.VISIBLE:
                return self.tell(VisibleAnswer(question, error, END if error == 0 else -1, 0))
            case _:
                return self.tell(EndAnswer(question, error, 1 if error == 0 else -1, END if error == 0 else -1))

    def answer_all(self, last: Stage = Stage.VISIBLE) -> Effects:
        """Answer at once what the lane asks, up to and including the request of this stage."""
        effects: Effects = []
        stages = (Stage.END, Stage.PRODUCERS, Stage.END_AGAIN, Stage.VISIBLE)
        for stage in stages[stages.index(self.lane.stage) : stages.index(last) + 1]:
            effects = self.answer(stage)
        return effects

    def sleep(self, effects: Effects) -> None:
        wake = one(effects, Wake)
        assert wake.at > self.now
        self.now = wake.at
        self.tell(Woken(wake.question))


def before(stage: Stage) -> Stage:
    return {Stage.PRODUCERS: Stage.END, Stage.END_AGAIN: Stage.PRODUCERS, Stage.VISIBLE: Stage.END_AGAIN}[stage]


@pytest.mark.parametrize("stage", [Stage.PRODUCERS, Stage.END_AGAIN, Stage.VISIBLE])
def test_a_slow_answer_starts_the_wait_again(stage: Stage) -> None:
    """DOUBLED. The leader was suspended from 0.1 to 8 s."""
    asking = Asking()
    if stage is not Stage.PRODUCERS:
        asking.answer_all(before(stage))
    asking.now = 8.0
    asking.answer(stage)
    assert asking.until == 16.0


@pytest.mark.parametrize("error", [*UNANSWERED, *MOVED])
@pytest.mark.parametrize("stage", [Stage.PRODUCERS, Stage.END_AGAIN, Stage.VISIBLE])
def test_a_late_error_starts_the_wait_again(stage: Stage, error: int) -> None:
    """DOUBLED. A partition with one replica has no leader while its broker is suspended for longer than its session.
    Afterwards, the broker is elected again."""
    asking = Asking()
    if stage is not Stage.PRODUCERS:
        asking.answer_all(before(stage))
    asking.now = 8.0
    asking.sleep(asking.answer(stage, error))
    asking.answer_all()
    assert asking.until == asking.now + TIMEOUT_S


@pytest.mark.parametrize("error", UNANSWERED)
def test_an_early_error_starts_the_wait_again_only_if_nothing_was_answered(error: int) -> None:
    for each, until in ((error, 9.3), (MOVED[0], 8.1)):
        asking = Asking()
        asking.now = 1.1
        asking.sleep(asking.answer(Stage.PRODUCERS, each))
        asking.answer(Stage.END)
        assert asking.until == pytest.approx(until)


@pytest.mark.parametrize("error", MOVED)
def test_a_late_error_during_the_wait_starts_it_again(error: int) -> None:
    asking = Asking()
    asking.sleep(asking.answer_all())
    asking.now = 8.0
    asking.sleep(asking.answer(Stage.END, error))
    asking.answer_all()
    assert asking.until == asking.now + TIMEOUT_S


def test_a_lane_keeps_asking_while_it_waits() -> None:
    """DOUBLED. The lane asked nothing until the wait ended, and the leader continued a moment before."""
    asking = Asking()
    effects = asking.answer_all()
    while not asking.is_done:
        begun = asking.now
        asking.sleep(effects)
        assert asking.now - begun <= TIMEOUT_S / 8
        effects = asking.answer_all()
    assert asking.now == 8.1


@pytest.mark.parametrize("suspended_until", [7.99, 8.0, 9.9])
def test_a_suspension_over_the_end_of_the_wait_is_noticed(suspended_until: float) -> None:
    asking = Asking()
    asking.sleep(asking.answer_all())
    asking.now = suspended_until
    asking.answer_all()
    assert asking.until == suspended_until + TIMEOUT_S


def test_the_first_answer_does_not_use_up_the_only_extension() -> None:
    """The first answer starts the wait in any case. It may be slow because the leader was not known yet."""
    lane = resuming(0.0)
    lane.late_writes.unanswered = True
    step(lane, 2.1, EndAnswer(ask(lane), 0, 1, END))
    assert (lane.late_writes.until, lane.late_writes.delayed) == (10.1, False)


def test_a_lane_whose_last_request_is_unanswered_does_not_leave_cleanly() -> None:
    """The wait has ended by the clock, but the leader has not answered since. It may be suspended."""
    play = opened(*BEGUN)
    play.take(progress_at(10, state="copying"), barrier_s=TIMEOUT_S, cleanly=False)
    effects = play.ask_target(10, last=9)
    assert (play.lane.phase, play.lane.comparison.later_pending) == (Phase.COPYING, True)
    play.lane.sent = True
    wake = one(effects, Wake)
    play.now = wake.at
    one(play.tell(Woken(wake.question)), AskEnd)
    play.now += 7.0
    assert not _drained(play).clean


def test_a_lane_with_a_batch_in_doubt_of_its_own_does_not_leave_cleanly_either() -> None:
    """DOUBLED. The connection was lost with a batch in flight. The leader answers once, and is then suspended."""
    play = opened(*BEGUN)
    play.take(progress_at(10))
    effects = play.chunk(one(play.ask_target(10, last=9), FetchFrom), 10)
    produce, fetch = one(effects, Produce), one(effects, FetchFrom)
    play.tell(ProduceAnswer(produce.round, produce.batches[0], 0, 10))
    produce = one(play.chunk(fetch, 11), Produce)
    play.now = 1.0
    wake = one(play.tell(ProduceAnswer(produce.round, produce.batches[0], NO_ANSWER, -1)), Wake)
    play.now = wake.at
    play.tell(Woken(wake.question))
    effects = play.ask_target(11)
    play.bind_all(effects)
    wake = one(effects, Wake)
    play.now = wake.at
    one(play.tell(Woken(wake.question)), AskEnd)
    play.now = play.lane.late_writes.until + 0.1
    assert not _drained(play).clean


def _drained(play: Faulty) -> Drained:
    return one(play.tell(Drain()), Drained)


class Rebuilding:
    """A lane whose offset map is to be rebuilt, and which waits until 8 s."""

    def __init__(self) -> None:
        play = Play.opened()
        play.fold(SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 0, 1))
        play.bind(play.differ())
        self.lane, self.now = play.lane, 1.0
        self.lane.late_writes.until = self.lane.late_writes.former_holder_until = 8.0
        self.lane.late_writes.end_read_at = -1.0
        self.lane.questions.clear()
        self.lane.go(RebuildMap())
        step(self.lane, self.now, Woken(-1))

    def sandwich(self, error: int = 0) -> Effects:
        effects = step(self.lane, self.now, EndAnswer(self.lane.asked, 0, 1, 16))
        if self.lane.stage is Stage.END:
            return effects
        step(self.lane, self.now, ProducersAnswer(self.lane.asked, 0, None))
        step(self.lane, self.now, EndAnswer(self.lane.asked, 0, 1, 16))
        return step(self.lane, self.now, VisibleAnswer(self.lane.asked, error, 16 if error == 0 else -1, 0))

    def sleep(self, effects: Effects) -> float:
        """Return how long the lane has slept."""
        wake, begun = one(effects, Wake), self.now
        self.now = wake.at
        step(self.lane, self.now, Woken(wake.question))
        return self.now - begun


def test_attempts_to_rebuild_the_map_follow_each_other_soon() -> None:
    """SLOW. The pauses of the lane itself counted as slow answers, and each failed attempt started the wait again."""
    rebuilding = Rebuilding()
    while rebuilding.now < 12.0:
        assert rebuilding.sleep(rebuilding.sandwich(error=6)) <= TIMEOUT_S / 8
    assert rebuilding.lane.late_writes.until == 8.0


def test_a_suspension_is_noticed_while_the_map_is_rebuilt() -> None:
    rebuilding = Rebuilding()
    rebuilding.sleep(rebuilding.sandwich())
    rebuilding.now = 8.5
    effects = rebuilding.sandwich()
    assert rebuilding.lane.late_writes.until == 16.5
    rebuilding.sleep(effects)
    assert rebuilding.lane.phase is Phase.REBUILDING


@pytest.mark.parametrize("is_in_doubt", [False, True])
def test_at_least_once_does_without_the_state_of_the_producer(*, is_in_doubt: bool) -> None:
    """STUCK. A proxy may close the connection at each DescribeProducers request."""
    lane, _ = copying("at-least-once")
    lane.log.out_of_order, lane.log.log_start = (0, 1, 1), 3
    if is_in_doubt:
        in_doubt.leave_in_flight(lane, 0.0, 1)
    lane.go(Resume())
    step(lane, 0.0, Woken(-1))
    step(lane, 0.0, EndAnswer(lane.asked, 0, 1, 3))
    assert (lane.stage is Stage.PRODUCERS) is not is_in_doubt
    if not is_in_doubt:
        (asked,) = step(lane, 8.0, ProducersAnswer(lane.asked, NO_ANSWER, None))
        assert isinstance(asked, AskEnd)
    assert lane.stage is Stage.END_AGAIN
    assert lane.log.entry is None
