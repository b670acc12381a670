"""Which ACLs a configuration needs, as a table, and which of them mirrord sees."""

from collections.abc import Sequence

import msgspec
import pytest

from mirrord.config.flow_features import GroupsConfig, HeartbeatsConfig, Mm2RecordsConfig, SyncConfig
from mirrord.config.schema import FlowConfig, OnReject
from mirrord.kafka.rules.broker_version import like_release
from mirrord.kafka.rules.topic import Topic
from mirrord.model.findings import Severity
from mirrord.model.names import ClusterId, TopicId
from mirrord.operations.granted_acls import see_rights
from mirrord.operations.rules.required_acls import (
    CODES,
    LeftByMm2,
    Need,
    Operation,
    Right,
    flows_into_source,
    flows_into_target,
    needed_rights,
)
from mirrord.topics.rules.topic_plan import TopicsPlan, plan_topics
from policies.naming import naming
from tests.fixtures.supervision import EVERYTHING, FakeAdmin, FakeCluster

FULL = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",))
"""With everything that a flow does by default."""
FLOW = msgspec.structs.replace(
    FULL,
    groups=GroupsConfig(mode="off"),
    sync=SyncConfig(configs=False, acls="off"),
    heartbeats=HeartbeatsConfig(emit="off"),
    mm2_records=Mm2RecordsConfig(checkpoints=False, offset_syncs="off"),
)
"""It copies, and nothing else."""
OWN = {name: Topic(name, TopicId(name), 1) for name in ("mirrord.eu-us.ledger", "mirrord.eu-us.state")}


CHECKPOINTS: dict[str, object] = {"mm2_records": Mm2RecordsConfig(offset_syncs="off")}


def plan(source: int = 2, target: int | None = None) -> tuple[TopicsPlan, dict[str, Topic]]:
    there = dict(OWN)
    if target is not None:
        there["eu.orders"] = Topic("eu.orders", TopicId("t"), target)
    names = naming("prefix", "eu")
    return plan_topics([Topic("orders", TopicId("s"), source)], there, names.target_topic, {}), there


def table(needs: Sequence[Need], name: str, cluster: str = "us") -> dict[Operation, Severity]:
    return {
        need.right.operation: need.missing for need in needs if (need.right.cluster, need.right.name) == (cluster, name)
    }


def test_the_source_is_only_read() -> None:
    needs = needed_rights(msgspec.structs.replace(FLOW, topics=("orders", "hidden", "any.*")), *plan())
    of_source = {need.right for need in needs if need.right.cluster == "eu"}
    assert {right.operation for right in of_source} == {"READ", "DESCRIBE_CONFIGS"}
    assert table(needs, "orders", "eu") == {"READ": "error", "DESCRIBE_CONFIGS": "note"}
    assert table(needs, "hidden", "eu")["READ"] == "error"


def test_a_topic_that_was_copied_and_cannot_be_seen_may_be_deleted() -> None:
    needs = needed_rights(FLOW, *plan(), hidden=["orders", "orders-2"])
    assert table(needs, "orders-2", "eu") == {"READ": "warning"}
    assert table(needs, "orders", "eu")["READ"] == "error"


def test_what_mirrormaker_2_left_is_asked_for_where_there_may_be_something() -> None:
    left = LeftByMm2("mm2-offsets.eu.internal", "eu-mm2")
    needs = needed_rights(FLOW, *plan(2, 2), left=left)
    assert table(needs, left.offsets_topic) == {"READ": "warning"}
    assert table(needs, left.group) == {"DESCRIBE": "warning"}
    assert "if it has copied here before" in next(each for each in needs if each.right.name == "eu-mm2").purpose
    off = msgspec.structs.replace(FLOW, from_mm2=msgspec.structs.replace(FLOW.from_mm2, takeover="off"))
    for other in (needed_rights(FLOW, *plan(2, 2)), needed_rights(off, *plan(2, 2), left=left)):
        assert not {left.offsets_topic, left.group} & {need.right.name for need in other}


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        (
            None,
            {"CREATE": "error", "READ": "error", "WRITE": "error", "ALTER": "warning", "DESCRIBE_CONFIGS": "warning"},
        ),
        (2, {"READ": "error", "WRITE": "error", "ALTER": "warning", "DESCRIBE_CONFIGS": "warning"}),
        (1, {"READ": "error", "WRITE": "error", "ALTER": "error", "DESCRIBE_CONFIGS": "warning"}),
    ],
)
def test_target_topics(partitions: int | None, expected: dict[str, str]) -> None:
    assert table(needed_rights(FLOW, *plan(2, partitions)), "eu.orders") == expected


