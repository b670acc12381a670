"""The reconciler against a model of replicators that start late, drain slowly, fail to start and die."""

import math
import random
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrord.config.schema import ReplicatorsConfig
from mirrord.model.names import LaneId
from mirrord.supervision.rules.placement import Weights
from mirrord.supervision.rules.reconcile import (
    LANES_AT_ONCE,
    MOVES_AT_ONCE,
    QUIET_AT_ONCE,
    STARTS_AT_ONCE,
    Assign,
    ObservedReplicator,
    ReconcileStep,
    Release,
    StartReplicator,
    StopReplicator,
    Wishes,
    destinations,
    reconcile,
    takers,
)


def lane_ids(count: int, first: int = 0) -> list[LaneId]:
    return [LaneId(f"lane-{number:04}") for number in range(first, first + count)]


class World:
    """Replicators that do what they are told, at `settle` or at random."""

    def __init__(self, config: ReplicatorsConfig, cores: int) -> None:
        self.config = config
        self.cores = cores
        self.desired: list[LaneId] = []
        self.hosts: dict[str, ObservedReplicator] = {}
        self.orphans: set[LaneId] = set()
        self.wishes = Wishes()
        self.started = 0

    def steps(self) -> list[ReconcileStep]:
        hosts = list(self.hosts.values())
        return reconcile(self.desired, hosts, self.config, self.cores, self.orphans, self.wishes)

    def tick(self) -> list[ReconcileStep]:
        steps = self.steps()
        for step in steps:
            self.take(step)
        return steps

    def take(self, step: ReconcileStep) -> None:
        match step:
            case StartReplicator():
                assert all(host.slot != step.slot for host in self.hosts.values() if host.state != "stopping")
                self.started += 1
                name = f"replicator-{step.slot}.{self.started}"
                self.hosts[name] = ObservedReplicator(name, step.slot, "starting", node=step.node)
            case Assign():
                host = self.hosts[step.host]
                assert host.state == "serving"
                for other in self.hosts.values():
                    assert not other.lanes & set(step.lanes), "two replicators for one lane"
                assert 0 < len(step.lanes) <= LANES_AT_ONCE
                self.change(host, lanes=host.lanes | set(step.lanes))
                self.orphans -= set(step.lanes)
            case Release():
                host = self.hosts[step.host]
                assert set(step.lanes) <= host.lanes - host.leaving
                self.change(host, leaving=host.leaving | set(step.lanes))
            case StopReplicator():
                host = self.hosts[step.host]
                assert not host.lanes, "a replicator is stopped with lanes"
                self.change(host, state="stopping")
        assert sum(host.state == "starting" for host in self.hosts.values()) <= STARTS_AT_ONCE

    def change(self, host: ObservedReplicator, **fields: object) -> None:
        self.hosts[host.name] = msgspec.structs.replace(host, **fields)

    def go_on(self, name: str) -> None:
        """The replicator completes what it was doing."""
        host = self.hosts[name]
        if host.state == "starting":
            self.change(host, state="serving")
        elif host.state == "stopping":
            del self.hosts[name]
        else:
            self.change(host, lanes=host.lanes - host.leaving, leaving=frozenset())

    def die(self, name: str) -> None:
        self.orphans |= self.hosts.pop(name).lanes

    def settle(self) -> None:
        for _ in range(1000):
            steps = self.tick()
            busy = [host.name for host in self.hosts.values() if host.state != "serving" or host.leaving]
            for name in busy:
                self.go_on(name)
            if not steps and not busy:
                return
        pytest.fail("no end of steps")

    def homes(self) -> dict[LaneId, str]:
        return {lane: host.name for host in self.hosts.values() for lane in host.lanes}

    def check_settled(self) -> None:
        assert sorted(self.homes()) == sorted(self.desired)
        loads = [len(host.lanes) for host in self.hosts.values()]
        if self.config.partitions_per_replicator != "auto":
            assert max(loads, default=0) <= self.config.partitions_per_replicator
        assert self.steps() == []


AutoOrCount = Literal["auto"] | int


def world(lanes: int, cores: int = 2, count: AutoOrCount = "auto", most: AutoOrCount = "auto") -> World:
    made = World(ReplicatorsConfig(count=count, partitions_per_replicator=most), cores)
    made.desired = lane_ids(lanes)
    return made


