"""Commands to a flow with fake clusters and replicators: their effects, how long they last, and every fault."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec
import pytest

from mirrord.config.schema import ReplicatorsConfig
from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.facts.core import AnyFact
from mirrord.ledger.facts.orders import CopyingPaused, CopyingResumed, HostDrained, HostRestored, LanePinned
from mirrord.ledger.source_ends import SourcePartition
from mirrord.ledger.standing_orders import Order, OrderAnswer, OrderVerb
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.status import LaneStatus
from mirrord.runtime.clock import SystemClock
from mirrord.supervision import flow_supervisor, order_execution, unfetched_partition_ends
from mirrord.supervision.fleet import fleet, handoff_preparation
from mirrord.supervision.fleet.engine import ReplicatorUnsure
from mirrord.supervision.flow_supervisor import FlowSupervisor
from mirrord.supervision.order_execution import carry_out
from tests.fixtures.supervision import FakeEngine, FakeReplicator, eventually
from tests.unit.supervision.test_flow_supervisor import Mirror, hosted


@pytest.fixture
async def mirror(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Mirror]:
    monkeypatch.setattr(flow_supervisor, "POLL_S", 0.05)
    monkeypatch.setattr(flow_supervisor, "RETRY_S", 0.05)
    monkeypatch.setattr(fleet, "SILENT_S", 0.5)
    made = Mirror()
    made.config = msgspec.structs.replace(made.config, replicators=ReplicatorsConfig(count=2))
    made.clusters["eu"].add("orders", 4)
    yield made
    await made.close()


async def give(
    flow: FlowSupervisor, verb: OrderVerb, name: str, *, to: str = "", reason: str = "", dry_run: bool = False
) -> OrderAnswer:
    order = Order(verb=verb, name=name, to=to, by="ada@host", reason=reason)
    return await carry_out(order, {flow.flow.name: flow.desk()}, SystemClock(), dry_run=dry_run)


def of_kind(mirror: Mirror, kind: type[AnyFact]) -> list[AnyFact]:
    return [fact for fact in mirror.facts() if type(fact) is kind]


def lanes(flow: FlowSupervisor, state: str) -> list[LaneStatus]:
    return [lane for lane in flow.status().lanes if lane.state == state]


def home_of(flow: FlowSupervisor, partition: int) -> str:
    return next(lane.host for lane in flow.status().lanes if lane.partition == partition)


async def running(mirror: Mirror, host: str = "host-a", lanes: int = 4) -> tuple[FlowSupervisor, FakeEngine]:
    flow, engine = mirror.start(host)
    await eventually(lambda: hosted(engine, lanes))
    await eventually(lambda: flow.status().totals.lanes.get("copying") == lanes)
    return flow, engine


async def test_a_paused_partition_is_drained_and_the_others_are_not_touched(mirror: Mirror) -> None:
    flow, engine = await running(mirror)
    before = {lane: home for lane, home in engine.homes().items() if lane.split(".")[1] != "2"}
    assert (await give(flow, "pause", "orders-2", dry_run=True)).lanes == ("orders-2",)
    assert of_kind(mirror, CopyingPaused) == []
    answer = await give(flow, "pause", "orders-2", reason="the disk is full")
    assert answer.lanes == ("orders-2",)
    await eventually(lambda: hosted(engine, 3))
    assert engine.homes() == before
    await eventually(lambda: len(lanes(flow, "paused")) == 1)
    (lane,) = lanes(flow, "paused")
    assert lane.partition == 2
    assert lane.note.startswith("it was paused by ada@host at 20")
    assert lane.note.endswith(": the disk is full")
    assert (await give(flow, "pause", "orders-2")).done == ()
    assert len(of_kind(mirror, CopyingPaused)) == 1
    await give(flow, "resume", "orders-2")
    await eventually(lambda: hosted(engine, 4))
    (again,) = [each for each in engine.assignments(engine.replicators) if each.key.partition == 2][1:]
    assert again.former == "left"
    assert (await give(flow, "resume", "orders-2")).done == ()
    assert len(of_kind(mirror, CopyingResumed)) == 1


async def test_the_lag_of_a_paused_partition_grows_or_is_not_known(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfetched_partition_ends, "LOOK_S", 0.05)
    ends = {2: 107}

    async def ask(_: object, wanted: list[SourcePartition]) -> dict[SourcePartition, int]:
        if not ends:
            raise EnvironmentFault("nobody answers")
        return {each: ends[each.partition] for each in wanted if each.partition in ends}

    monkeypatch.setattr(unfetched_partition_ends.LogOffsets, "high_watermarks", ask)
    flow, _ = await running(mirror)
    await give(flow, "pause", "orders-2")
    await eventually(lambda: [lane.lag_records for lane in lanes(flow, "paused")] == [100])
    assert flow.status().totals.lag_records == 3 * 3 + 100
    ends.clear()
    await eventually(lambda: [lane.lag_records for lane in lanes(flow, "paused")] == [None])
    assert flow.status().totals.lag_records is None


async def test_new_partitions_of_a_paused_topic_stay_paused_and_so_does_it_when_it_is_created_again(
    mirror: Mirror,
) -> None:
    mirror.clusters["eu"].add("orders-old", 1)
    flow, engine = await running(mirror, lanes=5)
    await give(flow, "pause", "orders")
    await eventually(lambda: hosted(engine, 1))
    source = mirror.clusters["eu"].topics["orders"]
    mirror.clusters["eu"].topics["orders"] = msgspec.structs.replace(source, partitions=6)
    await eventually(lambda: len(lanes(flow, "paused")) == 6)
    assert any("topic orders is paused, by ada@host" in line for line in flow.status().remarks)
    assert all("topic orders was paused by" in lane.note for lane in lanes(flow, "paused"))
    mirror.clusters["eu"].add("orders", 2)
    await eventually(lambda: len(lanes(flow, "paused")) == 2)
    assert hosted(engine, 1)
    await give(flow, "resume", "orders")
    await eventually(lambda: hosted(engine, 3))


async def test_a_pause_outlives_its_daemon_and_counts_for_the_next_one(mirror: Mirror) -> None:
    first, engine = await running(mirror)
    standby, other = mirror.start("host-b")
    await eventually(lambda: standby.status().state == "standby")
    await give(first, "pause", "eu-us")
    await eventually(lambda: hosted(engine, 0))
    await eventually(lambda: len(lanes(standby, "paused")) == 4)
    with pytest.raises(EnvironmentFault, match=r"no commands here: it is standby, http://127\.0\.0\.1:8182 has it"):
        await give(standby, "resume", "eu-us")
    mirror.crash(first)
    await eventually(lambda: standby.status().state == "running")
    await eventually(lambda: len(lanes(standby, "paused")) == 4)
    assert other.homes() == {}
    await give(standby, "resume", "eu-us")
    await eventually(lambda: hosted(other, 4))


async def test_a_lane_is_paused_while_it_begins(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    assigning, go_on = asyncio.Event(), asyncio.Event()
    assign = FakeReplicator.assign

    async def slowly(self: FakeReplicator, given: object) -> None:
        assigning.set()
        await go_on.wait()
        await assign(self, given)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(FakeReplicator, "assign", slowly)
    flow, engine = mirror.start()
    await asyncio.wait_for(assigning.wait(), 10)
    await give(flow, "pause", "orders")
    go_on.set()
    await eventually(lambda: len(lanes(flow, "paused")) == 4)
    assert hosted(engine, 0)
    await give(flow, "resume", "orders")
    await eventually(lambda: hosted(engine, 4))


async def test_a_lane_moves_and_stays_moved(mirror: Mirror) -> None:
    flow, engine = await running(mirror)
    first, second = sorted(engine.replicators)
    there = second if home_of(flow, 0) == first else first
    before = {lane: home for lane, home in engine.homes().items() if lane.split(".")[1] != "0"}
    assert (await give(flow, "move", "orders-0", to=home_of(flow, 0))).lanes == ()
    answer = await give(flow, "move", "orders-0", to=there)
    assert answer.lanes == ("orders-0",)
    await eventually(lambda: home_of(flow, 0) == there and lanes(flow, "copying"))
    assert {lane: home for lane, home in engine.homes().items() if lane in before} == before
    assert (await give(flow, "move", "orders-0", to=there)).done == ()
    assert [lane.note for lane in flow.status().lanes if "pinned to replicator" in lane.note]
    moves = [each.former for each in engine.assignments(engine.replicators) if each.key.partition == 0]
    assert moves == ["none", "left"]
    # The next daemon has another generation of replicators, and the same wish.
    slot = there.rpartition("/")[2].split(".")[0]
    flow.stop()
    await eventually(lambda: flow.status().state == "stopped")
    again, _ = await running(mirror, "host-b")
    await eventually(lambda: slot in home_of(again, 0))
    await give(again, "unpin", "orders-0")
    assert len(of_kind(mirror, LanePinned)) == 2


async def test_the_next_replicator_of_a_lane_is_informed_before_it_leaves(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, engine = await running(mirror)
    here = engine.replicators[home_of(flow, 0)]
    (there,) = (each for each in engine.alive if each is not here)
    release, prepared = FakeReplicator.release, list[set[int]]()

    async def looking(self: FakeReplicator, given: object, deadline_s: float) -> object:
        prepared.append({int(lane.split(".")[1]) for lane in there.prepared})
        return await release(self, given, deadline_s)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(FakeReplicator, "release", looking)
    await give(flow, "move", "orders-0", to=there.name)
    await eventually(lambda: home_of(flow, 0) == there.name and hosted(engine, 4))
    assert prepared == [{0}]


@pytest.mark.parametrize("how", ["silent", "unsure"])
async def test_a_lane_does_not_wait_for_who_cannot_prepare(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(handoff_preparation, "AHEAD_S", 0.1)
    flow, engine = await running(mirror)
    here = engine.replicators[home_of(flow, 0)]
    (there,) = (each for each in engine.alive if each is not here)

    async def never(_: FakeReplicator, lanes: object) -> None:
        assert lanes
        if how == "unsure":
            raise ReplicatorUnsure("no answer")
        await asyncio.Event().wait()

    monkeypatch.setattr(FakeReplicator, "prepare", never)
    await give(flow, "move", "orders-0", to=there.name)
    await eventually(lambda: home_of(flow, 0) == there.name and hosted(engine, 4))


async def test_the_new_host_dies_during_the_move(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    flow, engine = await running(mirror)
    here = engine.replicators[home_of(flow, 0)]
    (there,) = (each for each in engine.alive if each is not here)
    releasing, go_on = asyncio.Event(), asyncio.Event()
    release = FakeReplicator.release

    async def slowly(self: FakeReplicator, given: object, deadline_s: float) -> object:
        releasing.set()
        await go_on.wait()
        return await release(self, given, deadline_s)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(FakeReplicator, "release", slowly)
    await give(flow, "move", "orders-0", to=there.name)
    await asyncio.wait_for(releasing.wait(), 10)
    there.die()
    go_on.set()
    await eventually(lambda: hosted(engine, 4))
    # Its replacement has its number, and the lane goes there after all.
    slot = there.name.rpartition("/")[2].split(".")[0]
    await eventually(lambda: slot in home_of(flow, 0) and hosted(engine, 4))


async def test_the_old_host_dies_during_the_move(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    flow, engine = await running(mirror)
    engine.offset = 10  # lanes with nothing left to copy are not suspected of ending their replicators
    for each in engine.alive:
        each.offset = 10
    await eventually(lambda: flow.status().totals.lag_records == 0)
    here = engine.replicators[home_of(flow, 0)]
    (there,) = (each for each in engine.alive if each is not here)

    async def dying(self: FakeReplicator, given: object, deadline_s: float) -> object:
        self.die()
        return await release(self, given, deadline_s)  # pyright: ignore[reportArgumentType]

    release = FakeReplicator.release
    monkeypatch.setattr(FakeReplicator, "release", dying)
    await give(flow, "move", "orders-0", to=there.name)
    await eventually(lambda: here.dead and hosted(engine, 4))
    moved = [each.former for each in there.history if each.key.partition == 0]
    assert moved == ["dead"]


async def test_a_drained_replicator_stays_empty_until_it_is_restored(mirror: Mirror) -> None:
    flow, engine = await running(mirror)
    victim = min(engine.replicators)
    answer = await give(flow, "drain", victim)
    assert len(answer.lanes) == 2
    await eventually(lambda: hosted(engine, 4) and not engine.replicators[victim].lanes)
    assert not engine.replicators[victim].dead
    assert any(f"{victim} is drained, by ada@host" in line for line in flow.status().remarks)
    assert (await give(flow, "drain", victim)).done == ()
    await give(flow, "resume", victim)
    await eventually(lambda: len(engine.replicators[victim].lanes) == 2 and hosted(engine, 4))
    assert len(of_kind(mirror, HostDrained)) == len(of_kind(mirror, HostRestored)) == 1


async def test_a_replacement_of_a_drained_replicator_is_not_drained(mirror: Mirror) -> None:
    flow, engine = await running(mirror)
    victim = min(engine.replicators)
    await give(flow, "drain", victim)
    await eventually(lambda: not engine.replicators[victim].lanes)
    engine.replicators[victim].die()
    await eventually(lambda: sorted(len(each.lanes) for each in engine.alive) == [2, 2])
    assert not any("is drained" in line for line in flow.status().remarks)


async def test_an_order_to_a_daemon_that_drains_changes_nothing(mirror: Mirror) -> None:
    flow, _ = await running(mirror)
    flow.stop()
    await eventually(lambda: flow.status().state != "running", 10)
    with pytest.raises(EnvironmentFault, match=r"accepts no commands here: it is (draining|stopped|starting)"):
        await give(flow, "pause", "orders")
    assert of_kind(mirror, CopyingPaused) == []


async def test_an_order_waits_for_the_renewal_of_an_uncertain_lease(mirror: Mirror) -> None:
    flow, engine = await running(mirror)
    keeper = flow._keeper  # pyright: ignore[reportPrivateUsage]
    assert keeper is not None
    keeper.valid_until = 0.0
    assert (await give(flow, "pause", "orders-2")).lanes == ("orders-2",)
    await eventually(lambda: hosted(engine, 3))


async def test_an_order_after_the_lease_was_lost_changes_nothing(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order_execution, "RENEWAL_WAIT_S", 0.0)
    flow, engine = await running(mirror)
    keeper = flow._keeper  # pyright: ignore[reportPrivateUsage]
    assert keeper is not None
    keeper.valid_until = 0.0
    with pytest.raises(EnvironmentFault, match="nothing was changed: the lease of the flow is currently uncertain"):
        await give(flow, "pause", "orders")
    assert of_kind(mirror, CopyingPaused) == []
    assert hosted(engine, 4)


async def test_an_order_that_the_ledger_does_not_confirm_may_be_given_again(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, engine = await running(mirror)
    append = LedgerStore.append
    faults = [LedgerUnavailable("no answer")]

    async def failing(self: LedgerStore, epoch: int, facts: list[AnyFact]) -> object:
        done = await append(self, epoch, facts)
        if faults and any(isinstance(fact, CopyingPaused) for fact in facts):
            raise faults.pop()
        return done

    monkeypatch.setattr(LedgerStore, "append", failing)
    with pytest.raises(EnvironmentFault, match="it is not known whether the command takes effect"):
        await give(flow, "pause", "orders")
    assert (await give(flow, "pause", "orders")).done == ()
    await eventually(lambda: hosted(engine, 0))


async def test_an_unknown_name_changes_nothing(mirror: Mirror) -> None:
    flow, engine = await running(mirror)
    facts = len(mirror.facts())
    with pytest.raises(ConfigError, match='did you mean "orders"'):
        await give(flow, "pause", "ordres")
    assert len(mirror.facts()) == facts
    assert hosted(engine, 4)
