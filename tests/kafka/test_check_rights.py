"""Real authorizers on both sides: the ACLs that `check` lists are sufficient, and none of them is superfluous."""

import asyncio
import json
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

from mirrord.config.loader import load
from mirrord.lab.cluster import Cluster
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import EnvironmentFault
from mirrord.model.findings import Severity
from mirrord.operations.check_findings import CheckReport, check
from mirrord.operations.rules.required_acls import Right
from mirrord.operations.start_refusals import check_start
from tests.fixtures.daemon import SECONDS, Daemon, all_ends, conf, fill, mirrord, unique
from tests.fixtures.lab import client_settings
from tests.fixtures.mirror import Written, create_topic, messages, write

USER = "stranger"
READER = "User:reader"
"""A principal whose ACLs are replicated."""
BILLS = ("gone", "old", "paid")
KINDS = {
    "cluster": ResourceType.BROKER,
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}


class Granting:
    """The ACLs of the flow's user on both clusters, one by one."""

    def __init__(self, **clusters: Cluster) -> None:
        self.admins = {alias: AdminClient(client_settings(cluster)) for alias, cluster in clusters.items()}
        self._given: frozenset[Right] = frozenset()

    def be(self, rights: Iterable[Right]) -> None:
        """Set exactly these ACLs and wait until the brokers know them: the controller informs the brokers later."""
        wanted = frozenset(rights)
        for alias, admin in self.admins.items():
            give = {AclBinding(*_words(right)) for right in wanted - self._given if right.cluster == alias}
            take = {AclBindingFilter(*_words(right)) for right in self._given - wanted if right.cluster == alias}
            wait(admin.create_acls(list(give)) if give else {})
            wait(admin.delete_acls(list(take)) if take else {})
            deadline = time.monotonic() + SECONDS
            while (known := set(admin.describe_acls(_all_of(f"User:{USER}")).result(SECONDS))) & take or give - known:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        self._given = wanted

    def clear(self) -> None:
        """Remove all ACLs, including those that mirrord created."""
        for admin in self.admins.values():
            wait(admin.delete_acls([_all_of(f"User:{USER}"), _all_of(READER)]))


def _all_of(principal: str) -> AclBindingFilter:
    some: Any = None  # the client's types do not know it
    kind, pattern, operation = ResourceType.ANY, ResourcePatternType.ANY, AclOperation.ANY
    return AclBindingFilter(kind, some, pattern, principal, some, operation, AclPermissionType.ANY)


def _words(
    right: Right,
) -> tuple[ResourceType, str, ResourcePatternType, str, str, AclOperation, AclPermissionType]:
    # "*" alone stands for every name, as a literal.
    begins = right.name.removesuffix("*")
    pattern = ResourcePatternType.LITERAL if begins in {"", right.name} else ResourcePatternType.PREFIXED
    name, allowed = begins or right.name, AclPermissionType.ALLOW
    return KINDS[right.resource], name, pattern, f"User:{USER}", "*", AclOperation[right.operation], allowed


@pytest.fixture
def granting(lab_rights: Cluster, lab_sasl: Cluster) -> Generator[Granting]:
    """ACLs on the source `eu` and the target `us`; those that are left are removed after the test."""
    rights = Granting(eu=lab_rights, us=lab_sasl)
    yield rights
    rights.clear()


