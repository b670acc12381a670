"""The high watermarks of the source that are known after the source is gone."""

from collections.abc import Collection, Mapping

from mirrord.ledger.codec import decode_state, encode_state
from mirrord.ledger.facts.core import LeaseTaken, Progress
from mirrord.ledger.fold import fold
from mirrord.ledger.last_seen.records import summary_key
from mirrord.ledger.last_seen.source_ends import (
    HELD_NEAR_MS,
    NEAR_MS,
    NEVER,
    SeenEnd,
    SeenEnds,
    SeenFaults,
    end_records,
    surplus_records,
)
from mirrord.ledger.source_ends import (
    BLOCK,
    LOST_KEPT,
    SourcePartition,
    merged_losses,
    settled_records,
    unopened_losses,
)
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import state_key
from mirrord.model.names import TopicId
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

TOPIC, LANE = TopicId("source-topic"), lane_id(0)
SUMMARY = summary_key("seen-ends")


def state() -> FlowState:
    made = FlowState()
    for offset, each in enumerate((entry(FLOW), entry(LeaseTaken(1, HOLDER, 6_000)), entry(opened(0)))):
        fold(made, each, offset)
    return made


def where(partition: int = 0, topic_id: TopicId = TOPIC, topic: str = "orders") -> SourcePartition:
    return SourcePartition(topic, topic_id, partition)


def recorded(ledger: FlowState, partition: SourcePartition) -> SeenEnd:
    return SeenEnds(ledger).ends.get(partition, NEVER)


def note(
    ledger: FlowState,
    ends: Mapping[SourcePartition, SeenEnd],
    now_ms: int,
    faults: Mapping[str, str] = {},
    hidden: Collection[str] = (),
) -> list[Progress]:
    """Save the records, as they are read back from the state topic."""
    records = end_records(SeenEnds(ledger), ends, faults, hidden, 1, now_ms)
    for record in records:
        known = decode_state(state_key(record), encode_state(record))
        assert isinstance(known, Progress)
        assert ledger.accept_progress(known)
    return records


def test_all_ends_are_current_although_only_those_that_changed_are_written() -> None:
    ledger = state()
    assert recorded(ledger, where()) == NEVER
    assert len(note(ledger, {where(0): SeenEnd(7, 900), where(BLOCK): SeenEnd(9, 1_000)}, 1_000)) == 3
    assert recorded(ledger, where(BLOCK)) == SeenEnd(9, 900)
    (summary,) = note(ledger, {where(0): SeenEnd(7, 1_950), where(BLOCK): SeenEnd(9, 2_000)}, 2_000)
    assert summary.lane == SUMMARY
    assert recorded(ledger, where()) == SeenEnd(7, 1_950)
    changed = note(ledger, {where(0): SeenEnd(8, 2_950), where(BLOCK): SeenEnd(9, 3_000)}, 3_000)
    assert [each.lane for each in changed][1:] == [SUMMARY]
    assert SeenEnds(ledger).ends == {where(0): SeenEnd(8, 2_950), where(BLOCK): SeenEnd(9, 2_950)}


def test_a_partition_whose_leader_is_gone_keeps_its_end_and_its_time() -> None:
    ledger = state()
    note(ledger, {where(0): SeenEnd(7, 1_000), where(1): SeenEnd(3, 1_000)}, 1_000)
    note(ledger, {where(0): NEVER, where(1): SeenEnd(4, 1_000 + NEAR_MS + 1)}, 5_000)
    assert recorded(ledger, where(0)) == SeenEnd(7, 1_000)
    assert recorded(ledger, where(1)) == SeenEnd(4, 1_000 + NEAR_MS + 1)
    # What was seen of it does not change while it is gone, so nothing is written again and again.
    (summary,) = note(ledger, {where(0): NEVER, where(1): SeenEnd(4, 9_000)}, 9_000)
    assert summary.lane == SUMMARY
    assert recorded(ledger, where(0)) == SeenEnd(7, 1_000)
    note(ledger, {where(0): SeenEnd(8, 10_000), where(1): SeenEnd(4, 10_000)}, 10_000)
    assert recorded(ledger, where(0)) == SeenEnd(8, 10_000)


