"""Which lane is halted because it ends its replicator again and again, and which are not."""

import random

import pytest

from mirrord.config.schema import ReplicatorsConfig
from mirrord.model.names import LaneId
from mirrord.supervision.rules.reconcile import Assign, ObservedReplicator, StartReplicator, Wishes, reconcile
from mirrord.supervision.rules.suspect_lanes import (
    MOST_ALONE,
    SURVIVED_S,
    Arrangement,
    Lived,
    Suspicion,
    after_death,
    arrange,
    is_cleared,
    to_halt,
)

A, B, C = LaneId("a"), LaneId("b"), LaneId("c")


def lanes(*names: LaneId, position: int = 7, ran_s: float = 1.0) -> dict[LaneId, Lived]:
    return dict.fromkeys(names, Lived(position, ran_s))


def test_a_lane_that_was_alone_in_two_more_deaths_at_the_same_offset_is_halted() -> None:
    known = after_death({}, lanes(A, B))
    known = after_death(known, lanes(A))
    assert to_halt(known) == frozenset()
    known = after_death(known, lanes(A))
    assert to_halt(known) == {A}


def test_two_kills_of_the_only_lane_do_not_halt_it() -> None:
    known = after_death(after_death({}, lanes(A)), lanes(A))
    assert to_halt(known) == frozenset()
    assert to_halt(after_death(known, lanes(A))) == {A}


def test_deaths_at_different_offsets_halt_nothing() -> None:
    known = after_death({}, lanes(A, position=7))
    for position in range(8, 20):
        known = after_death(known, lanes(A, position=position))
        assert to_halt(known) == frozenset()
        assert known[A].deaths == 1


def test_an_offset_that_is_known_too_late_is_progress_and_a_lower_one_is_not() -> None:
    """The last progress record may be older than what the lane had done."""
    known = after_death(after_death({}, lanes(A, position=7)), lanes(A, position=3))
    assert known[A] == Suspicion(7, 2, 2)


def test_deaths_in_company_never_halt_a_lane() -> None:
    known: dict[LaneId, Suspicion] = {}
    for _ in range(10):
        known = after_death(known, lanes(A, B, C))
        assert to_halt(known) == frozenset()


def test_two_kills_within_a_second_halt_nothing_of_several_lanes() -> None:
    known = after_death(after_death({}, lanes(A, B, C, ran_s=0.3)), lanes(A, B, C, ran_s=0.3))
    assert to_halt(known) == frozenset()
    assert arrange(known, ()) == Arrangement(held=frozenset({C}))


def test_a_first_death_changes_nothing_for_its_lanes() -> None:
    assert arrange(after_death({}, lanes(A, B)), ()) == Arrangement()


def test_the_death_of_a_replicator_that_ran_for_long_is_the_first_at_most() -> None:
    known = after_death({}, lanes(A))
    known = after_death(known, lanes(A, ran_s=SURVIVED_S))
    assert known == {A: Suspicion(7, 1, 0)}
    assert to_halt(after_death(known, lanes(A))) == frozenset()


def test_a_lane_that_could_not_copy_yet_has_caused_no_death() -> None:
    """It waits until its previous holder can no longer write."""
    known = after_death({}, lanes(A))
    assert after_death(known, lanes(A, ran_s=-0.1)) == known
    assert after_death({}, lanes(A, ran_s=-0.1)) == {}


def test_a_lane_without_anything_to_copy_has_caused_no_death() -> None:
    known = after_death({}, lanes(A))
    assert after_death(known, {A: Lived(7, 1.0, has_all=True)}) == {}


def test_company_in_between_begins_the_count_of_lonely_deaths_again() -> None:
    known = after_death(after_death({}, lanes(A)), lanes(A, B))
    assert known[A] == Suspicion(7, 2, 0)
    assert to_halt(after_death(known, lanes(A))) == frozenset()


def test_the_death_of_another_replicator_at_the_same_time_speaks_for_another_cause() -> None:
    known = after_death({}, lanes(A), others_died=True)
    assert known[A] == Suspicion(7, 1, 0)


