"""The steps of a failover, and what it loses."""

import pytest
from msgspec.structs import replace

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import AnyFact, LaneTaken, LeaseTaken, Progress
from mirrord.ledger.facts.recovery import (
    CopyingEnded,
    DoneStep,
    LostRange,
    Recovery,
    RecoveryBegan,
    RecoveryFinished,
    RecoveryMode,
)
from mirrord.ledger.fold import fold
from mirrord.ledger.last_seen.source_ends import NEVER, SeenEnd, SeenEnds, end_records
from mirrord.ledger.source_ends import CopiedPart, SourcePartition
from mirrord.ledger.state import FlowState
from mirrord.model.names import TopicId
from mirrord.supervision.rules.failover_plan import STEPS, concerned_lanes, loss_of, next_step
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

ADA = Origin("ada@host", "fire", 1)
ALL = Recovery(1, "source-lost", (), ADA)
TOPIC = TopicId("source-topic")
SEEN_MS = 50_000


def where(partition: int, topic: str = "orders", topic_id: TopicId = TOPIC) -> SourcePartition:
    return SourcePartition(topic, topic_id, partition)


def state(*facts: AnyFact, seen: dict[SourcePartition, SeenEnd] | None = None) -> FlowState:
    """Two lanes of one topic that have begun."""
    made = FlowState()
    taken = [each for partition in range(2) for each in (opened(partition), LaneTaken(lane_id(partition), 1, "r-1"))]
    entries = [entry(FLOW), entry(LeaseTaken(1, HOLDER, 6_000)), entry(*taken), *([entry(*facts)] if facts else [])]
    for offset, each in enumerate(entries):
        fold(made, each, offset)
    for partition in range(2):
        made.accept_progress(
            Progress(lane_id(partition), 1, 1, 10, 10, 0, 10, 10, 1, 1, protected=True, state="copying", settled=True)
        )
    for record in end_records(SeenEnds(made), seen or {}, {}, (), 1, SEEN_MS):
        made.accept_progress(record)
    return made


def start_offset(topic: str, topic_id: TopicId, partition: int) -> int | None:
    return 0


@pytest.mark.parametrize("mode", ["planned", "source-lost"])
def test_the_steps_follow_each_other(mode: RecoveryMode) -> None:
    recovery = Recovery(1, mode, (), ADA)
    for step in STEPS[mode]:
        assert next_step(recovery) == step
        if step == "end":
            recovery = replace(recovery, ended=True)
        elif step == "finish":
            recovery = replace(recovery, finished_ms=5)
        else:
            recovery = replace(recovery, steps=(*recovery.steps, DoneStep(step, "")))
    assert next_step(recovery) is None
    assert next_step(Recovery(1, mode, (), ADA, finished_ms=5, cancelled=True)) is None


def test_lanes_of_the_topics() -> None:
    ledger = state()
    assert len(concerned_lanes(ledger, ALL)) == 2
    assert len(concerned_lanes(ledger, replace(ALL, topics=("orders", "bills")))) == 2
    assert concerned_lanes(ledger, replace(ALL, topics=("bills",))) == []
    ended = RecoveryBegan(1, "source-lost", ("orders",), ADA), CopyingEnded(1, (), 2, 9), RecoveryFinished(1, False, 5)
    ledger = state(*ended, RecoveryBegan(2, "source-lost", (), ADA))
    assert concerned_lanes(ledger, ledger.recoveries[-1]) == []
    assert len(concerned_lanes(ledger, ledger.recoveries[0])) == 2


def test_what_each_partition_loses() -> None:
    new = where(0, "bills", TopicId("bills-id"))
    seen = {where(0): SeenEnd(15, SEEN_MS), where(1): SeenEnd(10, SEEN_MS), new: SeenEnd(7, SEEN_MS, start=2)}
    ledger = state(seen=seen)
    copied = {lane_id(0): CopiedPart(12), lane_id(1): CopiedPart(10)}
    loss = loss_of(SeenEnds(ledger), ALL, copied, {}, {lane_id(0): 12}, start_offset)
    assert loss.partitions == 3
    assert loss.ranges == (
        LostRange("bills", 0, 2, 7, SEEN_MS, -1),
        LostRange("orders", 0, 12, 15, SEEN_MS, 12),
    )
    assert loss.seen_ms == SEEN_MS
    only = loss_of(SeenEnds(ledger), replace(ALL, topics=("orders",)), copied, {}, {}, start_offset)
    assert (only.partitions, [each.topic for each in only.ranges]) == (2, ["orders"])


