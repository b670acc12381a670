"""For which positions of consumer groups the next record on the target is known."""

import pytest

from mirrord.ledger.facts.last_seen import SeenPosition
from mirrord.ledger.last_seen.group_positions import SeenGroups
from mirrord.model.group_status import GroupState
from mirrord.recovery.rules.groups import groups_readiness

COPY, PLACE = ("eu.orders", 0), ("orders", 0)
COPIES = {COPY: PLACE}


def test_a_position_that_matched_is_known_from_the_target() -> None:
    found = groups_readiness(SeenGroups(9, 1, 1), {"billing": {COPY: 5, ("other", 0): 7}}, COPIES, {COPY: (0, 10)})
    assert (found.groups, found.exact, found.inexact, found.positions) == (1, 1, 0, ())


@pytest.mark.parametrize(
    ("state", "is_known"),
    [
        ("waits", True),
        ("active", True),
        ("ahead", True),
        ("behind", False),
        ("unknown", False),
        ("unsure", False),
        ("refused", False),
    ],
)
def test_recorded_positions(state: GroupState, is_known: bool) -> None:
    seen = SeenGroups(9, 1, 0, (SeenPosition("billing", *PLACE, 8, state, "why"),))
    found = groups_readiness(seen, {"billing": {COPY: 5}}, COPIES, {COPY: (0, 10)})
    (position,) = found.positions
    assert (position.is_known, position.source_offset, position.target_offset) == (is_known, 8, 5)
    assert (found.exact, found.inexact) == (int(is_known), int(not is_known))


@pytest.mark.parametrize("state", ["not copied", "expired"])
def test_positions_that_the_flow_has_nothing_to_do_with(state: GroupState) -> None:
    seen = SeenGroups(9, 1, 0, (SeenPosition("billing", "other", 0, 8, state),))
    found = groups_readiness(seen, {}, COPIES, {})
    assert (found.exact, found.inexact, found.positions) == (0, 0, ())


def test_retention_has_removed_the_next_record() -> None:
    found = groups_readiness(SeenGroups(9, 1, 1), {"billing": {COPY: 5}}, COPIES, {COPY: (7, 10)})
    (position,) = found.positions
    assert (position.state, position.is_known, found.exact, found.inexact) == ("removed", False, 0, 1)
    assert groups_readiness(SeenGroups(9, 1, 1), {"billing": {COPY: 7}}, COPIES, {COPY: (7, 7)}).inexact == 0


def test_positions_without_room_count_as_unknown() -> None:
    found = groups_readiness(SeenGroups(9, 1, 0, (), 4), {}, COPIES, {})
    assert (found.exact, found.inexact) == (0, 4)


@pytest.mark.parametrize("state", ["waits", "active", "ahead"])
def test_a_group_without_a_position_on_the_target_does_not_have_a_next_record(state: GroupState) -> None:
    seen = SeenGroups(9, 1, 0, (SeenPosition("billing", *PLACE, 8, state),))
    assert groups_readiness(seen, {}, COPIES, {COPY: (0, 10)}).inexact == 1


def test_positions_that_are_no_longer_on_the_target() -> None:
    found = groups_readiness(SeenGroups(9, 1, 3), {"billing": {COPY: 5}}, COPIES, {COPY: (0, 10)})
    assert (found.exact, found.inexact) == (1, 2)
    assert "2 positions that matched on both sides are no longer on the target" in found.note
