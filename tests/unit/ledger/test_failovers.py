"""Failovers in the ledger: which facts take effect, and what has no effect after the copying has ended."""

import msgspec
import pytest

from mirrord.ledger.codec import decode_entry, decode_state, encode_entry, encode_state
from mirrord.ledger.errors import LedgerCorrupt
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import (
    AnyFact,
    LaneTaken,
    LeaseTaken,
    SourceRun,
    TopicCreated,
    TopicDeletionPlanned,
    VerdictGiven,
)
from mirrord.ledger.facts.orders import CopyingPaused
from mirrord.ledger.facts.recovery import (
    CopyingEnded,
    LostRange,
    RecoveryBegan,
    RecoveryFinished,
    RecoveryMode,
    RecoveryStepDone,
)
from mirrord.ledger.facts.seeks import LaneSought
from mirrord.ledger.fold import fold
from mirrord.ledger.folding.failovers import CAUGHT_UP, SETTLED, ends_all, has_ended, in_progress, stops
from mirrord.ledger.snapshot import snapshots
from mirrord.ledger.snapshot_restore import restore
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import LedgerEnd, state_key
from mirrord.ledger.state_topic_rows import Kept, StateTopicContents
from mirrord.model.names import TopicId
from mirrord.model.runs import Run
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

ADA = Origin("ada@host", "the source is gone", 1_700_000_000_000)
LANE = lane_id(0)
LOST = LostRange("orders", 0, 10, 14, 1_700_000_000_000, 10, ((3, 4),), "why")

FAILOVERS = 14
"""The layout version of ledgers with failovers."""


def state() -> FlowState:
    made = FlowState()
    taken = LaneTaken(LANE, 1, "replicator-1")
    created = TopicCreated("orders", TopicId("source-topic"), "eu.orders", TopicId("target-topic"), 1)
    for offset, each in enumerate((entry(FLOW), entry(LeaseTaken(1, HOLDER, 6_000)), entry(created, opened(0), taken))):
        fold(made, each, offset)
    return made


def bind(ledger: FlowState, *facts: AnyFact) -> tuple[bool, ...]:
    return fold(ledger, entry(*facts), ledger.next_offset)


def began(number: int = 1, mode: RecoveryMode = "source-lost", topics: tuple[str, ...] = ()) -> RecoveryBegan:
    return RecoveryBegan(number, mode, topics, ADA)


def done(number: int = 1, *, cancelled: bool = False) -> RecoveryFinished:
    return RecoveryFinished(number, cancelled, 1_700_000_001_000)


def test_a_failover_from_beginning_to_end() -> None:
    ledger = state()
    assert bind(ledger, RecoveryStepDone(1, "stop"), CopyingEnded(1, (), 0, -1), done()) == (False, False, False)
    assert bind(ledger, began(2), began(), began(), began(2)) == (False, True, False, False)
    assert bind(ledger, RecoveryStepDone(1, "stop", "ok"), RecoveryStepDone(1, "stop", "again")) == (True, False)
    assert bind(ledger, RecoveryStepDone(2, "stop"), done()) == (False, False)
    assert not has_ended(ledger.recoveries, "orders")
    assert bind(ledger, CopyingEnded(1, (LOST,), 2, 7), CopyingEnded(1, (), 0, -1)) == (True, False)
    assert has_ended(ledger.recoveries, "orders")
    assert bind(ledger, done(cancelled=True), done(), done()) == (False, True, False)
    assert in_progress(ledger.recoveries) is None
    assert ends_all(ledger.recoveries)
    (kept,) = ledger.recoveries
    assert (kept.lost, [each.outcome for each in kept.steps]) == ((LOST,), ["ok"])
    # Nothing is left to fail over.
    assert bind(ledger, began(2), began(2, topics=("orders",))) == (False, False)


def test_after_the_end_no_fact_about_a_lane_has_an_effect() -> None:
    ledger = state()
    facts = (
        LaneTaken(LANE, 2, "replicator-2"),
        SourceRun(LANE, 1, (Run(0, 0),)),
        VerdictGiven(LANE, 1, ()),
        opened(1),
        LaneSought(LANE, 0, 5, 0, ADA),
        TopicDeletionPlanned("orders", "eu.orders", TopicId("target-topic"), 1_700_000_000_000),
    )
    bind(ledger, began(), CopyingEnded(1, (LOST,), 2, 7), done())
    assert bind(ledger, *facts) == (False,) * len(facts)
    # Neither does a daemon with a newer lease change that: it was started again with its old file.
    assert fold(ledger, entry(LeaseTaken(2, HOLDER, 6_000), epoch=2), ledger.next_offset) == (True,)
    assert fold(ledger, entry(*facts, epoch=2), ledger.next_offset) == (False,) * len(facts)
    assert (ledger.lanes[LANE].grant, LANE in ledger.lanes, len(ledger.lanes)) == (1, True, 1)


