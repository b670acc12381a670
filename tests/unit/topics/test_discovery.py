"""Discovery with fake clusters: what is created, what is refused, and what old metadata of a broker must not break."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

import msgspec
import pytest

from mirrord.config.limits import LimitsConfig
from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.topic_admin import ClusterTopics
from mirrord.kafka.rules.topic import Topic, TopicShape
from mirrord.ledger.facts.core import PartitionsGrown, TopicCreated
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ClusterId
from mirrord.supervision.unfetched_partition_ends import uncovered
from mirrord.topics import discovery as module
from mirrord.topics.discovery import REPEAT_S, SOON_S, Discovery, next_refresh_s
from mirrord.topics.topic_claims import Claims
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
    plan = (await found.preview()).plan
    assert [step.target_topic for step in plan.create] == ["eu.orders"]
    assert target.topics == {}
    discovered = await found.refresh()
    assert list(target.topics) == ["eu.orders"]
    assert len(discovered.lanes) == 2
    assert [fact.target_topic for fact in discovered.facts] == ["eu.orders"]
    assert (await found.refresh()).facts == ()


class InvalidAdmin(FakeAdmin):
    """A source whose brokers report names that are not valid in Kafka."""

    invalid: tuple[str, ...] = ()

    async def describe(self, names: Collection[str] | None = None, *, rights: bool = False) -> ClusterTopics:
        return msgspec.structs.replace(await super().describe(names, rights=rights), invalid=self.invalid)


async def test_a_topic_with_an_invalid_name_is_reported_and_stops_no_other() -> None:
    source, target = clusters()
    source.add("orders", 1)
    admin = InvalidAdmin(source)
    found = Discovery(FLOW, admin, FakeAdmin(target), Claims())
    admin.invalid = ("a b",)
    seen = await found.refresh()
    assert len(seen.lanes) == 1
    line = 'the source reports a topic with a name that is not valid in Kafka, which is not copied: "a b"'
    assert seen.faults == {"a b": line}
    admin.invalid = tuple(f"bad {number:04}" for number in range(1_000))
    seen = await found.refresh()
    assert len(seen.lanes) == 1
    assert len(seen.faults) == 10
    assert seen.faults["bad 0009"].endswith('"bad 0009" (and 990 more such topics)')


async def test_topics_beyond_the_limit_are_neither_created_nor_noted() -> None:
    source, target = clusters()
    for number in range(30):
        source.add(f"orders{number:02}", 2)
    noted: list[list[str]] = []

    async def note(topics: Sequence[Topic], _: ClusterId) -> None:
        noted.append([topic.name for topic in topics])

    limits = LimitsConfig(topics=4, partitions=6)
    found = discovery(source, target, msgspec.structs.replace(FLOW, limits=limits))
    seen = await found.refresh(note=note)
    assert sorted(target.topics) == ["eu.orders00", "eu.orders01", "eu.orders02"]
    assert len(seen.lanes) == 6
    assert noted == [["orders00", "orders01", "orders02"]]
    assert len(seen.faults) == 10
    line = "the topic, with 2 partitions, is not copied: limits.partitions is 6"
    assert seen.faults["orders03"] == line
    assert seen.faults["orders12"] == f"{line} (and 17 more topics are not copied completely)"
    assert sorted(seen.beyond_limits) == sorted(seen.faults)


async def test_the_log_ends_of_partitions_beyond_the_limits_are_not_followed() -> None:
    """One topic is new, one has been copied and then grown, and one has a fault of another kind."""
    source, target = clusters()
    source.add("orders", 2)
    source.add("orders-new", 100_000)
    source.add("orders-" + "x" * 240, 1)
    found = discovery(source, target, msgspec.structs.replace(FLOW, limits=LimitsConfig(partitions=3)))
    seen = await found.refresh()
    assert len(seen.faults) == 2

    def followed() -> list[tuple[str, int]]:
        return [(each.topic[:10], each.partition) for each in uncovered(seen, {}, 0.0).wanted]

    wanted = [("orders", 0), ("orders", 1), ("orders-xxx", 0)]
    assert followed() == wanted
    source.add("orders", 100_000)
    topics = (await found.refresh()).source
    seen = msgspec.structs.replace(seen, source=topics, beyond_limits={*seen.beyond_limits, "orders"})
    assert followed() == wanted


async def test_topics_that_the_source_does_not_show_are_hidden() -> None:
    source, target = clusters()
    source.add("orders", 1)
    looked = (await discovery(source, target).refresh()).with_faults({"orders": "a fault", "bills": "no permission"})
    asked = uncovered(looked, {}, 0.0)
    assert (asked.hidden, asked.is_known) == ({"bills"}, True)
    assert not uncovered(None, {}, 0.0).is_known


async def test_other_tasks_run_while_many_names_are_compared() -> None:
    source, target = clusters()
    for number in range(5_000):
        source.add(f"other{number}", 1)
    refresh, turns = asyncio.create_task(discovery(source, target).refresh()), 0
    while not refresh.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10


async def test_topics_of_another_cluster_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source names the target's broker as one of its own, and cannot be reached itself."""
    source, target = clusters()
    source.add("orders", 3)
    found = discovery(source, target)
    lanes = (await found.refresh()).lanes
    with monkeypatch.context() as patch:
        patch.setattr(source, "cluster_id", target.cluster_id)
        patch.setattr(source, "topics", {**target.topics, **source.topics})
        target.add("orders-of-target", 1)
        source.add("orders-of-target", 1)
        closed: list[FakeAdmin] = []

        async def close(admin: FakeAdmin) -> None:
            closed.append(admin)

        patch.setattr(FakeAdmin, "close", close)
        with pytest.raises(EnvironmentFault, match="a broker belongs to cluster"):
            await found.refresh()
        assert len(closed) == 1, "the next request would go to the same broker"
    assert (await found.refresh()).lanes == lanes
    assert "eu.orders-of-target" not in target.topics


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