def test_mirrords_own_topics() -> None:
    begun, there = plan()
    needs = needed_rights(FLOW, begun, there)
    assert table(needs, "mirrord.eu-us.ledger") == {
        "READ": "error", "WRITE": "error", "DELETE": "error", "ALTER_CONFIGS": "note",
    }  # fmt: skip
    assert "DELETE" not in table(needs, "mirrord.eu-us.state")
    assert set(table(needs, "mirrord.eu-us.probe").values()) == {"warning", "note"}
    assert table(needed_rights(FLOW, begun, {}), "mirrord.eu-us.ledger")["CREATE"] == "error"
    assert table(needs, "kafka-cluster") == {"DESCRIBE_CONFIGS": "warning"}


@pytest.mark.parametrize(
    ("wish", "right"),
    [
        ({"sync": SyncConfig()}, Right("us", "topic", "eu.orders", "ALTER_CONFIGS")),
        ({"sync": SyncConfig(configs=False, acls="exact")}, Right("us", "cluster", "kafka-cluster", "ALTER")),
        ({"sync": SyncConfig(configs=False, acls="read-only")}, Right("eu", "cluster", "kafka-cluster", "DESCRIBE")),
        ({"propagate_deletes": True}, Right("us", "topic", "eu.orders", "DELETE")),
        ({"groups": GroupsConfig()}, Right("eu", "group", "*", "DESCRIBE")),
        ({"groups": GroupsConfig()}, Right("us", "group", "*", "READ")),
        ({"groups": GroupsConfig()}, Right("eu", "topic", "__consumer_offsets", "READ")),
        ({"heartbeats": HeartbeatsConfig()}, Right("us", "topic", "heartbeats", "WRITE")),
        (CHECKPOINTS, Right("us", "topic", "eu.checkpoints.internal", "CREATE")),
        ({"groups": GroupsConfig(reverse=True)}, Right("eu", "group", "*", "READ")),
        ({"groups": GroupsConfig(reverse=True)}, Right("us", "topic", "__consumer_offsets", "READ")),
        (CHECKPOINTS, Right("eu", "group", "*", "DESCRIBE")),
        (CHECKPOINTS, Right("us", "group", "*", "DESCRIBE")),
        (
            {"mm2_records": Mm2RecordsConfig(checkpoints=False)},
            Right("us", "topic", "mm2-offset-syncs.eu.internal", "WRITE"),
        ),
    ],
)
def test_what_is_asked_for_needs_more(wish: dict[str, object], right: Right) -> None:
    assert right not in {need.right for need in needed_rights(FLOW, *plan())}
    assert right in {need.right for need in needed_rights(msgspec.structs.replace(FLOW, **wish), *plan())}


def test_a_topic_for_mm2s_clients_that_is_there_need_not_be_created() -> None:
    planned, there = plan()
    there["eu.checkpoints.internal"] = Topic("eu.checkpoints.internal", TopicId("c"), 1)
    needs = needed_rights(FULL, planned, there)
    assert table(needs, "eu.checkpoints.internal") == {"WRITE": "warning", "READ": "warning"}
    assert table(needs, "heartbeats") == {"CREATE": "warning", "WRITE": "warning"}


def test_clocks_are_compared_where_heartbeats_are_copied() -> None:
    names = naming("prefix", "eu")
    copied = plan_topics([Topic("heartbeats", TopicId("h"), 1)], OWN, names.target_topic, {})
    for cluster in ("eu", "us"):
        assert "DESCRIBE" not in table(needed_rights(FLOW, *plan()), "kafka-cluster", cluster)
        assert table(needed_rights(FLOW, copied, OWN), "kafka-cluster", cluster)["DESCRIBE"] == "note"


def test_a_right_on_all_groups_is_one_on_each() -> None:
    left = LeftByMm2("mm2-offsets.eu.internal", "eu-mm2")
    for match, alone in (((".*",), False), (("eu-.*",), False), (("eu-mm2",), False), (("shop",), True)):
        flow = msgspec.structs.replace(FLOW, groups=GroupsConfig(match=match))
        rights = {need.right for need in needed_rights(flow, *plan(2, 2), left=left)}
        assert (Right("us", "group", "eu-mm2", "DESCRIBE") in rights) == alone


@pytest.mark.parametrize(
    ("match", "names"),
    [
        ((".*", "billing"), ["*"]),
        (("billing", r"shop\..*", "audit-[0-9]+"), ["audit-*", "billing", "shop.*"]),
        (("a|b",), ["*"]),
    ],
)
def test_groups_are_named_as_far_as_the_patterns_name_them(match: tuple[str, ...], names: list[str]) -> None:
    flow = msgspec.structs.replace(FLOW, groups=GroupsConfig(match=match))
    rights = [need.right for need in needed_rights(flow, *plan()) if need.right.resource == "group"]
    assert [right.name for right in rights if right == Right("us", "group", right.name, "READ")] == names
    assert [right.name for right in rights if right == Right("eu", "group", right.name, "DESCRIBE")] == names


