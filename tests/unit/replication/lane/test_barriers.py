"""How long a lane waits for what a former holder has sent: by that holder's timeouts, and by the broker's answers."""

import pytest
from msgspec.structs import replace

from mirrord.config.schema import RuntimeConfig
from mirrord.ledger.facts.core import LaneTaken, LeaseTaken
from mirrord.ledger.fold import fold
from mirrord.ledger.state import FlowState
from mirrord.replication.lane.assignment import Former
from mirrord.replication.lane.correlation import ask
from mirrord.replication.lane.opening import start
from mirrord.replication.lane.phases import Phase, Stage
from mirrord.replication.lane.signals import Append, EndAnswer, ProducersAnswer, Start
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.step import step
from mirrord.replication.lane.target import in_doubt
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened
from tests.unit.replication.lane.source.test_source_epochs import idle
from tests.unit.supervision.fleet.test_lane_ownership import SETUP

LANE = lane_id(0)
UNKNOWN = (0, 0)


@pytest.mark.parametrize(
    ("former", "holder", "seconds"),
    [
        ("none", (60_000, 60_000), 0),
        ("left", (60_000, 60_000), 0),
        ("dead", (60_000, 2_000), 8),  # its kernel delivered nothing more once it was dead
        ("dead", (1_000, 20_000), 20),
        ("unknown", (60_000, 2_000), 68),
        ("unknown", (1_000, 20_000), 26),
        ("dead", UNKNOWN, 8),
        ("unknown", UNKNOWN, 14),
    ],
)
def test_the_longest_times_count(former: Former, holder: tuple[int, int], seconds: float) -> None:
    assert SETUP.barrier_s(former, holder) == seconds


def test_an_older_holder_is_given_its_lease_when_dead() -> None:
    setup = replace(SETUP, runtime=RuntimeConfig(lease_ttl_ms=60_000, request_timeout_ms=2_000))
    assert (setup.barrier_s("dead", UNKNOWN), setup.barrier_s("dead", (60_000, 2_000))) == (60, 2)


@pytest.mark.parametrize("former", ["left", "dead"])
def test_times_are_passed_on_until_a_holder_left_cleanly(former: Former) -> None:
    state = FlowState()
    facts = (FLOW, LeaseTaken(1, HOLDER, 6000), opened(), LaneTaken(LANE, 1, "r", (60_000, 2_000)))
    for offset, fact in enumerate(facts):
        fold(state, entry(fact, epoch=0 if fact is FLOW else 1), offset)
    record = state.lanes[LANE]
    assert record.times == (60_000, 2_000)
    times = SETUP.times(former, record.times)
    lane = Lane(LANE, "orders", "eu.orders", 0, record.policy, True, lambda *_: None)  # pyright: ignore[reportArgumentType]
    (append,) = start(lane, Start(record, None, "next", 8.0, former == "left", None, times))
    assert isinstance(append, Append)
    assert append.facts[0] == LaneTaken(LANE, 2, "next", (6_000, 8_000) if former == "left" else (60_000, 8_000))


def resuming(asked_at: float) -> Lane:
    """A lane that asks for the end of the target log; the barrier of its former holder ends at 8 s."""
    lane, _, _ = idle()
    lane.phase, lane.stage, lane.late_writes.asked_at = Phase.RESUMING, Stage.END, asked_at
    lane.late_writes.until = lane.late_writes.former_holder_until = 8.0
    return lane


def test_the_timeout_counts_from_the_first_answer() -> None:
    lane = resuming(0.0)
    lane.late_writes.unanswered = True
    step(lane, 1.0, EndAnswer(ask(lane), 0, 1, 5))
    assert lane.late_writes.until == lane.late_writes.former_holder_until == 9.0
    lane.stage = Stage.END
    step(lane, 1.1, EndAnswer(ask(lane), 0, 1, 5))
    assert lane.late_writes.until == 9.0


def test_a_broker_that_did_not_answer_is_waited_for_again() -> None:
    lane = resuming(0.0)
    step(lane, 9.0, EndAnswer(ask(lane), 13, -1, -1))
    lane.phase, lane.stage, lane.late_writes.asked_at = Phase.RESUMING, Stage.END, 30.0
    step(lane, 30.1, EndAnswer(ask(lane), 0, 1, 5))
    assert lane.late_writes.until == lane.late_writes.former_holder_until == 38.1


def test_a_slow_broker_is_waited_for_once() -> None:
    lane = resuming(8.5)
    step(lane, 12.0, EndAnswer(ask(lane), 0, 1, 5))
    assert lane.late_writes.until == 20.0
    lane.phase, lane.stage, lane.late_writes.asked_at = Phase.RESUMING, Stage.END, 20.5
    step(lane, 24.0, EndAnswer(ask(lane), 0, 1, 5))
    assert lane.late_writes.until == 20.0


@pytest.mark.parametrize(
    ("delayed", "seconds", "until"),
    [
        (False, 1.9, 8.0),
        (False, 7.5, 16.0),  # a slow answer
        (True, 7.5, 8.0),  # another slow answer has already extended the wait
        (True, 14.0, 22.5),  # as if the request had not been answered
    ],
)
def test_a_broker_may_also_be_suspended_before_it_reports_its_producers(
    delayed: bool, seconds: float, until: float
) -> None:
    """A former holder's batch may be in the socket of the broker, which reads it after the barrier has ended."""
    lane = resuming(0.0)
    lane.late_writes.delayed = delayed
    step(lane, 0.5, EndAnswer(ask(lane), 0, 1, 5))
    step(lane, 0.5 + seconds, ProducersAnswer(ask(lane), 0, None))
    assert lane.late_writes.until == lane.late_writes.former_holder_until == until
    assert in_doubt.holds(lane, 5) == (until > 0.5 + seconds)


def test_a_broker_that_did_not_report_its_producers_is_waited_for_again() -> None:
    lane = resuming(0.0)
    step(lane, 0.5, EndAnswer(ask(lane), 0, 1, 5))
    step(lane, 8.5, ProducersAnswer(ask(lane), 13, None))
    lane.phase, lane.stage, lane.late_writes.asked_at = Phase.RESUMING, Stage.END, 9.0
    step(lane, 9.1, EndAnswer(ask(lane), 0, 1, 5))
    assert lane.late_writes.until == lane.late_writes.former_holder_until == 17.1


def test_nothing_is_waited_for_when_nothing_is_on_its_way() -> None:
    lane = resuming(0.0)
    lane.late_writes.until = lane.late_writes.former_holder_until = 0.0
    in_doubt.note_end_question(lane, 0.0)
    step(lane, 9.0, EndAnswer(ask(lane), 0, 1, 5))
    assert (lane.late_writes.until, lane.late_writes.former_holder_until) == (0.0, 0.0)
