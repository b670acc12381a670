"""The status document adds up and survives a round trip through JSON."""

import copy

import msgspec
import pytest
from rich.console import Console

from mirrord.cli.status_tables import status_table
from mirrord.ledger.facts.audit import RangeAudited
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import LaneOpened, LaneTaken, LeaseTaken, Progress, Verdict, VerdictGiven
from mirrord.ledger.facts.seeks import LaneSought, SeekDone
from mirrord.ledger.fold import fold
from mirrord.ledger.source_ends import SourcePartition, changed_records
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.run_archive import decode_manifest
from mirrord.model.names import LaneKey, TopicId
from mirrord.model.status import (
    ClusterStatus,
    FlowStatus,
    LaneStatus,
    LatencyStatus,
    LossStatus,
    ProofStatus,
    Status,
    Totals,
)
from mirrord.supervision.lane_status import recorded_lanes
from mirrord.supervision.order_execution import order_remarks
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened


def lane(partition: int, **known: object) -> LaneStatus:
    values = {"topic": "orders", "partition": partition, "target_topic": "eu.orders", "state": "copying"} | known
    return msgspec.convert(values, LaneStatus)


def test_totals_add_up() -> None:
    totals = Totals.of(
        [
            lane(0, lag_records=5, lag_s=1.5, records_per_s=10.0, raw_batches=3, rebuilt_batches={"compacted": 1}),
            lane(1, lag_records=7, lag_s=0.5, records_per_s=20.0, verdict_offsets={"control": 2}),
            lane(2, state="halted", lag_records=0, lag_s=0.0, verdict_offsets={"control": 1, "aborted": 4}),
        ]
    )
    assert totals.lanes == {"copying": 2, "halted": 1}
    assert (totals.lag_records, totals.lag_s, totals.records_per_s) == (12, 1.5, 30.0)
    assert totals.raw_share == 0.75
    assert totals.verdict_offsets == {"aborted": 4, "control": 3}


def test_what_no_lane_knows_is_not_zero() -> None:
    totals = Totals.of([lane(0), lane(1)])
    assert totals.lag_records is None
    assert totals.lag_s is None
    assert totals.bytes_per_s is None
    assert totals.raw_share is None


def test_a_lag_that_one_lane_does_not_know_is_not_the_sum_of_the_others() -> None:
    totals = Totals.of([lane(0, lag_records=0, lag_s=0.0), lane(1)])
    assert (totals.lag_records, totals.lag_s) == (None, None)
    assert Totals.of([]).lag_records is None


def test_what_audits_have_proven_is_shown_without_a_daemon() -> None:
    state, name = FlowState(), lane_id(0)
    fold(state, entry(FLOW, epoch=0), 0)
    fold(state, entry(LeaseTaken(1, HOLDER, 6000), opened(), LaneTaken(name, 1, "r1")), 1)
    fold(state, entry(VerdictGiven(name, 1, (Verdict(3, 4, "control"),))), 2)
    state.progress[name] = Progress(name, 1, 1, 50, 50, 0, 51, 51, 5, 6, True, "drained")

    (line,) = recorded_lanes(state, state.lanes, {}, 10)
    assert (line.proof, line.unproven_records) == (None, 50)
    assert (Totals.of([line]).audited_ms, Totals.of([line]).unproven_records) == (None, 50)

    fold(state, entry(RangeAudited(name, "digest", 0, 20, 21, -1, 7)), 3)
    (line,) = recorded_lanes(state, state.lanes, {}, 10)
    assert line.proof == ProofStatus(level="digest", source_offset=21, newest_ms=None, at_ms=7)
    assert (Totals.of([line]).audited_ms, Totals.of([line]).unproven_records) == (7, 30)


def test_an_order_to_continue_further_ahead_is_shown_until_it_is_carried_out() -> None:
    state, name, ada = FlowState(), lane_id(0), Origin("ada@host", "broken records", 1_000)
    fold(state, entry(FLOW, epoch=0), 0)
    fold(state, entry(LeaseTaken(1, HOLDER, 6000), opened(), LaneTaken(name, 1, "r1")), 1)
    fold(state, entry(LaneSought(name, 3, 40, 0, ada)), 2)
    note = "to continue at source offset 40 by ada@host at 1970-01-01 00:00:01Z: broken records"
    (line,) = recorded_lanes(state, state.lanes, {}, 10)
    assert (line.seek_to, line.note) == (40, note)
    remark = "orders-0 will continue at source offset 40, by ada@host at 1970-01-01 00:00:01Z: broken records"
    assert list(order_remarks(state, ())) == [remark]
    # Its topic is recreated: the command was for the former one.
    again = LaneKey(TopicId("again"), 0, TopicId("target-topic")).id
    both = copy.deepcopy(state)
    fold(both, entry(LaneOpened(again, "orders", "eu.orders", 0, 7, 0, "all")), 3)
    assert not list(order_remarks(both, ()))
    fold(state, entry(SeekDone(name, 1, 3, 40)), 3)
    (line,) = recorded_lanes(state, state.lanes, {}, 10)
    assert (line.seek_to, line.note, list(order_remarks(state, ()))) == (None, "", [])


