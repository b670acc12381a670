"""Everything that would grow with time, restarts, topics or groups is bounded."""

# pyright: reportPrivateUsage=false

import gc
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors import handles, options, ray_logs
from mirrord.config.flow_features import GroupsConfig
from mirrord.config.schema import ClusterConfig, FlowConfig, RuntimeConfig
from mirrord.config.security import Security
from mirrord.groups.group_position_translation import Lanes
from mirrord.groups.rules import commit_plan
from mirrord.groups.rules.commit_plan import GroupBook, GroupFilter
from mirrord.groups.rules.reverse_plan import PositionPairs
from mirrord.groups.two_way_positions import SIGHT_S, RecentLogEnds
from mirrord.kafka.client import watched_topics
from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.effective_configs import Effective
from mirrord.kafka.client.group_admin import GroupAdmin
from mirrord.kafka.client.watched_topics import WatchedTopics
from mirrord.kafka.protocol.consumer_offsets import OffsetKey, OffsetValue
from mirrord.kafka.protocol.groups import Coordinator, GroupOffsets, ListedGroup
from mirrord.ledger.facts.core import CopyForgotten, Entry, FlowOpened, LaneOpened, LeaseTaken
from mirrord.ledger.fold import WRITERS_KEPT, fold
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.append_queue import Numbered, PendingAppend
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.ledger.store.store import LedgerStore, open_flow
from mirrord.mm2.client_records import FORGET_S, Mm2Upkeep
from mirrord.mm2.rules.checkpoints import CheckpointBook
from mirrord.mm2.rules.heartbeat_latency import SentBeats
from mirrord.model.group_status import TranslatedPosition
from mirrord.model.names import ClusterId, LaneId, LaneKey, TopicId
from mirrord.replication.host import cleanup_policy, existing_copies, lane_host
from mirrord.replication.host.cleanup_policy import CleanupPolicies
from mirrord.replication.host.existing_copies import ExistingCopies
from mirrord.replication.host.lane_host import LaneHost
from mirrord.replication.lane.assignment import FlowSetup, Parting
from mirrord.replication.lane.signals import Gone
from mirrord.runtime.clock import SystemClock
from mirrord.supervision.fleet.lane_ownership import Custody
from mirrord.topics.discovery import Discovered
from mirrord.topics.rules.ledger_start_evidence import Lately
from mirrord.topics.rules.topic_plan import PlannedLane
from policies import guarded_topics
from policies.guarded_topics import GuardedNaming, GuardedSelection
from tests.fixtures.clock import FakeClock
from tests.fixtures.fake_pipe import as_any
from tests.fixtures.ledger import FLOW, HOLDER, entry
from tests.fixtures.supervision import eventually


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


async def test_coordinators_of_groups_that_no_longer_exist_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    there = ["lasting"]

    async def listed(_admin: GroupAdmin, _node: int) -> tuple[int, list[ListedGroup]]:
        return 0, [ListedGroup(group, "", "Classic") for group in there]

    async def find(_admin: GroupAdmin, members: Sequence[str]) -> dict[str, Coordinator]:
        return {group: Coordinator(0, 1, "", 0) for group in members}

    async def offsets(_admin: GroupAdmin, _node: int, part: Sequence[str]) -> dict[str, GroupOffsets]:
        return {group: GroupOffsets(0, {}) for group in part}

    for name, fake in (("_list", listed), ("_find", find), ("_offsets", offsets)):
        monkeypatch.setattr(GroupAdmin, name, fake)
    admin = GroupAdmin(as_any(SimpleNamespace(nodes=[1], alias="eu", refresh=lambda: None)))
    for number in range(100):
        there[1:] = [f"short-{number}"]
        assert (await admin.offsets((await admin.listed()).keys())).keys() == set(there)
    assert admin._homes == {"lasting": 1, "short-99": 1}


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
    assert judged.passes("a" * 1_000)
    assert max(map(len, judged._known)) < 100, "long names would take much memory"
    slow = GroupFilter(GroupsConfig(match=("a.*b.*c.*",)))
    for number in range(commit_plan.NAMES_KEPT + 10):
        slow.passes(f"{number}{'b' * 300}")
    assert slow.left_out == commit_plan.NAMES_KEPT
    assert slow.remark.startswith(f"at least {commit_plan.NAMES_KEPT} groups are left out")


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


