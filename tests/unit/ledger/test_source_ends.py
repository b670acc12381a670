"""The last known ends of source partitions, and the verdicts on what was lost below them."""

from collections.abc import Container, Mapping

import msgspec
import pytest

from mirrord.ledger import source_ends
from mirrord.ledger.codec import decode_state, encode_state
from mirrord.ledger.completeness import uncopied
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import LaneOpened, LaneTaken, LeaseTaken, Progress, SourceRun, Verdict, VerdictGiven
from mirrord.ledger.facts.seeks import LaneSought
from mirrord.ledger.facts.source_ends import SourceEnds
from mirrord.ledger.fold import fold
from mirrord.ledger.snapshot_restore import restore
from mirrord.ledger.source_ends import (
    BLOCK,
    FORMER,
    SourcePartition,
    Unopened,
    changed_records,
    former_losses,
    known_end,
    lane_end,
    left_behind,
    merged_losses,
    settled_records,
    truncated,
    unopened_losses,
)
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import state_key
from mirrord.ledger.state_topic_rows import StateTopicContents
from mirrord.model.names import LaneId, LaneKey, TopicId
from mirrord.model.runs import Run
from mirrord.model.status import LossStatus
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

LANE, OLD, NEW = lane_id(0), TopicId("source-topic"), TopicId("new-topic")


def state(source_offset: int = 40, source_end: int = 55) -> FlowState:
    """A flow that has copied a topic up to an offset. Its resume position has this end."""
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


def where(partition: int = 0, topic_id: TopicId = OLD, topic: str = "orders") -> SourcePartition:
    return SourcePartition(topic, topic_id, partition)


def note(ledger: FlowState, ends: Mapping[SourcePartition, int]) -> list[Progress]:
    """Save what is new, as it is read back from the state topic."""
    records = changed_records(ledger, ends, 1, 1_000)
    for record in records:
        known = decode_state(state_key(record), encode_state(record))
        assert isinstance(known, Progress)
        assert ledger.accept_progress(known)
    return records


def lost(ledger: FlowState, *gone: TopicId, hosted: Container[LaneId] = (), first: bool = True) -> list[VerdictGiven]:
    return left_behind(ledger, lambda _, topic_id: topic_id in gone, hosted, lambda *_: 0 if first else None)


def test_what_a_deleted_topic_still_held_is_recorded_once() -> None:
    ledger = state()
    (fact,) = lost(ledger, OLD)
    assert fact.verdicts == (Verdict(40, 55, "recreated"),)
    assert fold(ledger, entry(fact), 3) == (True,)
    assert ledger.lanes[LANE].verdicts.counts == {"recreated": 15}
    assert lost(ledger, OLD) == []
    assert former_losses(ledger, {LANE}) == ()
    assert former_losses(ledger, ()) == (LossStatus("orders", 0, "recreated", 15),)


def test_no_loss_is_recorded_of_what_may_still_be_copied_or_was_copied() -> None:
    assert lost(state(), OLD, hosted={LANE}) == []
    assert lost(state(), NEW) == []
    assert lost(state(source_offset=55), OLD) == []
    assert lost(state(source_end=-1), OLD) == []


def test_the_recorded_end_counts_where_the_lane_did_not_fetch() -> None:
    """It was paused with nothing after its position; then 30 records came."""
    ledger = state(source_end=40)
    assert lost(ledger, OLD) == []
    assert len(note(ledger, {where(): 70})) == 1
    assert lane_end(ledger, ledger.lanes[LANE]) == 70
    (fact,) = lost(ledger, OLD)
    assert fact.verdicts == (Verdict(40, 70, "recreated"),)


