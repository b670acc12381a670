"""Drills on real brokers: a healthy flow has no findings, planted faults are found, and nothing is left behind."""

import asyncio
from pathlib import Path

import pytest

from mirrord.config.loader import load
from mirrord.lab.cluster import Cluster
from mirrord.ledger.facts.core import TargetRun
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.names import drill_topic
from tests.fixtures.daemon import Daemon, Load, conf, fill, mirrord, unique
from tests.fixtures.drill import STAGES, DrilledFlow, delete_before, delete_topic, drill, findings, job_of, visible
from tests.fixtures.groups import commit, committed, forget
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic, ends


def test_a_healthy_flow_has_no_findings_and_nothing_is_left_behind(lab_pair: LabPair, tmp_path: Path) -> None:
    flow = DrilledFlow(lab_pair, tmp_path, "healthy")
    with Daemon(flow.path) as daemon:
        flow.until_in_step(daemon)
        before = visible(flow.target), visible(flow.source)
        code, receipt = drill(flow.path)
        assert (code, receipt["groups"], receipt["positions"], receipt["compared"]) == (0, 1, 2, 2), receipt
        assert [each["name"] for each in receipt["stages"]] == STAGES
        assert (visible(flow.target), visible(flow.source)) == before
        assert committed(flow.target, flow.group, flow.copy, range(2)) == {0: 40, 1: 50}
        # The ledger keeps the result, and everybody sees it.
        daemon.until(lambda: job_of(daemon).outcome is not None)
        job = job_of(daemon)
        assert (job.outcome, job.succeeded_ms == job.ended_ms) == ("done", True)
        assert job.drill is not None
        assert job.drill.compared == 2
        shown = mirrord("drill", flow.path, "--dry-run")
        assert (shown.returncode, "stages: ready, hooks, groups, canary" in shown.stdout) == (0, True)
    # The target and the source are enough.
    assert drill(flow.path)[0] == 0


def test_groups_that_move_all_the_time_have_no_findings(lab_pair: LabPair, tmp_path: Path) -> None:
    flow = DrilledFlow(lab_pair, tmp_path, "moving")
    with Daemon(flow.path) as daemon:
        flow.until_in_step(daemon)
        with Load(flow.source, flow.topic, 2, at_once=20).running() as load:
            for number in range(3):
                load.wait_for(500)
                last = ends(flow.source, flow.topic)[1]
                commit(flow.source, flow.group, flow.topic, {0: 60 + number, 1: last})
                code, receipt = drill(flow.path, "--no-canary")
                assert (code, receipt["compared"]) == (0, 2), receipt


def test_a_wrong_entry_of_the_map_is_found(lab_pair: LabPair, tmp_path: Path) -> None:
    flow = DrilledFlow(lab_pair, tmp_path, "map")
    with Daemon(flow.path) as daemon:
        flow.until_in_step(daemon)
        daemon.kill()  # its lease is still in force

    async def plant() -> None:
        config = load(flow.path)
        store = ClusterAccess(config).ledger(config.flows[0])
        await store.open()
        try:
            lane = next(each for each in store.state.lanes.values() if each.partition == 0)
            wrong = TargetRun(lane.key.id, lane.grant, 40, 41, 0)
            assert await store.append(store.state.lease_epoch, [wrong]) == (True,)
        finally:
            await store.close()

    asyncio.run(plant())
    receipt = drill(flow.path, "--no-canary")[1]
    found = receipt["findings"]
    assert (receipt["compared"], len(found)) == (1, 1)
    assert f"group {flow.group} in {flow.topic}-0 at 40: the record at 41 on the target is not the record" in found[0]


@pytest.mark.parametrize("fault", ["topic", "retention", "position"])
def test_what_the_target_lacks_is_found(lab_pair: LabPair, tmp_path: Path, fault: str) -> None:
    flow = DrilledFlow(lab_pair, tmp_path, fault)
    with Daemon(flow.path) as daemon:
        flow.until_in_step(daemon)
        assert daemon.stop() == 0
    group = f"group {flow.group} in {flow.topic}"
    match fault:
        case "topic":
            delete_topic(flow.target, flow.copy)
            expected = f"the target does not show {flow.copy}: it may not exist"
        case "retention":
            delete_before(flow.target, flow.copy, {0: 45})
            expected = f"{group}-0 at 40: the next record is at 40, and the target has deleted the record (retention)"
        case _:
            forget(flow.target, flow.group)
            expected = f"{group}-0 at 40: it has no position on the target"
    found = findings(flow.path, "--no-canary")
    assert any(expected in line for line in found), found


