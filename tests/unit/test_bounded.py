"""Everything that would grow with time, restarts, topics or groups is bounded."""

# pyright: reportPrivateUsage=false

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from actors import ray_logs
from mirrord.config.flow_features import GroupsConfig
from mirrord.config.schema import ClusterConfig, FlowConfig, RuntimeConfig
from mirrord.config.security import Security
from mirrord.groups.rules import commit_plan
from mirrord.groups.rules.commit_plan import GroupBook, GroupFilter
from mirrord.kafka.client import watched_topics
from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.watched_topics import WatchedTopics
from mirrord.kafka.protocol.consumer_offsets import OffsetKey, OffsetValue
from mirrord.ledger.facts.core import Entry, FlowOpened
from mirrord.ledger.fold import WRITERS_KEPT, fold
from mirrord.ledger.state import FlowState
from mirrord.model.names import ClusterId, LaneId, TopicId
from mirrord.replication.lane.assignment import FlowSetup, Parting
from mirrord.supervision.fleet.lane_ownership import Custody
from tests.fixtures.fake_pipe import as_any


class View:
    def __init__(self) -> None:
        self.watched: list[str] = []

    def watch(self, topic: str, topic_id: TopicId) -> None:
        assert topic
        self.watched.append(topic_id)

    def unwatch(self, topic_id: TopicId) -> None:
        self.watched.remove(topic_id)


def test_topics_that_nobody_asks_about_any_more_are_not_watched_for_ever() -> None:
    now, view = 0.0, View()
    watched = WatchedTopics(as_any(view), lambda: now)
    for number in range(1_000):
        now += 10.0
        watched.see(PartitionId("lasting", TopicId("lasting"), 0))
        watched.see(PartitionId("short", TopicId(f"short-{number}"), 0))
    assert view.watched[0] == "lasting"
    assert len(view.watched) <= (watched_topics.FORGET_S + watched_topics.SWEEP_S) / 10 + 2
    assert len(set(view.watched)) == len(view.watched)


def value(offset: int) -> OffsetValue:
    return OffsetValue(offset=offset, leader_epoch=-1, metadata="", commit_ms=0)


def test_groups_that_expired_long_ago_are_forgotten() -> None:
    book = GroupBook(lambda _: True)
    book.take(OffsetKey("lasting", "t", 0), value(5))
    for number in range(commit_plan.EXPIRED_KEPT + 50):
        key = OffsetKey(f"short-{number}", "t", 0)
        book.take(key, value(5))
        book.take(OffsetKey(f"short-{number}", "t", 1), value(5))
        book.take(key, None)
        if number != 7:
            book.take(OffsetKey(f"short-{number}", "t", 1), None)
    gone = book.forget_expired()
    assert len(gone) == 49
    assert "short-0" in gone
    assert {"lasting", "short-7"} <= set(book.groups()), "the source knows a position of these"
    assert book.forget_expired() == []


def test_names_of_groups_are_not_kept_for_ever() -> None:
    judged = GroupFilter(GroupsConfig(match=("a.*",)))
    for number in range(commit_plan.NAMES_KEPT + 10):
        judged.passes(f"b{number}")
    assert len(judged._known) <= commit_plan.NAMES_KEPT
    assert judged.passes("a1")
    assert not judged.passes("b1")


def test_what_rays_workers_left_long_ago_is_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    logs = tmp_path / "session_1" / "logs"
    logs.mkdir(parents=True)
    for number in range(ray_logs.KEPT + 20):
        path = logs / f"worker-{number:040x}-01000000-{ended.pid}.out"
        path.touch()
        os.utime(path, (number, number))
    others = [
        logs / f"worker-{1:040x}-01000000-{os.getpid()}.err",
        logs / f"python-core-worker-{1:040x}_{os.getpid()}.log",
        logs / "raylet.out",
        logs / "gcs_server.out",
    ]
    for path in others:
        path.touch()
        os.utime(path, (0, 0))
    assert ray_logs.sweep(tmp_path) == 20
    assert all(path.exists() for path in others)
    assert not (logs / f"worker-{0:040x}-01000000-{ended.pid}.out").exists()
    assert len(list(logs.glob("worker-*.out"))) == ray_logs.KEPT


def test_lanes_that_nobody_wants_are_forgotten_but_for_who_may_still_write() -> None:
    clusters = {alias: ClusterConfig((f"{alias}:9092",), Security()) for alias in ("eu", "us")}
    setup = FlowSetup(
        flow=FlowConfig(name="eu-us", source="eu", target="us", topics=(".*",)),
        source=clusters["eu"],
        target=clusters["us"],
        runtime=RuntimeConfig(),
        lease_epoch=1,
        source_cluster_id=ClusterId("a"),
        target_cluster_id=ClusterId("b"),
    )
    ledger = FlowState()
    custody = Custody(setup, lambda: ledger, former_ended=True)
    lanes = [LaneId(each) for each in ("left", "dead", "unsure", "taken away")]
    left, dead, unsure, taken_away = lanes
    for lane in lanes:
        ledger.lanes[lane] = as_any(
            SimpleNamespace(grant=1, replicator="mirrord/eu-us/replicator-0.g1.1/1", times=(0, 0))
        )
        custody.give(lane, f"replicator of {lane}", 0.0)
    custody.left(left, f"replicator of {left}", Parting(clean=True))
    custody.ended(f"replicator of {dead}")
    custody.ended("replicator of nothing")
    custody.taken_away(taken_away)
    custody.keep([])
    assert (custody._held, custody._dead, custody.orphans) == ({}, set(), set())
    assert custody._others == {unsure, taken_away}, "whoever may still write is remembered"
    # All that wrote under older leases have ended, except for those two.
    assert [custody._former(lane, 1e9) for lane in lanes] == ["dead", "dead", "unknown", "unknown"]
    ledger.lanes.clear()
    custody.keep([])
    assert custody._others == set()


def test_writers_that_ended_long_ago_are_forgotten_within_a_lease() -> None:
    state = FlowState()
    fold(state, Entry(0, 0, (FlowOpened("eu-us", ClusterId("a"), ClusterId("b")),), "daemon#1"), 0)
    for number in range(1, WRITERS_KEPT + 100):
        fold(state, Entry(0, 0, (), f"short-{number}#1"), 2 * number - 1)
        fold(state, Entry(0, 0, (), f"daemon#{number + 1}"), 2 * number)
    assert len(state.writers) == WRITERS_KEPT
    assert state.writers["daemon"].number == WRITERS_KEPT + 100, "who writes is remembered"
    assert "short-1" not in state.writers