def test_a_failover_whose_lanes_are_about_to_be_fenced_is_not_cancelled() -> None:
    ledger = state()
    bind(ledger, began(), RecoveryStepDone(1, "stop"), RecoveryStepDone(1, SETTLED))
    assert bind(ledger, done(cancelled=True), done()) == (False, False)
    assert stops(ledger.recoveries, "orders")
    assert not has_ended(ledger.recoveries, "orders")
    assert bind(ledger, CopyingEnded(1, (), 0, -1), done()) == (True, True)


def test_only_the_topics_of_a_failover_end() -> None:
    ledger = state()
    bind(ledger, began(topics=("bills",)), CopyingEnded(1, (), 0, -1), done())
    assert bind(ledger, SourceRun(LANE, 1, (Run(0, 0),))) == (True,)
    assert bind(ledger, began(2, topics=("bills",)), began(2, topics=("bills", "orders"))) == (False, True)
    bind(ledger, CopyingEnded(2, (), 0, -1), done(2))
    assert bind(ledger, SourceRun(LANE, 1, (Run(0, 5),))) == (False,)
    assert not ends_all(ledger.recoveries)
    assert bind(ledger, began(3)) == (True,)


def test_a_failover_that_was_cancelled_leaves_nothing() -> None:
    ledger = state()
    bind(ledger, began(mode="planned"), RecoveryStepDone(1, CAUGHT_UP))
    assert stops(ledger.recoveries, "orders")
    assert bind(ledger, done(cancelled=True)) == (True,)
    assert not stops(ledger.recoveries, "orders")
    assert bind(ledger, SourceRun(LANE, 1, (Run(0, 0),)), began(2)) == (True, True)
    assert [each.number for each in ledger.recoveries] == [2]


@pytest.mark.parametrize(("mode", "at_once"), [("source-lost", True), ("planned", False)])
def test_when_copying_stops(mode: RecoveryMode, at_once: bool) -> None:
    ledger = state()
    assert not stops(ledger.recoveries, "orders")
    bind(ledger, began(mode=mode, topics=("orders",)))
    assert (stops(ledger.recoveries, "orders"), stops(ledger.recoveries, "bills")) == (at_once, False)
    bind(ledger, RecoveryStepDone(1, CAUGHT_UP))
    assert stops(ledger.recoveries, "orders")
    bind(ledger, CopyingEnded(1, (), 0, -1))
    assert stops(ledger.recoveries, "orders")
    bind(ledger, done())
    assert stops(ledger.recoveries, "orders")


def test_a_snapshot_keeps_failovers_and_older_programs_do_not_read_it() -> None:
    ledger = state()
    (flow,) = (
        each
        for each in snapshots(ledger, Kept(), LedgerEnd(TopicId("t"), 3, 0)).records
        if state_key(each)[:4] == "flow"
    )
    assert encode_state(flow)[0] < FAILOVERS
    bind(ledger, began(), CopyingEnded(1, (LOST,), 2, 7))
    records = snapshots(ledger, Kept(), LedgerEnd(TopicId("t"), 4, 0)).records
    encoded = {state_key(each): encode_state(each) for each in records}
    assert {data[0] for key, data in encoded.items() if key.startswith("flow/")} == {FAILOVERS}
    read = restore(StateTopicContents({key: decode_state(key, data) for key, data in encoded.items()}))
    assert read.recoveries == ledger.recoveries
    assert fold(read, entry(SourceRun(LANE, 1, (Run(0, 0),))), read.next_offset) == (False,)


@pytest.mark.parametrize(
    "fact",
    [
        began(0),
        RecoveryStepDone(-1, "stop"),
        RecoveryFinished(1, False, -1),
        CopyingEnded(1, (msgspec.structs.replace(LOST, end=9),), 1, 7),
        CopyingEnded(1, (msgspec.structs.replace(LOST, missing=((4, 3),)),), 1, 7),
        CopyingEnded(1, (msgspec.structs.replace(LOST, missing=((4, 11),)),), 1, 7),
        CopyingEnded(1, (msgspec.structs.replace(LOST, start=-1),), 1, 7),
    ],
)
def test_impossible_facts_are_refused(fact: AnyFact) -> None:
    with pytest.raises(LedgerCorrupt, match="impossible fact"):
        decode_entry(encode_entry(entry(fact)))


def test_the_version_of_an_entry() -> None:
    assert encode_entry(entry(CopyingPaused("", -1, ADA)))[0] < FAILOVERS
    for fact in (began(), RecoveryStepDone(1, "stop"), CopyingEnded(1, (LOST,), 2, 7), done()):
        assert encode_entry(entry(fact))[0] == FAILOVERS
        assert decode_entry(encode_entry(entry(fact))).facts == (fact,)