def test_partitions_of_deleted_topics_are_not_kept_for_ever_in_a_group_that_stays() -> None:
    book, pairs = GroupBook(lambda _: True), PositionPairs()
    book.take(OffsetKey("lasting", "t", 0), value(5))
    pairs.met("lasting", ("t", 0), 5, 5)
    pairs.met("expired", ("t", 0), 5, 5)
    for number in range(commit_plan.EXPIRED_KEPT + 50):
        key = OffsetKey("lasting", f"short-{number}", 0)
        book.take(key, value(5))
        pairs.met("lasting", (key.topic, 0), 5, 5)
        pairs.unsure("lasting", (key.topic, 1), 5, 5)
        book.take(key, None)
    gone = book.forget_expired_places()
    assert gone == [("lasting", (f"short-{number}", 0)) for number in range(50)]
    assert len(dict(book.courses("lasting"))) == commit_plan.EXPIRED_KEPT + 1
    assert book.forget_expired_places() == []
    pairs.forget_all(["expired"], [*gone, ("lasting", ("short-0", 1))])
    assert pairs._known.keys() == {("lasting", place) for place, _ in book.courses("lasting")}
    assert len(pairs._unsure) == commit_plan.EXPIRED_KEPT + 49


def test_log_ends_of_lanes_that_nobody_asks_about_are_forgotten() -> None:
    clock = FakeClock()
    ends = RecentLogEnds(clock)
    for number in range(100):
        ends.note(LaneId(f"short-{number}"), 1, 1, 1)
    clock.now += SIGHT_S + 1
    ends.note(LaneId("lasting"), 1, 1, 1)
    ends.forget_old()
    assert list(ends._forth) == list(ends._back) == ["lasting"]


def position(topic: str, group: str = "billing") -> TranslatedPosition:
    return TranslatedPosition(group, topic, f"eu.{topic}", 0, 5, 5, "")


def test_checkpoints_of_deleted_topics_and_expired_groups_are_forgotten() -> None:
    book = CheckpointBook()
    for number in range(100):
        book.record(position(f"short-{number}"))
        book.record(position("lasting", group=f"short-{number}"))
    book.record(position("lasting"))
    book.written(book.due())
    book.forget_unseen()
    assert len(book._stand) == len(book._written) == 201, "they were seen since the last call"
    book.forget_unseen()
    assert len(book._stand) == len(book._written) == 201, "the group follower does not run"
    book.record(position("lasting"))
    book.forget_unseen()
    assert list(book._stand) == list(book._written) == [("billing", "eu.lasting", 0)]
    assert book.topics() == {"eu.lasting"}
    assert book.due() == []
    book.record(position("short-0"))
    assert len(book.due()) == 1, "it is the first one again"


def discovered(*topics: str) -> Discovered:
    lanes = [
        PlannedLane(topic, LaneKey(TopicId(f"source {topic}"), 0, TopicId(f"target {topic}")), f"eu.{topic}")
        for topic in topics
    ]
    return Discovered(tuple(lanes), (), {}, {}, "", as_any(None), as_any(None))


def test_ids_of_target_topics_are_kept_only_while_checkpoints_belong_to_them() -> None:
    clock = FakeClock()
    flow = FlowConfig(name="eu-us", source="eu", target="us", topics=(".*",))
    clusters = {alias: ClusterConfig((f"{alias}:9092",), Security()) for alias in ("eu", "us")}
    upkeep = Mm2Upkeep(flow, clusters, 1.0, clock, SentBeats())
    for number in range(10):
        upkeep.see(discovered("lasting", f"short-{number}"))
        upkeep.record([position("lasting"), position(f"short-{number}")])
    assert len(upkeep._topics) == 11
    for _ in range(2):
        clock.now += FORGET_S
        upkeep.record([position("lasting")])
        upkeep.see(discovered("lasting"))
    assert list(upkeep._topics) == ["eu.lasting"]


