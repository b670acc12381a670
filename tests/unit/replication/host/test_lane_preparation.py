"""A replicator that hears of a lane before it gets it."""

import asyncio
from typing import Any

import pytest

from mirrord.kafka.client.cluster_metadata import Leader, PartitionId
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneKey, TopicId
from mirrord.replication.host import lane_preparation
from mirrord.replication.host.lane_preparation import SOURCE, TARGET, prepare
from mirrord.replication.lane.assignment import LaneAssignment
from tests.fixtures.fake_pipe import as_any
from tests.fixtures.supervision import eventually

LANE = LaneAssignment(LaneKey(TopicId("S" * 22), 3, TopicId("T" * 22)), "orders", "eu.orders", "unknown")


class View:
    """A cluster that knows the leader when the test says so."""

    def __init__(self, node: int | None = None, fault: EnvironmentFault | None = None) -> None:
        self.node = node
        self.on_change: list[Any] = []
        self.watched: list[str] = []
        self.opened: list[tuple[int, str]] = []
        self._fault = fault

    def watch(self, topic: str, topic_id: TopicId) -> None:
        assert topic_id in {LANE.key.source_topic_id, LANE.key.target_topic_id}
        self.watched.append(topic)

    def unwatch(self, _: TopicId) -> None:
        self.watched.pop()

    def leader(self, partition: PartitionId) -> Leader | None:
        assert partition.partition == 3
        return None if self.node is None else Leader(self.node, 1)

    def link(self, node: int, purpose: str) -> "View":
        self.opened.append((node, purpose))
        return self

    async def get(self) -> None:
        if self._fault is not None:
            raise self._fault


async def test_connections_are_open_when_the_lane_comes() -> None:
    source, target = View(1), View(2)
    await prepare(as_any(source), as_any(target), [LANE])
    assert (source.watched, target.watched) == (["orders"], ["eu.orders"])
    assert source.opened == [(1, purpose) for purpose in SOURCE]
    assert target.opened == [(2, purpose) for purpose in TARGET]


async def test_it_waits_until_it_knows_who_leads() -> None:
    source, target = View(1), View()
    preparing = asyncio.create_task(prepare(as_any(source), as_any(target), [LANE]))
    await eventually(lambda: bool(target.on_change))
    target.on_change[0]()
    await asyncio.sleep(0)
    assert not preparing.done()
    target.node = 2
    target.on_change[0]()
    await preparing
    assert target.opened
    assert not target.on_change, "nobody listens any more"


async def test_an_unreachable_broker_is_reported_by_the_lane() -> None:
    await prepare(as_any(View(1, EnvironmentFault("away"))), as_any(View(2)), [LANE])


async def test_a_lane_that_never_comes_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_preparation, "KEPT_S", 0.01)
    source, target = View(1), View(2)
    await prepare(as_any(source), as_any(target), [LANE])
    await eventually(lambda: not source.watched and not target.watched)
