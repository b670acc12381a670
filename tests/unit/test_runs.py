import random

import pytest

from mirrord.model.runs import Run, Runs


def runs(*pairs: tuple[int, int]) -> Runs:
    return Runs(Run(ordinal, offset) for ordinal, offset in pairs)


def test_a_run_that_only_goes_on_is_not_stored() -> None:
    assert runs((0, 10), (5, 15), (7, 20)) == runs((0, 10), (7, 20))


def test_a_newer_run_supersedes_those_at_and_behind_its_ordinal() -> None:
    lane = runs((0, 10), (7, 20), (9, 30))
    lane.add(8, 25)
    assert lane == runs((0, 10), (7, 20), (8, 25))
    lane.add(7, 17)
    assert lane == runs((0, 10))


def test_offsets_of_ordinals() -> None:
    lane = runs((5, 10), (8, 20))
    assert [lane.offset_of(ordinal) for ordinal in (4, 5, 7, 8, 100)] == [None, 10, 12, 20, 112]
    assert lane.run_at(4) is None
    assert lane.run_at(7) == Run(5, 10)
    assert lane.after(4) == Run(5, 10)
    assert lane.after(5) == Run(8, 20)
    assert lane.after(8) is None
    assert lane.last == Run(8, 20)
    assert Runs().last is None


def test_the_pieces_between_two_ordinals() -> None:
    lane = runs((5, 10), (8, 20), (9, 40))
    assert list(lane.between(6, 10)) == [(6, 11, 2), (8, 20, 1), (9, 40, 2)]
    assert list(lane.between(0, 5)) == [(5, 10, 1)]
    assert list(lane.between(0, 4)) == []
    assert list(Runs().between(0, 4)) == []


def test_the_run_that_holds_the_ordinal_is_kept() -> None:
    lane = runs((0, 10), (7, 20), (9, 30))
    assert lane.forget_below(8) == 1
    assert lane == runs((7, 20), (9, 30))
    assert lane.forget_below(1000) == 1
    assert lane == runs((9, 30))
    assert lane.forget_below(0) == 0


def test_runs_are_found_by_position() -> None:
    lane = runs((0, 10), (7, 20), (9, 30))
    assert lane.at(1) == Run(7, 20)
    assert [lane.position(ordinal) for ordinal in (0, 1, 7, 8, 10)] == [0, 1, 1, 2, 3]
    with pytest.raises(IndexError):
        lane.at(3)


def test_packed_runs_come_back(seed: int) -> None:
    chance = random.Random(seed)
    lane, ordinal, offset = Runs(), 0, 0
    for _ in range(1000):
        lane.add(ordinal, offset)
        length = chance.randrange(1, 1 << 40)
        ordinal, offset = ordinal + length, offset + length + chance.randrange(1, 9)
    cut = chance.randrange(1000)
    twin = Runs()
    twin.extend_packed(lane.packed(0, cut))
    twin.extend_packed(lane.packed(cut, 1000))
    assert twin == lane
    assert lane.packed(0, 1)[:1] == b"\0"
    assert len(lane.packed(0, 2)) == 32


@pytest.mark.parametrize(
    "packed",
    [b"123", runs((3, 1)).packed(0, 1), runs((5, 1)).packed(0, 1), runs((9, 1), (9, 2)).packed(0, 1) + b"\0"],
)
def test_packed_runs_that_do_not_follow_are_refused(packed: bytes) -> None:
    lane = runs((5, 10))
    with pytest.raises(ValueError, match=r"runs"):
        lane.extend_packed(packed)
    assert lane == runs((5, 10))


def test_a_copy_is_independent() -> None:
    lane = runs((0, 10))
    twin = lane.copy()
    twin.add(5, 20)
    assert lane == runs((0, 10))
    with pytest.raises(TypeError):
        hash(lane)