def test_the_document_survives_json() -> None:
    status = Status(version="0.1.0", instance="blue", at_ms=1, gathered="target", flows=())
    assert Status.decode(status.encode()) == status
    assert Status.decode(status.encode().replace(b"{", b'{"later":1,', 1)) == status
    with pytest.raises(ValueError, match="malformed"):
        Status.decode(b"<html>")


@pytest.mark.parametrize(
    ("latency", "line"),
    [
        (LatencyStatus(), "latency unknown; clocks not compared"),
        (
            LatencyStatus(latency_ms=4.25, latency_error_ms=0.0, note="the clock of eu is not known: no right"),
            "latency 4.2 ms; clocks not compared: the clock of eu is not known: no right",
        ),
        (
            LatencyStatus(latency_ms=1_250.0, latency_error_ms=3.0, clock_offset_ms=-40.0, clock_error_ms=3.5),
            "latency 1.2 s ± 3.0 ms; the clock of eu is 40 ms behind ± 3.5 ms",
        ),
    ],
)
def test_latency_is_shown_with_its_accuracy(latency: LatencyStatus, line: str) -> None:
    clusters = [ClusterStatus(alias, None, reachable=True) for alias in ("eu", "us")]
    flow = FlowStatus(
        name="eu-us",
        source=clusters[0],
        target=clusters[1],
        state="running",
        lease=None,
        totals=Totals.of(()),
        lanes=(),
        latency=latency,
    )
    status = Status(version="0.1.0", instance="blue", at_ms=1, gathered="daemon", flows=(flow,))
    console = Console(width=200)
    with console.capture() as printed:
        console.print(status_table(status))
    assert f"eu-us: {line}\n" in printed.get()


def flow_of(*lanes: LaneStatus, losses: tuple[LossStatus, ...] = ()) -> str:
    """The text of `status` for a flow with these lanes."""
    clusters = [ClusterStatus(alias, None, reachable=True) for alias in ("eu", "us")]
    flow = FlowStatus(
        name="eu-us", source=clusters[0], target=clusters[1], state="running", lease=None, totals=Totals.of(lanes),
        lanes=lanes, losses=losses,
    )  # fmt: skip
    console = Console(width=200)
    with console.capture() as printed:
        console.print(status_table(Status(version="0", instance="x", at_ms=1, gathered="daemon", flows=(flow,))))
    return printed.get()


def test_what_a_partition_waits_for_is_in_the_text() -> None:
    waiting = [lane(number, state="opening", note="the ledger knows nothing: rebuild it") for number in range(5)]
    text = flow_of(*waiting, lane(9, note="pinned to replicator 1", lag_records=0))
    assert "waiting orders-0, orders-1, orders-2 and 2 more: the ledger knows nothing: rebuild it" in text
    assert "replicator 1" not in text


def test_losses_of_lanes_that_have_ended_are_in_the_text() -> None:
    text = flow_of(losses=(LossStatus("h_1", 0, "recreated", 11), LossStatus("h_1", 1, "recreated", 4)))
    assert "15 source offsets of h_1 not copied by lanes that have ended: recreated" in text


def test_a_recorded_lane_does_not_show_a_lag_of_0_while_records_are_known_to_wait() -> None:
    """Its resume position is from the moment of the pause; the source has grown since."""
    ledger = FlowState()
    entries = (entry(FLOW), entry(LeaseTaken(1, HOLDER, 6_000)), entry(opened(0), LaneTaken(lane_id(0), 1, "r")))
    for offset, each in enumerate(entries):
        fold(ledger, each, offset)
    progress = Progress(lane_id(0), 1, 1, 40, 40, 0, 40, 40, 1, 1, protected=True, state="drained")
    ledger.accept_progress(progress)
    (before,) = recorded_lanes(ledger, ledger.lanes, {}, 2)
    assert before.lag_records == 0
    for record in changed_records(ledger, {SourcePartition("orders", TopicId("source-topic"), 0): 55}, 1, 2):
        ledger.accept_progress(record)
    (after,) = recorded_lanes(ledger, ledger.lanes, {}, 2)
    assert (after.source_end, after.lag_records) == (55, 15)


@pytest.mark.parametrize("data", [b"[" * 5_000, b'{"a":' * 5_000, b"\xff", b""])
def test_a_document_that_is_no_status_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Status.decode(data)
    with pytest.raises(ValueError, match=r"."):
        decode_manifest(data)
