"""Configs, ACLs and deletions with fake clusters: what is done, what is recorded, what must not happen."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from mirrord.config.flow_features import SyncConfig
from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.config_and_acl_admin import regrouped
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.facts.core import (
    AclsPlanned,
    AclsSynced,
    ConfigChange,
    ConfigsSynced,
    TopicCreated,
    TopicDeleted,
    TopicDeletionPlanned,
    TopicDeletionWithdrawn,
)
from mirrord.model.acls import AclRule
from mirrord.model.names import ClusterId, TopicId
from mirrord.operations.planned_steps import upkeep_steps
from mirrord.runtime.clock import SystemClock
from mirrord.supervision.upkeep import Upkeep
from mirrord.topics import acl_sync
from mirrord.topics.acl_sync import AclSync
from mirrord.topics.config_sync import SettingsSync
from mirrord.topics.discovery import Discovery
from mirrord.topics.topic_claims import Claims
from tests.fixtures.supervision import FakeAdmin, FakeCluster, FakeUpkeep, eventually
from tests.fixtures.upkeep import Book, book, lanes_of

FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders.*",), sync=SyncConfig(every_ms=10))
READ = AclRule("TOPIC", "LITERAL", "orders", "User:a", "*", "READ", "ALLOW")
COPIES = {"eu.orders": "orders"}


def clusters() -> tuple[FakeCluster, FakeCluster]:
    return FakeCluster(ClusterId("eu-id")), FakeCluster(ClusterId("us-id"))


def with_copy(name: str = "orders") -> tuple[FakeCluster, FakeCluster]:
    source, target = clusters()
    source.add(name, 1)
    target.add(f"eu.{name}", 1)
    return source, target


def settings(source: FakeCluster, target: FakeCluster, flow: FlowConfig = FLOW) -> SettingsSync:
    return SettingsSync(flow, FakeUpkeep(source), FakeUpkeep(target))


def acls(source: FakeCluster, target: FakeCluster, mode: str | None = "exact") -> AclSync:
    flow = msgspec.structs.replace(FLOW, sync=msgspec.structs.replace(FLOW.sync, acls=mode))
    return AclSync(flow, lambda topic: topic.startswith("orders"), FakeUpkeep(source), FakeUpkeep(target))


def at_copy(rule: AclRule) -> AclRule:
    return msgspec.structs.replace(rule, name=f"eu.{rule.name}")


# settings


async def test_a_new_topic_is_created_with_the_source_topics_settings() -> None:
    source, target = clusters()
    source.add("orders", 2, replicas=2)
    source.own["orders"] = {"cleanup.policy": "compact", "min.insync.replicas": "2", "only.here": "1"}
    sync = settings(source, target)
    flow = msgspec.structs.replace(FLOW, replication_factor="source")
    discovery = Discovery(flow, FakeAdmin(source), FakeAdmin(target), Claims(), sync.for_new)
    created, synced = (await discovery.refresh()).facts
    assert isinstance(created, TopicCreated)
    assert isinstance(synced, ConfigsSynced)
    assert synced.changes == (ConfigChange("cleanup.policy", None, "compact"),)
    shape = target.shapes["eu.orders"]
    assert (shape.partitions, shape.replication_factor, shape.settings) == (2, 2, {"cleanup.policy": "compact"})
    async with book() as ledger:
        lanes = lanes_of((source.topics["orders"], target.topics["eu.orders"]))
        await sync.round(lanes, ledger.recorder)
        assert target.altered == []
        assert sync.topics.remarks == {"orders": "the target's brokers do not know only.here"}


async def test_a_topic_gets_as_many_replicas_as_there_are_brokers() -> None:
    source, target = clusters()
    target.brokers = 1
    source.add("orders", 1, replicas=3)
    flow = msgspec.structs.replace(FLOW, replication_factor="source")
    discovery = Discovery(flow, FakeAdmin(source), FakeAdmin(target), Claims())
    found = await discovery.refresh()
    assert target.topics["eu.orders"].replicas == 1
    assert found.faults == {}
    assert found.notice == "eu.orders has 1 replica instead of 3: the target has 1 broker"


async def test_drift_is_repaired_and_reported_and_what_is_excluded_survives() -> None:
    source, target = with_copy()
    source.own["orders"] = {"retention.ms": "5", "min.insync.replicas": "1"}
    target.own["eu.orders"] = {"retention.ms": "7", "cleanup.policy": "compact", "min.insync.replicas": "2"}
    lanes = lanes_of((source.topics["orders"], target.topics["eu.orders"]))
    async with book() as ledger:
        sync = settings(source, target)
        for _ in range(3):
            await sync.round(lanes, ledger.recorder)
        assert target.own["eu.orders"] == {"retention.ms": "5", "min.insync.replicas": "2"}
        assert target.altered == [("eu.orders", {"cleanup.policy": None, "retention.ms": "5"})]
        (fact,) = ledger.facts(ConfigsSynced)
        changes = (ConfigChange("cleanup.policy", "compact", None), ConfigChange("retention.ms", "7", "5"))
        assert fact == ConfigsSynced("orders", "eu.orders", target.topics["eu.orders"].topic_id, changes)


async def test_a_refused_topic_is_reported_and_tried_again_and_stops_no_other() -> None:
    source, target = clusters()
    for name in ("orders-1", "orders-2", "orders-3"):
        source.add(name, 1)
        target.add(f"eu.{name}", 1)
        source.own[name] = {"retention.ms": "5"}
    target.unalterable["eu.orders-1"] = "TOPIC_AUTHORIZATION_FAILED"
    source.unseen["orders-2"] = "TOPIC_AUTHORIZATION_FAILED"
    lanes = lanes_of(*((source.topics[name], target.topics[f"eu.{name}"]) for name in source.topics))
    async with book() as ledger:
        sync = settings(source, target)
        await sync.round(lanes, ledger.recorder)
        assert sync.topics.faults == {
            "orders-1": "the configs of the target topic eu.orders-1 cannot be changed: TOPIC_AUTHORIZATION_FAILED; "
            "ALTER_CONFIGS is missing",
            "orders-2": "the configs of the source topic orders-2 cannot be read: TOPIC_AUTHORIZATION_FAILED; "
            "DESCRIBE_CONFIGS is missing",
        }
        assert sync.topics.drift == {"orders-1": ("retention.ms: (default) → 5",)}
        assert target.own == {"eu.orders-3": {"retention.ms": "5"}}
        target.unalterable, source.unseen = {}, {}
        await sync.round(lanes, ledger.recorder)
        assert len(target.own) == 3
        assert sync.topics.faults == sync.topics.drift == {}


async def test_a_setting_that_is_refused_holds_up_no_other_one() -> None:
    source, target = with_copy()
    source.own["orders"] = {"retention.ms": "5", "cleanup.policy": "compact"}
    target.bad_settings = {"cleanup.policy"}
    lanes = lanes_of((source.topics["orders"], target.topics["eu.orders"]))
    async with book() as ledger:
        sync = settings(source, target)
        for _ in range(2):
            await sync.round(lanes, ledger.recorder)
        assert target.own["eu.orders"] == {"retention.ms": "5"}
        assert sync.topics.drift == {"orders": ("cleanup.policy: (default) → compact",)}
        assert "cannot be changed: INVALID_CONFIG: cleanup.policy" in sync.topics.faults["orders"]
        (fact,) = ledger.facts(ConfigsSynced)
        assert isinstance(fact, ConfigsSynced)
        assert fact.changes == (ConfigChange("retention.ms", None, "5"),)


async def test_a_topic_is_not_created_before_its_settings_are_known() -> None:
    source, target = clusters()
    source.add("orders", 1)
    away, _ = clusters()
    away.fail("no answer")
    sync = settings(away, target)
    discovery = Discovery(FLOW, FakeAdmin(source), FakeAdmin(target), Claims(), sync.for_new)
    line = "the target topic eu.orders has not been created yet, because its configs are not known: no answer"
    assert (await discovery.refresh()).faults == {"orders": line}
    away.error = None
    away.topics = source.topics
    assert (await discovery.refresh()).faults == {}
    assert "eu.orders" in target.topics


def test_groups_of_topics_stay_together() -> None:
    names = [f"topic-{number:03}" for number in range(250)]
    groups = regrouped([], names)
    assert [len(group.topics) for group in groups] == [100, 100, 50]
    more = regrouped(groups, [*names[1:], "a new one"])
    assert more[1] is groups[1]
    assert [len(group.topics) for group in more] == [99, 100, 51]
    assert sorted(topic for group in more for topic in group.topics) == sorted([*names[1:], "a new one"])
    assert regrouped(more, []) == []


# rights


async def test_rights_are_given_and_taken_away_and_those_of_others_stay() -> None:
    source, target = clusters()
    write = msgspec.structs.replace(READ, operation="WRITE")
    group = AclRule("GROUP", "PREFIXED", "bill", "User:a", "*", "READ", "ALLOW")
    by_hand = at_copy(msgspec.structs.replace(READ, principal="User:hand"))
    source.rules, target.rules = {READ, write, group}, {by_hand, at_copy(READ)}
    async with book() as ledger:
        sync = acls(source, target)
        await sync.round(COPIES, ledger.state, ledger.recorder)
        assert target.rules == {by_hand, at_copy(READ), at_copy(write), group}
        assert ledger.facts(AclsPlanned, AclsSynced) == [
            AclsPlanned((group, at_copy(write))),
            AclsSynced((group, at_copy(write))),
        ]
        source.rules = set()
        await sync.round(COPIES, ledger.state, ledger.recorder)
        # The ACL for READ existed before mirrord came.
        assert target.rules == {by_hand, at_copy(READ)}
        assert ledger.state.acls == frozenset()
        assert sync.remarks[0].startswith(
            "2 ACLs on target topics are neither mirrord's nor on the source, so they stay, such as "
        )
        await sync.round(COPIES, ledger.state, ledger.recorder)
        assert len(ledger.facts(AclsPlanned, AclsSynced)) == 3


async def test_read_only_after_exact_takes_back_its_own_rights_to_write_and_on_groups() -> None:
    source, target = clusters()
    write = msgspec.structs.replace(READ, operation="WRITE")
    group = AclRule("GROUP", "LITERAL", "billing", "User:a", "*", "READ", "ALLOW")
    by_hand = msgspec.structs.replace(group, principal="User:hand")
    source.rules, target.rules = {READ, write, group}, {by_hand}
    async with book() as ledger:
        await acls(source, target).round(COPIES, ledger.state, ledger.recorder)
        assert target.rules == {by_hand, at_copy(READ), at_copy(write), group}
        read_only = acls(source, target, "read-only")
        await read_only.round(COPIES, ledger.state, ledger.recorder)
        assert target.rules == {by_hand, at_copy(READ)}
        assert ledger.state.acls == {at_copy(READ)}
        # What the source no longer has stays, as with MirrorMaker 2.
        source.rules = set()
        await read_only.round(COPIES, ledger.state, ledger.recorder)
        assert target.rules == {by_hand, at_copy(READ)}
        await acls(source, target, "off").round(COPIES, ledger.state, ledger.recorder)
        assert target.rules == {by_hand, at_copy(READ)}
        assert len(ledger.facts(AclsPlanned, AclsSynced)) == 3


async def test_a_flow_that_has_added_acls_warns_if_the_mode_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(acl_sync.log, "warning", lambda event, **more: lines.append(f"{event}: {more['reason']}"))
    source, target = clusters()
    source.rules, target.rules = {READ}, set()
    async with book() as ledger:
        unset = acls(source, target, None)
        await unset.round(COPIES, ledger.state, ledger.recorder)
        assert (lines, unset.remarks, target.rules) == ([], (), set())
        await acls(source, target, "read-only").round(COPIES, ledger.state, ledger.recorder)
        for _ in range(2):
            await unset.round(COPIES, ledger.state, ledger.recorder)
        (line,) = lines
        assert line.startswith("acls_not_synced: mirrord has added 1 ACL to the target, but sync.acls is not set")
        assert [f"acls_not_synced: {remark}" for remark in unset.remarks] == lines
        off = acls(source, target, "off")
        await off.round(COPIES, ledger.state, ledger.recorder)
        assert (len(lines), off.remarks, target.rules) == (1, (), {at_copy(READ)})


async def test_acls_that_a_dead_holder_granted_without_recording_them_are_ours() -> None:
    source, target = clusters()
    source.rules, target.rules = {READ}, set()
    async with book() as ledger:
        # Killed between creating the ACL and recording it; it did not reach the second one.
        other = at_copy(msgspec.structs.replace(READ, operation="DESCRIBE"))
        await ledger.recorder.write([AclsPlanned((at_copy(READ), other))])
        target.rules.add(at_copy(READ))
        await acls(source, target).round(COPIES, ledger.state, ledger.recorder)
        assert (ledger.state.acls, ledger.state.planned_acls) == ({at_copy(READ)}, frozenset())
        target.rules.add(other)
        source.rules = set()
        await acls(source, target).round(COPIES, ledger.state, ledger.recorder)
        assert target.rules == {other}


async def test_a_source_without_authorizer_is_reported_once_and_removes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[str] = []
    monkeypatch.setattr(acl_sync.log, "info", lambda event, **_: events.append(event))
    source, target = clusters()
    source.rules, target.rules = {READ}, set()
    async with book() as ledger:
        sync = acls(source, target)
        await sync.round(COPIES, ledger.state, ledger.recorder)
        source.rules = None
        for _ in range(3):
            await sync.round(COPIES, ledger.state, ledger.recorder)
        assert target.rules == {at_copy(READ)}
        assert (sync.fault, sync.remarks) == (
            "",
            ("the source cluster eu has no authorizer: no ACLs are synced",),
        )
        assert events == ["acls_synced", "acls_remark"]


async def test_a_missing_right_is_named_and_tried_again() -> None:
    source, target = clusters()
    source.rules, target.rules = {READ}, set()
    source.rules_hidden = "CLUSTER_AUTHORIZATION_FAILED"
    async with book() as ledger:
        sync = acls(source, target)
        await sync.round(COPIES, ledger.state, ledger.recorder)
        assert sync.fault.endswith("those of eu cannot be read: CLUSTER_AUTHORIZATION_FAILED; "
                                   "DESCRIBE on the cluster is missing")  # fmt: skip
        source.rules_hidden, target.rules_fixed = "", "CLUSTER_AUTHORIZATION_FAILED"
        await sync.round(COPIES, ledger.state, ledger.recorder)
        assert "the target refuses ALLOW READ on topic eu.orders for User:a" in sync.fault
        assert sync.fault.endswith("ALTER on the cluster is missing")
        assert ledger.state.planned_acls == ledger.state.acls == frozenset()
        target.rules_fixed = ""
        for _ in range(2):  # the first one comes too early
            await sync.round(COPIES, ledger.state, ledger.recorder)
        assert (sync.fault, target.rules) == ("", {at_copy(READ)})


# deletions and rights


class Mirror:
    """Discovery and upkeep of one flow."""

    def __init__(self, ledger: Book, *, grace_ms: int = 0, wanted: bool = True, syncs_configs: bool = True) -> None:
        self.source, self.target = clusters()
        self.ledger = ledger
        self.flow = msgspec.structs.replace(FLOW, propagate_deletes=wanted, delete_grace_ms=grace_ms)
        if not syncs_configs:
            self.flow = msgspec.structs.replace(self.flow, sync=msgspec.structs.replace(FLOW.sync, configs=False))
        self.upkeep = Upkeep(self.flow, FakeUpkeep(self.source), FakeUpkeep(self.target), SystemClock())
        self.discovery = Discovery(self.flow, FakeAdmin(self.source), FakeAdmin(self.target), Claims())
        self._task = asyncio.create_task(self.upkeep.run(lambda: ledger.state, ledger.recorder))

    async def refresh(self) -> None:
        found = await self.discovery.refresh()
        await self.ledger.recorder.write(found.facts)
        self.upkeep.see(found)
        for _ in range(20):
            await asyncio.sleep(0.001)

    async def until(self, condition: Callable[[], object]) -> None:
        for _ in range(200):
            if condition():
                return
            await self.refresh()
        raise AssertionError("it never came true")

    def close(self) -> None:
        self._task.cancel()


async def test_target_configs_that_cannot_be_read_are_remarked_on_even_if_none_are_synced() -> None:
    async with book() as ledger:
        mirror = Mirror(ledger, syncs_configs=False)
        mirror.source.add("orders", 1)
        mirror.target.unseen["eu.orders"] = "TOPIC_AUTHORIZATION_FAILED: Topic authorization failed."
        await mirror.until(
            lambda: any("DESCRIBE_CONFIGS is missing on eu.orders" in each for each in mirror.upkeep.remarks)
        )
        mirror.close()


DELETIONS = (TopicDeletionPlanned, TopicDeletionWithdrawn, TopicDeleted)


async def test_a_copy_goes_after_its_time_of_grace_and_only_if_mirrord_created_it() -> None:
    async with book() as ledger:
        mirror = Mirror(ledger)
        mirror.source.add("orders", 1)
        mirror.source.add("orders-by-hand", 1)
        mirror.target.add("eu.orders-by-hand", 1)
        mirror.target.add("eu.orders-other", 1)
        await mirror.until(lambda: "eu.orders" in mirror.target.topics)
        topic_id = mirror.target.topics["eu.orders"].topic_id
        mirror.source.topics.clear()
        await mirror.until(lambda: "eu.orders" not in mirror.target.topics)
        await eventually(lambda: ledger.facts(TopicDeleted))
        planned, deleted = ledger.facts(*DELETIONS)
        assert isinstance(planned, TopicDeletionPlanned)
        assert deleted == TopicDeleted("eu.orders", topic_id)
        assert set(mirror.target.topics) == {"eu.orders-by-hand", "eu.orders-other"}
        mirror.close()


async def test_nothing_goes_unless_it_is_asked_for() -> None:
    async with book() as ledger:
        mirror = Mirror(ledger, wanted=False)
        mirror.source.add("orders", 1)
        await mirror.until(lambda: "eu.orders" in mirror.target.topics)
        mirror.source.topics.clear()
        for _ in range(5):
            await mirror.refresh()
        assert "eu.orders" in mirror.target.topics
        assert ledger.facts(*DELETIONS) == []
        mirror.close()


async def test_a_topic_that_comes_back_or_is_only_hidden_keeps_its_copy() -> None:
    async with book() as ledger:
        mirror = Mirror(ledger, grace_ms=3_600_000)
        mirror.source.add("orders", 1)
        await mirror.until(lambda: "eu.orders" in mirror.target.topics)
        mirror.source.hidden["orders"] = "TOPIC_AUTHORIZATION_FAILED"
        topics, mirror.source.topics = mirror.source.topics, {}
        for _ in range(5):
            await mirror.refresh()
        assert ledger.facts(*DELETIONS) == []
        mirror.source.hidden.clear()
        await mirror.until(lambda: ledger.facts(TopicDeletionPlanned))
        line = "to be deleted, because their source topics no longer exist: eu.orders"
        await mirror.until(lambda: line in mirror.upkeep.remarks)
        mirror.source.topics = topics
        await mirror.until(lambda: ledger.facts(TopicDeletionWithdrawn))
        assert all(topic.delete_at_ms is None for topic in ledger.state.topics.values())
        assert "eu.orders" in mirror.target.topics
        mirror.close()


async def test_a_refused_deletion_is_named_and_tried_again() -> None:
    async with book() as ledger:
        mirror = Mirror(ledger)
        mirror.source.add("orders", 1)
        await mirror.until(lambda: "eu.orders" in mirror.target.topics)
        mirror.target.refuses["eu.orders"] = "TOPIC_AUTHORIZATION_FAILED"
        mirror.source.topics.clear()
        await mirror.until(lambda: mirror.upkeep.faults)
        assert mirror.upkeep.faults == [
            "deletions are currently not synced: the target topic eu.orders cannot be deleted: "
            "TOPIC_AUTHORIZATION_FAILED; DELETE is missing"
        ]
        mirror.target.refuses.clear()
        await mirror.until(lambda: ledger.facts(TopicDeleted))
        await mirror.until(lambda: not mirror.upkeep.faults)
        mirror.close()


async def test_a_cluster_that_is_away_stops_one_round_and_no_loop() -> None:
    async with book() as ledger:
        mirror = Mirror(ledger)
        mirror.source.add("orders", 1)
        await mirror.until(lambda: "eu.orders" in mirror.target.topics)
        mirror.target.fail()
        await eventually(lambda: mirror.upkeep.faults)
        assert mirror.upkeep.faults == ["settings are currently not synced: no broker answers"]
        mirror.target.error = None
        mirror.source.own["orders"] = {"retention.ms": "5"}
        await eventually(lambda: mirror.target.own["eu.orders"] == {"retention.ms": "5"})
        await eventually(lambda: not mirror.upkeep.faults)
        mirror.close()


async def test_the_plan_says_what_is_done_and_does_nothing() -> None:
    source, target = with_copy()
    source.add("orders-new", 2)
    source.own = {"orders": {"retention.ms": "5"}, "orders-new": {"cleanup.policy": "compact"}}
    source.rules, target.rules = {READ}, set()
    lost = TopicCreated("orders-old", TopicId("old"), "eu.orders-old", TopicId("gone"), 1)
    target.topics["eu.orders-old"] = Topic("eu.orders-old", TopicId("gone"), 1)
    sync = msgspec.structs.replace(FLOW.sync, acls="read-only")
    flow = msgspec.structs.replace(FLOW, propagate_deletes=True, sync=sync)
    async with book() as ledger:
        await ledger.recorder.write([lost])
        looked = await Discovery(flow, FakeAdmin(source), FakeAdmin(target), Claims()).preview()
        steps = await upkeep_steps(flow, looked, ledger.state, FakeUpkeep(source), FakeUpkeep(target))
        assert [(step.action, step.kind, step.name, step.detail) for step in steps] == [
            ("alter", "setting", "eu.orders", "retention.ms: (default) → 5"),
            ("alter", "setting", "eu.orders-new", "cleanup.policy: (default) → compact"),
            ("create", "acl", "eu.orders", "ALLOW READ on topic eu.orders for User:a"),
            ("delete", "topic", "eu.orders-old", "orders-old no longer exists; after 86400 s of grace"),
        ]
        assert (target.own, target.rules, set(target.topics)) == ({}, set(), {"eu.orders", "eu.orders-old"})
