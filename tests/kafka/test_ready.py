"""`mirrord ready` on real brokers: with everything running, and from the target alone."""

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.config_and_acl_admin import KafkaUpkeepAdmin, RequestRefused
from mirrord.lab.cluster import Cluster
from tests.fixtures.daemon import SECONDS, Daemon, all_ends, conf, fill, mirrord, unique
from tests.fixtures.groups import commit
from tests.fixtures.java_clients import java_clients
from tests.fixtures.lab import LabPair, client_settings
from tests.fixtures.mirror import create_topic
from tests.fixtures.wire import security_of


def ready(path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the answer about the only flow."""
    ended = mirrord("ready", path, "--json", *options)
    assert ended.returncode in {0, 3}, ended.stderr
    report = json.loads(ended.stdout)
    assert report["ready"] == (ended.returncode == 0)
    (flow,) = report["flows"]
    return ended.returncode, flow


def until(path: Path, met: Callable[[int, dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + SECONDS
    while True:
        code, flow = ready(path)
        if met(code, flow):
            return flow
        assert time.monotonic() < deadline, flow
        time.sleep(0.3)


def over_http(daemon: Daemon, query: str = "") -> dict[str, Any]:
    """The answer of the daemon about its only flow."""
    with urllib.request.urlopen(f"{daemon.http()}/readiness{query}", timeout=SECONDS) as answer:
        report = json.loads(answer.read())
    (flow,) = report["flows"]
    assert report["ready"] == flow["ready"]
    return flow


def metric(daemon: Daemon, name: str) -> float | None:
    """The value of a metric with one sample, or None if it has none."""
    with urllib.request.urlopen(f"{daemon.http()}/metrics", timeout=SECONDS) as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith(f"{name}{{")]
    assert len(lines) <= 1, lines
    return float(lines[0].rpartition(" ")[2]) if lines else None


def alter(cluster: Cluster, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient(client_settings(cluster))
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(SECONDS)


def without_source(path: Path, source: Cluster) -> Path:
    """The same file, with an address at which no source answers."""
    gone = path.with_name(f"gone-{path.name}")
    gone.write_text(path.read_text().replace(source.bootstrap, "127.0.0.1:1", 1))
    return gone


def test_a_flow_is_ready_and_the_target_alone_shows_it_later(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic, group = create_topic(source, unique("ready"), 2), unique("readers")
    fill(source, topic, 2, 200)
    commit(source, group, topic, {0: 40, 1: 50})
    groups = f'groups = {{ match = ["{group}"], every = "300ms", refresh = "300ms" }}\nsync = {{ every = "500ms" }}'
    path = conf(tmp_path, source, target, topic, flow=unique("ready"), flow_more=groups)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        flow = until(path, lambda code, flow: code == 0 and flow["groups"]["exact"] == 2)
        assert (flow["grounds"], flow["lag_records"], flow["lag_s"]) == ("daemon", 0, 0.0)
        assert flow["configs"]["differences"] == []
        alter(target, f"eu.{topic}", "max.message.bytes", "12345")
        alter(source, topic, "max.message.bytes", "54321")
        until(path, lambda _, flow: not flow["configs"]["differences"])
        # Records that are written while nothing is copied would be lost, and their number is recorded.
        assert mirrord("pause", topic, path).returncode == 0
        daemon.until(lambda: daemon.flow().totals.lanes == {"paused": 2})
        fill(source, topic, 2, 60, first=200)
        flow = until(path, lambda _, flow: flow["lag_records"] == 60)
        assert (flow["ready"], "paused" in flow["blockers"][0]) == (False, True)
        commit(source, group, topic, {0: 110})
        until(path, lambda _, flow: [each["state"] for each in flow["groups"]["positions"]] == ["waits"])
        daemon.process.kill()
        daemon.process.wait()
    alter(target, f"eu.{topic}", "retention.bytes", "777777")
    for file in (path, without_source(path, source)):
        code, flow = ready(file)
        assert (code, flow["grounds"], flow["lag_records"]) == (3, "ledger", 60), flow
        assert flow["blockers"] == [f"{topic}-0 and 1 more are paused"]
        assert [(each["source_offset"], each["source_end"]) for each in flow["partitions"]] == [(100, 130), (100, 130)]
        (position,) = flow["groups"]["positions"]
        assert (position["partition"], position["source_offset"], position["target_offset"]) == (0, 110, 100)
        assert (flow["groups"]["groups"], flow["groups"]["exact"], flow["groups"]["inexact"]) == (1, 2, 0)
        kept, unread = flow["partitions"][1]["source_headroom"], flow["partitions"][1]["target_headroom"]
        assert (kept["offsets"], kept["is_known"], unread["is_known"]) == (100, True, True), flow["partitions"]
        assert 0 < kept["left_s"] < kept["limit_s"], kept
        assert (unread["group"], unread["target_offset"], unread["offsets"]) == (group, 50, 50)
        assert unread["left_s"] == unread["limit_s"] / 2, unread
        assert flow["retention"]["source_left_s"] <= kept["left_s"], flow["retention"]
        assert flow["configs"]["differences"] == [f'eu.{topic}: retention.bytes is "777777", and not set on the source']
    _, flow = ready(path, "--rpo", "1ms")
    assert len(flow["blockers"]) == 2, flow["blockers"]
    shown = mirrord("ready", without_source(path, source))
    assert "would be lost: 60 records in 2 partitions" in shown.stdout, shown.stdout
    assert "retention on eu keeps what has not been copied for at least " in shown.stdout, shown.stdout
    assert "retention on us keeps what groups have not read for at least " in shown.stdout, shown.stdout


def test_the_daemon_answers_as_the_command_does(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic, group = create_topic(source, unique("ready"), 2), unique("readers")
    fill(source, topic, 2, 200)
    commit(source, group, topic, {0: 40, 1: 50})
    groups = f'groups = {{ match = ["{group}"], every = "300ms", refresh = "300ms" }}\nsync = {{ every = "500ms" }}'
    path = conf(tmp_path, source, target, topic, flow=unique("ready"), flow_more=groups)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        until(path, lambda code, flow: code == 0 and flow["groups"]["exact"] == 2)
        daemon.until(lambda: over_http(daemon)["ready"] and over_http(daemon)["groups"]["exact"] == 2)
        here, there = over_http(daemon), ready(path)[1]
        assert here.keys() == there.keys()
        changing = {"at_ms", "seen_ms", "left_s", "source_left_s"}

        def steady(found: Any) -> Any:
            if isinstance(found, dict):
                return {name: steady(each) for name, each in found.items() if name not in changing}  # pyright: ignore[reportUnknownVariableType]
            return [steady(each) for each in found] if isinstance(found, list) else found  # pyright: ignore[reportUnknownVariableType]

        assert steady(here) == steady(there)
        refused = over_http(daemon, "?as=User:nobody&rpo=1h")
        assert (refused["ready"], "User:nobody" in refused["blockers"][0]) == (False, True), refused["blockers"]
        assert refused["at_ms"] - here["at_ms"] >= 0
        daemon.until(lambda: metric(daemon, "mirrord_ready") == 1.0)
        assert (metric(daemon, "mirrord_ready_lost_offsets"), metric(daemon, "mirrord_ready_inexact_positions")) == (
            0,
            0,
        )
        assert mirrord("pause", topic, path).returncode == 0
        daemon.until(lambda: daemon.flow().totals.lanes == {"paused": 2})
        # The flow was ready, so the next assessment that nobody asks for is up to a minute away.
        daemon.until(lambda: not over_http(daemon)["ready"])
        daemon.until(lambda: metric(daemon, "mirrord_ready") == 0.0)
        summary = daemon.flow().readiness
        assert summary is not None
        assert (summary.ready, len(summary.blockers)) == (False, 1)
        assert summary.blockers[0].startswith(f"{topic}-0 and 1 more are paused"), summary.blockers


def test_quotas_that_differ_are_shown_even_without_the_source(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic, name = create_topic(source, unique("ready"), 1), unique("ada")
    fill(source, topic, 1, 10)
    both, user, client = {"user": name, "client-id": None}, {"user": name}, {"client-id": name}
    path = conf(tmp_path, source, target, topic, flow=unique("ready"))
    expected = [
        f"missing on the target: producer_byte_rate=1048576 for user {name}, client-id <default>",
        f"only on the target: request_percentage=12.5 for client-id {name}",
        f"consumer_byte_rate for user {name} is 1 on the target, and 2 on the source",
    ]

    def differences(flow: dict[str, Any]) -> list[str]:
        return [line for line in flow["quotas"]["differences"] if name in line]

    with java_clients() as java:
        try:
            java.set_quota(source, both, "producer_byte_rate", 1_048_576.0)
            java.set_quota(source, user, "consumer_byte_rate", 2.0)
            java.set_quota(target, user, "consumer_byte_rate", 1.0)
            java.set_quota(target, client, "request_percentage", 12.5)
            with Daemon(path) as daemon:
                daemon.until_copied(all_ends(source, topic))
                flow = until(path, lambda _, flow: flow["quotas"]["seen_ms"] is not None)
            assert differences(flow) == expected
            assert any(line.startswith("client quotas differ: ") for line in flow["remarks"]), flow["remarks"]
            gone = without_source(path, source)
            assert differences(ready(gone)[1]) == expected
            assert f"quota: {expected[0]}" in mirrord("ready", gone).stdout
            java.set_quota(target, both, "producer_byte_rate", 1_048_576.0)
            java.set_quota(target, user, "consumer_byte_rate", 2.0)
            java.set_quota(target, client, "request_percentage", None)
            assert differences(ready(gone)[1]) == []
        finally:
            for cluster in (source, target):
                java.set_quota(cluster, both, "producer_byte_rate", None)
                java.set_quota(cluster, user, "consumer_byte_rate", None)
                java.set_quota(cluster, client, "request_percentage", None)


async def test_quotas_that_may_not_be_read(lab_sasl: Cluster) -> None:
    addresses = tuple(lab_sasl.bootstrap.split(","))
    admin, stranger = (
        KafkaUpkeepAdmin(ClusterConfig(addresses, security_of(lab_sasl, user)), SECONDS)
        for user in ("admin", "stranger")
    )
    await admin.quotas()
    with pytest.raises(RequestRefused, match="DESCRIBE_CONFIGS on the cluster is missing"):
        await stranger.quotas()
    await asyncio.gather(admin.close(), stranger.close())


def test_bad_input_gets_one_clear_error(lab_pair: LabPair, tmp_path: Path) -> None:
    path = conf(tmp_path, lab_pair.source, lab_pair.target, unique("none"), flow=unique("ready"))
    wrong = mirrord("ready", path, "--rpo", "soon")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1), wrong.stderr
    wrong = mirrord("ready", path, "--flow", "nope")
    assert (wrong.returncode, "nope" in wrong.stderr) == (2, True)
    never = mirrord("ready", path)
    assert (never.returncode, "Traceback" in never.stderr) == (1, False), never.stderr