def test_a_first_start_waits_for_all_replicators_instead_of_filling_the_first() -> None:
    mirror = world(lanes=10)
    assert mirror.tick() == [StartReplicator(0), StartReplicator(1)]
    assert mirror.tick() == []
    mirror.go_on("replicator-0.1")
    assert mirror.tick() == [Assign("replicator-0.1", tuple(lane_ids(5)))]
    assert mirror.tick() == []
    mirror.go_on("replicator-1.2")
    assert mirror.tick() == [Assign("replicator-1.2", tuple(lane_ids(5, first=5)))]
    assert mirror.tick() == []


def test_a_dead_replicators_lanes_go_to_who_is_there_and_even_out_later() -> None:
    mirror = world(lanes=4)
    mirror.settle()
    lost = mirror.hosts["replicator-0.1"].lanes
    mirror.die("replicator-0.1")
    assert mirror.tick() == [StartReplicator(0), Assign("replicator-1.2", tuple(sorted(lost)))]
    mirror.settle()
    mirror.check_settled()
    assert sorted(len(host.lanes) for host in mirror.hosts.values()) == [2, 2]


def test_with_one_lane_per_replicator_the_orphan_waits_for_the_replacement() -> None:
    mirror = world(lanes=3, most=1)
    mirror.settle()
    assert len(mirror.hosts) == 3
    mirror.die("replicator-1.2")
    assert mirror.tick() == [StartReplicator(1)]
    mirror.settle()
    mirror.check_settled()


def test_new_lanes_disturb_nobody() -> None:
    mirror = world(lanes=4)
    mirror.settle()
    before = mirror.homes()
    mirror.desired = lane_ids(8)
    assert all(isinstance(step, Assign) for step in mirror.tick())
    assert {lane: mirror.homes()[lane] for lane in before} == before
    assert sorted(len(host.lanes) for host in mirror.hosts.values()) == [4, 4]


def test_lanes_that_are_not_wanted_are_drained_and_idle_replicators_leave() -> None:
    mirror = world(lanes=4)
    mirror.settle()
    mirror.desired = []
    assert {type(step) for step in mirror.tick()} == {Release}
    mirror.settle()
    assert mirror.hosts == {}


def test_a_lane_that_is_leaving_is_not_given_away() -> None:
    mirror = world(lanes=1, cores=1)
    mirror.settle()
    mirror.desired = []
    mirror.tick()
    mirror.desired = lane_ids(1)
    assert mirror.tick() == []
    mirror.settle()
    mirror.check_settled()


def test_steps_are_bounded() -> None:
    mirror = world(lanes=2000, most=1)
    assert len(mirror.tick()) == STARTS_AT_ONCE
    mirror = world(lanes=2000, count=2)
    mirror.settle()
    mirror.check_settled()
    mirror.die("replicator-0.1")
    mirror.tick()
    mirror.go_on("replicator-0.3")
    releases = mirror.tick()
    assert sum(len(step.lanes) for step in releases if isinstance(step, Release)) == MOVES_AT_ONCE


def test_a_spare_hosts_nothing_until_somebody_dies() -> None:
    mirror = World(ReplicatorsConfig(count=2, spares=1), 4)
    mirror.desired = lane_ids(6)
    mirror.settle()
    assert sorted(len(host.lanes) for host in mirror.hosts.values()) == [0, 3, 3]
    victim = next(host for host in mirror.hosts.values() if host.lanes)
    spare = next(host for host in mirror.hosts.values() if not host.lanes)
    mirror.die(victim.name)
    mirror.tick()
    assert mirror.hosts[spare.name].lanes == victim.lanes
    mirror.settle()
    mirror.check_settled()
    assert sorted(len(host.lanes) for host in mirror.hosts.values()) == [0, 3, 3]


def test_a_lane_that_is_to_be_alone_is() -> None:
    mirror = world(lanes=5, count=2)
    mirror.settle()
    hot = lane_ids(5)[2]
    mirror.wishes = Wishes(alone=frozenset({hot}))
    mirror.settle()
    assert sorted(len(host.lanes) for host in mirror.hosts.values()) == [1, 2, 2]
    assert next(host.lanes for host in mirror.hosts.values() if hot in host.lanes) == {hot}
    mirror.die(mirror.homes()[hot])
    mirror.settle()
    mirror.check_settled()
    mirror.wishes = Wishes()
    mirror.settle()
    mirror.check_settled()
    assert len(mirror.hosts) == 2


