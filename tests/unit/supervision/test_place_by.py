"""Another number of replicators, spares and dedicated lanes while a flow runs; with fake clusters and replicators."""

from collections.abc import AsyncGenerator

import msgspec
import pytest

from mirrord.config.schema import ReplicatorsConfig
from mirrord.ledger.facts.core import ConfigChanged
from mirrord.model.names import LaneId
from mirrord.supervision import flow_supervisor
from mirrord.supervision.flow_stats import FlowFigures
from mirrord.supervision.flow_supervisor import FlowSupervisor
from tests.fixtures.supervision import FakeEngine, eventually
from tests.unit.supervision.test_flow_supervisor import Mirror, hosted


@pytest.fixture
async def mirror(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Mirror]:
    monkeypatch.setattr(flow_supervisor, "POLL_S", 0.05)
    made = Mirror()
    made.clusters["eu"].add("orders", 6)
    yield made
    await made.close()


async def running(mirror: Mirror, replicators: ReplicatorsConfig) -> tuple[FlowSupervisor, FakeEngine]:
    mirror.config = msgspec.structs.replace(mirror.config, replicators=replicators)
    flow, engine = mirror.start()
    await eventually(lambda: hosted(engine, 6) and len(engine.alive) == replicators.count + replicators.spares)  # pyright: ignore[reportOperatorIssue]
    return flow, engine


def loads(engine: FakeEngine) -> list[int]:
    assert all(len(names) == 1 for names in engine.homes().values()), "two replicators for one lane"
    return sorted(len(replicator.lanes) for replicator in engine.alive)


async def test_more_replicators_get_their_share_a_few_lanes_at_a_time(mirror: Mirror) -> None:
    flow, engine = await running(mirror, ReplicatorsConfig(count=1))
    flow.place_by(ReplicatorsConfig(count=3), ["replicators.count: 1 -> 3"])
    # The last lane or two may wait for the next round of balancing.
    await eventually(lambda: len(engine.alive) == 3 and sum(loads(engine)) == 6 and min(loads(engine)) >= 1)
    moved = [lane.former for lane in engine.assignments(engine.replicators)]
    assert set(moved) == {"none", "left"}
    await eventually(lambda: ConfigChanged(("replicators.count: 1 -> 3",)) in mirror.facts())


async def test_fewer_replicators_are_drained_and_then_stopped(mirror: Mirror) -> None:
    flow, engine = await running(mirror, ReplicatorsConfig(count=3))
    flow.place_by(ReplicatorsConfig(count=1), [])
    await eventually(lambda: loads(engine) == [6])
    assert {lane.former for lane in engine.assignments(engine.replicators)} == {"none", "left"}
    kept = engine.alive[0]
    flow.place_by(ReplicatorsConfig(count=2), [])
    await eventually(lambda: loads(engine) == [3, 3] and kept in engine.alive)


async def test_it_counts_for_the_next_lease_too(mirror: Mirror) -> None:
    flow, engine = await running(mirror, ReplicatorsConfig(count=1))
    first = engine.alive[0]
    flow.place_by(ReplicatorsConfig(count=2), [])
    flow.change(msgspec.structs.replace(flow.flow, isolation="read_uncommitted"), [], drains=True)
    await eventually(lambda: first.dead and loads(engine) == [3, 3])


async def test_a_lane_gets_a_replicator_for_itself_and_gives_it_up(mirror: Mirror) -> None:
    flow, engine = await running(mirror, ReplicatorsConfig(count=1))
    flow.place_by(ReplicatorsConfig(count=1, alone=("orders-3",)), [])
    await eventually(lambda: loads(engine) == [1, 5])
    (own,) = (each for each in engine.alive if len(each.lanes) == 1)
    assert [lane.key.partition for lane in own.lanes.values()] == [3]
    flow.place_by(ReplicatorsConfig(count=1, placement="spread"), [])
    await eventually(lambda: loads(engine) == [6])


async def test_a_warm_spare_takes_a_dead_hosts_lanes_and_is_replaced(mirror: Mirror) -> None:
    flow, engine = await running(mirror, ReplicatorsConfig(count=2))
    flow.place_by(ReplicatorsConfig(count=2, spares=1), [])
    await eventually(lambda: loads(engine) == [0, 3, 3])
    (spare,) = (each for each in engine.alive if not each.lanes)
    victim = next(each for each in engine.alive if each.lanes)
    lost = set(victim.lanes)
    victim.die()
    await eventually(lambda: set(spare.lanes) == lost)
    await eventually(lambda: loads(engine) == [0, 3, 3])
    assert {lane.former for lane in spare.history} == {"dead"}


async def test_the_replicators_of_lanes_that_retention_is_about_to_reach_learn_of_it(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    urgent = set[LaneId]()
    monkeypatch.setattr(FlowFigures, "urgent", lambda *_: urgent)
    flow, engine = await running(mirror, ReplicatorsConfig(count=2))
    assert not any(each.hurried for each in engine.alive)
    first = engine.alive[0]
    urgent.add(next(iter(first.lanes)))
    await eventually(lambda: first.hurried == urgent)
    assert not any(each.hurried for each in engine.alive[1:])
    # The lane goes elsewhere: its present holder is told, and the former one that it has none.
    flow.place_by(ReplicatorsConfig(count=1), [])
    await eventually(lambda: [each.hurried for each in engine.alive] == [urgent])
    urgent.clear()
    await eventually(lambda: not engine.alive[0].hurried)