def test_a_group_whose_position_cannot_be_translated_is_found(lab_pair: LabPair, tmp_path: Path) -> None:
    """The copy begins after what the group has not read yet."""
    flow = DrilledFlow(lab_pair, tmp_path, "untranslatable", flow_more='\nstart = "latest"')
    with Daemon(flow.path) as daemon:
        daemon.until(lambda: len(daemon.flow().lanes) == 2)
        daemon.until(lambda: daemon.flow().totals.lanes == {"copying": 2})
        fill(flow.source, flow.topic, 2, 20, first=200)
        daemon.until(lambda: daemon.flow().totals.lag_records == 0)
        found = findings(flow.path, "--no-canary")
        assert any(f"{flow.group} in {flow.topic}-0 at 40" in line for line in found), found


def test_a_missing_permission_is_found(lab_pair: LabPair, lab_sasl: Cluster, tmp_path: Path) -> None:
    source = lab_pair.source
    topic = create_topic(source, unique("rights"), 1)
    fill(source, topic, 1, 20)
    security = lab_sasl.security("admin", "SCRAM-SHA-512")
    path = conf(tmp_path, source, lab_sasl, topic, flow=unique("rights"), security=security)
    with Daemon(path) as daemon:
        daemon.until(lambda: daemon.flow().totals.lag_records == 0 and bool(daemon.flow().lanes))
        assert findings(path) == []
        found = findings(path, "--as", "User:stranger")
        assert any("User:stranger" in line and "READ" in line for line in found), found


def test_hooks_that_could_not_run_are_found(lab_pair: LabPair, tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.write_text("#!/bin/sh\n")
    keys = f'\nrecovery = {{ before = ["{hook}"], after = ["/nowhere/hook", "http://127.0.0.1:1/"] }}'
    flow = DrilledFlow(lab_pair, tmp_path, "hooks", flow_more=keys)
    with Daemon(flow.path) as daemon:
        flow.until_in_step(daemon)
        found = findings(flow.path, "--no-canary")
        assert mirrord("drill", flow.path, "--no-canary").stdout.startswith(f"{flow.name}: 3 findings\n  ! hook {hook}")
        assert [line.split(": ", 1)[0] for line in found] == [
            f"hook {hook}", "hook /nowhere/hook", "hook http://127.0.0.1:1",
        ]  # fmt: skip


def test_drills_by_schedule_and_what_a_killed_drill_has_left(lab_pair: LabPair, tmp_path: Path) -> None:
    flow = DrilledFlow(lab_pair, tmp_path, "schedule", more='[drill]\nevery = "10s"\nsample = 0.5\n')
    name = drill_topic(flow.name)
    create_topic(flow.target, name, 1)
    commit(flow.target, name, name, {0: 0})
    with Daemon(flow.path) as daemon:
        flow.until_in_step(daemon)

        daemon.until(lambda: job_of(daemon).outcome == "done")
        topics, groups = visible(flow.target)
        assert name not in topics | groups


def test_bad_input_gets_one_clear_error_and_changes_nothing(lab_pair: LabPair, tmp_path: Path) -> None:
    flow = DrilledFlow(lab_pair, tmp_path, "bad")

    def refused(*options: str, code: int = 2) -> str:
        ended = mirrord("drill", flow.path, *options)
        assert ended.returncode == code, ended.stdout + ended.stderr
        assert "Traceback" not in ended.stderr
        return ended.stderr

    assert "has never run, so there is nothing to rehearse" in refused()
    assert "allowed: a share above 0 and up to 1" in refused("--sample", "2")
    assert "allowed: a principal with its type" in refused("--as", "app")
    with Daemon(flow.path) as daemon:
        flow.until_in_step(daemon)
        gone = flow.path.with_name("gone.toml")
        gone.write_text(flow.path.read_text().replace(flow.source.bootstrap, "127.0.0.1:1", 1))
        found = findings(gone, "--no-canary")
        assert any(line.startswith("groups: ") for line in found), found
        assert mirrord("failover", flow.path, "--planned").returncode == 0
    assert "a failover has ended its copying for good, so there is nothing to rehearse" in refused()
