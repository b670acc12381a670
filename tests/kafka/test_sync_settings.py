"""Topic configs, growth and deletions on real brokers: what is created, altered, left alone and reported."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from mirrord.config.flow_features import HeartbeatsConfig, SyncConfig
from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.kafka.client.config_and_acl_admin import KafkaUpkeepAdmin
from mirrord.kafka.client.topic_admin import KafkaTopicAdmin
from mirrord.lab.cluster import Cluster
from mirrord.ledger.facts.core import ConfigChange, ConfigsSynced, TopicCreated
from mirrord.model.names import ledger_topic
from mirrord.topics.config_sync import SettingsSync
from mirrord.topics.discovery import Discovered, Discovery
from mirrord.topics.topic_claims import Claims
from tests.fixtures.daemon import SECONDS, Daemon, all_ends, assert_same, conf, fill, mirrord, unique
from tests.fixtures.lab import Allow, LabPair, client_settings
from tests.fixtures.mirror import Written, create_topic, write
from tests.fixtures.upkeep import Book, book
from tests.fixtures.wire import security_of

LIMIT_S = 10.0


def alter(cluster: Cluster, topic: str, **settings: str | None) -> None:
    """Alter configs by hand; `retention_ms` stands for retention.ms, None removes."""
    entries = [
        ConfigEntry(
            name.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient(client_settings(cluster))
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(SECONDS)


def own(cluster: Cluster, topic: str) -> dict[str, str]:
    """The topic's own configs."""
    admin = AdminClient(client_settings(cluster))
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    dynamic_topic = 1
    return {name: entry.value for name, entry in future.result(SECONDS).items() if entry.source == dynamic_topic}


def grow(cluster: Cluster, topic: str, partitions: int) -> None:
    admin = AdminClient(client_settings(cluster))
    for future in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        future.result(SECONDS)


class Flow:
    """Discovery and the sync of configs between two clusters, without a daemon."""

    def __init__(self, flow: FlowConfig, source: ClusterConfig, target: ClusterConfig, ledger: Book) -> None:
        self.admins = KafkaTopicAdmin(source, LIMIT_S), KafkaTopicAdmin(target, LIMIT_S)
        self.upkeep = KafkaUpkeepAdmin(source, LIMIT_S), KafkaUpkeepAdmin(target, LIMIT_S)
        self.sync = SettingsSync(flow, *self.upkeep)
        self.ledger = ledger
        self._discovery = Discovery(flow, *self.admins, Claims(), self.sync.for_new)

    async def discover(self) -> Discovered:
        found = await self._discovery.refresh()
        await self.ledger.recorder.write(found.facts)
        return found

    async def round(self) -> None:
        found = await self.discover()
        await self.sync.round(found.lanes, self.ledger.recorder)

    async def until(self, condition: Callable[[], object]) -> None:
        """The broker that altered something knows it a moment before the others do."""
        for _ in range(100):
            await self.round()
            if condition():
                return
        raise AssertionError("it never came true")


@asynccontextmanager
async def flow_of(
    source: Cluster,
    target: Cluster,
    topics: str,
    *,
    defaults: Literal["source", "target"] = "target",
    user: str = "admin",
    factor: int | Literal["broker", "source"] = "broker",
    name: str = "eu-us",
) -> AsyncGenerator[Flow]:
    sync = SyncConfig(use_defaults_from=defaults)
    flow = FlowConfig(
        name=name,
        source="eu",
        target="us",
        topics=(topics,),
        sync=sync,
        heartbeats=HeartbeatsConfig(replicate=False),  # those of other tests
        replication_factor=factor,
    )
    here, there = (
        ClusterConfig(tuple(each.bootstrap.split(",")), security_of(each, user)) for each in (source, target)
    )
    async with book() as ledger:
        made = Flow(flow, here, there, ledger)
        try:
            yield made
        finally:
            for each in (*made.admins, *made.upkeep):
                await each.close()


def changes(ledger: Book) -> list[Mapping[str, tuple[str | None, str | None]]]:
    found = [fact for fact in ledger.facts(ConfigsSynced) if isinstance(fact, ConfigsSynced)]
    return [{change.name: (change.before, change.after) for change in fact.changes} for fact in found]


