"""Which flow may copy into which target topic."""

import asyncio

import msgspec
import pytest

from mirrord.config.schema import FlowConfig
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.state import FlowState, LaneState
from mirrord.ledger.state_topic_records import TargetTopic
from mirrord.model.names import ClusterId, LaneKey, TopicId
from mirrord.topics.topic_claims import Claims

US = ClusterId("us-id")
FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders.*",), exclude=("orders\\.tmp",))
OTHER = msgspec.structs.replace(FLOW, name="asia-us", source="asia")
ELSEWHERE = msgspec.structs.replace(FLOW, name="eu-asia", target="asia")
ORDERS = Topic("orders", TopicId("id-orders"), 1)


class Ledger:
    """A ledger that has copied `orders`, if it has copied anything."""

    def __init__(self, *target_topics: str, created: str = "") -> None:
        """`created` is the id of a topic that the flow has created and not copied into."""
        self.state = FlowState(lanes={key.id: lane(key) for key in map(key_into, target_topics)})
        if created:
            topic_id = TopicId(created)
            self.state.topics[topic_id] = TargetTopic("orders", topic_id, 1, True, "orders")


def key_into(target_topic: str) -> LaneKey:
    return LaneKey(TopicId("id-source"), 0, TopicId(target_topic))


def lane(key: LaneKey) -> LaneState:
    return LaneState(key, "orders", "orders", 1, 0, "read_committed", "sequence")


def others(claims: Claims, flow: FlowConfig) -> dict[str, str]:
    return claims.of_others(flow, US, [ORDERS])


def test_what_a_ledger_has_copied_into_belongs_to_its_flow_before_that_runs() -> None:
    claims = Claims()
    claims.read(FLOW.name, Ledger("id-orders"))
    claims.read(OTHER.name, Ledger())
    assert others(claims, OTHER) == {"orders": "is the copy of orders in the flow eu-us"}
    assert others(claims, FLOW) == {}


def test_what_a_ledger_comes_to_copy_into_belongs_to_its_flow() -> None:
    claims, ledger = Claims(), Ledger()
    claims.read(FLOW.name, ledger)
    claims.read(OTHER.name, Ledger())
    assert others(claims, OTHER) == {}
    ledger.state = Ledger("id-orders").state
    assert others(claims, OTHER) == {"orders": "is the copy of orders in the flow eu-us"}


def test_a_topic_of_the_same_name_that_was_created_again_is_free() -> None:
    claims = Claims()
    claims.read(FLOW.name, Ledger("id-of-the-deleted-one"))
    claims.read(OTHER.name, Ledger())
    assert others(claims, OTHER) == {}


def test_while_a_ledger_is_not_read_what_exists_may_be_its_copy() -> None:
    claims = Claims()
    claims.expect(FLOW)
    claims.expect(OTHER)
    claims.expect(ELSEWHERE)
    claims.read(OTHER.name, Ledger())
    assert others(claims, OTHER) == {"orders": "may be a copy of the flow eu-us: its ledger is not read yet"}
    claims.read(FLOW.name, Ledger())
    assert others(claims, OTHER) == {}, "a flow into another cluster is not waited for"


def test_what_the_own_ledger_has_copied_into_waits_for_nobody() -> None:
    claims = Claims()
    claims.expect(FLOW)
    claims.read(OTHER.name, Ledger("id-orders"))
    assert others(claims, OTHER) == {}


def test_what_a_flow_has_created_belongs_to_it_at_once() -> None:
    claims = Claims()
    claims.expect(FLOW)
    claims.read(OTHER.name, Ledger(created="id-orders"))
    assert others(claims, OTHER) == {}, "the ledger of the other flow is not read yet"
    claims.read(FLOW.name, Ledger())
    assert others(claims, FLOW) == {"orders": "is the copy of orders in the flow asia-us"}


def test_plans_count_while_a_flow_does_not_run_and_end_with_it() -> None:
    claims = Claims()
    claims.read(FLOW.name, Ledger())
    claims.hold(FLOW.name, US, {"new": "new"})
    assert others(claims, OTHER) == {"new": "is the copy of new in the flow eu-us"}
    claims.forget(FLOW.name)
    assert others(claims, OTHER) == {}


async def test_waiting_for_the_ledgers_of_others() -> None:
    claims = Claims()
    claims.expect(FLOW)
    claims.expect(ELSEWHERE)
    waiting = asyncio.create_task(claims.until_read(OTHER, 60.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    claims.read(FLOW.name, Ledger())
    await asyncio.wait_for(waiting, 10.0)


@pytest.mark.parametrize("patience_s", [0.0, 0.01])
async def test_waiting_ends(patience_s: float) -> None:
    claims = Claims()
    claims.expect(FLOW)
    await claims.until_read(OTHER, patience_s)
    assert others(claims, OTHER)