def test_a_source_that_is_gone_changes_nothing() -> None:
    ledger = state()
    note(ledger, {where(0): SeenEnd(7, 1_000), where(1): SeenEnd(3, 1_400)}, 1_500)
    for now_ms in (2_000, 60_000):
        assert note(ledger, {where(0): NEVER, where(1): NEVER}, now_ms) == []
    # A daemon that starts while the source is gone does not know anything else either.
    assert recorded(ledger, where(0)) == SeenEnd(7, 1_000)
    assert recorded(ledger, where(1)) == SeenEnd(3, 1_000)


def test_many_partitions_without_leaders_leave_the_others_current() -> None:
    ledger = state()
    ends = {where(partition): SeenEnd(5, 1_000) for partition in range(3 * BLOCK)}
    note(ledger, ends, 1_000)
    note(ledger, dict.fromkeys(ends, NEVER) | {where(9_999): SeenEnd(1, 9_000)}, 9_000)
    assert {recorded(ledger, each) for each in ends} == {SeenEnd(5, 1_000)}
    assert recorded(ledger, where(9_999)) == SeenEnd(1, 9_000)


def test_a_partition_that_is_no_longer_observed_is_not_current() -> None:
    ledger = state()
    note(ledger, {where(0): SeenEnd(7, 1_000), where(1): SeenEnd(3, 1_000)}, 1_000)
    note(ledger, {where(0): SeenEnd(9, 90_000)}, 90_000)
    assert recorded(ledger, where(1)) == SeenEnd(3, 1_000)


def test_a_block_that_is_newer_than_the_summary_has_its_own_time() -> None:
    """The process that wrote them was interrupted."""
    ledger = state()
    note(ledger, {where(0): SeenEnd(7, 1_000)}, 1_000)
    block, _ = end_records(SeenEnds(ledger), {where(0): SeenEnd(8, 2_000)}, {}, (), 1, 2_000)
    ledger.accept_progress(block)
    assert recorded(ledger, where(0)) == SeenEnd(8, 2_000)


def test_a_progress_record_counts_only_if_nothing_was_recorded() -> None:
    """Its end is that of the last fetch, which may be much older than the record."""
    ledger = state()
    lane = ledger.lanes[LANE]
    progress = Progress(LANE, 1, 0, 4, 4, 0, 4, 12, 1, 1_500, protected=True, state="copying")
    ledger.accept_progress(progress)
    assert SeenEnds(ledger).of(lane) == SeenEnd(12, -1)
    note(ledger, {where(0): SeenEnd(70, 1_000)}, 1_000)
    assert SeenEnds(ledger).of(lane) == SeenEnd(70, 1_000)


def test_topics_that_the_source_no_longer_shows_keep_their_ends_and_their_times() -> None:
    ledger, other, faults = state(), TopicId("other"), {"orders": "it is hidden"}
    note(ledger, {where(0): SeenEnd(7, 1_000), where(0, other, "bills"): SeenEnd(1, 1_000)}, 1_000)
    note(ledger, {where(0, other, "bills"): SeenEnd(2, 9_000)}, 9_000, faults, ["orders"])
    assert surplus_records(ledger, {other}, ["orders"]) == []
    assert recorded(ledger, where(0)) == SeenEnd(7, 1_000)
    assert recorded(ledger, where(0, other, "bills")) == SeenEnd(2, 9_000)
    # The same if the source shows no topic at all.
    faults |= {"bills": "it is hidden"}
    (summary,) = note(ledger, {}, 20_000, faults, faults)
    assert summary.lane == SUMMARY
    assert recorded(ledger, where(0)) == SeenEnd(7, 1_000)
    assert recorded(ledger, where(0, other, "bills")) == SeenEnd(2, 9_000)
    assert SeenEnds(ledger).faults.lines == faults
    assert note(ledger, {}, 30_000, faults, faults) == []


def test_topics_that_were_never_visible_are_named() -> None:
    ledger, faults = state(), {"orders": "it is hidden"}
    note(ledger, {}, 1_000, faults, faults)
    known = SeenEnds(ledger)
    assert (known.faults.lines, known.is_recorded, known.ends) == (faults, True, {})
    assert note(state(), {}, 1_000) == []


def test_partitions_whose_end_was_never_seen_are_recorded() -> None:
    ledger = state()
    note(ledger, {where(0): NEVER, where(1): SeenEnd(4, 1_000)}, 1_000)
    assert SeenEnds(ledger).ends == {where(0): NEVER, where(1): SeenEnd(4, 1_000)}


