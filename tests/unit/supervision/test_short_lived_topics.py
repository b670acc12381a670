"""What a supervisor keeps of topics that were created, copied and deleted again."""

import gc
import logging
import types
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterator
from typing import cast

import msgspec
import pytest

from mirrord.ledger.facts.core import CopyForgotten, TopicDeleted
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.model.names import LaneKey
from mirrord.supervision import flow_supervisor, forgotten_copies
from mirrord.supervision.flow_supervisor import FlowSupervisor
from tests.fixtures import one_flow
from tests.fixtures.one_flow import Mirror, mirrors
from tests.fixtures.supervision import FakeCluster, FakeEngine, FakeReplicator, eventually
from tests.unit.supervision.test_order_execution import of_kind, running

TOPICS = 8
PARTITIONS = 2
_OTHERS = (
    FakeCluster,
    FakeEngine,
    FakeReplicator,
    MemoryLedger,
    MemoryLog,
    logging.Handler,
    types.ModuleType,
    type,
    types.BuiltinFunctionType,
)
"""What does not belong to the supervisor. The handlers of the tests keep log records."""


@pytest.fixture
async def mirror(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> AsyncGenerator[Mirror]:
    async def nothing_foreign(*_: object) -> str:
        return ""

    deletes = "propagated" in request.node.name
    flow = msgspec.structs.replace(one_flow.FLOW, propagate_deletes=deletes, delete_grace_ms=200)
    monkeypatch.setattr(one_flow, "FLOW", flow)
    monkeypatch.setattr(flow_supervisor, "deletion_guards", lambda *_: (nothing_foreign, str))
    monkeypatch.setattr(forgotten_copies, "LOSSES_KEPT", 0)
    async for made in mirrors(monkeypatch):
        made.clusters["eu"].add("orders", PARTITIONS)
        yield made


async def copied(mirror: Mirror) -> tuple[FlowSupervisor, list[str], list[LaneKey]]:
    """Create topics, wait until they are copied, and delete them on the source. Return the topics and their lanes."""
    flow, _ = await running(mirror, lanes=PARTITIONS)
    names = [f"orders-short-{number}" for number in range(TOPICS)]
    source, target = mirror.clusters["eu"], mirror.clusters["us"]
    for name in names:
        source.add(name, PARTITIONS)
    await eventually(lambda: flow.status().totals.lanes.get("copying") == PARTITIONS * (TOPICS + 1))
    assert Counter(mentions(flow, names)) > Counter(names)
    ids = [(source.topics[name].topic_id, target.topics[f"eu.{name}"].topic_id) for name in names]
    for name in names:
        del source.topics[name]
    return flow, names, [LaneKey(here, each, there) for here, there in ids for each in range(PARTITIONS)]


async def nothing_more_than(
    mirror: Mirror, flow: FlowSupervisor, names: list[str], lanes: list[LaneKey], allowed: Counter[str]
) -> None:
    """Wait until nothing but these texts mentions the topics and lanes."""
    mirror.clusters["eu"].add("orders-last", PARTITIONS)  # the latest entry is kept until there is another one
    await eventually(lambda: flow.status().totals.lanes == {"copying": 2 * PARTITIONS})
    words = [*names, *(each for lane in lanes for each in lane.topics)]
    await eventually(lambda: not Counter(mentions(flow, words)) - allowed)


async def test_after_propagated_deletions_only_names_are_kept_and_lanes_until_the_next_trim(mirror: Mirror) -> None:
    flow, names, lanes = await copied(mirror)
    await eventually(lambda: len(of_kind(mirror, CopyForgotten)) == TOPICS)
    assert len(of_kind(mirror, TopicDeleted)) == TOPICS
    await nothing_more_than(mirror, flow, names, lanes, Counter([*names, *(lane.id for lane in lanes)]))
    assert flow.status().forgotten_losses == {"recreated": TOPICS * PARTITIONS * 3}
    assert flow.status().losses == ()


async def test_of_copies_that_stay_only_the_state_of_their_lanes_is_kept(mirror: Mirror) -> None:
    flow, names, lanes = await copied(mirror)
    await eventually(lambda: sum(each.offsets for each in flow.status().losses) == TOPICS * PARTITIONS * 3)
    allowed: Counter[str] = Counter()
    for name, lane in zip(names, lanes[::PARTITIONS], strict=True):
        # All lanes of a copy share these texts. The target lists its topic, too.
        allowed.update([name, f"eu.{name}", f"eu.{name}", *lane.topics, lane.target_topic_id])
    for lane in lanes:
        allowed.update([lane.id, lane.id])  # the lane and its progress record
    await nothing_more_than(mirror, flow, names, lanes, allowed)
    assert of_kind(mirror, CopyForgotten) == []


def mentions(flow: FlowSupervisor, words: Collection[str]) -> list[str]:
    """Return each text that a supervisor refers to and that contains one of these words."""
    return [text for text in texts(flow) if any(word in text for word in words)]


def texts(root: object) -> Iterator[str]:
    seen: set[int] = set()
    waiting: list[object] = [root]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, _OTHERS) or is_namespace(each):
            continue
        seen.add(id(each))
        if isinstance(each, str):
            yield each
        if isinstance(each, dict):  # its texts are not visited if they are keys
            waiting += cast(dict[object, object], each)
        waiting += gc.get_referents(each)


def is_namespace(each: object) -> bool:
    """Return whether this is the dictionary of a module, which refers to the whole program."""
    return isinstance(each, dict) and "__builtins__" in each
