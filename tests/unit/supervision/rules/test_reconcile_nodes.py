"""Replicators on several nodes: spread, moved to a node that joins, replaced when one is lost."""

from collections import Counter

import msgspec

from mirrord.config.schema import ReplicatorsConfig
from mirrord.supervision.rules.reconcile import MOVES_AT_ONCE, Assign, Release, StartReplicator
from tests.unit.supervision.rules.test_reconcile import World, world


def nodes_of(mirror: World) -> dict[str, int]:
    """How many replicators there are on which node."""
    return dict(sorted(Counter(host.node for host in mirror.hosts.values()).items()))


def with_nodes(mirror: World, **nodes: int) -> None:
    mirror.wishes = msgspec.structs.replace(mirror.wishes, nodes=nodes)


def test_replicators_and_with_them_lanes_are_spread_over_nodes_by_their_cores() -> None:
    mirror = world(lanes=12, count=4)
    with_nodes(mirror, large=3, small=1)
    mirror.settle()
    mirror.check_settled()
    assert nodes_of(mirror) == {"large": 3, "small": 1}
    assert {len(host.lanes) for host in mirror.hosts.values()} == {3}


def test_a_node_that_comes_gets_replicators_one_at_a_time_and_their_lanes_in_small_steps() -> None:
    mirror = world(lanes=40, count=4)
    with_nodes(mirror, first=2)
    mirror.settle()
    with_nodes(mirror, first=2, second=2)
    moved: list[int] = []
    for _ in range(200):
        steps = mirror.tick()
        moved.append(sum(len(step.lanes) for step in steps if isinstance(step, Release)))
        assert len(mirror.hosts) <= 5, "one at a time"
        busy = [host.name for host in mirror.hosts.values() if host.state != "serving" or host.leaving]
        if not steps and not busy:
            break
        for name in busy:
            mirror.go_on(name)
    assert max(moved) <= MOVES_AT_ONCE
    assert nodes_of(mirror) == {"first": 2, "second": 2}
    assert sum(moved) <= 3 * 20, "what stays on its node moves at most to even out"
    mirror.check_settled()
    assert {len(host.lanes) for host in mirror.hosts.values()} == {10}


def test_a_lost_nodes_lanes_go_to_the_others_at_once() -> None:
    mirror = world(lanes=8, count=4)
    with_nodes(mirror, first=2, second=2)
    mirror.settle()
    for name in [host.name for host in mirror.hosts.values() if host.node == "second"]:
        mirror.die(name)
    with_nodes(mirror, first=2)
    steps = mirror.tick()
    assert sum(len(step.lanes) for step in steps if isinstance(step, Assign)) == 4
    assert [step.node for step in steps if isinstance(step, StartReplicator)] == ["first", "first"]
    mirror.settle()
    mirror.check_settled()


def test_what_is_pinned_alone_or_of_an_unknown_node_stays_where_it_is() -> None:
    mirror = world(lanes=4, count=2)
    with_nodes(mirror, first=2)
    mirror.settle()
    slots = {host.slot: next(iter(host.lanes)) for host in mirror.hosts.values()}
    with_nodes(mirror, first=2, second=2)
    mirror.wishes = msgspec.structs.replace(mirror.wishes, pins={lane: slot for slot, lane in slots.items()})
    assert mirror.tick() == []
    mirror.wishes = msgspec.structs.replace(mirror.wishes, pins={})
    for name, host in list(mirror.hosts.items()):
        mirror.change(host, node="" if host.slot else "first")
        assert name in mirror.hosts
    assert mirror.tick() == []


def test_fewer_replicators_leave_the_fullest_node() -> None:
    mirror = world(lanes=12, count=6)
    with_nodes(mirror, first=2, second=2)
    mirror.settle()
    mirror.config = ReplicatorsConfig(count=2)
    mirror.settle()
    mirror.check_settled()
    assert nodes_of(mirror) == {"first": 1, "second": 1}
