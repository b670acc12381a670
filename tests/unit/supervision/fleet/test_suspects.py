"""A lane that ends its replicators is found and halted alone; kills from outside halt nothing."""

from collections.abc import AsyncGenerator

import pytest

from mirrord.ledger.facts.orders import CopyingPaused, CopyingResumed
from mirrord.ledger.standing_orders import POLICY, Order
from mirrord.model.status import LaneStatus
from mirrord.runtime.clock import SystemClock
from mirrord.supervision.flow_supervisor import FlowSupervisor
from mirrord.supervision.order_execution import carry_out
from mirrord.supervision.rules import suspect_lanes
from tests.fixtures.one_flow import Mirror, hosted, mirrors
from tests.fixtures.supervision import FakeEngine, eventually


@pytest.fixture
async def mirror(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Mirror]:
    async for made in mirrors(monkeypatch):
        yield made


def lane(flow: FlowSupervisor, partition: int) -> LaneStatus | None:
    return next((each for each in flow.status().lanes if each.partition == partition), None)


def is_halted(flow: FlowSupervisor, partition: int) -> bool:
    found = lane(flow, partition)
    return found is not None and found.state == "halted"


def pauses(mirror: Mirror) -> list[CopyingPaused]:
    return [fact for fact in mirror.facts() if isinstance(fact, CopyingPaused)]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replicators of these tests start at once."""
    monkeypatch.setattr(suspect_lanes, "TOGETHER_S", 0.1)


async def begin(mirror: Mirror, lanes: int) -> tuple[FlowSupervisor, FakeEngine]:
    """Start a flow whose lanes have copied everything."""
    mirror.clusters["eu"].add("orders", lanes)
    flow, engine = mirror.start(daemon="one")
    engine.offset = 10
    await eventually(lambda: hosted(engine, lanes))
    return flow, engine


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("lanes", [1, 2, 7])
async def test_a_lane_that_ends_its_replicator_is_halted_and_the_others_copy(mirror: Mirror, lanes: int) -> None:
    flow, engine = await begin(mirror, lanes)
    engine.deadly.add(0)
    for replicator in engine.alive:
        if any(each.key.partition == 0 for each in replicator.lanes.values()):
            replicator.die()
    await eventually(lambda: pauses(mirror))
    await eventually(lambda: hosted(engine, lanes - 1))
    (pause,) = pauses(mirror)
    assert (pause.topic, pause.partition, pause.origin.by) == ("orders", 0, POLICY)
    expected = {"halted": 1, "copying": lanes - 1} if lanes > 1 else {"halted": 1}
    await eventually(lambda: flow.status().totals.lanes == expected)
    found = lane(flow, 0)
    assert found is not None
    assert found.note.startswith("orders-0: its replicator died 2 times in succession ")
    assert len(engine.replicators) < 60


@pytest.mark.usefixtures("quick")
async def test_an_operator_or_a_restart_lets_the_lane_try_again(mirror: Mirror) -> None:
    flow, engine = await begin(mirror, 2)
    engine.deadly.add(0)
    await die_with(engine, 0)
    await eventually(lambda: is_halted(flow, 0))
    engine.deadly.clear()
    desk = flow.desk()
    order = Order(verb="resume", name="orders-0", by="ada@host")
    await carry_out(order, {"eu-us": desk}, SystemClock(), dry_run=False)
    await eventually(lambda: hosted(engine, 2))
    engine.deadly.add(0)
    await die_with(engine, 0)
    await eventually(lambda: is_halted(flow, 0))
    flow.stop()
    await eventually(lambda: flow.status().state == "stopped")
    flow, engine = mirror.start()
    engine.offset = 10
    await eventually(lambda: hosted(engine, 2))
    assert [each.origin.by for each in mirror.facts() if isinstance(each, CopyingResumed)] == ["ada@host", POLICY]


@pytest.mark.usefixtures("quick")
async def test_a_halted_lane_stays_so_when_the_process_of_the_supervisor_is_replaced(mirror: Mirror) -> None:
    flow, engine = await begin(mirror, 2)
    engine.deadly.add(0)
    await die_with(engine, 0)
    await eventually(lambda: is_halted(flow, 0))
    mirror.crash(flow)
    flow, engine = mirror.start(daemon="one", former=engine, pid=2)
    await eventually(lambda: flow.status().state == "running")
    await eventually(lambda: is_halted(flow, 0))
    assert hosted(engine, 1)


async def test_kills_from_outside_halt_nothing(mirror: Mirror) -> None:
    """Two kills at once, and many later ones: the lanes have copied everything in between."""
    _, engine = await begin(mirror, 6)
    for _ in range(4):
        for replicator in engine.alive:
            replicator.die()
        await eventually(lambda: hosted(engine, 6))
        await eventually(lambda: engine.alive and hosted(engine, 6))
        for replicator in engine.alive:
            replicator.die()
        await eventually(lambda: hosted(engine, 6))
    assert pauses(mirror) == []


async def die_with(engine: FakeEngine, partition: int) -> None:
    for replicator in engine.alive:
        if any(each.key.partition == partition for each in replicator.lanes.values()):
            replicator.die()