def test_loads_are_evened_out_by_what_lanes_carry() -> None:
    mirror = world(lanes=8, count=2)
    mirror.settle()
    first = min(mirror.hosts.values(), key=lambda host: host.name)
    heavy = sorted(first.lanes)[:2]
    mirror.wishes = Wishes(Weights(dict.fromkeys(heavy, 50.0), unknown=1.0))
    mirror.settle()
    assert len({mirror.homes()[lane] for lane in heavy}) == 2
    before = mirror.homes()
    # Small differences move nothing.
    mirror.wishes = Wishes(Weights({heavy[0]: 53.0, heavy[1]: 47.0}, unknown=1.0))
    mirror.settle()
    assert mirror.homes() == before
    mirror.wishes = Wishes(Weights({heavy[0]: 500.0}, unknown=1.0), even_out=False)
    assert mirror.steps() == []


def test_a_new_replicator_gets_its_share_without_pauses_and_a_spare_is_none() -> None:
    mirror = World(ReplicatorsConfig(count=1, spares=1), 4)
    mirror.desired = lane_ids(40)
    mirror.settle()
    mirror.wishes = Wishes(even_out=False)
    assert mirror.steps() == []
    mirror.config = ReplicatorsConfig(count=2, spares=1)
    mirror.settle()
    # So many that it no longer counts as new; the rest follows after the next pause.
    assert sorted(len(host.lanes) for host in mirror.hosts.values()) == [0, 12, 28]
    mirror.wishes = Wishes()
    mirror.settle()
    assert sorted(len(host.lanes) for host in mirror.hosts.values()) == [0, 20, 20]


def slots(mirror: World) -> dict[LaneId, int]:
    return {lane: host.slot for host in mirror.hosts.values() for lane in host.lanes}


def test_a_pinned_lane_goes_where_it_is_wanted_and_no_other_one_moves() -> None:
    mirror = world(lanes=6, count=2)
    mirror.settle()
    before = slots(mirror)
    lane = next(lane for lane, slot in before.items() if slot == 0)
    mirror.wishes = Wishes(pins={lane: 1})
    (release,) = mirror.tick()
    assert release == Release("replicator-0.1", (lane,))
    mirror.go_on("replicator-0.1")
    assert mirror.tick() == [Assign("replicator-1.2", (lane,))]
    # Two lanes here, four there: moving one would serve no wish.
    mirror.settle()
    mirror.check_settled()
    assert slots(mirror)[lane] == 1
    mirror.wishes = Wishes()
    mirror.settle()
    assert sorted(len(host.lanes) for host in mirror.hosts.values()) == [3, 3]


def test_where_lanes_that_leave_will_go_is_known_before_they_leave() -> None:
    mirror = world(lanes=6, count=2)
    mirror.settle()
    hosts = list(mirror.hosts.values())
    lane, other = (min(host.lanes) for host in hosts)
    wishes = Wishes(pins={lane: hosts[1].slot, other: hosts[0].slot})
    known = (mirror.desired, hosts, mirror.config, mirror.cores, wishes)
    assert destinations([lane, other], *known) == {hosts[1].name: [lane], hosts[0].name: [other]}
    assert destinations([lane], *known) == {hosts[1].name: [lane]}
    assert destinations([LaneId("nobody wants it")], *known) == {}
    alone = (mirror.desired, hosts[:1], mirror.config, mirror.cores, Wishes(drained=frozenset({hosts[0].name})))
    assert destinations([lane], *alone) == {}


def test_what_is_pinned_does_not_even_out_and_others_do() -> None:
    mirror = world(lanes=9, count=3)
    mirror.wishes = Wishes(pins=dict.fromkeys(lane_ids(5), 0))
    mirror.settle()
    mirror.check_settled()
    assert sorted(len(host.lanes) for host in mirror.hosts.values()) == [2, 2, 5]
    mirror.desired = [*lane_ids(5), *lane_ids(8, first=20)]
    mirror.settle()
    assert {slots(mirror)[lane] for lane in lane_ids(5)} == {0}
    assert sorted(len(host.lanes) for host in mirror.hosts.values()) == [4, 4, 5]


