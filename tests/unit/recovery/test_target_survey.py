"""What the target does not reveal is reported, and does not always make a flow unready."""

import asyncio
from collections.abc import Collection

import pytest
from msgspec.structs import replace

from mirrord.config.flow_features import GroupsConfig
from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.config.security import Security
from mirrord.kafka.client.admin_requests import NotOffered
from mirrord.kafka.client.config_and_acl_admin import RequestRefused
from mirrord.kafka.client.connection import Unreachable
from mirrord.kafka.protocol.list_offsets import ListedOffset
from mirrord.ledger.facts.core import LeaseTaken
from mirrord.ledger.fold import fold
from mirrord.ledger.last_seen.group_positions import group_records
from mirrord.ledger.last_seen.quotas import quota_records
from mirrord.ledger.state import FlowState
from mirrord.model.group_status import GroupStatus
from mirrord.model.names import ClusterId, TopicPartition
from mirrord.model.quotas import ClientQuota
from mirrord.model.readiness import FlowReadiness
from mirrord.recovery import flow_readiness, target_survey
from mirrord.recovery.flow_readiness import Live, ReadinessOptions, assess
from mirrord.recovery.target_survey import TargetClients, TargetCommits, TargetSurvey, kept
from mirrord.recovery.turns import Turns
from tests.fixtures.ledger import FLOW as STARTED
from tests.fixtures.ledger import HOLDER, entry, opened
from tests.fixtures.supervision import FakeAdmin, FakeCluster, FakeUpkeep
from tests.unit.ledger.last_seen.test_last_seen_configs import save

FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",), groups=GroupsConfig(mode="off"))
QUOTA = ClientQuota((("user", "ada"),), "producer_byte_rate", 1.0)


async def readiness(fault: Exception | None = None) -> FlowReadiness:
    """The readiness of a flow without lanes, if the target answers the request for quotas with this error."""

    class Target(FakeUpkeep):
        async def quotas(self) -> frozenset[ClientQuota]:
            if fault is not None:
                raise fault
            return await super().quotas()

    state, target = FlowState(), FakeCluster(ClusterId("us-id"))
    save(state, quota_records(state, {QUOTA}, "", 1, 1_000))
    clients = TargetClients(ClusterConfig(("127.0.0.1:1",), Security()), FakeAdmin(target), Target(target))
    return (await assess(FLOW, state, Live(), clients, 2_000, Turns())).answer(ReadinessOptions())


async def test_quotas_of_both_clusters_are_compared() -> None:
    found = await readiness()
    assert found.quotas.differences == (f"missing on the target: {QUOTA}",)
    assert found.quotas.seen_ms == 1_000


@pytest.mark.parametrize(
    ("fault", "note"),
    [
        (RequestRefused("not authorized"), "the target: not authorized"),
        (NotOffered("too old"), "the target: too old"),
        (Unreachable("gone"), "the target does not answer: gone"),
    ],
)
async def test_quotas_that_cannot_be_read_do_not_make_a_flow_unready(fault: Exception, note: str) -> None:
    found = await readiness(fault)
    assert note not in found.blockers
    assert f"client quotas were not compared: {note}" in found.remarks


async def test_what_is_recorded_while_the_target_is_asked_does_not_seem_to_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A group commits, and its position is recorded, after the target has returned the commits."""
    flow, state, target = replace(FLOW, groups=GroupsConfig()), FlowState(), FakeCluster(ClusterId("us-id"))
    for offset, each in enumerate((entry(STARTED), entry(LeaseTaken(1, HOLDER, 6_000)), entry(opened(0)))):
        fold(state, each, offset)
    save(state, group_records(state, [], 1, 900, 1, 1_000))

    async def survey(*_: object) -> TargetSurvey:
        status = GroupStatus(
            group="billing", topic="orders", partition=0, target_topic="eu.orders", source_offset=5, state="in step"
        )
        save(state, group_records(state, [status], 1, 1_500, 1, 1_500))
        nothing = "the target: not asked"
        return TargetSurvey(nothing, {}, TargetCommits({}, {}), nothing, nothing, nothing)

    monkeypatch.setattr(flow_readiness, "survey_target", survey)
    clients = TargetClients(ClusterConfig(("127.0.0.1:1",), Security()), FakeAdmin(target), FakeUpkeep(target))
    found = (await assess(flow, state, Live(), clients, 2_000, Turns())).answer(ReadinessOptions())
    assert (found.groups.seen_ms, found.groups.inexact) == (900, 0), found.blockers
    later = (await assess(flow, state, Live(), clients, 2_000, Turns())).answer(ReadinessOptions())
    assert later.groups.inexact == 1, "it was recorded before"


async def test_a_long_computation_lets_other_tasks_run() -> None:
    turns, others = Turns(), list[int]()

    async def other() -> None:
        while True:
            others.append(1)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    assert await turns.collect(range(1_000)) == list(range(1_000))
    assert await turns.outside(asyncio.sleep(0, "answer")) == "answer"
    assert len(others) >= 5
    assert turns.spent_s > 0
    task.cancel()


LOG_MS = {0: 0, 10: 5_000, 20: 9_000}
"""Offsets of a log, and the timestamps of the records from there on."""


class FakeOffsets:
    """A target whose partitions all have this log, except for one that does not exist."""

    asked = 0

    def __init__(self, cluster: ClusterConfig) -> None:
        pass

    async def of(self, partitions: Collection[TopicPartition], time: int) -> dict[TopicPartition, ListedOffset]:
        FakeOffsets.asked += 1
        first = next((offset for offset, at_ms in LOG_MS.items() if at_ms >= time), -1)
        return {each: ListedOffset(each.topic, each.partition, 0, time, first, 0) for each in partitions if each.topic}

    def close(self) -> None:
        pass


async def test_how_long_records_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 10 s, with a retention of 8 s, records of the first second are kept for no certain time."""
    monkeypatch.setattr(target_survey, "LogOffsets", FakeOffsets)
    places = [("orders", partition) for partition in range(4)] + [("", 0)]
    positions = dict(zip(places, (25, 20, 15, 5, 5), strict=True))
    cluster = ClusterConfig(("127.0.0.1:1",), Security())
    found = await kept(cluster, positions, dict.fromkeys(places, 8_000), 10_000)
    assert found == {places[0]: 4.0, places[1]: 4.0, places[2]: 1.0, places[3]: 0.0}
    assert FakeOffsets.asked == 3
    assert await kept(cluster, {places[3]: 5}, {places[3]: 100_000}, 10_000) == {places[3]: 50.0}
    FakeOffsets.asked = 0
    many = {("orders", each): 1_000 + each for each in range(40)}
    found = await kept(cluster, dict.fromkeys(many, 5), many, 10_000)
    assert (len(found), FakeOffsets.asked) == (16, 48)