def test_more_was_copied_than_was_seen() -> None:
    ledger = state(seen={where(0): SeenEnd(15, SEEN_MS), where(1): SeenEnd(10, SEEN_MS)})
    copied = {lane_id(0): CopiedPart(16), lane_id(1): CopiedPart(10)}
    assert loss_of(SeenEnds(ledger), ALL, copied, {}, {}, start_offset).ranges == ()


def test_what_the_source_still_reports_is_newer() -> None:
    ledger = state(seen={where(0): SeenEnd(15, SEEN_MS), where(1): SeenEnd(10, SEEN_MS)})
    copied = {lane_id(0): CopiedPart(15), lane_id(1): CopiedPart(10)}
    (lost,) = loss_of(SeenEnds(ledger), ALL, copied, {where(0): SeenEnd(20, 60_000)}, {}, start_offset).ranges
    assert (lost.start, lost.end, lost.seen_ms) == (15, 20, 60_000)


def test_unknown_ends_holes_and_doubts_are_named() -> None:
    ledger = state(seen={where(0): SeenEnd(10, SEEN_MS), where(1): NEVER})
    copied = {lane_id(0): CopiedPart(10, ((3, 5),), "why"), lane_id(1): CopiedPart(10)}
    ledger.progress[lane_id(1)] = replace(ledger.progress[lane_id(1)], source_end=-1)
    first, second = loss_of(SeenEnds(ledger), ALL, copied, {}, {}, start_offset).ranges
    assert (first.missing, first.remark, first.end) == (((3, 5),), "why", 10)
    assert (second.start, second.end, second.seen_ms) == (10, -1, -1)


def test_what_was_copied_completely_is_as_old_as_what_was_seen() -> None:
    ledger = state(seen={where(0): SeenEnd(10, SEEN_MS), where(1): SeenEnd(10, SEEN_MS - 9_000)})
    copied = {lane_id(0): CopiedPart(10), lane_id(1): CopiedPart(10)}
    assert loss_of(SeenEnds(ledger), ALL, copied, {}, {}, start_offset) == ((), 2, SEEN_MS - 9_000)
    assert loss_of(SeenEnds(state()), ALL, copied, {}, {}, start_offset) == ((), 2, -1)


def test_lanes_that_have_not_begun_lose_everything_from_their_start() -> None:
    ledger = state(seen={where(0): SeenEnd(15, SEEN_MS), where(1): SeenEnd(10, SEEN_MS)})
    lost = loss_of(SeenEnds(ledger), ALL, {lane_id(1): CopiedPart(10)}, {}, {}, lambda *_: 4).ranges
    assert [(each.start, each.end) for each in lost] == [(4, 15)]
    assert loss_of(SeenEnds(ledger), ALL, {lane_id(1): CopiedPart(10)}, {}, {}, lambda *_: 15).ranges == ()


def test_lanes_of_deleted_topics_lose_nothing_a_second_time() -> None:
    """The topic was deleted and created again. What was lost then is in the ledger."""
    made = state()
    new = SourcePartition("orders", TopicId("created-again"), 0)
    for record in end_records(SeenEnds(made), {new: SeenEnd(3, SEEN_MS)}, {}, (), 1, SEEN_MS):
        made.accept_progress(record)
    copied = {lane_id(0): CopiedPart(10), lane_id(1): CopiedPart(10)}
    found = loss_of(SeenEnds(made), ALL, copied, {}, {}, start_offset)
    assert (found.partitions, [(each.start, each.end) for each in found.ranges]) == (1, [(0, 3)])
    # As long as the ledger does not contain what was lost with the topic, the failover names it.
    copied = {lane_id(0): CopiedPart(4), lane_id(1): CopiedPart(10)}
    found = loss_of(SeenEnds(made), ALL, copied, {}, {}, start_offset)
    assert sorted((each.start, each.end) for each in found.ranges) == [(0, 3), (4, 10)]
