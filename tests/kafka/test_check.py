"""`check`, `plan` and `topics` on real brokers: they find what is there, and looking changes nothing."""

import asyncio
import json
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient

from mirrord.config.loader import load
from mirrord.lab.cluster import Cluster
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.operations.check_findings import CheckReport, check
from tests.fixtures.daemon import conf, mirrord, unique
from tests.fixtures.lab import LabPair, client_settings
from tests.fixtures.mirror import Written, create_topic, write


def checked(path: Path, *, probe: bool = False) -> CheckReport:
    config = load(path)
    return asyncio.run(check(config, ClusterAccess(config), probe=probe))


def test_settings_old_records_and_obstacles_are_reported_and_nothing_changes(lab_pair: LabPair, tmp_path: Path) -> None:
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
    assert one("it replaces timestamps with the append time")["where"] == f"us: topic eu.{topic}"
    assert one("1 offsets that this flow did not write")["severity"] == "warning"
    assert one("producer.id.expiration.ms (24 h)")["where"] == f"eu: {topic}-0"
    assert one("no clock is ahead of this machine's")["severity"] == "note"
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
