"""For which positions of consumer groups the next record on the target is known."""

import pytest

from mirrord.ledger.facts.last_seen import SeenPosition
from mirrord.ledger.last_seen.group_positions import SeenGroups
from mirrord.model.group_status import GroupState
from mirrord.model.readiness import GroupsReadiness
from mirrord.recovery.rules.groups import Commits, PositionTally, TargetBounds

COPY, PLACE = ("eu.orders", 0), ("orders", 0)
COPIES = {COPY: PLACE}
ONE = {("billing", "orders"): 1}


def readiness(
    seen: SeenGroups,
    commits: Commits,
    bounds: TargetBounds = {COPY: (0, 10)},  # noqa: B006 - nothing changes it
    *,
    is_expired: bool = False,
) -> GroupsReadiness:
    tally = PositionTally(seen, commits, COPIES, bounds, lambda *_: is_expired)
    assert list(tally.groups()) == list(commits)
    return tally.result()


def test_a_position_that_matched_is_known_from_the_target() -> None:
    found = readiness(SeenGroups(9, 1, ONE), {"billing": {COPY: 5, ("other", 0): 7}})
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
    seen = SeenGroups(9, 1, {}, (SeenPosition("billing", *PLACE, 8, state, "why"),))
    found = readiness(seen, {"billing": {COPY: 5}})
    (position,) = found.positions
    assert (position.is_known, position.source_offset, position.target_offset) == (is_known, 8, 5)
    assert (found.exact, found.inexact) == (int(is_known), int(not is_known))


def test_retention_has_removed_the_next_record() -> None:
    found = readiness(SeenGroups(9, 1, ONE), {"billing": {COPY: 5}}, {COPY: (7, 10)})
    (position,) = found.positions
    assert (position.state, position.is_known, found.exact, found.inexact) == ("removed", False, 0, 1)
    assert readiness(SeenGroups(9, 1, ONE), {"billing": {COPY: 7}}, {COPY: (7, 7)}).inexact == 0


def test_a_record_that_both_clusters_have_removed_changes_nothing_for_the_group() -> None:
    found = readiness(SeenGroups(9, 1, ONE), {"billing": {COPY: 5}}, {COPY: (7, 10)}, is_expired=True)
    assert (found.exact, found.inexact, found.positions) == (1, 0, ())
    seen = SeenGroups(9, 1, {}, (SeenPosition("billing", *PLACE, 8, "active"),))
    found = readiness(seen, {"billing": {COPY: 5}}, {COPY: (7, 10)}, is_expired=True)
    assert (found.exact, found.inexact, found.positions[0].state) == (1, 0, "active")
    found = readiness(seen, {"billing": {COPY: 5}}, {COPY: (7, 10)})
    assert (found.exact, found.inexact, found.positions[0].state) == (0, 1, "removed")


def test_positions_without_room_count_as_unknown() -> None:
    found = readiness(SeenGroups(9, 1, {}, (), 4), {})
    assert (found.exact, found.inexact) == (0, 4)


@pytest.mark.parametrize("state", ["waits", "active", "ahead"])
def test_a_group_without_a_position_on_the_target_does_not_have_a_next_record(state: GroupState) -> None:
    seen = SeenGroups(9, 1, {}, (SeenPosition("billing", *PLACE, 8, state),))
    assert readiness(seen, {}).inexact == 1


def test_positions_that_are_no_longer_on_the_target() -> None:
    found = readiness(SeenGroups(9, 1, {("billing", "orders"): 3}), {"billing": {COPY: 5}})
    assert (found.exact, found.inexact) == (1, 2)
    assert "2 positions that matched on both sides are no longer on the target" in found.note


def test_positions_of_other_groups_do_not_stand_in_for_those_that_are_gone() -> None:
    found = readiness(SeenGroups(9, 2, ONE | {("audit", "orders"): 1}), {"billing": {COPY: 5}, "local": {COPY: 5}})
    assert (found.exact, found.inexact) == (2, 1)


def test_positions_in_topics_that_are_not_copied_are_ignored() -> None:
    seen = SeenGroups(9, 1, ONE | {("billing", "gone"): 2}, (SeenPosition("billing", "gone", 0, 8, "unknown"),))
    found = readiness(seen, {"billing": {COPY: 5}})
    assert (found.exact, found.inexact, found.positions, found.note) == (1, 0, (), "")
