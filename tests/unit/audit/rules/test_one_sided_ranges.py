"""Records on one side only, according to the map of a made-up lane."""

import pytest

from mirrord.audit.rules.one_sided_ranges import OneSidedRange, not_begun, stretches
from mirrord.ledger.facts.core import (
    Entry,
    FlowOpened,
    Holder,
    LaneOpened,
    LaneTaken,
    LeaseTaken,
    Progress,
    SourceRun,
    TargetRun,
    Verdict,
)
from mirrord.ledger.fold import fold
from mirrord.ledger.state import FlowState
from mirrord.model.names import ClusterId, LaneKey, TopicId, TopicPartition
from mirrord.model.runs import Run

LANE = LaneKey(TopicId("s" * 22), 0, TopicId("t" * 22)).id
WHOLE = (0, 1_000)


@pytest.fixture
def state() -> FlowState:
    """Ten records are at [5, 15) of the target, ten more at [18, 28), from the source offsets 0 to 9 and 12 to 21."""
    state = FlowState()
    facts = (
        LaneOpened(LANE, "s", "t", 0, 7, 0, "p"),
        LaneTaken(LANE, 1, "r"),
        SourceRun(LANE, 1, (Run(0, 0), Run(10, 12)), (Verdict(10, 11, "control"), Verdict(11, 12, "rejected"))),
        TargetRun(LANE, 1, 0, 5, 0),
        TargetRun(LANE, 1, 10, 18, 0),
    )
    entries = (
        Entry(0, 0, (FlowOpened("f", ClusterId("a"), ClusterId("b")),)),
        Entry(1, 0, (LeaseTaken(1, Holder("", 1, "", ""), 1),)),
        Entry(1, 0, facts),
    )
    for offset, entry in enumerate(entries):
        assert all(fold(state, entry, offset))
    state.accept_progress(Progress(LANE, 1, 1, 20, 28, 0, 22, 30, -1, 0, False, "drained"))
    return state


def one_sided(state: FlowState, source: tuple[int, int], target: tuple[int, int] | None) -> list[OneSidedRange]:
    return list(stretches(state, LANE, state.lanes[LANE].newest_verdicts, source, target))


def test_what_was_left_out_what_is_to_come_and_what_others_wrote(state: FlowState) -> None:
    assert one_sided(state, (0, 30), (0, 31)) == [
        OneSidedRange("source", 11, 12, "rejected"),
        OneSidedRange("source", 22, 30, "pending"),
        OneSidedRange("target", 15, 18, "foreign"),
        OneSidedRange("target", 28, 31, "foreign"),
    ]


def test_what_is_gone_or_before_a_given_time_is_not_reported(state: FlowState) -> None:
    assert one_sided(state, (25, 30), (16, 28)) == [
        OneSidedRange("source", 25, 30, "pending"),
        OneSidedRange("target", 16, 18, "foreign"),
    ]


def test_a_target_with_its_own_writers_is_reported_by_the_opposite_flow(state: FlowState) -> None:
    assert one_sided(state, (22, 22), None) == []


def test_of_a_lane_without_a_resume_position_everything_is_still_to_come(state: FlowState) -> None:
    del state.progress[LANE]
    assert one_sided(state, (0, 30), (0, 31))[-1] == OneSidedRange("source", 0, 30, "pending")


def test_partitions_of_which_nothing_is_copied_have_not_begun(state: FlowState) -> None:
    wanted = [TopicPartition("s", 1), TopicPartition("s", 0), TopicPartition("new", 0)]
    ids = {"s": TopicId("s" * 22), "new": TopicId("n" * 22)}
    assert not_begun(state, wanted, ids) == [TopicPartition("new", 0), TopicPartition("s", 1)]
    # A recreated topic is another one.
    again = ids | {"s": TopicId("a" * 22)}
    assert not_begun(state, wanted[:2], again) == [TopicPartition("s", 0), TopicPartition("s", 1)]
