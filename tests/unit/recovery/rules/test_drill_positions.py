"""Which positions of consumer groups a drill compares."""

import pytest

from mirrord.config.flow_features import GroupsConfig, GroupsMode
from mirrord.ledger.facts.last_seen import SeenPosition
from mirrord.model.group_status import GroupState
from mirrord.recovery.rules.drill_positions import BothCommits, DrillPlan, lags, plan_positions, unlisted
from mirrord.recovery.rules.drill_verdicts import DrillPosition
from mirrord.supervision.rules.final_positions import CopiedPlace
from tests.unit.recovery.rules.test_drill_verdicts import lane_map

COPY, PLACE = ("eu.orders", 0), ("orders", 0)
PLACES = {PLACE: CopiedPlace(*COPY, lane_map())}


def commits(source: int, target: int | None, later: int | None = None, *, busy: bool = False) -> BothCommits:
    on_target = {"billing": {} if target is None else {COPY: target}}
    return BothCommits(
        {"billing": {PLACE: source, ("other", 0): 1}},
        {"billing": {PLACE: source if later is None else later, ("other", 0): 1}},
        on_target,
        frozenset(["billing"] if busy else []),
    )


def plan(
    found: BothCommits,
    state: GroupState | None = None,
    *,
    mode: GroupsMode = "follow",
    both_ways: bool = False,
    reverse: bool = False,
) -> DrillPlan:
    seen = [] if state is None else [SeenPosition("billing", *PLACE, 3, state, "why")]
    groups = GroupsConfig(mode=mode, both_ways=both_ways, reverse=reverse)
    return plan_positions(found, PLACES, seen, groups)


def position(target: int | None, source: int = 3, later: int = 3) -> DrillPosition:
    return DrillPosition("billing", *PLACE, source, later, target)


def test_a_position_with_the_commits_before_and_after() -> None:
    assert plan(commits(3, 104, 5)) == DrillPlan((position(104, 3, 5),), 0, 0, {})


@pytest.mark.parametrize(
    ("state", "mode", "target"),
    [
        ("waits", "follow", 103),
        ("behind", "follow", 103),
        ("behind", "forward-only", None),
        ("ahead", "follow", 103),
        ("ahead", "forward-only", None),
    ],
)
def test_a_position_that_stays_as_it_is_does_not_have_to_match(
    state: GroupState, mode: GroupsMode, target: int | None
) -> None:
    assert plan(commits(3, 103), state, mode=mode).positions == (position(target),)


def test_a_position_that_is_ahead_may_come_from_the_groups_themselves_on_the_target() -> None:
    found = plan(commits(3, 108), "ahead", reverse=True)
    assert (found.positions, found.kept) == ((position(None),), 1)


def test_with_both_ways_only_the_map_is_compared() -> None:
    assert plan(commits(3, None), both_ways=True).positions == (position(None),)


def test_groups_with_members_on_the_target_are_left_alone() -> None:
    assert plan(commits(3, None, busy=True)) == DrillPlan((), 1, 0, {})


@pytest.mark.parametrize(
    ("found", "state", "line"),
    [
        (commits(3, None), None, "it has no position on the target"),
        (commits(3, 103), "unsure", "why"),
        (commits(3, 103), "refused", "why"),
        (commits(3, 103), "unknown", "why"),
    ],
)
def test_positions_that_cannot_be_used(found: BothCommits, state: GroupState | None, line: str) -> None:
    assert plan(found, state) == DrillPlan((), 0, 0, {"billing orders 0": f"group billing in orders-0 at 3: {line}"})


def test_a_position_of_a_group_that_is_gone_is_omitted() -> None:
    assert plan(commits(3, 103)._replace(later={})) == DrillPlan((), 0, 0, {})


@pytest.mark.parametrize(
    ("found", "lagging"),
    [
        (commits(3, 102), True),
        (commits(3, None), True),
        (commits(3, 103), False),
        (commits(3, 107), False),
        (commits(20, 105), True),
        (commits(11, 105), False),
        (commits(3, 102, busy=True), False),
    ],
)
def test_positions_that_the_target_does_not_show_yet(found: BothCommits, lagging: bool) -> None:
    assert list(lags(found, PLACES, both_ways=False)) == ([("billing", PLACE)] if lagging else [])


def test_a_group_whose_offsets_are_refused_is_a_finding_and_the_others_are_compared() -> None:
    both = commits(3, 103)._replace(refused={"other": "eu does not return its offsets: X"})
    found = plan(both)
    assert found.positions == (position(103),)
    assert found.findings == {"other refused": "group other: eu does not return its offsets: X"}


def test_groups_that_are_followed_but_not_listed_are_a_finding() -> None:
    assert unlisted({"a"}, ["a", "b"]) == {}
    (line,) = unlisted({"a", "b", "c"}, ["a"]).values()
    assert line == "the source does not list group b and 1 more groups: DESCRIBE may be missing on it"
