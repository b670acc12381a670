"""Target topics for recreated source topics: which name, bound when, and which group follows it."""

from collections.abc import Callable, Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.config.security import Security
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.facts.core import AnyFact, CopyForgotten, CopyNamed, LaneOpened, LeaseTaken
from mirrord.ledger.fold import fold
from mirrord.ledger.state import FlowState
from mirrord.mm2.client_records import Mm2Upkeep
from mirrord.mm2.rules.heartbeat_latency import SentBeats
from mirrord.model.acls import AclRule
from mirrord.model.group_status import TranslatedPosition
from mirrord.model.names import ClusterId, TopicId
from mirrord.supervision.forgotten_copies import FORGOTTEN_AFTER_S, Forgetting
from mirrord.topics.discovery import Discovered, Discovery
from mirrord.topics.rules.acls import plan_acls
from mirrord.topics.rules.deletions import TopicCopy, without_source
from mirrord.topics.rules.recreated_topic_names import CopyNames, copy_names
from mirrord.topics.rules.topic_plan import TopicsPlan, plan_topics
from mirrord.topics.selection_preview import topics_that_change
from mirrord.topics.topic_claims import Claims
from policies.acls import TopicNames, acl_policy
from policies.flow_policies import naming_of, selection_of
from tests.fixtures.clock import FakeClock
from tests.fixtures.ledger import FLOW as OPENED
from tests.fixtures.ledger import HOLDER, entry
from tests.fixtures.supervision import FakeAdmin, FakeCluster

KEEP = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders.*|heartbeats",))
FRESH = msgspec.structs.replace(KEEP, on_recreated="fresh")
PLAIN = naming_of(KEEP).target_topic


class Flow:
    """A flow whose daemon may end at any moment: what is left are two clusters and a ledger."""

    def __init__(self, flow: FlowConfig = FRESH) -> None:
        self.flow = flow
        self.source = FakeCluster(ClusterId("eu-cluster"))
        self.target = FakeCluster(ClusterId("us-cluster"))
        self.state = FlowState()
        self.record(OPENED)
        self.record(LeaseTaken(1, HOLDER, 6_000))
        self.takes_names = True

    def record(self, *facts: AnyFact) -> tuple[bool, ...]:
        return fold(self.state, entry(*facts, epoch=self.state.lease_epoch), self.state.next_offset)

    async def bind(self, names: Sequence[CopyNamed]) -> None:
        if self.takes_names:
            self.record(*names)

    def discovery(self) -> Discovery:
        """The discovery of a daemon that begins now."""
        claims = Claims()
        claims.read(self.flow.name, self)
        return Discovery(self.flow, FakeAdmin(self.source), FakeAdmin(self.target), claims)

    async def refresh(self) -> Discovered:
        return await self.discovery().refresh(self.bind)

    async def copy(self, discovered: Discovered | None = None) -> dict[str, str]:
        """Open the lanes of everything that can be copied; returns the target topic of each source topic."""
        found = discovered or await self.refresh()
        for lane in found.lanes:
            opened = LaneOpened(lane.lane, lane.source_topic, lane.target_topic, lane.key.partition, 1, 0, "all")
            self.record(opened)
        return {lane.source_topic: lane.target_topic for lane in found.lanes}


async def test_each_later_topic_of_a_name_has_a_copy_of_its_own() -> None:
    flow = Flow()
    for copy in ("eu.orders", "eu.orders.2", "eu.orders.3"):
        flow.source.add("orders", 2)
        assert await flow.copy() == {"orders": copy}
        assert await flow.copy() == {"orders": copy}, "it stays so"
    assert list(flow.target.topics) == ["eu.orders", "eu.orders.2", "eu.orders.3"]
    flow.flow = KEEP
    assert await flow.copy() == {"orders": "eu.orders.3"}, "what was bound counts whatever the setting is now"
    flow.source.add("orders", 2)
    assert await flow.copy() == {"orders": "eu.orders"}
    flow.flow = FRESH
    assert await flow.copy() == {"orders": "eu.orders"}, "what is copied stays where it is"


