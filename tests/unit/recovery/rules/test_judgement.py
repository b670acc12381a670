"""When a flow is ready for the loss of its source, and why not."""

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from mirrord.ledger.facts.core import LaneTaken, LeaseTaken, Verdict, VerdictGiven
from mirrord.ledger.fold import fold
from mirrord.ledger.state import FlowState
from mirrord.model.names import TopicId
from mirrord.model.readiness import (
    Comparison,
    FlowReadiness,
    GroupsReadiness,
    PartitionReadiness,
    PositionReadiness,
    ProofReadiness,
    SourceHeadroom,
    TargetHeadroom,
)
from mirrord.recovery.rules.judgement import ReadinessJudgement, judge, late
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

TARGETS = {"eu.orders": TopicId("target-topic")}


def state() -> FlowState:
    made = FlowState()
    taken = LaneTaken(lane_id(0), 1, "replicator-1")
    for offset, each in enumerate((entry(FLOW), entry(LeaseTaken(1, HOLDER, 6_000)), entry(opened(0), taken))):
        fold(made, each, offset)
    return made


def partition(number: int = 0, state: str = "copying", lag: int | None = 0, lag_s: float | None = 0.0, note: str = ""):
    return PartitionReadiness(
        topic="orders",
        partition=number,
        target_topic="eu.orders",
        state=state,
        source_offset=10,
        source_end=None if lag is None else 10 + lag,
        seen_ms=50_000,
        lag_records=lag,
        lag_s=lag_s,
        note=note,
    )


def flow(
    partitions: Sequence[PartitionReadiness] = (partition(),),
    groups: GroupsReadiness = GroupsReadiness(seen_ms=50_500),  # noqa: B008 - it is immutable
    at_ms: int = 51_000,
    configs: Comparison = Comparison(),  # noqa: B008
    quotas: Comparison = Comparison(),  # noqa: B008
) -> FlowReadiness:
    return FlowReadiness(
        flow="eu-us",
        source="eu",
        target="us",
        ready=False,
        at_ms=at_ms,
        grounds="ledger",
        partitions=tuple(partitions),
        seen_ms=50_000,
        groups=groups,
        configs=configs,
        quotas=quotas,
        proof=ProofReadiness(partitions=1, oldest_ms=1),
    )


def judged(
    found: FlowReadiness, targets: Mapping[str, TopicId] | None = None, ledger: FlowState | None = None
) -> ReadinessJudgement:
    ledger = ledger or state()
    known = {lane.target_topic: lane.key.target_topic_id for lane in ledger.lanes.values()}
    blockers, remarks = judge(found, ledger, list(ledger.lanes.values()), known if targets is None else targets)
    return ReadinessJudgement((*blockers, *late(found.partitions, 60.0)), remarks)


def test_a_flow_that_copies_everything_is_ready() -> None:
    assert judged(flow()) == ((), ())
    assert judged(flow([partition(lag=500, lag_s=59.0)])) == ((), ())


@pytest.mark.parametrize(
    ("partitions", "line"),
    [
        ([partition(lag=5, lag_s=61.0)], "orders-0 is 61 s behind; 60 s are allowed"),
        (
            [partition(lag=5, lag_s=61.0), partition(1, lag=9, lag_s=700.0)],
            "orders-1 is 700 s behind (and 1 more partitions); 60 s are allowed",
        ),
        ([partition(lag=5, lag_s=None)], "records of orders-0 would be lost, and it is not known how old they are"),
        ([partition(lag=None, lag_s=None)], "it is not known how many records of orders-0 would be lost"),
        ([partition(state="halted", note="a bad record")], "orders-0 is halted: a bad record"),
        ([partition(state="paused"), partition(1, "paused")], "orders-0 and 1 more are paused"),
        ([partition(state="not copied", lag=None, lag_s=None)], "orders-0 is not copied"),
    ],
)
def test_a_partition_makes_a_flow_unready(partitions: list[PartitionReadiness], line: str) -> None:
    assert judged(flow(partitions)).blockers == (line,)


