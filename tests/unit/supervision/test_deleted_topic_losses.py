"""What supervision reports of topics that vanish from the source, and of lanes that wait."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec
import pytest
import structlog.testing

from mirrord.ledger.codec import decode_state
from mirrord.ledger.facts.core import Progress, VerdictGiven
from mirrord.model.errors import EnvironmentFault
from mirrord.replication.lane.assignment import LaneReport, ReplicatorReport
from mirrord.supervision.flow_supervisor import FlowSupervisor
from mirrord.supervision.lane_wait_log import SEEN_TIMES, LaneWaits
from mirrord.supervision.rules.unrecorded_copies import Written, WrittenBatch
from tests.fixtures.one_flow import Mirror, mirrors
from tests.fixtures.supervision import eventually
from tests.unit.supervision.test_order_execution import of_kind, running


@pytest.fixture
async def mirror(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Mirror]:
    async for made in mirrors(monkeypatch):
        made.clusters["eu"].add("orders", 4)
        yield made


async def test_a_topic_that_may_not_be_seen_any_more_is_no_deleted_one(mirror: Mirror) -> None:
    flow, _ = await running(mirror)
    source = mirror.clusters["eu"]
    topic = source.topics.pop("orders")
    source.hidden["orders"] = "TOPIC_AUTHORIZATION_FAILED"
    line = "eu no longer shows orders (TOPIC_AUTHORIZATION_FAILED), so none of its records are copied: allow READ on it"
    await eventually(lambda: line in flow.status().note)
    await eventually(lambda: {lane.state for lane in flow.status().lanes} == {"waiting"})
    assert {(lane.note, lane.lag_records) for lane in flow.status().lanes} == {(line, None)}
    assert of_kind(mirror, VerdictGiven) == []
    del source.hidden["orders"]
    source.topics["orders"] = topic
    await eventually(lambda: flow.status().note == "")
    assert "waiting" not in {lane.state for lane in flow.status().lanes}


async def test_the_loss_of_a_deleted_topic_is_recorded_once_the_source_confirms_it_by_name(mirror: Mirror) -> None:
    """The fake replicators have copied 7 of 10 records of each partition."""
    flow, _ = await running(mirror)
    source = mirror.clusters["eu"]
    source.topics.pop("orders")
    await eventually(lambda: sum(each.offsets for each in flow.status().losses) == 4 * 3)
    facts = [fact for fact in of_kind(mirror, VerdictGiven) if isinstance(fact, VerdictGiven)]
    assert {verdict.reason for fact in facts for verdict in fact.verdicts} == {"recreated"}


def verdicts(mirror: Mirror) -> set[tuple[int, int, str]]:
    facts = [fact for fact in of_kind(mirror, VerdictGiven) if isinstance(fact, VerdictGiven)]
    return {(each.start, each.end, each.reason) for fact in facts for each in fact.verdicts}


def positions(mirror: Mirror) -> list[Progress]:
    """Return the newest progress records of the lanes."""
    rows = {row.key: row.value for row in mirror.ledger.rows if row is not None and row.value is not None}
    records = [decode_state(key, value) for key, value in rows.items()]
    return [each for each in records if isinstance(each, Progress) and each.source is None]


async def delete_in_flight(mirror: Mirror) -> FlowSupervisor:
    """Delete the topic while batches are in flight whose acknowledgements never arrive."""
    flow, engine = await running(mirror)
    for replicator in engine.replicators.values():
        replicator.drains = False
    mirror.clusters["eu"].topics.pop("orders")
    return flow


async def test_what_arrived_without_an_acknowledgement_is_not_lost(mirror: Mirror) -> None:
    """The progress records end at ordinal 7 of 10; the target holds the next two records."""
    mirror.written = Written((WrittenBatch(7, 2),))
    flow = await delete_in_flight(mirror)
    await eventually(lambda: sum(each.offsets for each in flow.status().losses) == 4)
    assert verdicts(mirror) == {(9, 10, "recreated")}
    assert {(str(each.target), each.start) for each in mirror.asked} == {(f"eu.orders-{n}", 7) for n in range(4)}


async def test_no_verdict_is_given_while_the_target_does_not_answer(mirror: Mirror) -> None:
    mirror.written = EnvironmentFault("no broker answers")
    flow = await delete_in_flight(mirror)
    await eventually(lambda: mirror.refused >= 2)
    assert verdicts(mirror) == set()
    mirror.written = Written((WrittenBatch(7, 3),))
    await eventually(lambda: len(mirror.asked) == 4)
    assert sum(each.offsets for each in flow.status().losses) == 0
    assert verdicts(mirror) == set()


async def test_partitions_that_cannot_be_read_are_asked_about_again(mirror: Mirror) -> None:
    mirror.written = None
    flow = await delete_in_flight(mirror)
    await eventually(lambda: len(mirror.asked) >= 8)
    assert verdicts(mirror) == set()
    mirror.written = Written((WrittenBatch(7, 1),))
    await eventually(lambda: sum(each.offsets for each in flow.status().losses) == 8)
    assert verdicts(mirror) == {(8, 10, "recreated")}


async def test_what_was_found_once_is_not_looked_for_again(mirror: Mirror) -> None:
    """FALSE LOSS. Retention removes the batches from the target before another daemon starts."""
    mirror.written = Written((WrittenBatch(7, 3),))
    flow = await delete_in_flight(mirror)
    await eventually(lambda: len(mirror.asked) == 4)
    await eventually(lambda: {each.source_offset for each in positions(mirror)} == {10})
    mirror.written = Written(empty=3)
    await mirror.close()
    mirror.asked.clear()
    flow, _ = mirror.start("host-b")
    await eventually(lambda: len(flow.status().lanes) == 0 and flow.status().state == "running")
    await asyncio.sleep(2.5)  # until the former holder can no longer write
    assert (verdicts(mirror), mirror.asked) == (set(), [])


def lane_report(phase: str, note: str, partition: int = 0) -> LaneReport:
    values = {
        "lane": f"S.{partition}.T", "source_topic": "orders", "target_topic": "eu.orders", "partition": partition,
        "phase": phase, "ordinal": 0, "source_offset": 0, "source_end": 0, "target_offset": 0, "protected": True,
        "last_record_ms": -1, "raw_batches": 0, "rebuilt": {}, "copied_records": 0, "copied_bytes": 0,
        "in_flight_bytes": 0, "note": note,
    }  # fmt: skip
    return msgspec.convert(values, LaneReport)


def reports(*lanes: LaneReport) -> dict[str, ReplicatorReport]:
    values = {
        "name": "r", "pid": 1, "host": "h", "loop_age_ms": 0.0, "cpu_seconds": 0.0, "rss_bytes": 1, "lanes": [],
        "source_error": "", "target_error": "", "lease_valid_s": 1.0, "lost": False,
    }  # fmt: skip
    return {"r": msgspec.structs.replace(msgspec.convert(values, ReplicatorReport), lanes=lanes)}


def test_why_lanes_wait_is_logged_once_and_again_when_it_comes_back() -> None:
    waits = LaneWaits("eu-us")
    stuck = reports(*(lane_report("opening", "rebuild it", number) for number in range(2)))
    with structlog.testing.capture_logs() as logged:
        waits.see(reports(lane_report("waiting", "a leader moved")))
        for _ in range(3 * SEEN_TIMES):
            waits.see(stuck)
    (once,) = logged
    assert (once["event"], once["log_level"], once["lanes"], once["count"], once["reason"]) == (
        "lanes_wait", "warning", ["orders-0", "orders-1"], 2, "rebuild it"
    )  # fmt: skip
    with structlog.testing.capture_logs() as logged:
        waits.see(reports(lane_report("copying", "a quota is used up")))
        for _ in range(SEEN_TIMES):
            waits.see(stuck)
    assert len(logged) == 1
