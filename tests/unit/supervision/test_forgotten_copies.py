"""Target topics of which nothing is left are forgotten, and no others."""

from collections.abc import Container

import msgspec
import pytest

from mirrord.ledger.codec import encode_state
from mirrord.ledger.completeness import uncopied
from mirrord.ledger.facts.core import (
    CopyForgotten,
    LaneOpened,
    LaneTaken,
    LeaseTaken,
    TopicCreated,
    Verdict,
    VerdictGiven,
)
from mirrord.ledger.fold import fold
from mirrord.ledger.prune import FORGOTTEN_KEPT
from mirrord.ledger.snapshot import snapshots
from mirrord.ledger.snapshot_restore import restore
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import LedgerEnd, state_key
from mirrord.ledger.state_topic_rows import Kept, StateTopicRows
from mirrord.ledger.store.log_interface import StateRow
from mirrord.model.names import ClusterId, LaneKey, TopicId
from mirrord.supervision import forgotten_copies
from mirrord.supervision.forgotten_copies import AGAIN_S, AT_ONCE, FORGOTTEN_AFTER_S, Forgetting
from mirrord.topics.discovery import Discovered
from mirrord.topics.rules.ledger_start_evidence import Incarnations
from tests.fixtures.clock import FakeClock
from tests.fixtures.ledger import FLOW, HOLDER, entry, plain
from tests.fixtures.supervision import FakeAdmin, FakeCluster


class Scene:
    """Two clusters, and the ledger of a flow that has copied `orders` between them."""

    def __init__(self) -> None:
        self.source, self.target = FakeCluster(ClusterId("eu")), FakeCluster(ClusterId("us"))
        self.source.add("orders", 2)
        self.target.add("eu.orders", 2)
        self.clock = FakeClock()
        self.forgetting = Forgetting("flow", FakeAdmin(self.source), FakeAdmin(self.target), self.clock)
        self.state = FlowState()
        self.write(FLOW)
        self.write(LeaseTaken(1, HOLDER, 6_000))
        source, target = self.source.topics["orders"].topic_id, self.target.topics["eu.orders"].topic_id
        self.copy = CopyForgotten("orders", source, "eu.orders", target)
        self.open(self.copy, 2)

    def open(self, copy: CopyForgotten, partitions: int, lost: int = 0) -> None:
        """Open the lanes of a copy. Each has lost some records."""
        for partition in range(partitions):
            lane = LaneKey(copy.source_topic_id, partition, copy.target_topic_id).id
            self.write(LaneOpened(lane, copy.source_topic, copy.target_topic, partition, 1_000 + partition, 0, "all"))
            self.write(LaneTaken(lane, 1, "replicator"))
            if lost:
                verdicts = (Verdict(0, lost, "recreated"), Verdict(lost, lost + 5, "control"))
                assert self.write(VerdictGiven(lane, 1, verdicts, "it was deleted"))

    def lossy(self, count: int, lost: int) -> list[CopyForgotten]:
        """Open the lanes of topics that do not exist any more, with two partitions each."""
        copies = [
            CopyForgotten(f"t{number}", TopicId(f"source {number}"), f"eu.t{number}", TopicId(f"target {number}"))
            for number in range(count)
        ]
        for copy in copies:
            self.open(copy, 2, lost)
        return copies

    def write(self, fact: object) -> bool:
        return fold(self.state, entry(fact), self.state.next_offset)[0]  # type: ignore[arg-type]

    async def due(self, deleted: Container[TopicId] = ()) -> list[CopyForgotten]:
        seen = Discovered(
            (), (), {}, {}, "", await FakeAdmin(self.source).describe(), await FakeAdmin(self.target).describe()
        )
        return await self.forgetting.due(self.state, seen, (), deleted)

    async def due_after_an_hour(self) -> list[CopyForgotten]:
        before = await self.due()
        self.clock.now += FORGOTTEN_AFTER_S
        return before or await self.due()


async def test_what_is_gone_on_both_sides_for_an_hour_is_forgotten() -> None:
    scene = Scene()
    del scene.source.topics["orders"], scene.target.topics["eu.orders"]
    assert await scene.due() == []
    scene.clock.now += FORGOTTEN_AFTER_S - 1
    assert await scene.due() == []
    scene.clock.now += 1
    (fact,) = await scene.due()
    assert fact == scene.copy
    assert scene.write(fact)
    assert scene.state.lanes == {}
    assert len(scene.state.forgotten_lanes) == 2
    assert not scene.write(fact), "once"
    assert Incarnations(scene.state).is_again("orders", TopicId("a new one")), "a topic of this name was copied before"
    assert await scene.due_after_an_hour() == []


async def test_topics_that_were_created_again_are_other_topics() -> None:
    scene = Scene()
    scene.source.add("orders", 2)
    scene.target.add("eu.orders", 2)
    assert await scene.due_after_an_hour() == [scene.copy]


async def test_a_copy_is_kept_while_one_of_its_topics_is_there() -> None:
    scene = Scene()
    del scene.source.topics["orders"]
    assert await scene.due_after_an_hour() == []
    scene = Scene()
    del scene.target.topics["eu.orders"]
    assert await scene.due_after_an_hour() == []


async def test_a_topic_that_was_seen_meanwhile_starts_its_wait_again() -> None:
    scene = Scene()
    topics = scene.source.topics, scene.target.topics
    scene.source.topics, scene.target.topics = {}, {}
    assert await scene.due() == []
    scene.clock.now += FORGOTTEN_AFTER_S - 1
    gone, (scene.source.topics, scene.target.topics) = (scene.source.topics, scene.target.topics), topics
    assert await scene.due() == []
    scene.source.topics, scene.target.topics = gone
    scene.clock.now += 2
    assert await scene.due() == []


