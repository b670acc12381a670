"""The positions of consumer groups that are known after the source is gone."""

import pytest

from mirrord.ledger.codec import decode_state, encode_state
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.facts.last_seen import SeenPosition
from mirrord.ledger.last_seen import group_positions
from mirrord.ledger.last_seen.group_positions import SeenGroups, group_records, seen_groups
from mirrord.ledger.last_seen.records import BUCKETS
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import state_key
from mirrord.model.group_status import GroupState, GroupStatus


def at(group: str, offset: int | None, state: GroupState = "waits", why: str = "", partition: int = 0) -> GroupStatus:
    return GroupStatus(
        group=group,
        topic="orders",
        partition=partition,
        target_topic="eu.orders",
        source_offset=offset,
        state=state,
        why=why,
    )


def note(ledger: FlowState, statuses: list[GroupStatus], seen_ms: int) -> list[Progress]:
    groups = len({each.group for each in statuses})
    records = group_records(ledger, statuses, groups, seen_ms, 1, seen_ms + 10)
    for record in records:
        known = decode_state(state_key(record), encode_state(record))
        assert isinstance(known, Progress)
        assert ledger.accept_progress(known)
    return records


def test_only_positions_that_do_not_match_are_recorded() -> None:
    ledger = FlowState()
    assert seen_groups(ledger) == SeenGroups()
    positions = [at("a", 5, "in step"), at("b", 7), at("b", None, "unknown", "gone", 1)]
    note(ledger, positions, 1_000)
    assert seen_groups(ledger) == SeenGroups(
        1_000,
        2,
        {("a", "orders"): 1},
        (SeenPosition("b", "orders", 0, 7, "waits"), SeenPosition("b", "orders", 1, -1, "unknown", "gone")),
    )
    assert len(note(ledger, positions, 2_000)) == 1
    note(ledger, [at("a", 6, "in step"), at("b", 7, "in step"), at("b", 9, "in step", "", 1)], 3_000)
    assert seen_groups(ledger) == SeenGroups(3_000, 2, {("a", "orders"): 1, ("b", "orders"): 2})


def test_positions_that_the_flow_has_nothing_to_do_with() -> None:
    ledger = FlowState()
    (summary,) = note(ledger, [at("a", None, "expired"), at("b", 7, "not copied")], 1_000)
    assert seen_groups(ledger) == SeenGroups(1_000, 2)
    assert summary.lane.endswith("seen-groups")


def test_nothing_is_written_if_nothing_has_changed() -> None:
    ledger = FlowState()
    note(ledger, [at("a", 5)], 1_000)
    assert note(ledger, [at("a", 5)], 1_000) == []


def test_positions_for_which_there_is_no_room_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_positions, "MOST_IN_RECORD", 3)
    ledger = FlowState()
    matching = [at(f"group-{number}", 5, "in step") for number in range(4 * BUCKETS)]
    note(ledger, [at("a", 5, partition=partition) for partition in range(10)] + matching, 1_000)
    seen = seen_groups(ledger)
    assert (len(seen.positions), len(seen.in_step) + seen.omitted) == (3, len(matching) + 7)
    assert seen.omitted > 7


def test_names_that_are_not_unicode() -> None:
    ledger = FlowState()
    assert note(ledger, [at("caf\u00e9", 5), at("x" * 300, 5)], 1_000)
    assert len(seen_groups(ledger).positions) == 2
