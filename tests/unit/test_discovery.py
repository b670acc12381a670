"""Discovery over made-up clusters: what is created, what is refused, what a broker that knows little must not break."""

import msgspec

from mirrord.model.config import FlowConfig
from mirrord.model.facts import PartitionsGrown
from mirrord.model.names import ClusterId
from mirrord.shell.discovery import Claims, Discovery
from tests.fixtures.supervision import FakeAdmin, FakeCluster

FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders.*",), exclude=("orders\\.tmp",))


def clusters() -> tuple[FakeCluster, FakeCluster]:
    return FakeCluster(ClusterId("eu-id")), FakeCluster(ClusterId("us-id"))


def discovery(
    source: FakeCluster, target: FakeCluster, flow: FlowConfig = FLOW, claims: Claims | None = None
) -> Discovery:
    return Discovery(flow, FakeAdmin(source), FakeAdmin(target), claims or Claims())


async def test_only_selected_topics_are_created_and_a_look_creates_nothing() -> None:
    source, target = clusters()
    for name in ("orders", "orders.tmp", "payments", "mirrord.us-eu.ledger", "__consumer_offsets"):
        source.add(name, 2)
    found = discovery(source, target)
    plan = (await found.look()).plan
    assert [step.target_topic for step in plan.create] == ["eu.orders"]
    assert target.topics == {}
    discovered = await found.refresh()
    assert list(target.topics) == ["eu.orders"]
    assert len(discovered.lanes) == 2
    assert [fact.target_topic for fact in discovered.facts] == ["eu.orders"]
    assert (await found.refresh()).facts == ()


async def test_a_topic_that_is_missing_once_is_still_there() -> None:
    source, target = clusters()
    source.add("orders", 3)
    found = discovery(source, target)
    lanes = (await found.refresh()).lanes
    topics, source.topics = source.topics, {}
    assert (await found.refresh()).lanes == lanes
    assert (await found.refresh()).lanes == ()
    source.topics = topics
    assert (await found.refresh()).lanes == lanes


async def test_a_target_topic_that_is_missing_once_is_not_created_again() -> None:
    source, target = clusters()
    source.add("orders", 1)
    found = discovery(source, target)
    lanes = (await found.refresh()).lanes
    topics, target.topics = target.topics, {}
    discovered = await found.refresh()
    assert (discovered.lanes, discovered.facts, target.topics) == (lanes, (), {})
    target.topics = topics
    assert (await found.refresh()).lanes == lanes


async def test_two_flows_that_meet_in_one_target_topic() -> None:
    (source, target), claims = clusters(), Claims()
    other_source = FakeCluster(ClusterId("asia-id"))
    source.add("orders", 1)
    other_source.add("orders", 1)
    other_source.add("orders-2", 1)
    flow = msgspec.structs.replace(FLOW, naming="identity")
    first = discovery(source, target, flow, claims)
    second = discovery(other_source, target, msgspec.structs.replace(flow, name="asia-us", source="asia"), claims)
    await first.refresh()
    discovered = await second.refresh()
    fault = "topic name collision: orders would be copied into orders, which is the copy of orders in the flow eu-us"
    assert discovered.faults == {"orders": fault}
    assert [lane.source_topic for lane in discovered.lanes] == ["orders-2"]
    assert (await first.refresh()).faults == {}


async def test_a_topic_that_cannot_grow_is_told_and_copied_as_far_as_it_goes() -> None:
    source, target = clusters()
    source.add("orders", 3)
    target.add("eu.orders", 1)
    target.refuses["eu.orders"] = "TOPIC_AUTHORIZATION_FAILED"
    discovered = await discovery(source, target).refresh()
    assert discovered.faults == {
        "orders": "the target topic eu.orders cannot grow to 3 partitions: TOPIC_AUTHORIZATION_FAILED"
    }
    assert len(discovered.lanes) == 1
    target.refuses.clear()
    discovered = await discovery(source, target).refresh()
    assert (discovered.faults, len(discovered.lanes)) == ({}, 3)
    assert [fact.partitions for fact in discovered.facts if isinstance(fact, PartitionsGrown)] == [3]
