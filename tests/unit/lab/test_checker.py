"""How the record by record comparison names each difference."""

import random

import pytest

from mirrord.lab.checker import Comparison, Difference, PartitionResult, TopicPair, difference


@pytest.mark.parametrize(
    ("wanted", "found", "expected"),
    [
        ([], [], Difference()),
        ([1, 2, 3], [1, 2, 3], Difference()),
        ([1, 1, 2], [1, 1, 2], Difference()),
        ([1, 2, 3], [1, 3], Difference(missing=1)),
        ([1, 1, 2], [1, 2], Difference(missing=1)),
        ([1, 2, 3], [], Difference(missing=3)),
        ([1, 2, 3], [1, 2, 2, 3], Difference(doubled=1)),
        ([1, 2, 3], [1, 2, 3, 1, 2], Difference(doubled=2)),
        ([1, 2, 3], [1, 9, 3], Difference(altered=1)),
        ([1, 2, 3], [1, 2, 3, 9], Difference(foreign=1)),
        ([1, 2, 3], [2, 1, 3], Difference(out_of_order=1)),
        ([1, 2, 3, 4], [4, 1, 2, 3], Difference(out_of_order=3)),
        ([1, 2, 3, 4], [1, 9, 8, 3], Difference(altered=2)),
        ([1, 2, 3, 4, 5], [2, 2, 9, 8, 7, 6, 1], Difference(doubled=1, altered=3, foreign=1, out_of_order=1)),
    ],
)
def test_differences_have_names(wanted: list[int], found: list[int], expected: Difference) -> None:
    assert difference(wanted, found) == expected


def test_any_damage_is_a_difference(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        wanted = [rng.randrange(20) for _ in range(rng.randint(1, 30))]
        found = list(wanted)
        match rng.randrange(4):
            case 0:
                del found[rng.randrange(len(found))]
            case 1:
                found.insert(rng.randrange(len(found) + 1), rng.choice(wanted))
            case 2:
                found[rng.randrange(len(found))] = 99
            case _:
                rng.shuffle(found)
        assert any(difference(wanted, found)) == (wanted != found), (wanted, found)


def test_a_comparison_adds_up_and_names_the_place() -> None:
    pair = TopicPair("t", "eu.t")
    good = PartitionResult(pair, 0, 10, 100, Difference(), "")
    bad = PartitionResult(pair, 1, 5, 50, Difference(missing=2, out_of_order=1), "from record 3 on")
    both = Comparison((good, bad))
    assert (both.records, both.payload_bytes, both.is_exact) == (15, 150, False)
    assert both.difference == Difference(missing=2, out_of_order=1)
    assert both.describe() == "t-1: 2 missing, 1 out of order; from record 3 on"
    assert Comparison((good,)).is_exact
