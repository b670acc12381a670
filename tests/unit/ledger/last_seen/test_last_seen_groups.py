"""The positions of consumer groups that are known after the source is gone."""

import pytest

from mirrord.ledger.codec import decode_state, encode_state
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.facts.last_seen import SeenPosition
from mirrord.ledger.last_seen import group_positions
from mirrord.ledger.last_seen.group_positions import SeenGroups, group_records, seen_groups
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
    note(ledger, [at("a", 5, "in step"), at("b", 7), at("b", None, "expired", "gone", 1)], 1_000)
    assert seen_groups(ledger) == SeenGroups(
        1_000,
        2,
        1,
        (SeenPosition("b", "orders", 0, 7, "waits"), SeenPosition("b", "orders", 1, -1, "expired", "gone")),
    )
    assert len(note(ledger, [at("a", 5, "in step"), at("b", 7), at("b", None, "expired", "gone", 1)], 2_000)) == 1
    note(ledger, [at("a", 6, "in step"), at("b", 7, "in step")], 3_000)
    assert seen_groups(ledger) == SeenGroups(3_000, 2, 2)


def test_nothing_is_written_if_nothing_has_changed() -> None:
    ledger = FlowState()
    note(ledger, [at("a", 5)], 1_000)
    assert note(ledger, [at("a", 5)], 1_000) == []


def test_positions_for_which_there_is_no_room_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_positions, "MOST_POSITIONS", 3)
    ledger = FlowState()
    note(ledger, [at("a", 5, partition=partition) for partition in range(10)], 1_000)
    seen = seen_groups(ledger)
    assert (len(seen.positions), seen.omitted) == (3, 7)


def test_names_that_are_not_unicode() -> None:
    ledger = FlowState()
    assert note(ledger, [at("caf\u00e9", 5), at("x" * 300, 5)], 1_000)
    assert len(seen_groups(ledger).positions) == 2