class Checks:
    """What `check` and `start` report about a configuration."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._config = load(path)

    def report(self) -> CheckReport:
        return asyncio.run(check(self._config, ClusterAccess(self._config), probe=False))

    def start_refuses(self) -> str:
        """The first lines of `start`; empty if it would continue."""
        access = ClusterAccess(self._config)
        try:
            asyncio.run(check_start(self._config, access.admin, access.ledger))
        except EnvironmentFault as fault:
            return str(fault)
        return ""


def missing(report: CheckReport) -> set[Right]:
    return {seen.right for seen in report.rights if seen.held is False}


def listed(report: CheckReport) -> dict[Right, Severity]:
    return {seen.right: seen.missing for seen in report.rights}


def grant_what_is_listed(checks: Checks, granting: Granting, before: Iterable[Right]) -> dict[Right, Severity]:
    """ACLs make more topics visible, and those need ACLs: until nothing new is listed, and nothing else is granted."""
    given = frozenset(before)
    while True:
        report = checks.report()
        wanted = listed(report)
        if wanted.keys() == given:
            assert report.would_start, report.findings
            assert all(seen.held for seen in report.rights)
            return wanted
        given = frozenset(wanted)
        granting.be(given)


def take_away_in_turn(
    checks: Checks, granting: Granting, every: Iterable[Right], rights: Mapping[Right, Severity]
) -> None:
    """Remove one ACL at a time: `check` names that one and no other, and `start` refuses where it could not run."""
    every = frozenset(every)
    for right, severity in rights.items():
        granting.be(every - {right})
        report = checks.report()
        assert missing(report) == {right}
        (problem,) = [finding for finding in report.findings if f"{right.operation} is missing" in finding.what]
        assert problem.where == f"{right.cluster}: {right.resource} {right.name}"
        assert problem.severity == severity
        refusal = checks.start_refuses()
        assert f"{right.operation} (" in refusal if severity == "error" else not refusal, (right, refusal)
    granting.be(every)
    assert not missing(checks.report())


def configuration(folder: Path, source: Cluster, target: Cluster, topics: str, flow: str) -> Path:
    path = conf(
        folder,
        source,
        target,
        topics,
        flow=flow,
        security=target.security(USER),
        flow_more='propagate_deletes = true\ndelete_grace = "100ms"\nsync = { acls = "exact", every = "200ms" }',
    )
    words = ", ".join(f'{key} = "{value}"' for key, value in source.security(USER).items())
    path.write_text(path.read_text().replace("[clusters.us]", f"security = {{ {words} }}\n[clusters.us]"))
    return path


def test_the_rights_that_are_listed_are_enough_and_none_is_too_many(
    lab_rights: Cluster, lab_sasl: Cluster, granting: Granting, tmp_path: Path
) -> None:
    source, target = lab_rights, lab_sasl
    orders, bills, flow = unique("orders"), unique("bills"), unique("rights")
    for name, partitions in ((orders, 2), *((f"{bills}.{name}", 1) for name in BILLS)):
        fill(source, create_topic(source, name, partitions), partitions, 100)
    # A topic that MirrorMaker 2 may have left: mirrord must look for it, and it is not there.
    write(target, create_topic(target, f"eu.{bills}.old"), [Written(b"k", b"somebody else's")])
    checks = Checks(configuration(tmp_path, source, target, f"{orders}', '{bills}[.].*", flow))

    report = checks.report()
    assert not report.would_start
    # Without permission to describe a topic, a user cannot find out whether they may describe or alter its configs.
    assert {right for right in listed(report) if "CONFIGS" not in right.operation} <= missing(report)
    answer = mirrord("start", checks.path)
    assert answer.returncode == 1
    assert f"flow {flow}: cluster eu: READ (to copy it) on the topic {orders} is missing" in answer.stderr
    # A flow that selects topics by a pattern needs Describe on them: mirrord cannot name what Kafka hides.
    seen = [Right("eu", "topic", f"{bills}.{name}", "READ") for name in BILLS]
    granting.be(seen)
    before = grant_what_is_listed(checks, granting, seen)
    assert {right.operation for right in before if right.cluster == "eu"} == {"READ", "DESCRIBE", "DESCRIBE_CONFIGS"}
    assert Right("us", "topic", "mm2-offsets.eu.internal", "READ") in before
    # The topics are alike: one stands for all.
    once: dict[Right, Severity] = {
        right: severity for right, severity in sorted(before.items()) if bills not in right.name
    }
    take_away_in_turn(checks, granting, before, once)

    run_everything(checks.path, granting, source, orders, bills)

    report = checks.report()
    assert listed(report).keys() <= before.keys()
    granting.be(listed(report))
    # The ledger shows that a copied topic is missing, although only a pattern selects it.
    hidden = Right("eu", "topic", f"{bills}.paid", "READ")
    ledger = [Right("us", "topic", f"mirrord.{flow}.ledger", operation) for operation in ("READ", "WRITE", "DELETE")]
    again: dict[Right, Severity] = {hidden: "warning", **dict.fromkeys(ledger, "error")}
    take_away_in_turn(checks, granting, listed(report), again)


def test_rights_that_are_lost_for_a_while(
    lab_rights: Cluster, lab_sasl: Cluster, granting: Granting, tmp_path: Path
) -> None:
    """Records flow meanwhile: what waits says so and why, it continues by itself, and nothing is lost or duplicated."""
    source, target = lab_rights, lab_sasl
    orders, flow = unique("orders"), unique("midway")
    fill(source, create_topic(source, orders), 1, 10)
    checks = Checks(configuration(tmp_path, source, target, orders, flow))
    every = frozenset(grant_what_is_listed(checks, granting, ()))
    state, ledger = f"mirrord.{flow}.state", f"mirrord.{flow}.ledger"
    taken = (
        (Right("eu", "topic", orders, "READ"), f"eu no longer shows {orders} (TOPIC_AUTHORIZATION_FAILED)"),
        (Right("us", "topic", f"eu.{orders}", "WRITE"), "the batch is retried: TOPIC_AUTHORIZATION_FAILED"),
        (Right("us", "topic", ledger, "WRITE"), f"accepts nothing, and the append is retried: {ledger}: TOPIC_AUTH"),
        (
            Right("us", "topic", state, "WRITE"),
            f"another daemon may take the flow: {state}: TOPIC_AUTHORIZATION_FAILED",
        ),
    )
    with Daemon(checks.path) as daemon:
        daemon.until_copied(all_ends(source, orders))
        for number, (right, line) in enumerate(taken, 1):
            granting.be(every - {right})
            in_transactions(source, orders, range(10 * number, 10 * number + 5))
            daemon.until(lambda line=line: line in mirrord("status", checks.path).stdout.replace("\n", " "))
            in_transactions(source, orders, range(10 * number + 5, 10 * number + 10))
            # Without the state topic records are copied all the same: lanes read in the ledger that the lease is valid.
            waits = right.name != state
            daemon.until(lambda waits=waits: (0 in {lane.lag_records for lane in daemon.flow().lanes}) != waits)
            granting.be(every)
            daemon.until_copied(all_ends(source, orders))
        assert daemon.stop() == 0
    assert "topic_hidden" in {event["event"] for event in daemon.events()}
    assert "lanes_wait" in {event["event"] for event in daemon.events()}
    assert [int(each.key() or b"") for each in messages(target, f"eu.{orders}")] == [*range(50)]


def in_transactions(cluster: Cluster, topic: str, numbers: Sequence[int]) -> None:
    """Write records in transactions of five, so that each needs an entry in the ledger."""
    producer = Producer({**client_settings(cluster), "transactional.id": unique("writer")})
    producer.init_transactions(SECONDS)
    for first in range(0, len(numbers), 5):
        producer.begin_transaction()
        for number in numbers[first : first + 5]:
            producer.produce(topic, b"value", b"%d" % number, partition=0)
        producer.commit_transaction(SECONDS)


def test_what_may_not_be_seen_of_mirrormaker_2_holds_its_partitions_and_is_named(
    lab_rights: Cluster, lab_sasl: Cluster, granting: Granting, tmp_path: Path
) -> None:
    orders, flow = create_topic(lab_rights, unique("orders")), unique("legacy")
    write(lab_sasl, create_topic(lab_sasl, f"eu.{orders}"), [Written(b"k", b"by whom?")])
    # Two records, so that its being empty does not explain anything.
    offsets = create_topic(lab_sasl, unique("mm2-offsets"))
    write(lab_sasl, offsets, [Written(b"not", b"ours"), Written(b"nor", b"this")])
    path = configuration(tmp_path, lab_rights, lab_sasl, orders, flow)
    group = unique("eu-mm2")
    path.write_text(
        path.read_text().replace(
            "[runtime]",
            f'from_mm2 = {{ offsets_topic = "{offsets}", workers_group = "{group}" }}\n'
            'groups = { mode = "off" }  # they need rights on all groups\n[runtime]',
        )
    )
    every = grant_what_is_listed(Checks(path), granting, ()).keys()
    read, describe = Right("us", "topic", offsets, "READ"), Right("us", "group", group, "DESCRIBE")
    seen = Right("us", "topic", offsets, "DESCRIBE")
    for without, note in (
        (every - {read}, f"{offsets}, which would show whether MirrorMaker 2 wrote them, cannot be read: allow READ"),
        (every - {read} | {seen}, "cannot be read: allow READ"),
        (every - {describe}, f"whether MirrorMaker 2 is still copying: allow DESCRIBE on the group {group}"),
    ):
        granting.be(without)
        answer = mirrord("start", path, "--dry-run", "--json")
        assert answer.returncode == 3, answer.stderr
        (partition,) = json.loads(answer.stdout)
        assert note in partition["note"]
        assert partition["note"].endswith('or set from_mm2.takeover = "off"')
    granting.be(every)
    assert mirrord("start", path, "--dry-run").returncode == 0


def run_everything(path: Path, granting: Granting, source: Cluster, orders: str, bills: str) -> None:
    """Records, configs, ACLs, growth, deletion: nothing is refused."""
    at_source, at_target = granting.admins["eu"], granting.admins["us"]
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, orders, *(f"{bills}.{name}" for name in BILLS)))
        daemon.until(lambda: all(lane.protected for lane in daemon.flow().lanes))
        altered = [ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)]
        wait(at_source.incremental_alter_configs([topic_config(orders, altered)]))
        wait(at_source.create_acls([AclBinding(*reading(orders))]))
        wait(at_source.create_partitions([NewPartitions(orders, 3)]))
        wait(at_source.delete_topics([f"{bills}.gone"]))
        copy = topic_config(f"eu.{orders}")
        daemon.until(
            lambda: at_target.describe_configs([copy])[copy].result(SECONDS)["retention.ms"].value == "7200000"
        )
        daemon.until(lambda: at_target.describe_acls(AclBindingFilter(*reading(f"eu.{orders}"))).result(SECONDS))
        daemon.until(lambda: len([lane for lane in daemon.flow().lanes if lane.topic == orders]) == 3)
        daemon.until(lambda: f"eu.{bills}.gone" not in at_target.list_topics(timeout=SECONDS).topics)
        assert daemon.stop() == 0
    assert "AUTHORIZATION" not in daemon.output


def reading(topic: str) -> tuple[ResourceType, str, ResourcePatternType, str, str, AclOperation, AclPermissionType]:
    literal, allowed = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return ResourceType.TOPIC, topic, literal, READER, "*", AclOperation.READ, allowed


def topic_config(topic: str, altered: list[ConfigEntry] | None = None) -> ConfigResource:
    return ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=altered)


def retention(admin: AdminClient, topic: str) -> str:
    copy = topic_config(topic)
    return admin.describe_configs([copy])[copy].result(SECONDS)["retention.ms"].value


def wait(work: Mapping[Any, Future[Any]]) -> None:
    for done in work.values():
        done.result(SECONDS)