def test_results_of_policies_for_deleted_topics_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_topics, "NAMES_KEPT", 10)

    class Policy:
        def target_topic(self, source_topic: str) -> str:
            return f"eu.{source_topic}"

        def source_topic(self, target_topic: str) -> str | None:
            return target_topic.removeprefix("eu.")

        def hops(self, topic: str) -> tuple[str, ...]:
            return (topic[:2],)

        def refusal(self, topic: str) -> str | None:
            return None if topic == "lasting" else "it is short-lived"

    naming, selection = GuardedNaming("naming", Policy(), "eu", ".", "."), GuardedSelection("select", Policy())
    for number in range(100):
        for topic in ("lasting", f"short-{number}"):
            naming.target_topic(topic)
            naming.hops(topic)
            selection.refusal(topic)
    for known in (naming._targets, naming._hops, selection._answers):
        assert len(known) == 10
        assert "lasting" in known, "who is asked about is remembered"


async def test_what_replicators_know_of_topics_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def settings(
        _cluster: ClusterConfig, topics: Sequence[str], _keys: Iterable[str], _timeout_s: float
    ) -> dict[str, Effective]:
        return {topic: Effective({"cleanup.policy": "compact"}, frozenset()) for topic in topics}

    monkeypatch.setattr(cleanup_policy, "topic_settings", settings)
    monkeypatch.setattr(cleanup_policy, "KNOWN_S", 0.0)
    monkeypatch.setattr(cleanup_policy, "KNOWN_TOPICS", 10)
    target = CleanupPolicies(as_any(None), 1.0)
    for number in range(100):
        await target.compacts("lasting")
        await target.compacts(f"short-{number}")
    assert len(target._known) == 10
    assert "lasting" in target._known


async def test_lines_about_lanes_with_unknown_copies_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Found:
        def __init__(self, *_: object) -> None:
            pass

        async def look(self, _: object) -> tuple[int, int]:
            return 1, 2

    async def bounds(*_: object) -> tuple[int, int]:
        return 9, 0

    monkeypatch.setattr(existing_copies, "_Look", Found)
    monkeypatch.setattr(existing_copies, "bounds", bounds)
    monkeypatch.setattr(existing_copies, "FOUND_KEPT", 10)
    sides: Any = SimpleNamespace(asks=None)
    flow = FlowConfig(name="eu-us", source="eu", target="us", topics=(".*",))
    looking = ExistingCopies(flow, sides, sides, as_any(None))
    where = PartitionId("orders", TopicId("orders"), 0)
    for number in range(100):
        assert await looking.of(LaneId(f"lane {number}"), where, where)
    assert len(looking._found) == 10


def test_a_lane_that_another_replicator_has_taken_is_not_hosted_for_ever() -> None:
    later: list[tuple[Any, ...]] = []
    stub: Any = LaneHost.__new__(LaneHost)
    stub._loop = SimpleNamespace(call_later=lambda *each: later.append(each))
    left = SimpleNamespace(done=lambda: True)
    hosted: Any = SimpleNamespace(lane=SimpleNamespace(id=LaneId("lane")), forgotten=True, left=left)
    hosted.tell = hosted.end = lambda *_: None
    stub._lanes = {LaneId("lane"): hosted}
    stub._gone(hosted, Gone("another replicator has it"))
    assert stub._lanes, "the supervisor has not learned of it yet"
    ((delay_s, remove, argument),) = later
    assert delay_s == lane_host.GONE_KEPT_S
    remove(argument)
    assert stub._lanes == {}