async def test_copies_are_created_alike_and_drift_is_repaired(lab_pair: LabPair) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(
        source, unique("orders"), 2, cleanup_policy="compact", retention_ms="7200000", min_insync_replicas="1"
    )
    copy = f"eu.{topic}"
    async with flow_of(source, target, topic, factor="source") as flow:
        await flow.until(lambda: own(target, copy))
        assert own(target, copy) == {"cleanup.policy": "compact", "retention.ms": "7200000"}
        (created,) = flow.ledger.facts(TopicCreated)
        assert isinstance(created, TopicCreated)
        alter(target, copy, cleanup_policy="delete", segment_ms="60000", min_insync_replicas="1", retention_ms=None)
        alter(source, topic, max_message_bytes="2000000")
        wanted = {"cleanup.policy": "compact", "retention.ms": "7200000", "max.message.bytes": "2000000"}
        await flow.until(lambda: own(target, copy) == {**wanted, "min.insync.replicas": "1"})
        (first, *repairs) = changes(flow.ledger)
        assert first == {"cleanup.policy": (None, "compact"), "retention.ms": (None, "7200000")}
        assert {name: change for each in repairs for name, change in each.items()} == {
            "cleanup.policy": ("delete", "compact"),
            "segment.ms": ("60000", None),
            "retention.ms": (None, "7200000"),
            "max.message.bytes": (None, "2000000"),
        }
        # Nothing differs any more, so nothing is written.
        recorded = len(changes(flow.ledger))
        for _ in range(3):
            await flow.round()
        assert len(changes(flow.ledger)) == recorded
        assert flow.sync.topics.faults == {}


async def test_defaults_come_from_the_source_when_that_is_asked_for(lab_pair: LabPair) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(source, unique("orders"), 1)
    copy = f"eu.{topic}"
    async with flow_of(source, target, topic, defaults="source") as flow:
        await flow.until(lambda: own(target, copy))
        there = own(target, copy)
        assert there["retention.ms"] == "604800000"
        assert not {"min.insync.replicas", "unclean.leader.election.enable", "message.timestamp.type"} & there.keys()
        alter(target, copy, retention_ms="5000000")
        await flow.until(lambda: own(target, copy)["retention.ms"] == "604800000")
        assert ConfigChange("retention.ms", "5000000", "604800000") in [
            change for fact in flow.ledger.facts(ConfigsSynced) if isinstance(fact, ConfigsSynced)
            for change in fact.changes
        ]  # fmt: skip


async def test_a_copy_grows_and_one_that_is_larger_is_reported(lab_pair: LabPair) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(source, unique("orders"), 1)
    large = create_topic(source, f"{topic}-large", 1)
    create_topic(target, f"eu.{large}", 4)
    async with flow_of(source, target, f"{topic}.*") as flow:
        assert len((await flow.discover()).lanes) == 2
        grow(source, topic, 3)
        found = await flow.discover()
        for _ in range(100):
            if len(found.lanes) == 4:
                break
            found = await flow.discover()
        assert [lane.key.partition for lane in found.lanes if lane.source_topic == topic] == [0, 1, 2]
        assert "has 4 partitions, the source topic" in found.remarks[large]


async def test_missing_rights_are_named_and_the_topic_is_tried_again(lab_sasl: Cluster, allow: Allow) -> None:
    topic = create_topic(lab_sasl, unique("orders"), 1, retention_ms="7200000")
    allow("mirrord", AclOperation.DESCRIBE, topic)
    for operation in (AclOperation.CREATE, AclOperation.DESCRIBE):
        allow("mirrord", operation, f"eu.{topic}")
    async with flow_of(lab_sasl, lab_sasl, topic, user="mirrord") as flow:
        await flow.until(lambda: flow.sync.topics.faults)
        assert "TOPIC_AUTHORIZATION_FAILED" in flow.sync.topics.faults[topic]
        assert flow.sync.topics.faults[topic].endswith("DESCRIBE_CONFIGS is missing")
        assert own(lab_sasl, f"eu.{topic}") == {}
        for prefix in (topic, f"eu.{topic}"):
            allow("mirrord", AclOperation.DESCRIBE_CONFIGS, prefix)
        await flow.until(lambda: flow.sync.topics.faults.get(topic, "").endswith("ALTER_CONFIGS is missing"))
        assert flow.sync.topics.drift[topic] == ("retention.ms: (default) → 7200000",)
        allow("mirrord", AclOperation.ALTER_CONFIGS, f"eu.{topic}")
        await flow.until(lambda: not flow.sync.topics.faults)
        assert own(lab_sasl, f"eu.{topic}") == {"retention.ms": "7200000"}