@pytest.mark.parametrize(("on_reject", "missing"), [("halt", "note"), ("skip", "warning"), ("skip-unparked", "note")])
def test_what_is_left_out_has_to_be_parked_by_somebody(on_reject: OnReject, missing: Severity) -> None:
    needs = needed_rights(msgspec.structs.replace(FLOW, on_reject=on_reject), *plan())
    assert table(needs, "mirrord.eu-us.dead") == dict.fromkeys(("CREATE", "WRITE", "READ"), missing)
    assert table(needs, "mirrord.eu-us.dead.*") == {"WRITE": missing}
    # A repair happens only on an operator's command.
    assert table(needs, "mirrord.eu-us.repair") == dict.fromkeys(("CREATE", "WRITE", "READ"), "note")
    assert table(needs, "mirrord.eu-us.repair.*") == {"WRITE": "note"}
    rights = [need.right for need in needs if need.right.resource == "transactional-id"]
    assert [str(right) for right in rights] == [
        "WRITE on the transactional id mirrord.eu-us.dead.*",
        "WRITE on the transactional id mirrord.eu-us.repair.*",
    ]


def test_every_ledger_that_may_describe_a_copy_is_read() -> None:
    there = ["mirrord.us-eu.ledger", "mirrord.ap-eu.ledger", "mirrord.ap-eu.state", "orders", "mirrord.x.y.ledger"]
    assert flows_into_source(FLOW, [], there) == []
    same = msgspec.structs.replace(FLOW, naming="identity", groups=GroupsConfig(both_ways=True))
    back = msgspec.structs.replace(same, name="us-eu", source="us", target="eu")
    assert flows_into_source(same, [same, back], there) == ["us-eu", "ap-eu"]
    assert flows_into_target(same, [same, back], ["mirrord.eu-us.ledger", "mirrord.ap-us.ledger"]) == ["ap-us"]
    assert flows_into_target(back, [same, back], there) == ["ap-eu"]
    alone = msgspec.structs.replace(same, groups=GroupsConfig(mode="off", both_ways=True))
    assert flows_into_target(alone, [], there) == flows_into_target(FLOW, [], there) == []
    needs = needed_rights(same, *plan(), into_source=["us-eu"], into_target=["ap-us"])
    for name in ("ledger", "state"):
        assert table(needs, f"mirrord.us-eu.{name}", "eu") == {"READ": "error"}
        assert table(needs, f"mirrord.ap-us.{name}") == {"READ": "warning"}


def test_what_is_implied_is_not_listed() -> None:
    assert "DESCRIBE_CONFIGS" not in table(needed_rights(FULL, *plan()), "eu.orders")
    assert "DESCRIBE_CONFIGS" in table(needed_rights(FULL, *plan()), "orders", "eu")


def test_each_right_is_listed_once() -> None:
    needs = needed_rights(FLOW, *plan())
    assert len({need.right for need in needs}) == len(needs)


async def test_what_is_held_is_seen_by_bits_by_refusals_and_by_trying() -> None:
    eu, us = FakeCluster(ClusterId("eu-id")), FakeCluster(ClusterId("us-id"))
    eu.hidden["orders"] = "TOPIC_AUTHORIZATION_FAILED"
    us.add("mirrord.eu-us.ledger", 1)
    us.allowed["mirrord.eu-us.ledger"] = EVERYTHING & ~(1 << CODES["DELETE"])
    us.refuses |= {"eu.orders": "TOPIC_AUTHORIZATION_FAILED: no", "mirrord.eu-us.state": "POLICY_VIOLATION: never"}
    begun, _ = plan()
    needs = needed_rights(FLOW, begun, {"mirrord.eu-us.ledger": OWN["mirrord.eu-us.ledger"]})
    allowed = {Right("us", "cluster", "kafka-cluster", "DESCRIBE_CONFIGS"): False}
    seen, refused = await see_rights(FLOW, needs, {"eu": FakeAdmin(eu), "us": FakeAdmin(us)}, {}, allowed)
    lacking = {str(right.right) for right in seen if right.held is False}
    assert lacking == {
        "READ on the topic orders",
        "DELETE on the topic mirrord.eu-us.ledger",
        "CREATE on the topic eu.orders",
        "DESCRIBE_CONFIGS on the cluster",
    }
    assert refused == {"mirrord.eu-us.state": "POLICY_VIOLATION: never"}
    held = {str(right.right): right.held for right in seen}
    assert held["WRITE on the topic mirrord.eu-us.ledger"] is True
    assert held["WRITE on the topic eu.orders"] is None


@pytest.mark.parametrize(
    ("produce", "fetch", "release"),
    [
        (13, 18, "Kafka 4.1 or newer"),
        (12, 17, "Kafka 4.0"),
        (11, 17, "Kafka 3.9"),
        (9, 13, "Kafka 3.1 to 3.4"),
        (9, 12, "Kafka 2.8 or 3.0"),
        (8, 11, "older than Kafka 2.8"),
    ],
)
def test_the_release_that_a_broker_is_like(produce: int, fetch: int, release: str) -> None:
    assert like_release({0: (0, produce), 1: (4, fetch)}) == release
