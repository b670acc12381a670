"""`mirrord ready` on real brokers: with everything running, and from the target alone."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from mirrord.lab.cluster import Cluster
from tests.fixtures.daemon import SECONDS, Daemon, all_ends, conf, fill, mirrord, unique
from tests.fixtures.groups import commit
from tests.fixtures.lab import LabPair, client_settings
from tests.fixtures.mirror import create_topic


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
        assert flow["configs"]["differences"] == [f'eu.{topic}: retention.bytes is "777777", and not set on the source']
    _, flow = ready(path, "--rpo", "1ms")
    assert len(flow["blockers"]) == 2, flow["blockers"]
    shown = mirrord("ready", without_source(path, source))
    assert "would be lost: 60 records in 2 partitions" in shown.stdout, shown.stdout


def test_bad_input_gets_one_clear_error(lab_pair: LabPair, tmp_path: Path) -> None:
    path = conf(tmp_path, lab_pair.source, lab_pair.target, unique("none"), flow=unique("ready"))
    wrong = mirrord("ready", path, "--rpo", "soon")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1), wrong.stderr
    wrong = mirrord("ready", path, "--flow", "nope")
    assert (wrong.returncode, "nope" in wrong.stderr) == (2, True)
    never = mirrord("ready", path)
    assert (never.returncode, "Traceback" in never.stderr) == (1, False), never.stderr