def test_only_what_is_new_is_saved_and_a_lanes_own_progress_record_is_enough() -> None:
    ledger = state(source_end=55)
    assert note(ledger, {where(): 55}) == []
    assert len(note(ledger, {where(): 56, where(1): 7})) == 1
    assert note(ledger, {where(): 56, where(1): 7}) == []
    many = {where(partition): 5 for partition in range(3 * BLOCK)}
    assert len(note(ledger, many)) == 3
    (one,) = note(ledger, {where(2 * BLOCK + 3): 6})
    assert known_end(ledger, OLD, 2 * BLOCK + 3) == 6
    assert known_end(ledger, OLD, 2 * BLOCK + 4) == 5
    assert known_end(ledger, OLD, 3 * BLOCK) == -1
    assert one.source is not None
    assert len(one.source.ends) == BLOCK


def test_the_records_are_there_after_a_restart_and_no_lane_takes_them_as_its_progress() -> None:
    ledger = state(source_end=40)
    (record,) = note(ledger, {where(): 70})
    again = restore(StateTopicContents({state_key(record): record}))
    assert known_end(again, OLD, 0) == 70
    assert again.progress == {}
    assert LaneKey.parse(record.lane).topics == (OLD, "")
    assert not any(name == record.lane for name in ledger.progress)


def test_a_former_copy_that_was_deleted_reports_no_loss() -> None:
    """Its records were copied again into another target topic, by a newer lane of the same partition."""
    ledger = state(source_offset=10, source_end=20)
    other = LaneKey(OLD, 0, TopicId("second")).id
    opening = (LaneOpened(other, "orders", "eu.orders", 0, 9, 0, "all"), LaneTaken(other, 1, "r"))
    fold(ledger, entry(*opening, SourceRun(other, 1, (Run(0, 0),))), 3)
    ledger.accept_progress(Progress(other, 1, 1, 70, 70, 0, 70, 70, 1, 1, protected=True, state="drained"))
    note(ledger, {where(): 70})
    assert lost(ledger, OLD) == []


def test_a_pending_order_is_named() -> None:
    ledger = state()
    origin = Origin("ada@host", "a test", 1_000)
    assert fold(ledger, entry(LaneSought(LANE, 40, 50, 0, origin)), 3) == (True,)
    (fact,) = lost(ledger, OLD)
    assert fact.note.endswith("; the command to continue at source offset 50 was not carried out")


def test_a_lane_that_never_began_loses_all_unless_it_was_to_begin_at_the_end() -> None:
    ledger = state()
    fold(ledger, entry(opened(1), LaneTaken(lane_id(1), 1, "replicator-1")), 3)
    note(ledger, {where(1): 9})
    verdicts = {fact.lane: fact.verdicts for fact in lost(ledger, OLD)}
    assert verdicts[lane_id(1)] == (Verdict(0, 9, "recreated"),)
    assert lane_id(1) not in {fact.lane for fact in lost(ledger, OLD, first=False)}


def test_partitions_without_a_lane_are_kept_as_a_loss() -> None:
    ledger = state()
    note(ledger, {where(): 55, where(1): 7, where(2): 0, where(0, NEW, "other"): 3})

    def settle(*gone: TopicId, first: bool = True) -> tuple[list[Progress], list[LaneId]]:
        is_gone = lambda _topic, topic_id: topic_id in gone  # noqa: E731
        untold = [fact.lane for fact in lost(ledger, *gone)]
        return settled_records(ledger, is_gone, untold, lambda *_: 0 if first else None, 5_000)

    assert settle(OLD) == ([], []), "the lane's verdict comes first"
    (verdict,) = lost(ledger, OLD)
    fold(ledger, entry(verdict), 3)
    assert settle(OLD, first=False)[0] == []
    kept, removed = settle(OLD)
    assert removed == []
    for record in kept:
        ledger.accept_progress(record)
    assert list(unopened_losses(ledger)) == [Unopened("orders", 1, 0, 7, 5_000)]
    assert LossStatus("orders", 1, "recreated", 7) in former_losses(ledger, {LANE})
    assert settle(OLD) == ([], []), "it is verdict once"
    (gone,) = settle(NEW, first=False)[1]
    assert LaneKey.parse(gone).source_topic_id == NEW


