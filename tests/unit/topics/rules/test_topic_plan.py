from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from mirrord.kafka.rules.topic import Topic
from mirrord.model.names import TopicId
from mirrord.topics.rules.topic_plan import CreateTopic, GrowTopic, TopicsPlan, plan_topics
from policies.naming import naming

PREFIX = naming("prefix", "eu").target_topic


def topic(name: str, partitions: int = 3, topic_id: str = "") -> Topic:
    return Topic(name, TopicId(topic_id or f"id-{name}"), partitions)


def plan(source: list[Topic], target: list[Topic], claimed: Mapping[str, str] | None = None) -> TopicsPlan:
    return plan_topics(source, {each.name: each for each in target}, PREFIX, claimed or {})


def test_a_missing_target_topic_is_created_and_has_no_lanes_yet() -> None:
    planned = plan([topic("orders")], [])
    assert planned.create == (CreateTopic(topic("orders"), "eu.orders"),)
    assert planned.lanes == ()


def test_each_partition_of_an_existing_target_topic_is_a_lane() -> None:
    planned = plan([topic("orders", 2)], [topic("eu.orders", 2)])
    assert [lane.lane for lane in planned.lanes] == ["id-orders.0.id-eu.orders", "id-orders.1.id-eu.orders"]
    assert (planned.create, planned.grow, planned.faults, planned.remarks) == ((), (), {}, {})


def test_partitions_that_exist_are_copied_while_the_target_grows() -> None:
    planned = plan([topic("orders", 3)], [topic("eu.orders", 1)])
    assert planned.grow == (GrowTopic(topic("orders", 3), topic("eu.orders", 1)),)
    assert len(planned.lanes) == 1


def test_a_target_with_more_partitions_is_copied_into_and_remarked() -> None:
    planned = plan([topic("orders", 1)], [topic("eu.orders", 4)])
    assert len(planned.lanes) == 1
    assert "has 4 partitions, the source topic orders has 1" in planned.remarks["orders"]


def test_a_target_topic_of_another_flow_is_refused_and_nothing_is_created_for_it() -> None:
    planned = plan([topic("orders"), topic("payments")], [], {"eu.orders": "is the copy of orders of the flow asia-us"})
    assert planned.faults == {
        "orders": "topic name collision: orders would be copied into eu.orders, "
        "which is the copy of orders of the flow asia-us"
    }
    assert [create.target_topic for create in planned.create] == ["eu.payments"]


def test_two_source_topics_of_one_target_name_are_refused() -> None:
    planned = plan_topics([topic("a"), topic("b")], {}, lambda _: "same", {})
    assert [create.source.name for create in planned.create] == ["a"]
    assert "copied into same, which is the copy of a" in planned.faults["b"]


def test_a_name_that_kafka_does_not_allow_is_refused() -> None:
    assert "Kafka allows 249" in plan([topic("x" * 249)], []).faults["x" * 249]


def test_a_topic_with_another_id_gives_other_lanes() -> None:
    old = plan([topic("orders", 1, "first")], [topic("eu.orders", 1)])
    new = plan([topic("orders", 1, "second")], [topic("eu.orders", 1)])
    assert {lane.lane for lane in old.lanes}.isdisjoint(lane.lane for lane in new.lanes)


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 5)),
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 5)),
    st.sets(st.text("abc", min_size=1, max_size=3)),
)
def test_every_topic_is_created_or_copied_or_refused(
    source: dict[str, int], target: dict[str, int], claimed: set[str]
) -> None:
    planned = plan(
        [topic(name, partitions) for name, partitions in source.items()],
        [topic(f"eu.{name}", partitions) for name, partitions in target.items()],
        {f"eu.{name}": "another" for name in claimed},
    )
    created = {create.source.name for create in planned.create}
    copied = {lane.source_topic for lane in planned.lanes}
    assert created | copied | set(planned.faults) == set(source)
    assert not created & copied
    assert not (created | copied) & set(planned.faults)
    assert set(planned.targets.values()) == created | copied
    assert len({lane.lane for lane in planned.lanes}) == len(planned.lanes)
    again = plan(
        [topic(name, partitions) for name, partitions in source.items()],
        [topic(f"eu.{name}", max(target.get(name, 0), source.get(name, 0))) for name in set(source) | set(target)],
        {f"eu.{name}": "another" for name in claimed},
    )
    assert (again.create, again.grow) == ((), ())


def test_a_copy_that_somebody_deleted_is_created_again_or_left_to_people() -> None:
    former = {(TopicId("id-orders"), "eu.orders"): {TopicId("old")}}
    planned = plan_topics([topic("orders")], {}, PREFIX, {}, former)
    assert planned.create == (CreateTopic(topic("orders"), "eu.orders"),)
    assert planned.remarks["orders"] == "the target topic eu.orders was deleted: it is created and copied again"
    planned = plan_topics([topic("orders")], {}, PREFIX, {}, former, on_deleted_copy="halt")
    assert planned.create == planned.lanes == ()
    assert planned.unanswered["orders"].startswith("the target topic eu.orders was deleted, and on_deleted_copy = ")
    there = {"eu.orders": topic("eu.orders")}
    planned = plan_topics([topic("orders")], there, PREFIX, {}, former, on_deleted_copy="halt")
    assert len(planned.lanes) == 3, "somebody created it again: that is his word"
    assert "deleted and re-created" in planned.remarks["orders"]
    former = {(TopicId("id-orders"), "eu.orders"): {TopicId("old"), TopicId("id-eu.orders")}}
    assert not plan_topics([topic("orders")], there, PREFIX, {}, former).remarks, "its lanes are open"


def test_a_topic_that_is_copied_under_another_name_now_names_the_former_copy() -> None:
    former = {(TopicId("id-orders"), "old.orders"): {TopicId("id-old.orders")}}
    there = {name: topic(name) for name in ("eu.orders", "old.orders")}
    remark = "it was copied into old.orders before, which gets no more records: its target topic is now eu.orders"
    assert plan_topics([topic("orders")], there, PREFIX, {}, former).remarks == {"orders": remark}
    del there["old.orders"]
    assert plan_topics([topic("orders")], there, PREFIX, {}, former).remarks == {}


def test_the_copy_of_a_former_source_topic_does_not_count_as_deleted() -> None:
    former = {(TopicId("former"), "eu.orders"): {TopicId("old")}}
    planned = plan_topics([topic("orders")], {}, PREFIX, {}, former, on_deleted_copy="halt")
    assert planned.create == (CreateTopic(topic("orders"), "eu.orders"),)
    assert not planned.remarks
