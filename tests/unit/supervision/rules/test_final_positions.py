"""The final positions of consumer groups on the target."""

from collections.abc import Mapping

import pytest

from mirrord.config.flow_features import GroupsConfig, GroupsMode
from mirrord.ledger.facts.core import LaneTaken, LeaseTaken, Progress, SourceRun, TargetRun
from mirrord.ledger.fold import fold
from mirrord.ledger.offset_map import CopiedPosition, LaneMap
from mirrord.ledger.state import FlowState
from mirrord.model.group_status import GroupState
from mirrord.model.runs import Run
from mirrord.supervision.rules.final_positions import (
    CopiedPlace,
    FinalPlan,
    SourceCommit,
    final_plan,
    summary,
    with_commits,
)
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

LANE, COPY = lane_id(0), ("eu.orders", 0)


def places() -> dict[tuple[str, int], CopiedPlace]:
    """A lane that has copied the source offsets 0 to 9 to the target offsets 100 to 109."""
    made = FlowState()
    runs = SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 100, 0)
    entries = (entry(FLOW), entry(LeaseTaken(1, HOLDER, 6_000)), entry(opened(0), LaneTaken(LANE, 1, "r-1"), *runs))
    for offset, each in enumerate(entries):
        fold(made, each, offset)
    progress = Progress(LANE, 1, 1, 10, 110, 0, 10, 10, 1, 1, protected=True, state="drained", settled=True)
    return {("orders", 0): CopiedPlace(*COPY, LaneMap(made.lanes[LANE], CopiedPosition.by(progress)))}


def commit(state: GroupState, offset: int, topic: str = "orders", why: str = "") -> SourceCommit:
    return SourceCommit("billing", topic, 0, offset, state, why)


def planned(
    position: SourceCommit,
    target: int | None,
    *,
    busy: bool = False,
    mode: GroupsMode = "follow",
    both_ways: bool = False,
    reverse: bool = False,
    is_complete: bool = True,
) -> FinalPlan:
    known = {where: place._replace(is_complete=is_complete) for where, place in places().items()}
    committed: Mapping[str, Mapping[tuple[str, int], int]] = {"billing": {} if target is None else {COPY: target}}
    groups = GroupsConfig(mode=mode, both_ways=both_ways, reverse=reverse)
    return final_plan([position], known, committed, ["billing"] if busy else [], groups)


@pytest.mark.parametrize(
    ("position", "target", "committed"),
    [
        (commit("in step", 7), 107, None),
        (commit("waits", 15), 110, None),
        (commit("waits", 15), 108, 110),
        (commit("waits", 15), None, 110),
        (commit("in step", 7), 106, 107),
        (commit("unknown", 7), None, 107),
        (commit("waits", 7), 109, None),
        (commit("behind", 3), 109, 103),
        (commit("ahead", 3), 109, None),
        (commit("ahead", 3), None, 103),
        (commit("ahead", 7), 105, 107),
    ],
)
def test_a_position_becomes_what_the_final_map_gives(
    position: SourceCommit, target: int | None, committed: int | None
) -> None:
    plan = planned(position, target)
    assert plan.commits == ({} if committed is None else {"billing": {COPY: committed}})
    assert (plan.exact, plan.active, plan.open) == (1, 0, ())


def test_positions_are_moved_back_only_if_the_group_has_gone_back() -> None:
    assert planned(commit("behind", 3), 109, mode="forward-only").commits == {}
    assert planned(commit("in step", 3), 109).commits == {}


def test_groups_that_use_the_target_are_left_alone() -> None:
    plan = planned(commit("waits", 15), 108, busy=True)
    assert (plan.commits, plan.exact, plan.active) == ({}, 0, 1)


@pytest.mark.parametrize("state", ["expired", "not copied"])
def test_positions_that_do_not_matter(state: GroupState) -> None:
    assert planned(commit(state, 7), None) == FinalPlan({}, 0, 0, ())
    assert planned(commit("waits", 7, topic="bills"), None) == FinalPlan({}, 0, 0, ())


def test_a_group_that_has_gone_back_on_the_target_stays_there() -> None:
    assert not planned(commit("ahead", 7), 105, reverse=True).commits


@pytest.mark.parametrize(("offset", "target", "committed"), [(15, 108, 110), (15, 112, None), (7, 105, 107)])
def test_a_position_behind_the_known_records_is_not_exact(offset: int, target: int, committed: int | None) -> None:
    plan = planned(commit("waits", offset), target, is_complete=False)
    assert plan.commits == ({} if committed is None else {"billing": {COPY: committed}})
    assert (plan.exact, len(plan.open)) == ((0, 1) if offset > 10 else (1, 0))


def test_positions_that_are_not_known_are_named() -> None:
    assert planned(commit("refused", 7, why="no READ"), None).open == ("billing in orders-0: no READ",)
    assert planned(commit("behind", -1), 5).open != ()


def test_positions_of_two_flows_are_never_moved_by_one_map() -> None:
    plan = planned(commit("waits", 15, why="it is not known yet"), 100, both_ways=True)
    assert (plan.commits, plan.exact, plan.open) == ({}, 0, ("billing in orders-0: it is not known yet",))
    assert planned(commit("in step", 7), 55, both_ways=True).exact == 1


def test_the_commits_of_the_source_are_newer_than_what_was_examined() -> None:
    known = [commit("in step", 7), commit("waits", 15)._replace(partition=1)]
    commits = {"billing": {("orders", 0): 8, ("orders", 1): 15}, "audit": {("orders", 0): 4}}
    assert with_commits(known, commits) == [
        commit("behind", 8),
        commit("waits", 15)._replace(partition=1),
        SourceCommit("audit", "orders", 0, 4, "waits"),
    ]


def test_the_summary_counts_and_names() -> None:
    assert summary(3, 0, ()) == "3 positions are known exactly"
    lines = [f"group {number}" for number in range(7)]
    found = summary(3, 2, lines)
    assert "2 were left unchanged, because their groups already use the target" in found
    assert found.endswith("7 are not known: group 0; group 1; group 2; group 3; group 4 and 2 more")