async def test_a_daemon_that_ends_at_any_point_leaves_the_same_name() -> None:
    flow = Flow()
    flow.source.add("orders", 1)
    await flow.copy()
    flow.source.add("orders", 1)
    flow.target.refuses["eu.orders.2"] = "NOT_CONTROLLER"
    refreshed = await flow.refresh()
    assert refreshed.faults == {"orders": "the target topic eu.orders.2 cannot be created: NOT_CONTROLLER"}
    # The name is bound, but its topic is not created; a foreign topic has the next number.
    assert [each.target_topic for each in flow.state.named.values()] == ["eu.orders.2"]
    flow.target.refuses.clear()
    flow.target.add("eu.orders.3", 1)
    # It is created, and the daemon ends before the ledger hears of it or of a lane.
    assert [lane.target_topic for lane in (await flow.refresh()).lanes] == ["eu.orders.2"]
    assert await flow.copy() == {"orders": "eu.orders.2"}
    assert len(flow.state.named) == 1


async def test_nothing_is_created_before_its_name_is_in_the_ledger() -> None:
    flow = Flow()
    flow.source.add("orders", 1)
    await flow.copy()
    flow.source.add("orders", 1)
    flow.takes_names = False
    found = await flow.refresh()
    line = "its separate target topic, eu.orders.2, is created once the ledger has that name"
    assert (found.faults, found.lanes, list(flow.target.topics)) == ({"orders": line}, (), ["eu.orders"])
    assert found.names == {"orders": "eu.orders.2"}
    looked = (await flow.discovery().preview()).plan
    assert [step.target_topic for step in looked.create] == ["eu.orders.2"], "what a start would do"
    flow.takes_names = True
    assert await flow.copy() == {"orders": "eu.orders.2"}


async def test_of_two_daemons_the_one_that_has_the_ledger_names_the_copy() -> None:
    flow = Flow()
    flow.source.add("orders", 1)
    await flow.copy()
    flow.source.add("orders", 1)

    async def too_late(names: Sequence[CopyNamed]) -> None:
        flow.record(CopyNamed("orders", flow.source.topics["orders"].topic_id, "eu.orders.7"))
        flow.record(*names)

    found = await flow.discovery().refresh(too_late)
    assert [lane.target_topic for lane in found.lanes] == ["eu.orders.7"]


async def test_a_name_that_anybody_has_is_not_chosen() -> None:
    flow = Flow()
    for name in ("orders", "orders.4"):
        flow.source.add(name, 1)
    await flow.copy()
    del flow.target.topics["eu.orders.4"]  # its lanes are in the ledger
    flow.source.add("orders", 1)
    flow.target.add("eu_orders_2", 1)  # Kafka rejects names that differ only in "." and "_"
    names = (PLAIN, {"eu.orders.3": "is another's"}, {}, copy_names(flow.state, FRESH))
    plan = plan_topics(flow.source.topics.values(), flow.target.topics, *names)
    assert [each.target_topic for each in plan.unbound] == ["eu.orders.5"]
    assert plan.names == {"orders": "eu.orders.5", "orders.4": "eu.orders.4"}


async def test_a_later_topic_whose_copy_would_have_that_name_is_reported() -> None:
    for later in ("orders.2", "a"):  # they sort on either side of orders
        flow = Flow(msgspec.structs.replace(FRESH, topics=(".*",)))
        flow.source.add("orders", 1)
        await flow.copy()
        flow.source.add("orders", 1)
        await flow.copy()
        flow.source.add(later, 1)
        plan = plan_topics(
            flow.source.topics.values(),
            flow.target.topics,
            lambda topic: "eu.orders.2" if topic != "orders" else "eu.orders",
            {},
            {},
            copy_names(flow.state, KEEP),
        )
        assert plan.faults == {
            later: f"topic name collision: {later} would be copied into eu.orders.2, which is the copy of orders"
        }
        assert [lane.target_topic for lane in plan.lanes] == ["eu.orders.2"]