async def test_an_older_broker_reports_its_settings_too(lab_old: Cluster, lab_pair: LabPair) -> None:
    topic = create_topic(lab_old, unique("orders"), 1, message_format_version="3.0", retention_ms="7200000")
    name = unique("old")
    create_topic(lab_pair.target, ledger_topic(name))  # it shows what the target's brokers know
    async with flow_of(lab_old, lab_pair.target, topic, name=name) as flow:
        await flow.until(lambda: flow.sync.topics.remarks)
        # Kafka 4 has no such config any more.
        assert flow.sync.topics.remarks == {topic: "the target's brokers do not know message.format.version"}
        assert own(lab_pair.target, f"eu.{topic}") == {"retention.ms": "7200000"}


def test_a_daemon_keeps_settings_and_deletes_what_is_gone(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic, name = create_topic(source, unique("orders"), 1, retention_ms="7200000"), unique("sync")
    by_hand = create_topic(source, f"{topic}-by-hand", 1)
    create_topic(target, f"eu.{by_hand}", 1)
    more = 'propagate_deletes = true\ndelete_grace = "1s"\nsync = { acls = "read-only", every = "200ms" }'
    path = conf(tmp_path, source, target, f"{topic}.*", flow=name, flow_more=more)
    fill(source, topic, 1, 100)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        alter(target, f"eu.{topic}", retention_ms="1000000000")
        daemon.until(lambda: own(target, f"eu.{topic}") == {"retention.ms": "7200000"})
        daemon.until(lambda: any(event["event"] == "settings_drift_repaired" for event in daemon.events()))
        flow = daemon.flow()
        assert (flow.note, flow.topics) == ("", ())
        assert flow.remarks == ("the source cluster eu has no authorizer: no ACLs are synced",)
        admin = AdminClient(client_settings(source))
        for future in admin.delete_topics([topic, by_hand]).values():
            future.result(SECONDS)
        there = AdminClient(client_settings(target))
        daemon.until(lambda: f"eu.{topic}" not in there.list_topics(timeout=SECONDS).topics)
        assert f"eu.{by_hand}" in there.list_topics(timeout=SECONDS).topics
        daemon.until(lambda: any(event["event"] == "topic_deleted" for event in daemon.events()))
        assert daemon.stop() == 0
    shown = mirrord("ledger", "show", path, "--json").stdout.splitlines()
    kinds = [json.loads(line)["kind"] for line in shown]
    assert kinds.count("configs_synced") == 2
    assert [kind for kind in kinds if kind in {"deletion_planned", "topic_kept", "topic_deleted"}] == [
        "deletion_planned",
        "topic_deleted",
    ]


def test_records_that_need_new_settings_are_copied_and_not_left_out(lab_pair: LabPair, tmp_path: Path) -> None:
    """The regular sync is ten minutes away: if the target refuses a record, its topic's configs are synced before the
    record is decided on."""
    source, target = lab_pair.source, lab_pair.target
    compacted = create_topic(source, unique("race-compact"), cleanup_policy="compact")
    small = create_topic(source, unique("race-small"), max_message_bytes="20000")
    more = 'on_reject = "skip"\nsync = { every = "10m", acls = "off" }'
    path = conf(tmp_path, source, target, f"{compacted}|{small}", flow=unique("race"), flow_more=more)
    for topic in (compacted, small):
        write(source, topic, [Written(b"key", b"first")])
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, compacted, small))
        alter(source, compacted, cleanup_policy="delete")
        alter(source, small, max_message_bytes="100000")
        write(source, compacted, [Written(None, b"no key"), Written(b"key", b"after")])
        write(source, small, [Written(b"key", b"x" * 50_000), Written(b"key", b"after")])
        daemon.until_copied(all_ends(source, compacted, small))
        assert daemon.stop() == 0
    assert_same(source, target, [compacted, small], 6)
    listed = json.loads(mirrord("quarantine", "list", path, "--json").stdout)
    assert not [each for each in listed["quarantine"] if each["start"] >= 0], listed
