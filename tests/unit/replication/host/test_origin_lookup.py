"""Reading the ledgers on the source's cluster: which count, when they were read, and what happens if that fails."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from structlog.testing import capture_logs

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.ledger.facts.core import (
    AnyFact,
    FlowOpened,
    Holder,
    LaneFact,
    LaneOpened,
    LaneTaken,
    LeaseTaken,
    Progress,
    TargetRun,
)
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ClusterId, LaneKey, TopicId
from mirrord.replication.host.origin_lookup import OriginLookup
from mirrord.replication.lane.signals import AskOrigins, OriginsAnswer
from mirrord.runtime.clock import SystemClock
from tests.fixtures.fake_pipe import as_any, until
from tests.fixtures.supervision import FakeAdmin, FakeCluster

ORDERS = PartitionId("orders", TopicId("o" * 22), 0)


class FakeHosted:
    """A lane that asks."""

    def __init__(self, source: PartitionId = ORDERS, target_topic: str = "orders") -> None:
        self.source = source
        self.target = PartitionId(target_topic, TopicId("t" * 22), 0)
        self.answers: list[OriginsAnswer] = []
        self.tell = self.answers.append


class World:
    """A source cluster with the ledgers of other flows."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(ClusterId("eu-id"))
        self.ledgers: dict[str, MemoryLedger] = {}
        self.opened: list[str] = []
        self.alone: list[str] = []
        """Ledgers that were opened without a state topic."""
        self.provenance = OriginLookup("eu", FakeAdmin(self.cluster), self._store)
        self.asked = 0

    def _store(self, flow: str, alone: bool) -> LedgerStore:
        (self.alone if alone else self.opened).append(flow)
        return LedgerStore(MemoryLog(self.ledgers[flow]), SystemClock(), deadline_seconds=0.3)

    async def flow(self, name: str, *facts: AnyFact, records: tuple[Progress, ...] = ()) -> None:
        """Create the ledger of a flow, or append facts to it."""
        if name not in self.ledgers:
            self.ledgers[name] = MemoryLedger()
            self.cluster.add(f"mirrord.{name}.ledger", 1)
            self.cluster.add(f"mirrord.{name}.state", 1)
            opened = FlowOpened(name, ClusterId("us-id"), ClusterId("eu-id"))
            facts = (opened, LeaseTaken(1, Holder("h", 1, "i", ""), 1000), *facts)
        store = LedgerStore(MemoryLog(self.ledgers[name]), SystemClock())
        await store.open()
        for fact in facts:
            await store.append(0 if isinstance(fact, FlowOpened) else 1, (fact,))
        await store.save(*records)
        await store.close()

    async def ask(self, hosted: FakeHosted) -> OriginsAnswer:
        self.asked += 1
        self.provenance.ask(as_any(hosted), AskOrigins(self.asked))
        await until(lambda: bool(hosted.answers) and hosted.answers[-1].question == self.asked)
        return hosted.answers[-1]


def lane(
    producer_id: int, partition: int = 0, target: TopicId = ORDERS.topic_id
) -> tuple[LaneKey, tuple[LaneFact, ...]]:
    key = LaneKey(TopicId("s" * 22), partition, target)
    opened = LaneOpened(key.id, "orders", "orders", partition, producer_id, 0, "p")
    return key, (opened, LaneTaken(key.id, 1, "r"), TargetRun(key.id, 1, 0, 40, 2))


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    world = World()
    yield world
    await world.provenance.close()


async def test_every_ledger_on_the_cluster_counts(world: World) -> None:
    key, facts = lane(7)
    progress = Progress(key.id, 1, 1, 5, 45, 2, 5, 5, 0, 0, True, "copying")
    await world.flow("us-eu", *facts, records=(progress,))
    await world.flow("asia-eu", *lane(8)[1])
    await world.flow("elsewhere", *lane(9, target=TopicId("x" * 22))[1], *lane(10, partition=1)[1])
    world.cluster.add("orders", 1)
    answer = await world.ask(FakeHosted())
    found = [(each.flow, each.producer_id, each.ordinal, each.offset, each.leader_epoch) for each in answer.writers]
    assert found == [("asia-eu", 8, 0, 0, -1), ("us-eu", 7, 5, 45, 2)]
    assert [each.runs.offset_of(3) for each in answer.writers] == [43, 43]
    assert world.opened == ["asia-eu", "elsewhere", "us-eu"]


