"""`check`, `plan` and `topics` on real brokers: what they find is there, and nothing is altered by looking."""

import asyncio
import json
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

from mirrord.cluster.rights import Right
from mirrord.lab.cluster import Cluster
from mirrord.model.config import load
from mirrord.shell.check import Report, check
from mirrord.shell.supervise import Surroundings
from tests.fixtures.daemon import SECONDS, Daemon, all_ends, conf, fill, mirrord, unique
from tests.fixtures.lab import LabPair, client_settings
from tests.fixtures.mirror import Written, create_topic, write

USER = "stranger"


class Granting:
    """Rights of one user on a cluster, one by one."""

    def __init__(self, cluster: Cluster) -> None:
        self._admin = AdminClient(client_settings(cluster))
        self._given: set[Right] = set()

    def give(self, rights: Iterable[Right]) -> None:
        rights = set(rights) - self._given
        for given in self._admin.create_acls([AclBinding(*self._words(right)) for right in rights]).values():
            given.result(SECONDS)
        self._given |= rights

    def take(self, rights: Iterable[Right]) -> None:
        rights = set(rights)
        for taken in self._admin.delete_acls([AclBindingFilter(*self._words(right)) for right in rights]).values():
            taken.result(SECONDS)
        self._given -= rights

    def take_all(self) -> None:
        if self._given:
            self.take(self._given)

    @staticmethod
    def _words(
        right: Right,
    ) -> tuple[ResourceType, str, ResourcePatternType, str, str, AclOperation, AclPermissionType]:
        kind = ResourceType.BROKER if right.resource == "cluster" else ResourceType.TOPIC
        operation = AclOperation[right.operation]
        literal, allowed = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        return kind, right.name, literal, f"User:{USER}", "*", operation, allowed


@pytest.fixture
def granting(lab_sasl: Cluster) -> Generator[Granting]:
    """Rights on `lab_sasl`; what is left of them goes with the test."""
    rights = Granting(lab_sasl)
    yield rights
    rights.take_all()


def checked(path: Path, *, probe: bool = False) -> Report:
    config = load(path)
    return asyncio.run(check(config, Surroundings(config), probe=probe))


def missing(report: Report) -> set[Right]:
    return {right.right for right in report.rights if right.held is False}


def until(path: Path, wanted: Callable[[Report], object]) -> Report:
    """Rights come into force, and end, after a moment."""
    deadline = time.monotonic() + SECONDS
    while True:
        report = checked(path)
        if wanted(report):
            return report
        assert time.monotonic() < deadline, f"missing: {missing(report)}"
        time.sleep(0.05)


def test_the_rights_that_are_listed_are_enough_and_none_is_too_many(
    lab_pair: LabPair, lab_sasl: Cluster, granting: Granting, tmp_path: Path
) -> None:
    source = lab_pair.source
    topic, flow = create_topic(source, unique("orders"), 2), unique("rights")
    fill(source, topic, 2, 100)
    path = conf(tmp_path, source, lab_sasl, topic, flow=flow, security=lab_sasl.security(USER))
    report = checked(path)
    assert not report.would_start
    assert mirrord("start", path).returncode == 1
    listed = {right.right for right in report.rights if right.right.cluster == "us"}
    # Whoever may not see a topic is not told whether he may see or alter its settings.
    assert {right for right in listed if "CONFIGS" not in right.operation} <= missing(report) <= listed
    granting.give(listed)
    report = until(path, lambda report: not missing(report))
    assert report.would_start, report.findings
    assert all(right.held for right in report.rights)

    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        # Nothing kept it from probing, and it knows how long producers are remembered.
        assert "AUTHORIZATION" not in daemon.flow().guarantee_note
        daemon.until(lambda: all(lane.protected for lane in daemon.flow().lanes))
        admin = AdminClient(client_settings(source))
        for grown in admin.create_partitions([NewPartitions(topic, 3)]).values():
            grown.result(SECONDS)
        daemon.until(lambda: len(daemon.flow().lanes) == 3)
        assert "AUTHORIZATION" not in daemon.flow().note
        assert daemon.stop() == 0

    needed = {right.right for right in checked(path).rights if right.right.cluster == "us"}
    assert needed <= listed
    for right in sorted(needed):
        granting.take([right])
        report = until(path, lambda report, right=right: right in missing(report))
        told = [finding for finding in report.findings if f"{right.operation} is missing" in finding.what]
        assert any(right.name in finding.where for finding in told)
        granting.give([right])
    until(path, lambda report: not missing(report))


