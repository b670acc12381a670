"""The rule for start offsets: what counts as seen at the first look, and what came later."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest

from mirrord.cli.fact_lines import describe
from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.config.security import Security
from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.codec import decode_entry, encode_entry
from mirrord.ledger.errors import LedgerCorrupt
from mirrord.ledger.facts.core import AnyFact, ConfigChanged, LaneOpened, LaneTaken, LeaseTaken, SourceRun
from mirrord.ledger.facts.start_offsets import BEGUN, Selected, TopicStarts
from mirrord.ledger.fold import fold
from mirrord.ledger.start_offsets import first_selected, resolvable
from mirrord.ledger.state import FlowState
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ClusterId, LaneKey, TopicId
from mirrord.model.runs import Run
from mirrord.supervision.start_resolution import FirstLook
from mirrord.topics.rules.ledger_start_evidence import Incarnations, start_offsets
from mirrord.topics.rules.partition_start import FixedStart
from tests.fixtures.fake_pipe import as_any
from tests.fixtures.ledger import FLOW, HOLDER, entry

ORDERS, BILLS, COPY = TopicId("orders-id"), TopicId("bills-id"), TopicId("copy-id")
FLOW_CONFIG = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",), start="latest")


class Ledger:
    """A ledger in memory, as far as a first look needs it."""

    def __init__(self, *, keeps_starts: bool = True) -> None:
        self.state = FlowState()
        self.is_open = True
        self.written: list[ConfigChanged] = []
        self.fold(msgspec.structs.replace(FLOW, keeps_starts=keeps_starts))
        self.fold(LeaseTaken(1, HOLDER, 6_000))

    def fold(self, *facts: AnyFact) -> None:
        assert all(fold(self.state, entry(*facts), self.state.next_offset))

    async def write_now(self, fact: ConfigChanged) -> bool:
        if self.is_open:
            (read,) = decode_entry(encode_entry(entry(fact))).facts
            assert read == fact
            self.fold(fact)
            self.written.append(fact)
        return self.is_open

    def begin(self, partition: int, offset: int = 0, topic: TopicId = ORDERS) -> None:
        lane = LaneKey(topic, partition, COPY).id
        opened = LaneOpened(lane, "orders", "eu.orders", partition, 7, 0, "all")
        self.fold(opened, LaneTaken(lane, 1, "replicator"), SourceRun(lane, 1, (Run(0, offset),)))

    def starts(self, partitions: int, topic: TopicId = ORDERS) -> list[tuple[bool, FixedStart | None]]:
        """For each partition: whether it came later, and its fixed start offset."""
        keys = [LaneKey(topic, partition, COPY) for partition in range(partitions)]
        found = [Incarnations(self.state).before(key, "a name", "eu.name") for key in keys]
        return [(each.late, each.fixed) for each in found]


class Look(FirstLook):
    """A look at a source whose ends are given."""

    def __init__(self, ends: Mapping[tuple[str, int], int], **settings: Any) -> None:
        flow = msgspec.structs.replace(FLOW_CONFIG, **settings)
        super().__init__(flow, ClusterConfig(("host:1",), Security()))
        self.ends = ends
        self.asked: list[tuple[str, int]] = []

    async def _offsets(self, partitions: Iterable[PartitionId], cluster_id: ClusterId) -> dict[PartitionId, int]:
        assert cluster_id == "eu-id"
        partitions = list(partitions)
        self.asked += [(each.topic, each.partition) for each in partitions]
        known = {each: self.ends.get((each.topic, each.partition)) for each in partitions}
        return {each: end for each, end in known.items() if end is not None}

    async def at(self, ledger: Ledger, *topics: Topic) -> None:
        await self.note(topics, ClusterId("eu-id"), as_any(ledger))


def orders(partitions: int = 1) -> Topic:
    return Topic("orders", ORDERS, partitions)


async def test_what_is_seen_at_the_first_look_keeps_the_offset_of_that_moment() -> None:
    ledger = Ledger()
    look = Look({("orders", 0): 40, ("orders", 1): 50})
    await look.at(ledger, orders(2))
    look.ends = {("orders", 0): 99, ("orders", 1): 99}
    await look.at(ledger, orders(3))
    known, later = [(False, FixedStart("latest", 40)), (False, FixedStart("latest", 50))], (True, None)
    assert ledger.starts(3) == [*known, later]
    assert look.asked == [("orders", 0), ("orders", 1)]
    assert ledger.starts(1, BILLS) == [later], "a topic that was created later"
    ledger.begin(0, 40)
    assert ledger.state.starts[ORDERS].offsets == (BEGUN, 50)
    assert ledger.starts(3)[1:] == [known[1], later]
    ledger.begin(1, 50)
    assert ledger.state.starts == {}
    assert ledger.starts(3)[2] == later


async def test_a_partition_whose_leader_does_not_answer_is_asked_again() -> None:
    ledger, look = Ledger(), Look({("orders", 0): 40})
    await look.at(ledger, orders(2))
    assert ledger.starts(2) == [(False, FixedStart("latest", 40)), (False, None)]
    look.ends = {("orders", 0): 99, ("orders", 1): 60}
    await look.at(ledger, orders(2))
    await look.at(ledger, orders(2))
    assert ledger.starts(2) == [(False, FixedStart("latest", 40)), (False, FixedStart("latest", 60))]
    assert look.asked == [("orders", 0), ("orders", 1), ("orders", 1)]


async def test_nothing_opens_before_the_ledger_has_the_offsets() -> None:
    ledger, look = Ledger(), Look({("orders", 0): 40})
    ledger.is_open = False
    with pytest.raises(EnvironmentFault, match="does not accept the start offsets"):
        await look.at(ledger, orders())
    ledger.is_open, look.ends = True, {("orders", 0): 41}
    await look.at(ledger, orders())
    assert ledger.starts(1) == [(False, FixedStart("latest", 41))]


async def test_another_selection_is_a_first_look_at_what_it_adds() -> None:
    ledger = Ledger()
    await Look({("orders", 0): 40}).at(ledger, orders())
    bills, new = Topic("bills", BILLS, 1), Topic("orders-2", TopicId("new"), 1)
    wider = Look({("bills", 0): 7, ("orders-2", 0): 8}, topics=("orders.*", "bills"), exclude=("x",))
    await wider.at(ledger, orders(), bills, new)
    assert ledger.starts(1, BILLS) == [(False, FixedStart("latest", 7))]
    assert ledger.starts(1, TopicId("new")) == [(False, FixedStart("latest", 8))], "not selected before"
    created = Topic("bills-2", TopicId("later"), 1)
    await Look({}, topics=("orders.*", "bills.*"), exclude=("x",)).at(ledger, orders(), bills, new, created)
    assert ledger.starts(1, TopicId("later")) == [(False, None)]
    former = Look({}, topics=("orders.*", "bills.*"))
    both = Topic("bills-3", TopicId("meanwhile"), 1)
    await former.at(ledger, orders(), bills, new, created, both)
    assert ledger.starts(1, TopicId("meanwhile")) == [(True, None)], "the former selection includes it"


async def test_a_policy_that_changes_is_a_first_look_at_all_topics_without_a_copy() -> None:
    ledger = Ledger()
    await Look({}, start="earliest").at(ledger, orders())
    ledger.begin(0)
    again = Look({("bills", 0): 7}, select="mine:Policy", topics=("orders", "bills"))
    await again.at(ledger, orders(), Topic("bills", BILLS, 1), Topic("orders", TopicId("recreated"), 1))
    assert ledger.starts(1, BILLS) == [(False, FixedStart("latest", 7))]
    assert ledger.starts(1, TopicId("recreated")) == [(True, None)]


async def test_another_start_applies_to_what_was_seen_and_not_copied() -> None:
    """Not to a partition that was added since, nor to one that has begun."""
    ledger = Ledger()
    first = Look({}, start="earliest")
    await first.at(ledger, orders(2))
    assert first.asked == []
    ledger.begin(0)
    second = Look({("orders", 1): 30})
    await second.at(ledger, orders(3))
    assert second.asked == [("orders", 1)]
    assert ledger.starts(3)[1:] == [(False, FixedStart("latest", 30)), (True, None)]
    third = Look({("orders", 1): 5}, start=1_700_000_000_000)
    await third.at(ledger, orders(3))
    assert ledger.starts(3)[1:] == [(False, FixedStart(1_700_000_000_000, 5)), (True, None)]


async def test_a_ledger_of_an_older_program_does_not_record_which_topics_existed_at_first() -> None:
    ledger = Ledger(keeps_starts=False)
    ledger.begin(0)
    look = Look({("orders", 0): 40, ("bills", 0): 40}, topics=("orders", "bills"))
    await look.at(ledger, orders(2), Topic("bills", BILLS, 1))
    assert look.asked == []
    assert ledger.starts(2)[1] == (True, None)
    assert ledger.starts(1, BILLS) == [(True, None)]
    assert ledger.state.selected == Selected(("orders", "bills"))


def test_a_copied_topic_without_a_look_in_the_ledger() -> None:
    ledger = Ledger(keeps_starts=False)
    assert ledger.starts(2) == [(False, None), (False, None)]
    ledger.begin(0, 1_000)
    found = Incarnations(ledger.state).before(LaneKey(ORDERS, 1, COPY), "orders", "eu.orders")
    assert (found.late, found.fixed, found.began_at) == (True, None, None)
    moved = Incarnations(ledger.state).before(LaneKey(ORDERS, 0, TopicId("other")), "orders", "eu-orders")
    assert (moved.copied_from, moved.began_at) == (None, 1_000)


def test_an_impossible_offset_is_refused() -> None:
    wrong = ConfigChanged((), (TopicStarts("orders", ORDERS, "latest", (-3,)),))
    with pytest.raises(LedgerCorrupt, match="impossible"):
        decode_entry(encode_entry(entry(wrong)))


def test_nothing_is_asked_while_the_start_is_the_first_offset() -> None:
    ledger = Ledger()
    ledger.fold(ConfigChanged((), (TopicStarts("orders", ORDERS, "earliest", (-1,)),)))
    assert resolvable(ledger.state, [orders()], lambda _: "earliest") == []
    assert first_selected(ledger.state, [orders(), Topic("bills", BILLS, 1)], lambda _: False) == [
        Topic("bills", BILLS, 1)
    ]


async def test_where_a_partition_begins_that_has_no_lane_yet() -> None:
    """It shows what was lost if the topic is deleted before its lane opens."""
    ledger = Ledger()
    await Look({("orders", 0): 40}).at(ledger, orders(2))
    begins = start_offsets(ledger.state, FLOW_CONFIG.start_at)
    found = [begins("orders", ORDERS, partition) for partition in range(3)]
    assert found == [40, None, 0], "resolved, not resolved, added later"
    assert begins("bills", BILLS, 0) == 0, "created later"
    assert start_offsets(ledger.state, lambda _: "earliest")("orders", ORDERS, 1) == 0


def test_first_looks_in_words() -> None:
    seen = (TopicStarts("orders", ORDERS, "latest", (40, -1, 7, 9)), TopicStarts("bills", BILLS, "earliest", (-1,)))
    looked = ConfigChanged((), seen, Selected(("orders", "bills")))
    assert describe(looked, str) == (
        "orders first seen, begins at 40, latest, 7 and 1 more; bills first seen, begins at earliest; "
        "all topics that the configuration selects have been seen"
    )
    assert describe(ConfigChanged(("topics: + bills",)), str) == "configuration changed: topics: + bills"