async def test_heartbeats_and_names_that_are_too_long_are_not_named() -> None:
    flow = Flow()
    long = "orders" + "x" * 239
    for name in ("heartbeats", long):
        flow.source.add(name, 1)
    assert set((await flow.copy()).values()) == {"eu.heartbeats", f"eu.{long}"}
    for name in ("heartbeats", long):
        flow.source.add(name, 1)
    found = await flow.refresh()
    assert {lane.target_topic for lane in found.lanes} == {"eu.heartbeats"}
    assert f"would have 250 characters; Kafka allows 249: eu.{long}.2" in found.faults[long]
    assert not flow.state.named


async def test_a_name_of_which_nothing_came_is_forgotten() -> None:
    flow, clock = Flow(), FakeClock()
    flow.source.add("orders", 1)
    await flow.copy()
    gone = TopicId("gone")
    flow.record(CopyNamed("orders", gone, "eu.orders.2"))
    forgetting = Forgetting("eu-us", FakeAdmin(flow.source), FakeAdmin(flow.target), clock)
    assert await forgetting.due(flow.state, await flow.refresh(), ()) == []
    clock.now += FORGOTTEN_AFTER_S
    facts = await forgetting.due(flow.state, await flow.refresh(), ())
    assert facts == [CopyForgotten("orders", gone, "eu.orders.2", TopicId(""))]
    assert flow.record(*facts) == (True,)
    assert not flow.state.named


async def test_deletions_follow_the_copy_of_each_topic() -> None:
    flow = Flow()
    copies: list[TopicCopy] = []
    for name in ("eu.orders", "eu.orders.2", "eu.orders.3"):
        flow.source.add("orders", 1)
        await flow.copy()
        source, target = flow.source.topics["orders"], flow.target.topics[name]
        copies.append(TopicCopy(name, target.topic_id, "orders", source_topic_id=source.topic_id))
    first, second, third = copies

    def gone(at_source: dict[str, Topic]) -> tuple[list[TopicCopy], list[TopicCopy]]:
        copy_of = selection_of(FRESH).copy_of
        return without_source(copies, at_source, flow.target.topics, copy_of, copy_names(flow.state, FRESH))

    assert gone(flow.source.topics) == ([], [first, second])
    assert gone({}) == ([first, second, third], [])
    # A broker that is behind shows a former topic: later ones do not count as gone.
    behind = Topic("orders", second.source_topic_id or TopicId(""), 1)
    assert gone({"orders": behind}) == ([], [first])
    assert gone({"orders": Topic("orders", first.source_topic_id or TopicId(""), 1)}) == ([], [])


def test_rights_on_a_name_are_given_on_all_copies_of_it() -> None:
    read = AclRule("TOPIC", "LITERAL", "orders", "User:a", "*", "READ", "ALLOW")
    bound = {TopicId("second"): CopyNamed("orders", TopicId("second"), "eu.orders.2")}
    names = TopicNames(lambda _: True, lambda _: True, PLAIN, lambda _: None, CopyNames(bound).beside)
    plan = plan_acls([read], frozenset(), frozenset(), acl_policy("read-only"), names, ("eu.orders.2",))
    assert [rule.name for rule in plan.add] == ["eu.orders", "eu.orders.2"]


async def test_a_bound_name_is_nobody_elses() -> None:
    flow = Flow()
    flow.record(CopyNamed("orders", TopicId("second"), "eu.orders.2"))
    claims = Claims()
    claims.read("eu-us", flow)
    other = msgspec.structs.replace(KEEP, name="other")
    claimed = claims.of_others(other, ClusterId("us-cluster"), ())
    assert claimed == {"eu.orders.2": "is the copy of orders in the flow eu-us"}
    assert claims.of_others(KEEP, ClusterId("us-cluster"), ()) == {}
    assert claims.of_others(other, ClusterId("another"), ()) == {}