def grown(lanes: int) -> FlowState:
    state = FlowState()
    fold(state, entry(FLOW, epoch=0), 0)
    fold(state, entry(LeaseTaken(1, HOLDER, 6_000)), 1)
    for number in range(lanes):
        key = LaneKey(TopicId(f"source {number}"), 0, TopicId(f"target {number}"))
        opened = LaneOpened(key.id, f"orders-{number}", f"eu.orders-{number}", 0, number, 0, "all")
        fold(state, entry(opened), state.next_offset)
    return state


def test_what_a_ledger_says_about_former_topics_is_kept_only_while_lanes_begin() -> None:
    state, lately = grown(10), Lately()
    assert len(lately.of(state)._sources) == 10
    lately.forget()
    assert (lately._found, lately._read) == (None, None)


def test_group_followers_see_a_lane_that_takes_the_place_of_a_forgotten_one() -> None:
    state, lanes = grown(1), Lanes()
    assert lanes.of(state).keys() == {("orders-0", 0)}
    forgotten = CopyForgotten("orders-0", TopicId("source 0"), "eu.orders-0", TopicId("target 0"))
    key = LaneKey(TopicId("source 1"), 0, TopicId("target 1"))
    opened = LaneOpened(key.id, "orders-1", "eu.orders-1", 0, 1, 0, "all")
    assert fold(state, entry(forgotten, opened), state.next_offset) == (True, True)
    assert lanes.of(state).keys() == {("orders-1", 0)}


async def test_only_who_writes_snapshots_remembers_them() -> None:
    ledger = MemoryLedger()
    holder, worker = (
        LedgerStore(MemoryLog(ledger), SystemClock()),
        LedgerStore(MemoryLog(ledger), SystemClock(), trims=False),
    )
    for store in (holder, worker):
        await store.open()
    await open_flow(holder, FLOW)
    await holder.append(1, [LeaseTaken(1, HOLDER, 6_000)])
    key = LaneKey(TopicId("source"), 0, TopicId("target"))
    await holder.append(1, [LaneOpened(key.id, "orders", "eu.orders", 0, 1, 0, "all")])
    await holder.trim(kept_entries=0)
    await worker.read_to_end()
    late = LedgerStore(MemoryLog(ledger), SystemClock(), trims=False)
    await late.open()
    assert (len(holder._kept.keys), len(holder._kept.lanes)) == (2, 1)
    for store in (worker, late):
        assert (store._kept.keys, store._kept.lanes) == (set(), {})
        assert store.state.lanes.keys() == {key.id}
    for store in (holder, worker, late):
        await store.close()


async def test_appends_that_were_read_back_are_freed_without_the_garbage_collector() -> None:
    store = LedgerStore(MemoryLog(MemoryLedger()), SystemClock(), trims=False)
    await store.open()
    gc.collect()
    others = _appends()  # of stores that other tests have left behind
    gc.disable()
    try:
        await open_flow(store, FLOW)
        await store.append(1, [LeaseTaken(1, HOLDER, 6_000)])
        for number in range(20):
            key = LaneKey(TopicId(f"source {number}"), 0, TopicId(f"target {number}"))
            await store.append(1, [LaneOpened(key.id, "orders", "eu.orders", 0, 1, 0, "all")])
        await eventually(lambda: _appends() <= others + 2)
    finally:
        gc.enable()
        await store.close()


def _appends() -> int:
    return sum(isinstance(each, PendingAppend | Numbered) for each in gc.get_objects())


async def test_ray_is_given_the_code_of_a_kind_of_actor_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[type] = []

    class Kind:
        pass

    class Made:
        def options(self, **_: object) -> "Made":
            return self

        def remote(self, *_: object) -> str:
            return "an actor"

    def remote(**_: object) -> Any:
        def make(kind: type) -> Made:
            made.append(kind)
            return Made()

        return make

    monkeypatch.setattr(handles, "_ray", SimpleNamespace(remote=remote))
    monkeypatch.setattr(handles, "_classes", {})
    for number in range(3):
        assert await handles.create(Kind, options.REPLICATOR, f"replicator {number}") == "an actor"
    assert made == [Kind]
