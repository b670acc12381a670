"""A source whose alias was changed is recognized by the names of its target topics."""

from typing import Any

import msgspec
import pytest

from mirrord.config.schema import FlowConfig
from mirrord.ledger.errors import AliasChanged
from mirrord.ledger.facts.audit import RangeAudited
from mirrord.ledger.facts.core import AnyFact, CopyNamed, LaneOpened, LaneTaken, LeaseTaken, SourceRun
from mirrord.ledger.fold import fold
from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneId, LaneKey, TopicId
from mirrord.model.runs import Run
from mirrord.supervision.renamed_alias import check_alias
from tests.fixtures.ledger import FLOW, HOLDER, entry

EAST = FlowConfig(name="eu-us", source="east", target="us", topics=(".*",))


class Ledger:
    """Target topics in the order in which they were opened."""

    def __init__(self, *copies: tuple[str, str]) -> None:
        self.state = FlowState()
        self.fold(FLOW)
        self.fold(LeaseTaken(1, HOLDER, 6_000))
        for topic, copy in copies:
            lane = self.lane(topic, copy)
            self.fold(LaneOpened(lane, topic, copy, 0, 7, 0, "all"), LaneTaken(lane, 1, "r"))
            self.fold(SourceRun(lane, 1, (Run(0, 0),)))

    def lane(self, topic: str, copy: str) -> LaneId:
        return LaneKey(TopicId(topic), 0, TopicId(copy.replace(".", "_"))).id

    def fold(self, *facts: AnyFact) -> None:
        assert all(fold(self.state, entry(*facts), self.state.next_offset))


def is_refused(ledger: Ledger, **settings: Any) -> bool:
    try:
        check_alias(msgspec.structs.replace(EAST, **settings), ledger.state)
    except AliasChanged:
        return True
    return False


def test_an_alias_that_was_changed_is_refused_with_both_ways_out() -> None:
    ledger = Ledger(("orders", "eu.orders"))
    with pytest.raises(AliasChanged) as refused:
        check_alias(EAST, ledger.state)
    assert str(refused.value) == (
        "flow eu-us: its source, cluster eu-cluster, was called eu and is now called east: orders was copied into"
        " eu.orders and would be copied again into east.orders; call the cluster eu again to continue, or give the "
        "flow a different name to copy everything again"
    )
    assert not is_refused(ledger, source="eu")


@pytest.mark.parametrize(
    ("copies", "settings"),
    [
        ([], {}),
        ([("orders", "east.orders")], {}),
        ([("orders", "eu.orders")], {"separator": "-"}),
        ([("orders", "eu.orders")], {"naming": "identity"}),
        ([("orders", "eu.orders")], {"naming": "eu.{topic}"}),
        ([("orders", "orders")], {"naming": "identity"}),
        ([("heartbeats", "eu.heartbeats"), ("orders", "orders")], {"naming": "identity"}),
        ([("orders", "eu.orders"), ("orders", "east.orders")], {}),
        ([("orders", "copy-of-orders")], {}),
    ],
)
def test_names_that_no_other_alias_explains(copies: list[tuple[str, str]], settings: dict[str, Any]) -> None:
    assert not is_refused(Ledger(*copies), **settings)


def test_a_copy_with_its_own_name_shows_no_former_alias() -> None:
    ledger = Ledger(("orders", "east.orders"))
    ledger.fold(CopyNamed("bills", TopicId("bills"), "eu.bills"))
    lane = ledger.lane("bills", "eu.bills")
    ledger.fold(LaneOpened(lane, "bills", "eu.bills", 0, 8, 0, "all"), LaneTaken(lane, 1, "r"))
    assert not is_refused(ledger)


def test_an_audit_of_a_former_copy_does_not_make_it_the_present_one() -> None:
    ledger = Ledger(("orders", "eu.orders"), ("orders", "east.orders"))
    ledger.fold(RangeAudited(ledger.lane("orders", "eu.orders"), "digest", 0, 1, 1, 0, 0))
    assert not is_refused(ledger)
