"""ACLs on real authorizers: which are created, which are deleted, and which are left to their owners."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest

from mirrord.config.flow_features import AclsMode, SyncConfig
from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.kafka.client.config_and_acl_admin import KafkaUpkeepAdmin, NoAuthorizer
from mirrord.lab.cluster import Cluster
from mirrord.ledger.facts.core import AclsSynced
from mirrord.model.acls import AclRule, PatternKind, ResourceKind
from mirrord.topics.acl_sync import AclSync
from tests.fixtures.daemon import unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import config_of
from tests.fixtures.upkeep import Book, book
from tests.fixtures.wire import security_of

LIMIT_S = 10.0
KINDS: tuple[ResourceKind, ...] = ("TOPIC", "GROUP")


class Hand:
    """A client that creates and deletes ACLs without mirrord."""

    def __init__(self, cluster: Cluster) -> None:
        self._admin = KafkaUpkeepAdmin(config_of(cluster), LIMIT_S)

    async def give(self, *rules: AclRule) -> None:
        assert await self._admin.add_rules(rules) == {}

    async def take(self, *rules: AclRule) -> None:
        assert await self._admin.remove_rules(rules) == {}

    async def rules(self, part: str) -> set[AclRule]:
        """The ACLs of resources whose names contain this part."""
        return {rule for rule in await self._admin.rules(KINDS) if part in rule.name}

    async def clear(self, part: str) -> None:
        await self.take(*await self.rules(part))
        await self._admin.close()


class Flow:
    """The sync of ACLs from one cluster to another, without a daemon."""

    def __init__(self, sync: AclSync, ledger: Book, topic: str, source: Hand, target: Hand) -> None:
        self.sync = sync
        self.ledger = ledger
        self.source = source
        self.target = target
        self._topic = topic

    async def round(self) -> None:
        await self.sync.round({f"eu.{self._topic}": self._topic}, self.ledger.state, self.ledger.recorder)

    async def until(self, condition: Callable[[], object]) -> None:
        for _ in range(200):
            await self.round()
            if condition():
                return
        raise AssertionError(f"it never came true: {self.sync.fault}")

    async def until_target(self, expected: Iterable[AclRule]) -> None:
        """A broker learns of new ACLs a moment after the controller."""
        wanted = set(expected)
        for _ in range(100):
            await self.round()
            if await self.target.rules(self._topic) == wanted:
                return
        assert await self.target.rules(self._topic) == wanted


@asynccontextmanager
async def flow_of(
    source: Cluster, target: Cluster, topic: str, mode: AclsMode, user: str = "admin"
) -> AsyncGenerator[Flow]:
    flow = FlowConfig(
        name="eu-us", source="eu", target="us", topics=(f"{topic}.*",), sync=SyncConfig(acls=mode, every_ms=100)
    )
    admins = [
        KafkaUpkeepAdmin(ClusterConfig(tuple(each.bootstrap.split(",")), security_of(each, user)), LIMIT_S)
        for each in (source, target)
    ]
    hands = Hand(source), Hand(target)
    async with book() as ledger:
        try:
            yield Flow(AclSync(flow, lambda name: name.startswith(topic), *admins), ledger, topic, *hands)
        finally:
            for hand in hands:
                await hand.clear(topic)
            for admin in admins:
                await admin.close()


def rule(
    name: str,
    operation: str = "READ",
    permission: str = "ALLOW",
    pattern: PatternKind = "LITERAL",
    resource: ResourceKind = "TOPIC",
) -> AclRule:
    return AclRule(resource, pattern, name, "User:stranger", "*", operation, permission)


async def test_read_only_gives_what_mirrormaker_2_gives(lab_rights: Cluster, lab_sasl: Cluster) -> None:
    topic = unique("orders")
    async with flow_of(lab_rights, lab_sasl, topic, "read-only") as flow:
        await flow.source.give(
            rule(topic),
            rule(topic, "WRITE"),
            rule(f"{topic}-2", "ALL"),
            rule(f"{topic}-3", "WRITE", "DENY"),
            rule(topic, pattern="PREFIXED"),
            rule(topic, resource="GROUP"),
        )
        given = [rule(f"eu.{topic}"), rule(f"eu.{topic}-2"), rule(f"eu.{topic}-3", "WRITE", "DENY")]
        await flow.until_target(given)
        await flow.source.clear(topic)
        await flow.until_target(given)
        assert flow.sync.fault == ""


async def test_exact_gives_and_takes_away_only_what_it_gave(lab_rights: Cluster, lab_sasl: Cluster) -> None:
    topic = unique("orders")
    async with flow_of(lab_rights, lab_sasl, topic, "exact") as flow:
        by_hand, before = rule(f"eu.{topic}", "ALTER"), rule(f"eu.{topic}")
        await flow.target.give(by_hand, before)
        there = [
            rule(topic),
            rule(topic, "WRITE"),
            rule(topic, pattern="PREFIXED"),
            rule(f"{topic}-billing", resource="GROUP"),
            rule(topic, "ALL", pattern="PREFIXED", resource="GROUP"),
        ]
        await flow.source.give(*there)
        write, below = rule(f"eu.{topic}", "WRITE"), rule(f"eu.{topic}", pattern="PREFIXED")
        await flow.until_target([by_hand, before, write, below, *there[3:]])
        assert flow.sync.remarks[0].startswith(
            "1 ACL on target topics is neither mirrord's nor on the source, so it stays: "
        )
        # An ACL that is deleted by hand comes back.
        await flow.target.take(write)
        await flow.until_target([by_hand, before, write, below, *there[3:]])
        await flow.source.take(*there[:2], there[4])
        await flow.until_target([by_hand, before, below, there[3]])
        removed = {
            each for fact in flow.ledger.facts(AclsSynced) if isinstance(fact, AclsSynced) for each in fact.removed
        }
        assert removed == {write, there[4]}
        assert flow.ledger.state.acls == {below, there[3]}


async def test_missing_rights_are_named_and_tried_again(lab_rights: Cluster, lab_sasl: Cluster) -> None:
    topic = unique("orders")
    async with flow_of(lab_rights, lab_sasl, topic, "exact", user="mirrord") as flow:
        await flow.source.give(rule(topic))
        await flow.round()
        assert "those of eu cannot be read: CLUSTER_AUTHORIZATION_FAILED" in flow.sync.fault
        assert flow.sync.fault.endswith("DESCRIBE on the cluster is missing")


async def test_a_cluster_without_authorizer_is_a_remark(lab_pair: LabPair, lab_sasl: Cluster) -> None:
    topic = unique("orders")
    admin = KafkaUpkeepAdmin(config_of(lab_pair.source), LIMIT_S)
    with pytest.raises(NoAuthorizer):
        await admin.rules(KINDS)
    await admin.close()
    flow = FlowConfig(name="eu-us", source="eu", target="us", topics=(topic,), sync=SyncConfig(acls="exact"))
    admins = KafkaUpkeepAdmin(config_of(lab_pair.source), LIMIT_S), KafkaUpkeepAdmin(config_of(lab_sasl), LIMIT_S)
    async with book() as ledger:
        sync = AclSync(flow, lambda _: True, *admins)
        for _ in range(3):
            await sync.round({f"eu.{topic}": topic}, ledger.state, ledger.recorder)
        assert (sync.fault, sync.remarks) == (
            "",
            ("the source cluster eu has no authorizer: no ACLs are synced",),
        )
        assert ledger.facts(AclsSynced) == []
    for each in admins:
        await each.close()