def test_log_starts_are_kept_until_a_higher_one_is_known() -> None:
    ledger = state()
    note(ledger, {where(0): SeenEnd(7, 1_000, 3), where(1): SeenEnd(7, 1_000)}, 1_000)
    assert (recorded(ledger, where(0)).start, recorded(ledger, where(1)).start) == (3, -1)
    note(ledger, {where(0): SeenEnd(8, 2_000), where(1): SeenEnd(7, 2_000, 5)}, 2_000)
    assert (recorded(ledger, where(0)).start, recorded(ledger, where(1)).start) == (3, 5)


def test_the_time_up_to_which_the_target_held_everything() -> None:
    ledger = state()
    behind = {where(1): SeenEnd(90, 20_000, held_ms=8_000), where(2): SeenEnd(90, 20_000)}
    note(ledger, {where(0): SeenEnd(7, 20_000, held_ms=20_000), **behind}, 20_000)
    assert [recorded(ledger, where(each)).held_ms for each in range(3)] == [20_000, 8_000, -1]
    # Only the summary changes if nothing else is new.
    later = {at: end._replace(at_ms=24_000) for at, end in behind.items()}
    (summary,) = note(ledger, {where(0): SeenEnd(7, 24_000, held_ms=22_000), **later}, 24_000)
    assert summary.lane == SUMMARY
    assert [recorded(ledger, where(each)).held_ms for each in range(3)] == [22_000, 8_000, -1]
    # Those that differ little have the same time.
    everything = {where(0): SeenEnd(7, 30_000, held_ms=30_000), where(1): SeenEnd(90, 30_000, held_ms=28_000), **later}
    note(ledger, everything | {where(1): SeenEnd(90, 30_000, held_ms=30_000 - HELD_NEAR_MS)}, 30_000)
    assert [recorded(ledger, where(each)).held_ms for each in range(3)] == [30_000 - HELD_NEAR_MS] * 2 + [-1]


def test_the_times_stay_the_same_while_the_source_is_gone() -> None:
    """Those that differ by little from the time in the summary must not pull it down."""
    ledger = state()
    note(ledger, {where(at): SeenEnd(7, 9_000 - 700 * at, held_ms=9_000 - 1_400 * at) for at in range(6)}, 9_000)
    before = SeenEnds(ledger).ends
    for now_ms in (10_000, 20_000):
        assert note(ledger, dict.fromkeys(before, NEVER), now_ms) == []
    assert SeenEnds(ledger).ends == before


def test_what_the_target_held_says_nothing_about_a_lane_without_a_progress_record() -> None:
    """The target topic was deleted and created again, and the recorded time is that of the former lane."""
    ledger = state()
    note(ledger, {where(0): SeenEnd(70, 1_000, held_ms=1_000)}, 1_000)
    assert SeenEnds(ledger).of(ledger.lanes[LANE]) == SeenEnd(70, 1_000)


def test_topics_that_are_not_copied_are_named() -> None:
    ledger = state()
    faults = {f"topic-{number:03}": "too many partitions" for number in range(203)}
    note(ledger, {where(0): SeenEnd(7, 1_000)}, 1_000, faults)
    found = SeenEnds(ledger).faults
    assert (len(found.lines), found.omitted) == (200, 3)
    assert SeenEnds(state()).faults == SeenFaults()


def test_a_time_is_never_that_of_another_topic_with_the_same_name() -> None:
    ledger, new = state(), TopicId("created-again")
    note(ledger, {where(0): SeenEnd(70, 1_000)}, 1_000)
    note(ledger, {where(0, new): SeenEnd(2, 2_000)}, 2_000)
    assert recorded(ledger, where(0, new)) == SeenEnd(2, 2_000)
    assert surplus_records(ledger, {new}, ()) == [next(key for key in ledger.source_ends if key.startswith(TOPIC))]
    assert surplus_records(ledger, {new, TOPIC}, ()) == []


def test_the_records_state_no_loss() -> None:
    """Older versions take each of them for a record about a deleted topic."""
    ledger = state()
    many = {where(0, TopicId(f"topic-{number}"), f"t{number}"): SeenEnd(5, 1_000) for number in range(LOST_KEPT + 50)}
    note(ledger, many, 1_000)
    assert list(unopened_losses(ledger)) == []
    assert merged_losses(ledger, 1) == ([], [])
    assert settled_records(ledger, lambda *_: True, (), lambda *_: 0, 2_000) == ([], [])
