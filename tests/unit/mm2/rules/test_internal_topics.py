"""The topics for MirrorMaker 2's clients: which, where, and when they are created."""

import msgspec
import pytest

from mirrord.config.flow_features import EmitOn, GroupsConfig, HeartbeatsConfig, Mm2RecordsConfig
from mirrord.config.schema import FlowConfig
from mirrord.mm2.rules.internal_topics import mm2_steps, written_topics

FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",))


def places(flow: FlowConfig) -> set[tuple[str, str]]:
    return {(topic.cluster, topic.name) for topic in written_topics(flow)}


def test_by_default_nothing_is_written_at_the_source() -> None:
    assert places(FLOW) == {
        ("us", "heartbeats"),
        ("us", "eu.checkpoints.internal"),
        ("us", "mm2-offset-syncs.eu.internal"),
    }
    assert [topic.name for topic in written_topics(FLOW) if topic.is_read] == ["eu.checkpoints.internal"]


@pytest.mark.parametrize(("emit", "clusters"), [("both", {"eu", "us"}), ("source", {"eu"}), ("off", set[str]())])
def test_heartbeats_where_they_are_asked_for(emit: EmitOn, clusters: set[str]) -> None:
    flow = msgspec.structs.replace(FLOW, heartbeats=HeartbeatsConfig(emit=emit))
    assert {cluster for cluster, name in places(flow) if name == "heartbeats"} == clusters


def test_offset_syncs_at_the_source_are_named_by_the_target() -> None:
    records = Mm2RecordsConfig(offset_syncs="source", separator="_", checkpoints=False)
    flow = msgspec.structs.replace(FLOW, mm2_records=records, heartbeats=HeartbeatsConfig(emit="off"))
    assert places(flow) == {("eu", "mm2-offset-syncs_us_internal")}


def test_checkpoints_are_written_also_where_nothing_is_committed() -> None:
    flow = msgspec.structs.replace(FLOW, groups=GroupsConfig(mode="off"))
    assert flow.follows_groups
    assert ("us", "eu.checkpoints.internal") in places(flow)
    flow = msgspec.structs.replace(flow, mm2_records=Mm2RecordsConfig(checkpoints=False))
    assert not flow.follows_groups


def test_what_is_missing_is_created() -> None:
    records = Mm2RecordsConfig(offset_syncs="source", checkpoints_replication_factor=3)
    flow = msgspec.structs.replace(FLOW, mm2_records=records)
    steps = list(mm2_steps(flow, [], ["heartbeats"]))
    assert [(step.cluster, step.action, step.name) for step in steps] == [
        ("us", "create", "eu.checkpoints.internal"),
        ("eu", "create", "mm2-offset-syncs.us.internal"),
    ]
    assert steps[0].detail == "checkpoints for MirrorMaker 2's clients: 1 partition, compacted, 3 replicas"
    assert list(mm2_steps(flow, ["mm2-offset-syncs.us.internal"], ["heartbeats", "eu.checkpoints.internal"])) == []
