"""Which producers a failover fences off, and what operators read about it."""

import pytest
from msgspec.structs import replace

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.transaction_markers import AbortMarker, MarkedPartition
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import AnyFact, LaneTaken, LeaseTaken, SourceRun
from mirrord.ledger.facts.recovery import CopyingEnded, Recovery, RecoveryBegan, RecoveryFinished
from mirrord.ledger.fold import fold
from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneKey, TopicId
from mirrord.model.runs import Run
from mirrord.supervision.rules.producer_fence import (
    COORDINATOR_EPOCH,
    NEEDED,
    NOT_FENCED,
    FormerProducer,
    MarkerResult,
    fence_line,
    former_producers,
    marker_result,
    reason,
)
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

ADA = Origin("ada@host", "fire", 1)
ALL = Recovery(1, "source-lost", (), ADA)


def state(*facts: AnyFact) -> FlowState:
    made = FlowState()
    for each in (entry(FLOW), entry(LeaseTaken(1, HOLDER, 6_000)), entry(*facts)):
        fold(made, each, made.next_offset)
    return made


def begun(partition: int) -> tuple[AnyFact, ...]:
    lane = lane_id(partition)
    return opened(partition), LaneTaken(lane, 1, "r-1"), SourceRun(lane, 1, (Run(0, 0),))


def test_the_producers_of_all_lanes_that_may_have_written() -> None:
    ledger = state(*begun(0), *begun(1), opened(2), opened(3), LaneTaken(lane_id(3), 1, "r-1"))
    first, second = former_producers(ledger, ALL)
    lane = ledger.lanes[lane_id(0)]
    assert first == FormerProducer(
        MarkedPartition(lane.producer_id, "eu.orders", 0), lane.key.target_topic_id, lane.producer_epoch
    )
    assert first.marker == AbortMarker(first.where, lane.producer_epoch + 1, COORDINATOR_EPOCH)
    assert second.where.partition == 1
    assert former_producers(ledger, replace(ALL, topics=("orders",))) == [first, second]
    assert former_producers(ledger, replace(ALL, topics=("bills",))) == []


def test_the_producer_of_a_source_topic_that_was_created_again() -> None:
    """A former holder of the older lane may hold batches for the same target partition."""
    newer = opened(0)
    key = LaneKey(TopicId("source-topic-2"), 0, LaneKey.parse(lane_id(0)).target_topic_id)
    newer = replace(newer, lane=key.id, producer_id=newer.producer_id + 7)
    more = (newer, LaneTaken(key.id, 1, "r-1"), SourceRun(key.id, 1, (Run(0, 0),)))
    ledger = state(*begun(0), *more)
    assert [each.where.producer_id for each in former_producers(ledger, ALL)] == [
        newer.producer_id - 7,
        newer.producer_id,
    ]


def test_what_an_earlier_failover_has_ended_is_left_alone() -> None:
    ended = RecoveryBegan(1, "source-lost", ("orders",), ADA), CopyingEnded(1, (), 2, 9)
    ledger = state(*begun(0), *ended)
    assert len(former_producers(ledger, ledger.recoveries[0])) == 1
    ledger = state(*begun(0), *ended, RecoveryFinished(1, False, 5), RecoveryBegan(2, "source-lost", (), ADA))
    assert former_producers(ledger, ledger.recoveries[1]) == []


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (ErrorCode.NONE, "fenced"),
        (ErrorCode.INVALID_PRODUCER_EPOCH, "fenced"),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "again"),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "again"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "refused"),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, "refused"),
        (999, "refused"),
    ],
)
def test_what_an_answer_means(error: int, result: MarkerResult) -> None:
    assert marker_result(error) == result


def test_what_operators_read() -> None:
    one, two, three = (MarkedPartition(each, "orders", each) for each in range(3))
    again = one._replace(producer_id=9)
    assert fence_line([], {}) == "no partition can receive late batches"
    assert fence_line([one, again, two], {}) == "late batches to 2 partitions are refused by the target"
    denied = reason(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert denied == f"CLUSTER_AUTHORIZATION_FAILED: {NEEDED}"
    assert fence_line([], {three: "why", two: denied}) == f"{NOT_FENCED} to orders-1 and 1 more partitions: {denied}"
    assert fence_line([one], {two: "it has no leader"}) == (
        f"late batches to 1 partitions are refused by the target; {NOT_FENCED} to orders-1: it has no leader"
    )
