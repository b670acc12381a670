"""One flow's supervision with fake clusters and replicators: lease, lanes and their hosts, faults, the end."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine

import msgspec
import pytest

from mirrord.config.schema import ReplicatorsConfig, RuntimeConfig
from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.facts.core import ConfigChanged, FlowOpened, SourceRun, TargetProbed, TargetRun
from mirrord.ledger.store.lease import LeaseKeeper
from mirrord.ledger.store.memory_log import MemoryLog
from mirrord.ledger.store.store import LedgerStore, open_flow
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ClusterId, LaneId, TopicPartition
from mirrord.model.runs import Run
from mirrord.runtime.clock import SystemClock
from mirrord.supervision import flow_supervisor, pruning
from mirrord.supervision.broker_probe import NotProbed
from mirrord.supervision.fleet import member
from mirrord.supervision.fleet.engine import ReplicatorUnsure
from tests.fixtures.one_flow import FLOW, PROBED, Mirror, hosted, mirrors
from tests.fixtures.supervision import FakeEngine, FakeReplicator, eventually


@pytest.fixture
async def mirror(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Mirror]:
    async for made in mirrors(monkeypatch):
        yield made


async def test_a_flow_creates_its_target_topics_and_copies_every_partition(mirror: Mirror) -> None:
    mirror.clusters["eu"].add("orders", 4)
    mirror.clusters["eu"].add("other", 1)
    flow, engine = mirror.start()
    await eventually(lambda: hosted(engine, 4))
    assert mirror.clusters["us"].topics["eu.orders"].partitions == 4
    assert "eu.other" not in mirror.clusters["us"].topics
    assert sorted(engine.replicators) == ["mirrord/eu-us/replicator-0.g1.1", "mirrord/eu-us/replicator-1.g1.2"]
    assert {lane.former for lane in engine.assignments(engine.replicators)} == {"none"}
    await eventually(lambda: flow.status().totals.lanes == {"copying": 4})
    status = flow.status()
    assert (status.state, status.totals.lag_records, status.note) == ("running", 12, "")
    assert status.lease is not None
    assert status.lease.http == "http://127.0.0.1:8182"
    assert flow.ready() == ""


async def test_a_library_that_lets_a_cancellation_escape_does_not_end_the_flow(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.clusters["eu"].add("orders", 1)
    escapes = [asyncio.CancelledError()]
    close = MemoryLog.close

    async def escaping(log: MemoryLog) -> None:
        await close(log)
        if escapes:
            raise escapes.pop()

    monkeypatch.setattr(MemoryLog, "close", escaping)
    monkeypatch.setattr(flow_supervisor, "open_flow", failing_once())
    _, engine = mirror.start()
    await eventually(lambda: hosted(engine, 1))
    assert escapes == []


def failing_once() -> Callable[[LedgerStore, FlowOpened], Coroutine[None, None, None]]:
    """`open_flow`, which gets no answer the first time."""
    faults = [LedgerUnavailable("no answer")]

    async def opening(store: LedgerStore, opened: FlowOpened) -> None:
        if faults:
            raise faults.pop()
        await open_flow(store, opened)

    return opening


async def test_what_was_created_and_grown_stands_in_the_ledger(mirror: Mirror) -> None:
    mirror.clusters["eu"].add("orders", 1)
    _, engine = mirror.start()
    await eventually(lambda: hosted(engine, 1))
    source = mirror.clusters["eu"].topics["orders"]
    mirror.clusters["eu"].topics["orders"] = msgspec.structs.replace(source, partitions=3)
    await eventually(lambda: hosted(engine, 3))
    reader = LedgerStore(MemoryLog(mirror.ledger), SystemClock())
    await reader.open(read_only=True)
    target = mirror.clusters["us"].topics["eu.orders"]
    await eventually(lambda: reader.state.topics and reader.state.topics[target.topic_id].partitions == 3)
    topic = reader.state.topics[target.topic_id]
    assert (topic.created, topic.source_topic, topic.source_topic_id) == (True, "orders", source.topic_id)
    await reader.close()


async def test_new_topics_do_not_wait_for_a_flow_whose_source_does_not_answer(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_supervisor, "OTHERS_S", 0.1)
    mirror.claims.expect(msgspec.structs.replace(FLOW, name="asia-us", source="asia"))  # its ledger is never read
    mirror.clusters["eu"].add("orders", 2)
    mirror.clusters["eu"].add("orders-old", 1)
    mirror.clusters["us"].add("eu.orders-old", 1)
    flow, engine = mirror.start()
    await eventually(lambda: hosted(engine, 2))
    await eventually(lambda: flow.status().totals.lanes == {"copying": 2})
    assert {lane.topic for lane in flow.status().lanes} == {"orders"}
    assert "eu.orders-old, which may be a copy of the flow asia-us" in flow.status().note


async def test_a_topic_that_cannot_be_created_stops_no_other(mirror: Mirror) -> None:
    mirror.clusters["eu"].add("orders", 2)
    mirror.clusters["eu"].add("orders-secret", 1)
    mirror.clusters["us"].refuses["eu.orders-secret"] = "TOPIC_AUTHORIZATION_FAILED"
    flow, engine = mirror.start()
    await eventually(lambda: hosted(engine, 2))
    await eventually(lambda: "eu.orders-secret cannot be created: TOPIC_AUTHORIZATION_FAILED" in flow.status().note)
    mirror.clusters["us"].refuses.clear()
    await eventually(lambda: hosted(engine, 3))
    assert flow.status().note == ""


async def test_a_dead_replicators_lanes_are_back_at_once(mirror: Mirror) -> None:
    mirror.clusters["eu"].add("orders", 4)
    _, engine = mirror.start()
    await eventually(lambda: hosted(engine, 4))
    victim = engine.alive[0]
    lost = set(victim.lanes)
    victim.die()
    await eventually(lambda: hosted(engine, 4))
    await eventually(lambda: sorted(len(replicator.lanes) for replicator in engine.alive) == [2, 2])
    again = [lane for lane in engine.assignments(set(engine.replicators) - {victim.name}) if lane.lane in lost]
    assert {lane.former for lane in again} >= {"dead"}
    assert {lane.former for lane in again} <= {"dead", "left"}
    assert victim.name.replace("g1.1", "g1.3") in engine.replicators


@pytest.mark.parametrize("ended", [True, False])
async def test_a_daemon_that_took_its_replicators_along_is_followed_sooner(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    mirror.clusters["eu"].add("orders", 2)
    monkeypatch.setattr(LeaseKeeper, "_all_ended", lambda _: ended)
    first, engine = mirror.start()
    await eventually(lambda: hosted(engine, 2))
    mirror.crash(first)
    for replicator in engine.alive:
        replicator.die()
    _, other = mirror.start(host="host-b")
    await eventually(lambda: hosted(other, 2))
    assert {lane.former for lane in other.assignments(other.replicators)} == {"dead" if ended else "unknown"}


async def test_a_lane_that_moved_twice_within_the_barrier_keeps_the_longer_one(mirror: Mirror) -> None:
    mirror.config = msgspec.structs.replace(
        mirror.config, runtime=RuntimeConfig(lease_ttl_ms=1000, request_timeout_ms=100_000)
    )
    mirror.clusters["eu"].add("orders", 1)
    _, engine = mirror.start()
    await eventually(lambda: hosted(engine, 1))
    for _ in range(2):
        engine.alive[0].die()
        await eventually(lambda: hosted(engine, 1))
    assert [lane.former for lane in engine.assignments(engine.replicators)] == ["none", "dead", "dead"]


async def test_one_replicator_per_partition(mirror: Mirror) -> None:
    mirror.config = msgspec.structs.replace(mirror.config, replicators=ReplicatorsConfig(partitions_per_replicator=1))
    mirror.clusters["eu"].add("orders", 5)
    _, engine = mirror.start()
    await eventually(lambda: hosted(engine, 5))
    assert [len(replicator.lanes) for replicator in engine.alive] == [1] * 5


async def test_a_silent_replicator_is_unsure_then_ended_and_replaced(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.clusters["eu"].add("orders", 2)
    flow, engine = mirror.start()
    await eventually(lambda: hosted(engine, 2) and len(flow.status().replicators) == 2)
    victim = engine.alive[0]
    monkeypatch.setattr(member, "UNSURE_S", 0.2)
    victim.silent = True
    seen: list[str] = []

    def replaced() -> bool:
        seen.extend(each.state for each in flow.status().replicators if each.name == victim.name)
        return victim.dead and hosted(engine, 2)

    await eventually(replaced)
    assert seen[0] == "healthy"
    assert "unsure" in seen


async def test_an_assignment_that_got_lost_is_repeated(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.clusters["eu"].add("orders", 2)
    opened = FakeReplicator.open

    async def open_deaf(self: FakeReplicator) -> None:
        await opened(self)
        self.deaf = True

    monkeypatch.setattr(FakeReplicator, "open", open_deaf)
    _, engine = mirror.start(cores=1)
    await eventually(lambda: engine.replicators and all(each.deaf for each in engine.alive))
    for replicator in engine.alive:
        replicator.deaf = False
    await eventually(lambda: hosted(engine, 2))
    assert {lane.former for lane in engine.assignments(engine.replicators)} == {"none"}


async def test_a_lane_that_somebody_took_away_is_taken_back_with_doubt(mirror: Mirror) -> None:
    mirror.clusters["eu"].add("orders", 1)
    _, engine = mirror.start(cores=1)
    await eventually(lambda: hosted(engine, 1))
    engine.alive[0].gone.add(next(iter(engine.homes())))
    await eventually(lambda: len(engine.assignments(engine.replicators)) == 2)
    assert [lane.former for lane in engine.assignments(engine.replicators)] == ["none", "unknown"]


async def test_runs_that_neither_cluster_has_any_more_are_forgotten(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def starts(_: object, partitions: Collection[TopicPartition], which: str) -> dict[TopicPartition, int]:
        assert which == "start"
        return dict.fromkeys(partitions, 100)

    monkeypatch.setattr(pruning, "log_offsets", starts)
    monkeypatch.setattr(pruning, "PRUNE_S", 0.05)
    mirror.clusters["eu"].add("orders", 1)
    flow, engine = mirror.start()
    await eventually(lambda: hosted(engine, 1))
    (lane,) = engine.homes()
    writer = LedgerStore(MemoryLog(mirror.ledger), SystemClock())
    await writer.open()
    await eventually(lambda: lane in writer.state.lanes and writer.state.lanes[lane].grant)
    runs = (Run(0, 0), Run(5, 10), Run(90, 120))
    facts = [SourceRun(lane, 1, runs), *(TargetRun(lane, 1, run.ordinal, run.ordinal, 0) for run in runs)]
    assert all(await writer.append(1, facts))
    store = flow._store  # pyright: ignore[reportPrivateUsage]
    assert store is not None
    await eventually(lambda: [run.ordinal for run in store.state.lanes[lane].source_runs] == [90])
    # The source has nothing more of a recreated topic, so only the target's start counts.
    runs = (Run(95, 130), Run(99, 140), Run(101, 150))
    assert all(await writer.append(1, [SourceRun(lane, 1, runs)]))
    assert len(store.state.lanes[lane].source_runs) == 4
    mirror.clusters["eu"].add("orders", 1)
    await eventually(lambda: [run.ordinal for run in store.state.lanes[lane].source_runs] == [99, 101])
    await writer.close()


async def test_a_topic_that_was_created_again_gives_new_lanes(mirror: Mirror) -> None:
    mirror.clusters["eu"].add("orders", 1)
    _, engine = mirror.start()
    await eventually(lambda: hosted(engine, 1))
    before = set(engine.homes())
    mirror.clusters["eu"].add("orders", 1)
    await eventually(lambda: hosted(engine, 1) and before.isdisjoint(engine.homes()))


async def test_replicators_that_do_not_start_are_tried_again(mirror: Mirror) -> None:
    mirror.clusters["eu"].add("orders", 1)
    engine: FakeEngine
    flow, engine = mirror.start()
    engine.refusal = EnvironmentFault("Ray has no room")
    await eventually(lambda: flow.status().note == "no replicator starts: Ray has no room")
    engine.refusal = None
    await eventually(lambda: hosted(engine, 1))
    assert flow.status().note == ""


async def test_a_stop_drains_and_the_next_daemon_need_not_wait(mirror: Mirror) -> None:
    mirror.clusters["eu"].add("orders", 3)
    flow, engine = mirror.start()
    await eventually(lambda: hosted(engine, 3))
    flow.stop()
    await mirror.daemons[0][2]
    assert (flow.status().state, engine.alive) == ("stopped", [])
    _, second = mirror.start("host-b")
    await eventually(lambda: hosted(second, 3))
    assert {lane.former for lane in second.assignments(second.replicators)} == {"left"}


async def test_a_second_daemon_stands_by_and_takes_over_when_the_first_one_is_silent(mirror: Mirror) -> None:
    mirror.clusters["eu"].add("orders", 2)
    first, engine = mirror.start()
    await eventually(lambda: hosted(engine, 2))
    second, other = mirror.start("host-b")
    await eventually(lambda: second.status().state == "standby" and len(second.status().lanes) == 2)
    assert second.ready() == ""
    assert other.replicators == {}
    lease = second.status().lease
    assert lease is not None
    assert lease.host == "host-a"
    mirror.crash(first)
    await eventually(lambda: hosted(other, 2))
    assert {lane.former for lane in other.assignments(other.replicators)} == {"unknown"}
    assert next(iter(other.replicators)).endswith("replicator-0.g2.1")


async def test_who_loses_the_lease_ends_its_replicators_and_stands_by(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.clusters["eu"].add("orders", 2)
    first, engine = mirror.start()
    await eventually(lambda: hosted(engine, 2))
    old = engine.alive
    # The requests of the first one no longer arrive, those of the ledger's other clients do.
    monkeypatch.setattr(flow_supervisor.LeaseKeeper, "_renew", lambda _: asyncio.sleep(0))
    _, other = mirror.start("host-b")
    await eventually(lambda: hosted(other, 2))
    await eventually(lambda: all(replicator.dead for replicator in old))
    await eventually(lambda: first.status().state == "standby")


async def test_an_unreachable_cluster_is_reported_once_and_tried_again(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    monkeypatch.setattr(
        "mirrord.kafka.client.reachability.log.warning", lambda event, **_: events.append(event), raising=False
    )
    mirror.clusters["eu"].add("orders", 1)
    mirror.clusters["eu"].fail("eu1:9092 cannot be reached")
    flow, engine = mirror.start()
    await eventually(lambda: flow.status().source.error == "eu1:9092 cannot be reached")
    await asyncio.sleep(0.3)
    assert events == ["cluster_unreachable"]
    assert flow.ready() == "eu-us: starting"
    mirror.clusters["eu"].error = None
    await eventually(lambda: hosted(engine, 1))
    assert flow.status().source.reachable
    mirror.clusters["eu"].fail()
    await eventually(lambda: not flow.status().source.reachable)
    assert hosted(engine, 1), "what runs goes on"
    assert events == ["cluster_unreachable"] * 2


async def test_a_flow_name_of_other_clusters_is_refused(mirror: Mirror) -> None:
    store = LedgerStore(MemoryLog(mirror.ledger), SystemClock())
    await store.open()
    await open_flow(store, FlowOpened("eu-us", ClusterId("other"), ClusterId("us-id")))
    await store.close()
    flow, engine = mirror.start()
    await eventually(lambda: "the flow name eu-us is taken" in flow.status().note)
    assert engine.replicators == {}


async def test_a_stop_before_the_clusters_answer_ends_at_once(mirror: Mirror) -> None:
    mirror.clusters["us"].fail()
    flow, _ = mirror.start()
    await eventually(lambda: flow.status().target.error)
    flow.stop()
    await asyncio.wait_for(mirror.daemons[0][2], 10)


async def test_a_stop_ends_a_flow_at_once_whose_replicators_could_not_be_looked_for(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.config = msgspec.structs.replace(mirror.config, runtime=RuntimeConfig(lease_ttl_ms=600_000))
    flow, engine = mirror.start()

    async def found(prefix: str) -> list[str]:
        raise ReplicatorUnsure(f"Ray does not list the actors of {prefix}")

    monkeypatch.setattr(engine, "found", found)
    # It waits for its own former lease, and has no replicator to drain.
    await eventually(lambda: flow.status().state == "standby")
    flow.stop()
    await eventually(lambda: flow.status().state == "stopped")


async def test_the_probe_of_the_target_stands_in_ledger_and_status_once(mirror: Mirror) -> None:
    mirror.clusters["eu"].add("orders", 1)
    for host in ("host-a", "host-b"):
        flow, engine = mirror.start(host)
        await eventually(lambda engine=engine: hosted(engine, 1))
        status = flow.status()
        assert (status.guarantee, status.guarantee_note) == ("exactly-once", "")
        assert {each.setup.mode for each in engine.alive} == {"sequence"}
        flow.stop()
        await eventually(lambda flow=flow: flow.status().state == "stopped")
    assert [fact for fact in mirror.facts() if isinstance(fact, TargetProbed)] == [PROBED]


async def test_a_target_that_fails_the_probe_is_reported_and_its_lanes_do_not_rely_on_it(mirror: Mirror) -> None:
    mirror.clusters["eu"].add("orders", 1)
    mirror.probed = msgspec.structs.replace(PROBED, passed=False, failures=("not met: a gap is refused",))
    flow, engine = mirror.start()
    await eventually(lambda: hosted(engine, 1))
    status = flow.status()
    assert (status.guarantee, status.guarantee_note) == ("at-least-once", "not met: a gap is refused")
    assert {each.setup.mode for each in engine.alive} == {"at-least-once"}
    assert mirror.probed in mirror.facts()
    flow.stop()
    await eventually(lambda: flow.status().state == "stopped")
    # It stays so until other brokers, or a probe of them, say otherwise.
    mirror.probed = NotProbed("no right")
    flow, engine = mirror.start("host-b")
    await eventually(lambda: hosted(engine, 1))
    assert flow.status().guarantee_note == "not met: a gap is refused; not probed: no right"
    assert {each.setup.mode for each in engine.alive} == {"at-least-once"}


async def test_a_target_that_cannot_be_probed_is_reported_and_copied_to(mirror: Mirror) -> None:
    mirror.clusters["eu"].add("orders", 1)
    mirror.probed = NotProbed("the topic mirrord.eu-us.probe cannot be created: TOPIC_AUTHORIZATION_FAILED")
    flow, engine = mirror.start()
    await eventually(lambda: hosted(engine, 1))
    status = flow.status()
    assert (status.guarantee, status.guarantee_note) == ("exactly-once", f"not probed: {mirror.probed}")
    assert not any(isinstance(fact, TargetProbed) for fact in mirror.facts())


async def test_other_topics_concern_no_lane_that_stays(mirror: Mirror) -> None:
    for name in ("orders", "orders-old", "payments"):
        mirror.clusters["eu"].add(name, 2)
    flow, engine = mirror.start()
    await eventually(lambda: hosted(engine, 4))
    before = {lane for lane in engine.homes() if "eu.orders-old" not in target_of(engine, lane)}
    other = msgspec.structs.replace(FLOW, topics=("orders", "payments"))
    assert await flow.preview(other) == [
        "starts copying payments into eu.payments",
        "stops copying orders-old into eu.orders-old",
    ]
    homes = engine.homes()
    flow.change(other, ["topics: - orders.*, + orders, + payments"], drains=False)
    await eventually(lambda: {target_of(engine, lane) for lane in engine.homes()} == {"eu.orders", "eu.payments"})
    await eventually(lambda: hosted(engine, 4))
    assert {lane: engine.homes()[lane] for lane in before} == {lane: homes[lane] for lane in before}
    given = [lane.lane for lane in engine.assignments(engine.replicators) if lane.lane in before]
    assert sorted(given) == sorted(before), "a lane that stays is given once"
    await eventually(lambda: ConfigChanged(("topics: - orders.*, + orders, + payments",)) in mirror.facts())
    assert flow.flow == other


async def test_what_lanes_work_by_drains_them_first(mirror: Mirror) -> None:
    mirror.clusters["eu"].add("orders", 2)
    flow, engine = mirror.start()
    await eventually(lambda: hosted(engine, 2))
    first = list(engine.alive)
    other = msgspec.structs.replace(FLOW, isolation="read_uncommitted")
    flow.change(other, ["isolation: read_committed -> read_uncommitted"], drains=True)
    await eventually(lambda: all(replicator.dead for replicator in first) and hosted(engine, 2))
    assert {replicator.setup.flow.isolation for replicator in engine.alive} == {"read_uncommitted"}
    assert {lane.former for lane in engine.assignments([replicator.name for replicator in engine.alive])} == {"left"}
    await eventually(lambda: any(isinstance(fact, ConfigChanged) for fact in mirror.facts()))


async def test_a_flow_that_waits_takes_the_newest_configuration(mirror: Mirror) -> None:
    mirror.clusters["eu"].add("payments", 1)
    mirror.clusters["us"].fail()
    flow, engine = mirror.start()
    for topics in (("nothing",), ("payments",)):
        flow.change(msgspec.structs.replace(FLOW, topics=topics), [f"topics: {topics}"], drains=False)
    mirror.clusters["us"].error = None
    await eventually(lambda: hosted(engine, 1))


def target_of(engine: FakeEngine, lane: LaneId) -> str:
    return next(each.target_topic for each in engine.assignments(engine.replicators) if each.lane == lane)
