"""Topics that were recreated."""

from mirrord.ledger.facts.core import LaneOpened, LaneTaken, LeaseTaken, Progress, SourceRun
from mirrord.ledger.fold import fold
from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneKey, TopicId
from mirrord.model.runs import Run
from mirrord.topics.rules.ledger_start_evidence import Incarnations, Lately
from mirrord.topics.rules.recreated_topic_names import former_copies
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

LANE, OLD, NEW = lane_id(0), TopicId("source-topic"), TopicId("new-topic")


def state(source_offset: int = 40, source_end: int = 55) -> FlowState:
    """A flow that has copied a topic up to an offset, and has seen its end."""
    made = FlowState()
    taken = LaneTaken(LANE, 1, "replicator-1")
    entries = (
        entry(FLOW),
        entry(LeaseTaken(1, HOLDER, 6_000)),
        entry(opened(0), taken, SourceRun(LANE, 1, (Run(0, 0),))),
    )
    for offset, each in enumerate(entries):
        fold(made, each, offset)
    made.accept_progress(
        Progress(LANE, 1, 1, 40, 40, 0, source_offset, source_end, 1, 1, protected=True, state="drained")
    )
    return made


def test_a_topic_of_a_former_name_is_there_again() -> None:
    assert Incarnations(state()).is_again("orders", NEW)
    assert not Incarnations(state()).is_again("orders", OLD)
    assert not Incarnations(state()).is_again("payments", NEW)


def test_where_a_target_topic_that_was_created_again_begins() -> None:
    """At what the former one held first; not for another name, another partition or another source topic."""
    made = state()
    assert former_copies(made) == {(OLD, "eu.orders"): {TopicId("target-topic")}}
    new = LaneKey(OLD, 0, TopicId("new-target"))
    assert Incarnations(made).copied_from(new, "eu.orders") == 0
    assert Incarnations(made).copied_from(new, "dr-orders") is None
    assert Incarnations(made).copied_from(LaneKey(OLD, 1, TopicId("new-target")), "eu.orders") is None
    assert Incarnations(made).copied_from(LaneKey(NEW, 0, TopicId("new-target")), "eu.orders") is None
    assert Incarnations(made).copied_from(LaneKey(OLD, 0, TopicId("target-topic")), "eu.orders") is None, "it is there"


def test_what_is_asked_often_is_looked_up_again_when_the_ledger_has_grown() -> None:
    made, lately = state(), Lately()
    assert not lately.of(made).is_again("payments", NEW)
    assert lately.of(made) is lately.of(made)
    other = LaneKey(OLD, 0, TopicId("elsewhere")).id
    assert all(fold(made, entry(LaneOpened(other, "payments", "eu.payments", 0, 9, 0, "all")), 3))
    assert lately.of(made).is_again("payments", NEW)
    assert not lately.of(state()).is_again("payments", NEW), "another flow's"


def test_the_lowest_first_offset_of_all_former_target_topics_counts() -> None:
    made = state()
    second = LaneKey(OLD, 0, TopicId("second")).id
    opening = (LaneOpened(second, "orders", "eu.orders", 0, 9, 0, "all"), LaneTaken(second, 1, "r"))
    assert all(fold(made, entry(*opening, SourceRun(second, 1, (Run(0, 30),))), 3))
    third = LaneKey(OLD, 0, TopicId("third"))
    assert Incarnations(made).copied_from(third, "eu.orders") == 0
    del made.lanes[LANE]
    assert Incarnations(made).copied_from(third, "eu.orders") == 30
    made.lanes[second].source_runs = type(made.lanes[second].source_runs)()
    assert Incarnations(made).copied_from(third, "eu.orders") is None, "it never held anything"
