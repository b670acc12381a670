"""A flow whose copying ends: what its daemon, its standby and its successors do."""

from collections.abc import AsyncGenerator, Collection

import msgspec
import pytest

from mirrord.config.flow_features import GroupsConfig
from mirrord.ledger.facts.core import LaneOpened, LeaseReleased
from mirrord.ledger.facts.recovery import CopyingEnded, RecoveryFinished
from mirrord.ledger.source_ends import SourcePartition
from mirrord.ledger.standing_orders import Order
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.failover import FailoverStatus
from mirrord.runtime.clock import SystemClock
from mirrord.supervision.failover import cluster_ends, daemon_hands
from mirrord.supervision.flow_supervisor import FlowSupervisor
from mirrord.supervision.order_execution import carry_out
from tests.fixtures import one_flow
from tests.fixtures.one_flow import Mirror, mirrors
from tests.fixtures.supervision import eventually
from tests.unit.supervision.test_order_execution import of_kind, running


class Silence:
    """Whether both clusters refuse to say how far their partitions reach."""

    is_silent = False


@pytest.fixture
def silence() -> Silence:
    return Silence()


@pytest.fixture
async def mirror(monkeypatch: pytest.MonkeyPatch, silence: Silence) -> AsyncGenerator[Mirror]:
    async def ask(_: object, wanted: Collection[SourcePartition]) -> dict[SourcePartition, int]:
        if silence.is_silent:
            raise EnvironmentFault("nobody answers")
        return dict.fromkeys(wanted, 10)

    async def fence_off(*_: object) -> str:
        return "late batches are refused"

    monkeypatch.setattr(cluster_ends.LogOffsets, "high_watermarks", ask)
    monkeypatch.setattr(daemon_hands, "fence_off", fence_off)
    flow = msgspec.structs.replace(one_flow.FLOW, groups=GroupsConfig(mode="off"))
    monkeypatch.setattr(one_flow, "FLOW", flow)
    async for made in mirrors(monkeypatch):
        made.clusters["eu"].add("orders", 4)
        yield made


async def order(flow: FlowSupervisor, verb: str, mode: str = "", topics: tuple[str, ...] = ()) -> list[str]:
    asked = Order(verb=verb, name=flow.flow.name, by="ada@host", reason="fire", mode=mode, topics=topics)  # pyright: ignore[reportArgumentType]
    answer = await carry_out(asked, {flow.flow.name: flow.desk()}, SystemClock(), dry_run=False)
    return [*answer.done, *answer.notes]


def newest(flow: FlowSupervisor) -> FailoverStatus:
    found = flow.status().failover
    return found or FailoverStatus(number=0, mode="", outcome="in progress")


async def test_a_flow_that_is_failed_over_ends_for_good(mirror: Mirror) -> None:
    flow, engine = await running(mirror)
    assert await order(flow, "failover", "source-lost") == ["failover 1 (source-lost) of eu-us has begun"]
    await eventually(lambda: flow.status().state == "ended")
    assert engine.homes() == {}
    status = flow.status()
    assert status.note == "failover 1 (source-lost) has ended the copying of this flow for good"
    assert (newest(flow).outcome, newest(flow).number) == ("complete", 1)
    assert (flow.ready(), flow.hosts(), flow.desk()) == ("", [], "it is ended")
    assert len(of_kind(mirror, LeaseReleased)) == 1
    assert [type(fact) for fact in mirror.facts()][-2:] == [RecoveryFinished, LeaseReleased]
    # Another daemon, and a new topic: nothing is copied.
    mirror.clusters["eu"].add("orders2", 1)
    other, there = mirror.start("host-b")
    await eventually(lambda: other.status().state == "ended")
    assert there.replicators == {}
    assert len(of_kind(mirror, LaneOpened)) == 4


async def test_a_standby_sees_that_the_flow_has_ended(mirror: Mirror) -> None:
    flow, _ = await running(mirror)
    standby, engine = mirror.start("host-b")
    await eventually(lambda: standby.status().state == "standby")
    await order(flow, "failover", "source-lost")
    await eventually(lambda: (flow.status().state, standby.status().state) == ("ended", "ended"))
    assert engine.replicators == {}


async def test_only_some_topics_end(mirror: Mirror) -> None:
    mirror.clusters["eu"].add("orders2", 2)
    flow, engine = await running(mirror, lanes=6)
    with pytest.raises(ConfigError, match='has copied no topic "order"; did you mean "orders"'):
        await order(flow, "failover", "source-lost", ("order",))
    await order(flow, "failover", "source-lost", ("orders",))
    await eventually(lambda: len(of_kind(mirror, RecoveryFinished)) == 1)
    assert len(engine.homes()) == 2
    assert flow.status().state == "running"
    # New partitions of an ended topic are not created, those of another one are.
    mirror.clusters["eu"].add("orders", 5)
    mirror.clusters["eu"].add("orders2", 3)
    await eventually(lambda: len(engine.homes()) == 3)
    assert mirror.clusters["us"].topics["eu.orders"].partitions == 4
    await order(flow, "failover", "source-lost")
    await eventually(lambda: flow.status().state == "ended")
    assert len(of_kind(mirror, CopyingEnded)) == 2


async def test_a_daemon_that_dies_leaves_the_failover_to_the_next_one(mirror: Mirror, silence: Silence) -> None:
    flow, _ = await running(mirror)
    silence.is_silent = True  # the target does not answer, so the failover waits
    await order(flow, "failover", "source-lost")
    await eventually(lambda: newest(flow).step == "end")
    mirror.crash(flow)
    other, engine = mirror.start("host-b")
    await eventually(lambda: other.status().state == "running")
    assert engine.homes() == {}
    await eventually(lambda: "failover 1: end: nobody answers" in other.status().remarks)
    silence.is_silent = False
    await eventually(lambda: other.status().state == "ended")


async def test_a_failover_is_cancelled_by_an_order(mirror: Mirror) -> None:
    flow, engine = await running(mirror)
    await order(flow, "failover", "planned")
    await eventually(lambda: any("failover 1" in line for line in flow.status().remarks))
    assert await order(flow, "cancel-failover") == ["failover 1 of eu-us is cancelled"]
    await eventually(lambda: newest(flow).outcome == "cancelled")
    assert len(engine.homes()) == 4
    assert flow.status().state == "running"
