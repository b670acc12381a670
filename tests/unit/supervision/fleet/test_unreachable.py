"""Replicators that cannot be reached and may live: their lanes go elsewhere with doubt, and their state is unknown."""

from collections.abc import AsyncGenerator

import msgspec
import pytest

from mirrord.config.schema import ReplicatorsConfig
from mirrord.model.status import HostState
from mirrord.supervision.fleet import fleet
from mirrord.supervision.fleet.engine import NodeLost, ReplicatorUnreachable, ReplicatorUnsure
from mirrord.supervision.flow_supervisor import FlowSupervisor
from tests.fixtures.one_flow import Mirror, hosted, mirrors
from tests.fixtures.supervision import FakeEngine, FakeReplicator, eventually


@pytest.fixture
async def mirror(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Mirror]:
    async for made in mirrors(monkeypatch):
        made.config = msgspec.structs.replace(made.config, replicators=ReplicatorsConfig(count=2))
        yield made


def states(flow: FlowSupervisor) -> dict[str, HostState]:
    return {each.name: each.state for each in flow.status().replicators}


def elsewhere(engine: FakeEngine, victim: FakeReplicator) -> set[str]:
    """Who else hosts the lanes of the victim."""
    homes = engine.homes()
    return {name for lane in victim.lanes for name in homes[lane]} - {victim.name}


@pytest.mark.parametrize("fault", [NodeLost("missed too many heartbeats"), ReplicatorUnreachable("connection refused")])
async def test_a_cut_off_replicator_is_unknown_until_the_ledger_shows_its_lanes_elsewhere(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, fault: ReplicatorUnsure
) -> None:
    # Only unreachable replicators are given up this soon.
    monkeypatch.setattr(fleet, "SILENT_S", 600.0)
    monkeypatch.setattr(fleet, "UNREACHABLE_S", 0.2)
    mirror.clusters["eu"].add("orders", 4)
    flow, engine = mirror.start()
    await eventually(lambda: hosted(engine, 4) and len(states(flow)) == 2)
    victim, other = engine.alive
    other.deaf = True
    victim.cut_off = fault
    await eventually(lambda: states(flow).get(victim.name) == "unknown")
    shown = {lane.partition: (lane.state, lane.host) for lane in flow.status().lanes}
    assert sorted(state for state, _ in shown.values()) == ["copying", "copying", "unknown", "unknown"]
    assert not victim.dead, "it copies on"

    other.deaf = False
    await eventually(lambda: victim.name not in states(flow))
    lanes = set(victim.lanes)
    given = [
        lane
        for lane in engine.assignments(set(engine.replicators) - {victim.name})
        if lane.lane in lanes and lane.former != "left"
    ]
    assert given
    assert {lane.former for lane in given} == {"unknown"}, "it may still write"
    assert elsewhere(engine, victim)


async def test_a_lost_nodes_lanes_are_on_the_other_nodes_and_come_back_with_it(mirror: Mirror) -> None:
    mirror.clusters["eu"].add("orders", 8)
    flow, engine = mirror.start()
    engine.nodes = {"first": 1, "second": 1}
    await eventually(lambda: hosted(engine, 8) and len(states(flow)) == 2)
    assert sorted(each.node for each in flow.status().replicators) == ["first", "second"]
    assert sorted(len(each.lanes) for each in engine.alive) == [4, 4]

    engine.nodes = {"first": 1}
    (victim,) = (each for each in engine.alive if each.node == "second")
    victim.cut_off = NodeLost("missed too many heartbeats")
    away = {victim.name}

    def nodes() -> list[str]:
        return sorted(each.node for each in engine.alive if each.name not in away and each.lanes)

    await eventually(lambda: nodes() == ["first", "first"])
    engine.nodes = {"first": 1, "third": 1}
    await eventually(lambda: nodes() == ["first", "third"])
    at_work = [each for each in engine.alive if each.name not in away]
    await eventually(lambda: sorted(len(each.lanes) for each in engine.alive if each.name not in away) == [4, 4])
    assert len(at_work) == 2
