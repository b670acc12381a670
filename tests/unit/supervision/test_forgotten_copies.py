"""Target topics of which nothing is left are forgotten, and no others."""

from mirrord.ledger.facts.core import CopyForgotten, LaneOpened, LeaseTaken
from mirrord.ledger.fold import fold
from mirrord.ledger.prune import FORGOTTEN_KEPT
from mirrord.ledger.state import FlowState
from mirrord.model.names import ClusterId, LaneKey, TopicId
from mirrord.supervision.forgotten_copies import FORGOTTEN_AFTER_S, Forgetting
from mirrord.topics.discovery import Discovered
from mirrord.topics.rules.ledger_start_evidence import Incarnations
from tests.fixtures.clock import FakeClock
from tests.fixtures.ledger import FLOW, HOLDER, entry
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
        for partition in range(2):
            lane = LaneKey(source, partition, target).id
            self.write(LaneOpened(lane, "orders", "eu.orders", partition, 1_000 + partition, 0, "all"))

    def write(self, fact: object) -> bool:
        return fold(self.state, entry(fact), self.state.next_offset)[0]  # type: ignore[arg-type]

    async def due(self) -> list[CopyForgotten]:
        seen = Discovered(
            (), (), {}, {}, "", await FakeAdmin(self.source).describe(), await FakeAdmin(self.target).describe()
        )
        return await self.forgetting.due(self.state, seen, ())

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