def test_a_pinned_lane_does_not_stand_still_while_its_replicator_is_dead() -> None:
    mirror = world(lanes=4, count=2)
    mirror.wishes = Wishes(pins={lane_ids(1)[0]: 1})
    mirror.settle()
    mirror.die("replicator-1.2")
    mirror.tick()
    assert slots(mirror)[lane_ids(1)[0]] == 0
    mirror.settle()
    mirror.check_settled()
    assert slots(mirror)[lane_ids(1)[0]] == 1


def test_a_pin_to_where_nobody_is_or_to_a_spare_is_no_more_than_a_wish() -> None:
    mirror = World(ReplicatorsConfig(count=2, spares=1), 4)
    mirror.desired = lane_ids(4)
    mirror.settle()
    spare = next(host for host in mirror.hosts.values() if not host.lanes)
    before = mirror.homes()
    mirror.wishes = Wishes(pins={lane_ids(1)[0]: spare.slot, lane_ids(2)[1]: 7})
    assert mirror.steps() == []
    assert mirror.homes() == before


def test_a_full_replicator_takes_no_pinned_lane() -> None:
    mirror = world(lanes=4, count=2, most=2)
    mirror.settle()
    lane = next(lane for lane, slot in slots(mirror).items() if slot == 0)
    mirror.wishes = Wishes(pins={lane: 1})
    assert mirror.steps() == []


@pytest.mark.parametrize("why", ["drained", "too many"])
def test_lanes_that_carry_next_to_nothing_leave_together_and_before_the_others(why: str) -> None:
    mirror = world(lanes=200, count=2)
    mirror.settle()
    leaving = sorted(lane for lane, name in mirror.homes().items() if name == "replicator-1.2")
    # A lane of unknown rate may carry much.
    rates = {lane: 100.0 for lane in lane_ids(200) if lane != leaving[-1]} | dict.fromkeys(leaving[:9], 5_000.0)
    weights = Weights(rates, 100.0)
    mirror.wishes = Wishes(weights=weights, even_out=False)
    if why == "drained":
        mirror.wishes = Wishes(weights=weights, even_out=False, drained=frozenset({"replicator-1.2"}))
    else:
        mirror.config = ReplicatorsConfig(count=1)
    rounds: list[int] = []
    while "replicator-1.2" in mirror.homes().values():
        for release in mirror.tick():
            if isinstance(release, Release):
                quiet = {lane for lane in release.lanes if rates.get(lane, math.inf) <= 100.0}
                assert len(release.lanes) <= (QUIET_AT_ONCE if quiet == set(release.lanes) else MOVES_AT_ONCE)
                rounds.append(len(release.lanes))
        for host in [host for host in mirror.hosts.values() if host.leaving]:
            mirror.go_on(host.name)
    assert rounds == [32, 32, 26, 4, 4, 2]


def test_a_drained_replicator_is_emptied_a_few_lanes_at_a_time_and_stays_empty() -> None:
    mirror = world(lanes=12, count=2)
    mirror.settle()
    mirror.wishes = Wishes(drained=frozenset({"replicator-0.1"}))
    (release,) = mirror.tick()
    assert isinstance(release, Release)
    assert len(release.lanes) == MOVES_AT_ONCE
    mirror.settle()
    assert mirror.homes() == dict.fromkeys(lane_ids(12), "replicator-1.2")
    assert len(mirror.hosts) == 2
    mirror.desired = lane_ids(14)
    mirror.settle()
    assert set(mirror.homes().values()) == {"replicator-1.2"}
    mirror.wishes = Wishes()
    mirror.settle()
    assert sorted(len(host.lanes) for host in mirror.hosts.values()) == [7, 7]


def test_the_only_replicator_is_drained_into_another_one() -> None:
    mirror = world(lanes=3, count=1)
    mirror.settle()
    mirror.wishes = Wishes(drained=frozenset({"replicator-0.1"}))
    assert mirror.tick() == [StartReplicator(1)]
    assert mirror.tick() == []
    mirror.settle()
    assert set(mirror.homes().values()) == {"replicator-1.2"}
    mirror.die("replicator-0.1")
    mirror.settle()
    assert list(mirror.hosts) == ["replicator-1.2"]