def test_the_source_needs_to_be_read_and_nothing_else(
    lab_pair: LabPair, lab_sasl: Cluster, granting: Granting, tmp_path: Path
) -> None:
    topic, flow = create_topic(lab_sasl, unique("orders"), 1), unique("read")
    fill(lab_sasl, topic, 1, 100)
    path = conf(tmp_path, lab_sasl, lab_pair.target, topic, flow=flow)
    words = ", ".join(f'{key} = "{value}"' for key, value in lab_sasl.security(USER).items())
    path.write_text(path.read_text().replace("[clusters.us]", f"security = {{ {words} }}\n[clusters.us]"))
    report = checked(path)
    assert {right.operation for right in missing(report)} <= {"READ", "DESCRIBE", "DESCRIBE_CONFIGS"}
    assert Right("eu", "topic", topic, "READ") in missing(report)
    assert not report.would_start
    granting.give(right.right for right in report.rights if right.right.cluster == "eu")
    assert until(path, lambda report: not missing(report)).would_start
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(lab_sasl, topic))
        assert daemon.stop() == 0


def test_settings_old_records_and_what_stands_in_the_way_are_told_and_nothing_changes(
    lab_pair: LabPair, tmp_path: Path
) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic, flow = create_topic(source, unique("orders"), 1, max_message_bytes="2000000"), unique("found")
    create_topic(target, f"eu.{topic}", 1, cleanup_policy="compact", message_timestamp_type="LogAppendTime")
    write(target, f"eu.{topic}", [Written(b"k", b"foreign")])
    two_days_ms = 2 * 86_400_000
    write(source, topic, [Written(b"k", b"old", time_ms=int(time.time() * 1000) - two_days_ms)])
    path = conf(tmp_path, source, target, topic, flow=flow, flow_more="sync = { configs = false }")
    before = topics_of(target)
    answer = mirrord("check", path, "--json")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    found = {finding["what"]: finding for finding in json.loads(answer.stdout)["findings"]}

    def one(part: str) -> dict[str, str]:
        (finding,) = [finding for what, finding in found.items() if part in what]
        return finding

    assert one("it refuses batches above 1048588 bytes")["do"] == "set max.message.bytes=2000000"
    assert one("it is compacted, the source is not")["severity"] == "warning"
    assert one("it gives records the time of their append")["where"] == f"us: topic eu.{topic}"
    assert one("1 offsets that this flow did not write")["severity"] == "warning"
    assert one("producer.id.expiration.ms (24 h)")["where"] == f"eu: {topic}-0"
    assert one("nothing is ahead of this machine's clock")["severity"] == "note"
    assert topics_of(target) == before

    planned = mirrord("plan", path, "--json")
    assert planned.returncode == 3
    steps = json.loads(planned.stdout)["steps"]
    assert f"mirrord.{flow}.ledger" in {step["name"] for step in steps}
    assert topics_of(target) == before

    listed = json.loads(mirrord("topics", path, "--json").stdout)["flows"][0]["topics"]
    (line,) = [line for line in listed if line["source"] == topic]
    assert (line["target"], line["state"]) == (f"eu.{topic}", "copied")
    probed = checked(path, probe=True)
    assert any(finding.what.startswith("probed: exactly once") for finding in probed.findings)
    assert topics_of(target) == before


def test_a_cluster_that_is_not_there(lab_pair: LabPair, tmp_path: Path) -> None:
    topic = create_topic(lab_pair.source, unique("orders"), 1)
    path = conf(tmp_path, lab_pair.source, lab_pair.target, topic, flow=unique("away"))
    path.write_text(path.read_text().replace(lab_pair.target.bootstrap, "127.0.0.1:1"))
    answer = mirrord("check", path)
    assert answer.returncode == 1
    assert "us: cannot be reached" in answer.stdout
    assert "eu: 1 broker like Kafka 4.1 or newer" in answer.stdout
    assert "a start would fail" in answer.stdout
    assert mirrord("plan", path).returncode == 1


def topics_of(cluster: Cluster) -> set[str]:
    return set(AdminClient(client_settings(cluster)).list_topics(timeout=30).topics)