async def test_a_topic_that_cannot_grow_is_reported_and_copied_as_far_as_possible() -> None:
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


class SlowAdmin(FakeAdmin):
    """A cluster whose brokers show what was done when `shown` says so."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.shown: dict[str, int] = {}
        """Partitions by topic; topics that are not in it are not shown."""
        self.created: list[str] = []

    async def describe(self, names: Collection[str] | None = None, *, rights: bool = False) -> ClusterTopics:
        view = await super().describe(names, rights=rights)
        topics = {
            name: msgspec.structs.replace(topic, partitions=self.shown[name])
            for name, topic in view.topics.items()
            if name in self.shown
        }
        return msgspec.structs.replace(view, topics=topics)

    async def create(self, topics: Mapping[str, TopicShape], *, validate_only: bool = False) -> dict[str, str]:
        self.created += topics
        return await super().create(topics, validate_only=validate_only)

    async def grow(self, topics: Mapping[str, int]) -> dict[str, str]:
        self.created += topics
        return await super().grow(topics)


def slow_discovery(source: FakeCluster, target: FakeCluster) -> tuple[Discovery, SlowAdmin]:
    admin = SlowAdmin(target)
    return Discovery(FLOW, FakeAdmin(source), admin, Claims()), admin


async def test_what_is_not_shown_yet_holds_up_nothing_and_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHOWN_WITHIN_S", 0)
    source, target = clusters()
    source.add("orders-1", 2)
    source.add("orders-2", 1)
    found, admin = slow_discovery(source, target)
    admin.shown["eu.orders-2"] = 1
    first = await found.refresh()
    assert [lane.source_topic for lane in first.lanes] == ["orders-2"]
    assert [fact.target_topic for fact in first.facts] == ["eu.orders-2"]
    assert (first.faults, first.unshown, next_refresh_s(FLOW, first, is_unrecorded=False)) == ({}, True, SOON_S)
    second = await found.refresh()
    assert (second.lanes, second.facts, second.faults, second.unshown) == (first.lanes, (), {}, True)
    admin.shown["eu.orders-1"] = 2
    third = await found.refresh()
    (fact,) = third.facts
    assert isinstance(fact, TopicCreated)
    assert (fact.target_topic, fact.target_topic_id) == ("eu.orders-1", target.topics["eu.orders-1"].topic_id)
    assert (len(third.lanes), third.unshown, admin.created) == (3, False, ["eu.orders-1", "eu.orders-2"])


async def test_a_growth_that_is_not_shown_yet_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHOWN_WITHIN_S", 0)
    source, target = clusters()
    source.add("orders", 3)
    target.add("eu.orders", 1)
    found, admin = slow_discovery(source, target)
    admin.shown["eu.orders"] = 1
    assert len((await found.refresh()).lanes) == 1
    other = Discovery(FLOW, FakeAdmin(source), admin, Claims())
    other.go_on_from(found)
    assert (len((await other.refresh()).lanes), admin.created) == (1, ["eu.orders"])
    admin.shown["eu.orders"] = 3
    grown = await other.refresh()
    assert grown.facts == (PartitionsGrown("eu.orders", target.topics["eu.orders"].topic_id, 3),)
    assert (len(grown.lanes), grown.unshown) == (3, False)


async def test_a_change_that_is_never_listed_is_reported_and_then_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHOWN_WITHIN_S", 0)
    monkeypatch.setattr(module, "NOT_SHOWN_AFTER_S", -1)
    source, target = clusters()
    source.add("orders", 1)
    found, admin = slow_discovery(source, target)
    line = "the target topic eu.orders was created, but its brokers do not show it"
    assert (await found.refresh()).faults == {"orders": line}
    assert ((await found.refresh()).faults, admin.created) == ({"orders": line}, ["eu.orders"])
    monkeypatch.setattr(module, "GIVEN_UP_AFTER_S", -1)
    await found.refresh()
    assert admin.created == ["eu.orders", "eu.orders"]


async def test_a_flow_that_looks_once_looks_again_while_something_failed() -> None:
    once = msgspec.structs.replace(FLOW, refresh_ms=None)
    source, target = clusters()
    source.add("orders", 1)
    done = await discovery(source, target, once).refresh()
    assert next_refresh_s(FLOW, done, is_unrecorded=False) == 5
    assert next_refresh_s(once, done, is_unrecorded=False) is None
    assert next_refresh_s(once, done, is_unrecorded=True) == REPEAT_S
    assert next_refresh_s(once, None, is_unrecorded=False) == REPEAT_S