async def test_a_topic_that_may_not_be_seen_is_not_gone() -> None:
    scene = Scene()
    del scene.source.topics["orders"], scene.target.topics["eu.orders"]
    scene.source.hidden["orders"] = "TOPIC_AUTHORIZATION_FAILED"
    assert await scene.due_after_an_hour() == []


async def test_a_cluster_that_does_not_answer_is_asked_again() -> None:
    scene = Scene()
    del scene.source.topics["orders"], scene.target.topics["eu.orders"]
    assert await scene.due() == []
    scene.clock.now += FORGOTTEN_AFTER_S
    seen = Discovered(
        (), (), {}, {}, "", await FakeAdmin(scene.source).describe(), await FakeAdmin(scene.target).describe()
    )
    scene.target.fail()
    assert await scene.forgetting.due(scene.state, seen, ()) == []
    scene.target.error = None
    assert await scene.due() == [scene.copy]


def test_of_very_many_forgotten_topics_the_newest_names_are_known() -> None:
    state = FlowState()
    fold(state, entry(FLOW), 0)
    fold(state, entry(LeaseTaken(1, HOLDER, 6_000)), 1)
    for number in range(FORGOTTEN_KEPT + 5):
        source, target = TopicId(f"source-{number}"), TopicId(f"target-{number}")
        name = f"topic-{number}"
        opened = LaneOpened(LaneKey(source, 0, target).id, name, f"eu.{name}", 0, 1, 0, "all")
        fold(state, entry(opened, CopyForgotten(name, source, f"eu.{name}", target)), 2 + number)
    assert state.lanes == {}
    assert len(state.forgotten_topics) == FORGOTTEN_KEPT
    assert not Incarnations(state).is_again("topic-4", TopicId("new"))
    assert Incarnations(state).is_again("topic-5", TopicId("new"))


async def test_a_copy_that_mirrord_has_deleted_is_forgotten_at_once() -> None:
    scene = Scene()
    deleted = {scene.copy.target_topic_id}
    assert await scene.due(deleted) == []
    del scene.source.topics["orders"]
    assert await scene.due(deleted) == [], "the target still shows it"
    del scene.target.topics["eu.orders"]
    assert await scene.due(deleted) == [scene.copy]


async def test_the_clusters_are_not_asked_again_and_again() -> None:
    scene = Scene()
    del scene.source.topics["orders"], scene.target.topics["eu.orders"]
    scene.source.hidden["orders"] = "TOPIC_AUTHORIZATION_FAILED"
    assert await scene.due_after_an_hour() == []
    del scene.source.hidden["orders"]
    assert await scene.due() == []
    scene.clock.now += AGAIN_S
    assert await scene.due() == [scene.copy]


async def test_topics_that_may_not_be_seen_do_not_hold_up_the_others() -> None:
    scene = Scene()
    copies = scene.lossy(AT_ONCE + 10, 0)
    for copy in sorted(copies, key=lambda copy: copy.source_topic)[:AT_ONCE]:
        scene.source.hidden[copy.source_topic] = "TOPIC_AUTHORIZATION_FAILED"
    assert await scene.due_after_an_hour() == []
    assert len(await scene.due()) == 10


async def test_a_target_topic_without_lanes_is_forgotten() -> None:
    scene = Scene()
    for name in ("gone", "orders"):
        source = scene.source.topics[name].topic_id if name in scene.source.topics else TopicId("gone")
        scene.write(TopicCreated(name, source, f"eu.{name}", TopicId(f"target of {name}"), 1))
    assert len(scene.state.topics) == 2
    (fact,) = await scene.due_after_an_hour()
    assert fact == CopyForgotten("gone", TopicId("gone"), "eu.gone", TopicId("target of gone"))
    assert scene.write(fact)
    assert list(scene.state.topics) == ["target of orders"]
    assert await scene.due_after_an_hour() == []


async def test_of_many_lanes_with_losses_the_newest_are_kept_and_the_others_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forgotten_copies, "LOSSES_KEPT", 8)
    scene = Scene()
    copies = scene.lossy(10, 7)
    del scene.source.topics["orders"], scene.target.topics["eu.orders"]
    due = await scene.due_after_an_hour()
    assert due == [scene.copy, *copies[:6]]
    before = uncopied(scene.state, {"t0", "t9"})
    assert before == {"control": 20, "recreated": 28}
    bound = [scene.write(fact) for fact in due]
    assert all(bound)
    assert len(scene.state.lanes) == 8
    assert scene.state.forgotten_losses == {"recreated": 6 * 2 * 7}
    assert await scene.due_after_an_hour() == []
    assert uncopied(scene.state, {"t9"}) == {"control": 10, "recreated": 14 + 6 * 2 * 7}, "no loss is forgotten"
    rows = StateTopicRows()
    for record in snapshots(scene.state, Kept(), LedgerEnd(TopicId("ledger"), scene.state.next_offset, 0)).records:
        rows.take(StateRow(state_key(record), encode_state(record)))
    assert plain(restore(rows.read())) == plain(scene.state)


async def test_lanes_with_losses_are_kept_while_their_copy_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgotten_copies, "LOSSES_KEPT", 0)
    scene = Scene()
    copies = scene.lossy(3, 7)
    scene.target.add("eu.t0", 2)
    scene.target.topics["eu.t0"] = msgspec.structs.replace(
        scene.target.topics["eu.t0"], topic_id=copies[0].target_topic_id
    )
    assert await scene.due_after_an_hour() == copies[1:]