def test_a_partition_without_a_lane_loses_nothing_below_where_it_would_have_begun() -> None:
    ledger = FlowState()
    note(ledger, {where(partition): 70 for partition in range(4)})
    starts = {0: 50, 1: 70, 2: 0}
    kept, removed = settled_records(
        ledger, lambda *_: True, (), lambda _topic, _id, partition: starts.get(partition), 1_000
    )
    assert removed == []
    (record,) = kept
    again = restore(StateTopicContents({state_key(record): decode_state(state_key(record), encode_state(record))}))
    assert list(unopened_losses(again)) == [Unopened("orders", 0, 50, 70, 1_000), Unopened("orders", 2, 0, 70, 1_000)]
    losses = [LossStatus("orders", 0, "recreated", 20), LossStatus("orders", 2, "recreated", 70)]
    assert list(former_losses(again, ())) == losses
    assert uncopied(again, {"orders"}) == {"recreated": 90}


def test_of_very_many_losses_without_lanes_the_oldest_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_ends, "LOST_KEPT", 10)
    ledger = FlowState()

    def lose(number: int, at_ms: int) -> None:
        """Lose a topic of which no record was copied, as supervision does."""
        note(ledger, {where(partition, TopicId(f"gone-{number}"), f"gone-{number}"): 10 for partition in range(2)})
        kept, removed = settled_records(ledger, lambda *_: True, (), lambda *_: 3, at_ms)
        assert removed == []
        for record in kept:
            ledger.accept_progress(record)

    def merge(*, removes: bool = True) -> None:
        merged, removed = merged_losses(ledger, 1)
        for record in merged:
            ledger.accept_progress(record)
        for key in removed if removes else ():
            del ledger.source_ends[key]

    losses: list[Unopened] = []
    for number in range(100):
        lose(number, at_ms=1_000 - number % 7)  # the clock is set back again and again
        merge(removes=number % 3 == 0)  # or the removal is interrupted
        merge()
        losses = list(unopened_losses(ledger))
        assert sum(each.end - each.start for each in losses) == (number + 1) * 2 * 7, "each is counted once"
        assert len(ledger.source_ends) <= 10 + 1
    assert {each.topic for each in losses} == {*(f"gone-{at}" for at in range(90, 100)), FORMER}
    assert uncopied(ledger, {"gone-99"}) == {"recreated": 14 + 90 * 14}
    assert merged_losses(ledger, 1) == ([], [])


def test_a_record_of_an_earlier_version_begins_at_the_first_offset() -> None:
    former = msgspec.convert(["orders", [-1, 7], True], SourceEnds)
    assert former == SourceEnds("orders", (-1, 7), lost=True)
    assert former.starts == ()


def test_what_a_truncation_removed_after_a_paused_lane() -> None:
    """20 records waited; an unclean election removed the last eight of them."""
    ledger = state(source_offset=40, source_end=40)
    note(ledger, {where(): 60})
    assert truncated(ledger, {where(): 60}, ()) == []
    assert truncated(ledger, {where(): 52}, {LANE}) == []
    (fact,) = truncated(ledger, {where(): 52}, ())
    assert fact.verdicts == (Verdict(52, 60, "truncated"),)
    assert fold(ledger, entry(fact), 3) == (True,)
    assert truncated(ledger, {where(): 52}, ()) == [], "it is fact once"
    note(ledger, {where(): 52})
    assert truncated(ledger, {where(): 52}, ()) == []


def test_a_truncation_below_the_position_leaves_that_part_to_the_lane() -> None:
    ledger = state(source_offset=40, source_end=40)
    note(ledger, {where(): 60})
    (fact,) = truncated(ledger, {where(): 30}, ())
    assert fact.verdicts == (Verdict(40, 60, "truncated"),)