def test_a_target_topic_that_is_missing_or_another_one() -> None:
    assert judged(flow(), {}).blockers == (
        "the target does not show eu.orders: it may not exist, or READ may be missing",
    )
    other = {"eu.orders": TopicId("another")}
    assert judged(flow(), other).blockers == (
        "eu.orders on the target is not what was copied to: deleted and created again",
    )


def test_a_group_whose_next_record_is_not_known() -> None:
    unknown = PositionReadiness(
        group="billing", topic="orders", partition=0, state="unknown", why="it is before the map", is_known=False
    )
    groups = GroupsReadiness(groups=1, exact=3, inexact=1, positions=(unknown,), seen_ms=50_500)
    assert judged(flow(groups=groups)).blockers == (
        "the next record is not known for 1 position of a group; group billing in orders-0: it is before the map",
    )


def test_what_is_old_lost_or_different_is_a_remark() -> None:
    ledger = state()
    fold(ledger, entry(VerdictGiven(lane_id(0), 1, (Verdict(3, 8, "expired"),))), 3)
    found = flow(at_ms=80_000, configs=Comparison(differences=("a", "b")), quotas=Comparison(differences=("c",)))
    blockers, remarks = judged(found, ledger=ledger)
    assert blockers == ()
    assert remarks == (
        "eu was last seen 30 s ago: records that were written after that are not counted",
        "commits on eu were last seen 30 s ago: what groups committed after that is not known",
        "5 offsets were lost earlier: `mirrord gaps` lists them",
        "configs differ: a (and 1 more)",
        "client quotas differ: c",
    )


def test_what_was_not_compared_is_a_remark() -> None:
    assert judged(flow(quotas=Comparison(note="no permission"))) == (
        (),
        ("client quotas were not compared: no permission",),
    )


def test_groups_that_were_never_recorded() -> None:
    (line,) = judged(flow(groups=GroupsReadiness())).blockers
    assert line == "the positions of consumer groups on the source were never recorded"
    assert judged(flow(groups=GroupsReadiness(note="groups.mode is off"))).blockers == ()


@pytest.mark.parametrize(
    ("source", "target", "lines"),
    [
        (SourceHeadroom(offsets=9, left_s=500.0, limit_s=3_600.0), None, ()),
        (
            SourceHeadroom(offsets=9, left_s=400.0, limit_s=3_600.0),
            None,
            ("if nothing more is copied, retention on eu may delete records of orders-0, in 6 min at the earliest",),
        ),
        (
            SourceHeadroom(offsets=0, left_s=0.0, limit_s=3_600.0),
            None,
            ("if nothing more is copied, retention on eu may delete records of orders-0, at any time",),
        ),
        (SourceHeadroom(offsets=-3, left_s=0.0, note="gone"), None, ("orders-0: gone",)),
        (
            SourceHeadroom(forecast_s=7_300.0),
            None,
            (
                "at the pace of the last hour, retention on eu deletes records of orders-0 that have not been copied, "
                "in 2 h",
            ),
        ),
        (SourceHeadroom(forecast_s=20_000.0), None, ()),
        (None, TargetHeadroom(group="billing", target_offset=7, offsets=2, left_s=450.0, limit_s=3_600.0), ()),
        (
            None,
            TargetHeadroom(group="billing", target_offset=7, offsets=2, left_s=56.25, limit_s=3_600.0),
            (
                "retention on us may delete records of orders-0 that group billing has not read, in 56 s at the "
                "earliest",
            ),
        ),
    ],
)
def test_retention_that_is_near_is_a_remark(
    source: SourceHeadroom | None, target: TargetHeadroom | None, lines: tuple[str, ...]
) -> None:
    found = flow([replace(partition(), source_headroom=source, target_headroom=target)])
    assert judged(found) == ((), lines)