async def test_another_configuration_shows_the_names_as_they_are() -> None:
    flow = Flow()
    for _ in range(2):
        flow.source.add("orders", 1)
        await flow.copy()
    flow.source.add("payments", 1)
    claims = Claims()
    claims.read("eu-us", flow)
    admins: Callable[[str], FakeAdmin] = {"eu": FakeAdmin(flow.source), "us": FakeAdmin(flow.target)}.__getitem__
    new = msgspec.structs.replace(KEEP, topics=("payments",))
    assert await topics_that_change(FRESH, new, admins, claims) == [
        "starts copying payments into eu.payments",
        "stops copying orders into eu.orders.2",
    ]


async def test_mirrormaker_2s_clients_get_no_records_of_a_copy_that_they_would_mistake_for_another() -> None:
    flow = Flow()
    for _ in range(2):
        flow.source.add("orders", 1)
        await flow.copy()
    flow.flow = KEEP  # with mm2_records, by default
    flow.source.add("orders.new", 1)
    found = await flow.refresh()
    clusters = {alias: ClusterConfig((f"{alias}:9092",), Security()) for alias in ("eu", "us")}
    upkeep = Mm2Upkeep(KEEP, clusters, 1.0, FakeClock(), SentBeats())
    upkeep.see(found)
    assert upkeep._syncs is not None
    assert upkeep._checkpoints is not None
    assert upkeep._syncs._lanes == tuple(lane.lane for lane in found.lanes if lane.source_topic == "orders.new")
    pairs = [("orders", "eu.orders.2"), ("orders.new", "eu.orders.new")]
    upkeep.record(TranslatedPosition("group", topic, copy, 0, 5, 5, "") for topic, copy in pairs)
    assert [each.topic for each in upkeep._checkpoints._book.due()] == ["eu.orders.new"]
    line = "eu.orders.2: no mm2_records, because their readers would misread its name"
    assert upkeep.remarks == (line,)


STEPS = ("again", "others", "stop-named", "stop-created", "copy", "lost", "taken")


@given(st.lists(st.sampled_from(STEPS), max_size=25))
def test_no_two_topics_share_a_copy_and_no_copy_is_renamed(steps: list[str]) -> None:
    state, source, target = FlowState(), dict[str, Topic](), dict[str, Topic]()
    names: dict[TopicId, str] = {}

    def record(*facts: AnyFact) -> None:
        fold(state, entry(*facts, epoch=state.lease_epoch), state.next_offset)

    def plan() -> TopicsPlan:
        return plan_topics(source.values(), target, PLAIN, {}, {}, copy_names(state, FRESH))

    record(OPENED)
    record(LeaseTaken(1, HOLDER, 6_000))
    for number, step in enumerate(("again", "copy", *steps, "copy")):
        match step:
            case "again" | "others":
                name = "orders" if step == "again" else f"orders.{number % 4}"
                source[name] = Topic(name, TopicId(f"source-{number}"), 1)
            case "lost" if target:
                del target[sorted(target)[number % len(target)]]
            case "taken":
                name = f"eu.orders.{number % 5}"
                target.setdefault(name, Topic(name, TopicId(f"taken-{number}"), 1))
            case _:
                pass
        if step.startswith(("stop", "copy")):
            record(*plan().unbound)
            ready = plan()
            assert not ready.unbound, "each name that is chosen binds"
            if step != "stop-named":
                for made in ready.create:
                    topic = Topic(made.target_topic, TopicId(f"target-{len(target)}-{number}"), 1)
                    target[made.target_topic] = topic
            if step == "copy":
                for lane in plan().lanes:
                    record(LaneOpened(lane.lane, lane.source_topic, lane.target_topic, 0, 1, 0, "all"))
                    assert names.setdefault(lane.key.source_topic_id, lane.target_topic) == lane.target_topic
    assert len(set(names.values())) == len(names)