async def test_batches_written_before_the_question_are_in_the_answer(world: World) -> None:
    """Also by a flow that was unknown: its ledger is there before its first record."""
    hosted = FakeHosted()
    assert (await world.ask(hosted)).writers == ()
    await world.flow("us-eu", *lane(7)[1])
    assert [each.producer_id for each in (await world.ask(hosted)).writers] == [7]
    await world.flow("us-eu", *lane(8, target=ORDERS.topic_id)[1][:0])
    await world.flow("new", *lane(9)[1])
    assert {each.producer_id for each in (await world.ask(hosted)).writers} == {7, 9}
    assert world.opened == ["us-eu", "new"], "a ledger that is read is read on"


async def test_an_answer_does_not_change_any_more(world: World) -> None:
    key, facts = lane(7)
    await world.flow("us-eu", *facts)
    (writer,) = (await world.ask(FakeHosted())).writers
    await world.flow("us-eu", TargetRun(key.id, 1, 9, 99, 2))
    (newer,) = (await world.ask(FakeHosted())).writers
    assert (writer.runs.offset_of(9), newer.runs.offset_of(9)) == (49, 99)


async def test_questions_share_a_look(world: World) -> None:
    await world.flow("us-eu", *lane(7)[1])
    lanes = [FakeHosted() for _ in range(50)]
    for number, hosted in enumerate(lanes):
        world.provenance.ask(as_any(hosted), AskOrigins(number))
    await until(lambda: all(hosted.answers for hosted in lanes))
    assert {len(hosted.answers[0].writers) for hosted in lanes} == {1}


async def test_a_ledger_that_cannot_be_read_is_waited_for(world: World) -> None:
    await world.flow("us-eu", *lane(7)[1])
    world.ledgers["us-eu"].is_reachable = False
    hosted = FakeHosted()
    answer = await world.ask(hosted)
    assert answer.trouble.startswith("waiting for the ledger of flow us-eu on eu, which may copy into this topic: ")
    world.ledgers["us-eu"].is_reachable = True
    world.ledgers["us-eu"].wake()
    assert [each.producer_id for each in (await world.ask(hosted)).writers] == [7]
    world.cluster.error = EnvironmentFault("gone")
    assert (await world.ask(hosted)).trouble == "the topics of eu cannot be listed: gone"


async def test_a_flow_that_was_removed_is_forgotten(world: World) -> None:
    await world.flow("us-eu", *lane(7)[1])
    assert len((await world.ask(FakeHosted())).writers) == 1
    del world.cluster.topics["mirrord.us-eu.ledger"]
    assert (await world.ask(FakeHosted())).writers == ()


async def test_a_ledger_without_a_state_topic_is_read_alone(world: World) -> None:
    """The remains of a flow do not stop another one; when its state topic is there again, that counts, too."""
    await world.flow("us-eu", *lane(7)[1])
    await world.flow("gone")
    left = [world.cluster.topics.pop(f"mirrord.{name}.state") for name in ("us-eu", "gone")]
    answer = await world.ask(FakeHosted())
    assert ([each.producer_id for each in answer.writers], answer.trouble, world.opened) == ([7], "", [])
    assert world.alone == ["gone", "us-eu"]
    world.cluster.topics["mirrord.us-eu.state"] = left[0]
    assert [each.producer_id for each in (await world.ask(FakeHosted())).writers] == [7]
    assert (world.opened, world.alone) == (["us-eu"], ["gone", "us-eu"])


async def test_an_obstacle_is_reported_with_the_topic_and_the_ways_out(world: World) -> None:
    await world.flow("us-eu")
    world.ledgers["us-eu"].entries.append(b"\x09\x94")
    with capture_logs() as events:
        for _ in range(2):
            assert "delete mirrord.us-eu.ledger there" in (await world.ask(FakeHosted())).trouble
    assert [event["event"] for event in events if event["log_level"] == "warning"] == ["copies_not_told_apart"]
    assert "`mirrord rebuild`" in world.provenance.trouble
    world.ledgers["us-eu"].entries.pop()
    assert (await world.ask(FakeHosted())).trouble == world.provenance.trouble == ""


async def test_only_lanes_that_keep_the_name_ask() -> None:
    provenance: Any = OriginLookup("eu", FakeAdmin(FakeCluster(ClusterId("eu-id"))), as_any(None))
    assert provenance.origins(FakeHosted()) is not None
    assert provenance.origins(FakeHosted(target_topic="eu.orders")) is None