def test_a_replacement_of_a_drained_replicator_gets_lanes() -> None:
    mirror = world(lanes=4, count=2)
    mirror.settle()
    mirror.wishes = Wishes(drained=frozenset({"replicator-0.1"}))
    mirror.settle()
    mirror.die("replicator-0.1")
    mirror.settle()
    assert sorted(len(host.lanes) for host in mirror.hosts.values()) == [2, 2]


def test_a_lane_that_is_to_be_alone_leaves_a_drained_replicator_for_one_of_its_own() -> None:
    mirror = world(lanes=5, count=2)
    hot = lane_ids(5)[2]
    mirror.wishes = Wishes(alone=frozenset({hot}))
    mirror.settle()
    mirror.wishes = msgspec.structs.replace(mirror.wishes, drained=frozenset({mirror.homes()[hot]}))
    mirror.settle()
    assert next(host.lanes for host in mirror.hosts.values() if hot in host.lanes) == {hot}
    assert mirror.homes()[hot] not in mirror.wishes.drained


def test_who_may_be_given_lanes() -> None:
    mirror = World(ReplicatorsConfig(count=2, spares=1, partitions_per_replicator=3), 4)
    mirror.desired = lane_ids(5)
    mirror.settle()
    mirror.wishes = Wishes()
    found = takers(mirror.desired, list(mirror.hosts.values()), mirror.config, 4, mirror.wishes)
    by_lanes = {name: len(mirror.hosts[name].lanes) for name in found}
    assert sorted(by_lanes.values()) == [2, 3]
    assert {by_lanes[name]: free for name, free in found.items()} == {2: True, 3: False}


def test_fewer_replicators_drain_the_one_that_is_too_many() -> None:
    mirror = world(lanes=9, count=3)
    mirror.settle()
    mirror.config = ReplicatorsConfig(count=2)
    assert sum(isinstance(step, Release) for step in mirror.tick()) == 1
    mirror.settle()
    mirror.check_settled()
    assert sorted(len(host.lanes) for host in mirror.hosts.values()) == [4, 5]


@given(
    st.integers(0, 2**32 - 1),
    st.just("auto") | st.integers(1, 5),
    st.just("auto") | st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 2),
)
def test_never_two_replicators_for_one_lane_whatever_happens(
    chance_seed: int, count: AutoOrCount, most: AutoOrCount, cores: int, spares: int
) -> None:
    chance = random.Random(chance_seed)
    mirror = world(chance.randrange(12), cores, count, most)
    mirror.config = msgspec.structs.replace(mirror.config, spares=spares)
    weights = {lane: chance.choice((1.0, 1.0, 10.0, 90.0)) for lane in lane_ids(12)}
    alone = frozenset(chance.sample(lane_ids(12), chance.randrange(3)))
    mirror.wishes = Wishes(Weights(weights if chance.random() < 0.5 else {}), alone)
    for _ in range(60):
        names = sorted(mirror.hosts)
        match chance.randrange(9):
            case 8:
                nodes = {node: chance.randrange(1, 4) for node in chance.sample("abc", chance.randrange(4))}
                mirror.wishes = msgspec.structs.replace(mirror.wishes, nodes=nodes)
            case 6:
                pins = {lane: chance.randrange(4) for lane in chance.sample(lane_ids(12), chance.randrange(4))}
                mirror.wishes = msgspec.structs.replace(mirror.wishes, pins=pins)
            case 7 if names:
                drained = frozenset(chance.sample(names, chance.randrange(min(3, len(names) + 1))))
                mirror.wishes = msgspec.structs.replace(mirror.wishes, drained=drained)
            case 0 if names:
                mirror.die(chance.choice(names))
            case 1:
                mirror.desired = sorted(chance.sample(lane_ids(12), chance.randrange(12)))
            case 2 | 3 if names:
                mirror.go_on(chance.choice(names))
            case _:
                mirror.tick()
    mirror.settle()
    mirror.check_settled()
    homes = mirror.homes()
    assert not any(mirror.hosts[host].lanes for host in mirror.wishes.drained & mirror.hosts.keys())
    mirror.settle()
    assert mirror.homes() == homes
