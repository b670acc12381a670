"""A restarted supervisor continues with the replicators of the previous one; here they are fakes."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec
import pytest

from mirrord.config.schema import RuntimeConfig
from mirrord.ledger.facts.core import LeaseContinued, LeaseTaken
from mirrord.supervision.fleet import fleet
from mirrord.supervision.flow_supervisor import FlowSupervisor
from tests.fixtures.one_flow import FLOW, Mirror, hosted, mirrors
from tests.fixtures.supervision import FakeEngine, eventually


@pytest.fixture
async def mirror(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Mirror]:
    monkeypatch.setattr(fleet, "RETIRE_PAUSE_S", 0.1)
    async for made in mirrors(monkeypatch):
        made.config = msgspec.structs.replace(
            made.config, runtime=RuntimeConfig(lease_ttl_ms=2000, request_timeout_ms=500)
        )
        yield made


async def running(mirror: Mirror, lanes: int = 4) -> tuple[FlowSupervisor, FakeEngine]:
    """A flow of a daemon whose supervisor is restarted."""
    mirror.clusters["eu"].add("orders", lanes)
    flow, engine = mirror.start(daemon="one")
    await eventually(lambda: hosted(engine, lanes))
    await eventually(lambda: flow.status().totals.lanes == {"copying": lanes})
    return flow, engine


def restart(
    mirror: Mirror, flow: FlowSupervisor, engine: FakeEngine, pid: int = 2
) -> tuple[FlowSupervisor, FakeEngine]:
    """Restart as after kill -9 of the supervisor alone."""
    mirror.crash(flow)
    return mirror.start(daemon="one", former=engine, pid=pid)


async def test_replicators_continue_and_no_lane_is_assigned_again(mirror: Mirror) -> None:
    flow, engine = await running(mirror)
    replicators, homes = list(engine.alive), engine.homes()
    given = len(engine.assignments(engine.replicators))
    for pid in (2, 3):
        flow, engine = restart(mirror, flow, engine, pid)
        await eventually(lambda flow=flow: flow.status().totals.lanes == {"copying": 4})
        assert engine.alive == replicators
        assert engine.homes() == homes
    assert len(engine.assignments(engine.replicators)) == given
    assert [type(fact) for fact in mirror.facts() if isinstance(fact, LeaseTaken | LeaseContinued)] == [
        LeaseTaken,
        LeaseContinued,
        LeaseContinued,
    ]
    # What is started from now on has a new name.
    engine.alive[0].die()
    await eventually(lambda: hosted(engine, 4) and len(engine.alive) == 2)
    assert engine.alive[-1].name == "mirrord/eu-us/replicator-0.g1.3.1"


async def test_a_replicator_that_died_meanwhile_is_replaced_and_its_lanes_doubted(mirror: Mirror) -> None:
    flow, engine = await running(mirror)
    victim, survivor = engine.alive
    kept = set(survivor.lanes)
    mirror.crash(flow)
    victim.dead = True
    _, again = mirror.start(daemon="one", former=engine, pid=2)
    await eventually(lambda: hosted(again, 4))
    given = [lane for lane in again.assignments(again.replicators) if lane.lane in victim.lanes]
    assert {lane.lane for lane in given if lane.former == "unknown" and lane.grant == 1} == set(victim.lanes)
    # Lanes of live replicators move only for balance, and were drained first.
    moved = [lane for lane in again.assignments(again.replicators) if lane.lane in kept and lane.former != "none"]
    assert len(moved) <= len(kept)


async def test_a_replicator_that_dies_right_after_is_doubted_as_well(mirror: Mirror) -> None:
    flow, engine = await running(mirror)
    _, again = restart(mirror, flow, engine)
    await eventually(lambda: len(again.alive) == 2)
    victim = again.alive[0]
    lost = set(victim.lanes)
    victim.die()
    await eventually(lambda: hosted(again, 4))
    given = {
        lane.former for lane in again.assignments(again.replicators) if lane.lane in lost and lane.former != "none"
    }
    assert given <= {"unknown", "left"}
    assert "unknown" in given


async def test_a_replicator_that_does_not_answer_keeps_what_the_ledger_says_until_it_is_ended(mirror: Mirror) -> None:
    flow, engine = await running(mirror)
    silent, other = engine.alive
    silent.silent = True
    lanes = set(silent.lanes)
    _, again = restart(mirror, flow, engine)
    await eventually(lambda: len(again.alive) == 2)
    await asyncio.sleep(0.1)
    assert set(again.homes()) >= lanes
    assert lanes.isdisjoint(other.lanes)
    await eventually(lambda: silent.dead and hosted(again, 4))


@pytest.mark.parametrize("what", ["program", "setup"])
async def test_a_replicator_of_another_program_or_configuration_is_drained(mirror: Mirror, what: str) -> None:
    flow, engine = await running(mirror)
    old = list(engine.alive)
    for replicator in old:
        if what == "program":
            replicator.program = "0.0.9"
        else:
            another = msgspec.structs.replace(FLOW, isolation="read_uncommitted")
            replicator.setup = msgspec.structs.replace(replicator.setup, flow=another)
    _, again = restart(mirror, flow, engine)
    await eventually(lambda: all(replicator.dead for replicator in old))
    await eventually(lambda: hosted(again, 4))
    names = {replicator.name for replicator in again.alive}
    assert {lane.former for lane in again.assignments(names)} == {"left"}
    assert names.isdisjoint(replicator.name for replicator in old)


async def test_other_topics_are_no_other_setup(mirror: Mirror) -> None:
    flow, engine = await running(mirror)
    for replicator in engine.alive:
        wider = msgspec.structs.replace(FLOW, topics=("orders.*", "payments"))
        replicator.setup = msgspec.structs.replace(replicator.setup, flow=wider)
    kept = list(engine.alive)
    again, engine = restart(mirror, flow, engine)
    await eventually(lambda: again.status().totals.lanes == {"copying": 4})
    assert engine.alive == kept


async def test_what_a_dead_daemon_left_is_ended_when_another_one_takes_the_flow(mirror: Mirror) -> None:
    flow, engine = await running(mirror)
    old = list(engine.alive)
    mirror.crash(flow)
    _, other = mirror.start(host="host-b", daemon="two", former=engine)
    await eventually(lambda: hosted(other, 4))
    assert all(replicator.dead for replicator in old)


async def test_who_was_only_thought_dead_leaves_the_replicators_to_its_successor(mirror: Mirror) -> None:
    flow, engine = await running(mirror)
    kept = list(engine.alive)
    again, other = mirror.start(daemon="one", former=engine, pid=2)
    await eventually(lambda: flow.status().state == "stopped")
    await eventually(lambda: again.status().totals.lanes == {"copying": 4})
    assert other.alive == kept


async def test_the_follower_of_groups_continues(mirror: Mirror) -> None:
    flow, engine = await running(mirror)
    await eventually(lambda: engine.groups)
    (follower,) = engine.groups
    # As with kill -9: nothing of the first one ends it.
    flow.groups.parts = True
    _, again = restart(mirror, flow, engine)
    await eventually(lambda: again.groups == [follower])
    await asyncio.sleep(0.2)
    assert not follower.dead