def test_the_death_of_another_replicator_in_between_speaks_for_another_cause() -> None:
    known = after_death(after_death({}, lanes(A)), lanes(B))
    assert known[A] == Suspicion(7, 1, 0)
    known = after_death(known, lanes(A))
    assert known[A] == Suspicion(7, 2, 1)
    known = after_death(after_death(known, lanes(A)), lanes(B))
    assert to_halt(known) == {A}


@pytest.mark.parametrize(
    ("lived", "cleared"),
    [
        (Lived(7, 1.0), False),
        (Lived(6, 1.0), False),
        (Lived(8, 1.0), True),
        (Lived(7, 1.0, has_all=True), True),
        (Lived(7, SURVIVED_S), True),
    ],
)
def test_what_clears_a_lane(lived: Lived, *, cleared: bool) -> None:
    assert is_cleared(Suspicion(7, 2), lived) == cleared


def test_at_most_half_of_the_suspects_run_until_they_are_cleared() -> None:
    names = [LaneId(f"{number:02}") for number in range(9)]
    known = {name: Suspicion(7, 2) for name in names}
    first = arrange(known, ())
    assert (len(first.held), first.alone) == (4, frozenset())
    running = set(names) - first.held
    assert arrange(known, running) == first
    for name in sorted(running):
        del known[name]
        running.discard(name)
        held = arrange(known, running).held
        running |= known.keys() - held
        assert len(running) <= (len(known) + 1) // 2


def test_the_last_suspect_is_alone_and_the_others_wait() -> None:
    known = {A: Suspicion(7, 3), B: Suspicion(7, 2), C: Suspicion(7, 1)}
    assert arrange(known, ()) == Arrangement(frozenset({A}), frozenset({B}))
    assert arrange(known, {B, C}) == Arrangement(frozenset({A}))
    known[A] = Suspicion(7, 5, MOST_ALONE)
    assert arrange(known, ()) == Arrangement(alone=frozenset({B}))


@pytest.mark.parametrize(("count", "bads"), [(1, 1), (2, 1), (3, 1), (8, 1), (50, 1), (2, 2), (9, 3), (10, 10)])
def test_bad_lanes_are_found_and_no_other_is_halted(count: int, bads: int, seed: int) -> None:
    """Two replicators; a replicator that gets a bad lane dies, and the lanes of all others make progress."""
    chance = random.Random(seed)
    names = [LaneId(f"{number:03}") for number in range(count)]
    bad = set(chance.sample(names, bads))
    known: dict[LaneId, Suspicion] = {}
    for _ in range(bads * (count.bit_length() + 6)):
        halted = to_halt(known)
        assert halted <= bad
        if halted == bad:
            return
        placed = arrange(known, ())
        running = [name for name in names if name not in placed.held | halted]
        hosts: list[list[LaneId]] = [[], []]
        for name in running:
            if name not in placed.alone:
                chance.choice(hosts).append(name)
        hosts += [[name] for name in sorted(placed.alone)]
        for host in hosts:
            if bad.intersection(host):
                known = after_death(known, lanes(*host))
            else:
                known = {name: each for name, each in known.items() if name not in host}
    raise AssertionError("not all bad lanes were found")


def test_a_lane_that_begins_to_be_alone_while_all_replicators_have_lanes_gets_one_more() -> None:
    def host(slot: int, *held: LaneId) -> ObservedReplicator:
        return ObservedReplicator(f"r{slot}", slot, "serving", frozenset(held))

    hosts, hot = [host(0, A), host(1, B), host(2, C)], LaneId("d")
    given = ReplicatorsConfig(count=2), 2, (), Wishes(alone=frozenset({hot}))
    assert reconcile([A, B, C, hot], hosts, *given) == [StartReplicator(3)]
    assert reconcile([A, B, C, hot], [*hosts, host(3)], *given) == [Assign("r3", (hot,))]
    settled = reconcile([A, B, C, hot], [*hosts, host(3, hot)], *given)
    assert not any(isinstance(step, Assign | StartReplicator) for step in settled)
