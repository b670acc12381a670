"""A daemon continues with a changed file: only what the change concerns is altered, and a wrong file alters nothing."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fixtures.daemon import Daemon, Load, all_ends, assert_same, conf, fill, mirrord, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def facts(path: Path, *options: str) -> Iterator[dict[str, Any]]:
    shown = mirrord("ledger", "show", path, "--json", *options)
    assert shown.returncode == 0, shown.stderr
    return map(json.loads, shown.stdout.splitlines())


def refusals(daemon: Daemon) -> int:
    return sum(event["event"] == "configuration_not_taken" for event in daemon.events())


def of_kind(path: Path, kind: str, *options: str) -> list[dict[str, Any]]:
    return [fact for fact in facts(path, *options) if kind in json.dumps(fact)]


def test_topics_come_and_go_under_load_and_no_other_lane_is_touched(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    names = [create_topic(source, unique(name), 2) for name in ("stays", "goes", "comes", "hangup")]
    stays, goes, comes, hangup = names
    for name in names[1:]:
        fill(source, name, 2, 100)
    path = conf(tmp_path, source, target, f"{stays}', '{goes}", flow=unique("apply"))
    assert mirrord("apply", path).returncode == 1, "nobody runs it"
    with Load(source, stays, 2).running() as load, Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, goes))
        assert mirrord("apply", path).stdout == "nothing changes\n"
        homes = {(lane.topic, lane.partition): lane.host for lane in daemon.flow().lanes}

        rewrite(path, f"'{goes}'", f"'{comes}'")
        planned = mirrord("apply", path, "--dry-run", "--json")
        assert planned.returncode == 3, planned.stderr
        (change,) = json.loads(planned.stdout)["flows"]
        assert change["topics"] == [f"starts copying {comes} into eu.{comes}", f"stops copying {goes} into eu.{goes}"]
        assert {lane.topic for lane in daemon.flow().lanes} == {stays, goes}

        applied = mirrord("apply", path)
        assert applied.returncode == 0, applied.stderr
        assert "applied by the daemon at http://127.0.0.1:" in applied.stdout
        daemon.until(lambda: {lane.topic for lane in daemon.flow().lanes} == {stays, comes})
        daemon.until_copied(all_ends(source, comes))

        rewrite(path, f"'{comes}'", f"'{comes}', '{hangup}'")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.until_copied(all_ends(source, comes, hangup))
        for number, (right, wrong) in enumerate((("refresh", "refrsh"), ('lease_ttl = "3s"', 'lease_ttl = "5s"')), 1):
            rewrite(path, right, wrong)
            daemon.process.send_signal(signal.SIGHUP)
            daemon.until(lambda number=number: refusals(daemon) == number)
            answer = mirrord("apply", path)
            assert answer.returncode == 2, answer.stderr
            assert answer.stderr.startswith("mirrord: ")
            rewrite(path, wrong, right)
        kept = {(lane.topic, lane.partition): lane.host for lane in daemon.flow().lanes if lane.topic == stays}
        assert kept == {key: host for key, host in homes.items() if key[0] == stays}
        load.wait_for(1_000)
        # Nothing of `goes` is copied any more.
        fill(source, goes, 2, 10, first=100)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, stays, comes, hangup))
        assert daemon.stop() == 0
    assert_same(source, target, [stays], load.written)
    assert_same(source, target, [comes, hangup], 200)
    assert all_ends(target, f"eu.{goes}") == {(f"eu.{goes}", 0): 50, (f"eu.{goes}", 1): 50}
    # Entries without partitions hold what a changed selection saw first.
    assert sum('"changes": ["' in json.dumps(entry) for entry in of_kind(path, "config_changed")) == 2
    # One taking for each of the two daemons: a change did not make the lanes that stayed be taken again.
    assert [len(of_kind(path, "lane_taken", "--lane", f"{stays}-{at}")) for at in range(2)] == [2, 2]


def test_flows_come_and_go(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topics = [create_topic(source, unique("flows"), 1) for _ in range(2)]
    names = [unique("one"), unique("two")]
    for topic in topics:
        fill(source, topic, 1, 50)
    path = conf(tmp_path, source, target, topics[0], flow=names[0])
    first = path.read_text()
    another = f"[[flows]]\nname = '{names[1]}'\nfrom = 'eu'\nto = 'us'\ntopics = ['{topics[1]}']\n"
    second = first.replace("[runtime]", f"{another}[runtime]")
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topics[0]))
        path.write_text(second)
        assert mirrord("apply", path).returncode == 0

        def copied() -> bool:
            flows = {flow.name: flow for flow in daemon.status().flows}
            return names[1] in flows and flows[names[1]].totals.copied_records == 50

        daemon.until(copied)
        path.write_text(first.replace(names[0], names[1]).replace(topics[0], topics[1]))
        assert mirrord("apply", path).returncode == 0
        daemon.until(lambda: [flow.name for flow in daemon.status().flows] == [names[1]])
        assert daemon.flow().state == "running"
        # The limits are part of what lanes work by, so all lanes of that flow are drained and taken again.
        rewrite(path, "refresh = ", 'limits = { in_flight_bytes = "8MiB" }\nrefresh = ')
        answer = mirrord("apply", path)
        assert "all its lanes are drained and taken again" in answer.stdout
        fill(source, topics[1], 1, 50, first=50)
        daemon.until_copied(all_ends(source, topics[1]))
        assert daemon.stop() == 0
    assert_same(source, target, topics[:1], 50)
    assert_same(source, target, topics[1:], 100)


def test_a_migration_ends_by_itself_with_a_proof(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic, name = create_topic(source, unique("migrate"), 3), unique("until")
    fill(source, topic, 3, 3_000)
    path = conf(tmp_path, source, target, topic, flow=name)
    ended = mirrord("start", path, "--until-caught-up", "--flow", name)
    assert ended.returncode == 0, ended.stderr
    line = (
        f"flow {name}: caught up: 3 partitions, 3,000 records copied, 0 source offsets explained that were not copied"
    )
    assert line in ended.stdout
    assert_same(source, target, [topic], 3_000)
    assert mirrord("start", path, "--flow", "no-such-flow").returncode == 2
    assert mirrord("start", path, "--until-caught-up", "--detach").returncode == 2
