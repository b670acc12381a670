"""How the record by record comparison names each difference."""

import random

import pytest

from mirrord.lab.copy_checker import CopyComparison, DifferenceCounts, PartitionResult, TopicPair, difference


@pytest.mark.parametrize(
    ("wanted", "found", "expected"),
    [
        ([], [], DifferenceCounts()),
        ([1, 2, 3], [1, 2, 3], DifferenceCounts()),
        ([1, 1, 2], [1, 1, 2], DifferenceCounts()),
        ([1, 2, 3], [1, 3], DifferenceCounts(missing=1)),
        ([1, 1, 2], [1, 2], DifferenceCounts(missing=1)),
        ([1, 2, 3], [], DifferenceCounts(missing=3)),
        ([1, 2, 3], [1, 2, 2, 3], DifferenceCounts(doubled=1)),
        ([1, 2, 3], [1, 2, 3, 1, 2], DifferenceCounts(doubled=2)),
        ([1, 2, 3], [1, 9, 3], DifferenceCounts(altered=1)),
        ([1, 2, 3], [1, 2, 3, 9], DifferenceCounts(foreign=1)),
        ([1, 2, 3], [2, 1, 3], DifferenceCounts(out_of_order=1)),
        ([1, 2, 3, 4], [4, 1, 2, 3], DifferenceCounts(out_of_order=3)),
        ([1, 2, 3, 4], [1, 9, 8, 3], DifferenceCounts(altered=2)),
        ([1, 2, 3, 4, 5], [2, 2, 9, 8, 7, 6, 1], DifferenceCounts(doubled=1, altered=3, foreign=1, out_of_order=1)),
    ],
)
def test_differences_have_names(wanted: list[int], found: list[int], expected: DifferenceCounts) -> None:
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
    good = PartitionResult(pair, 0, 10, 100, DifferenceCounts(), "")
    bad = PartitionResult(pair, 1, 5, 50, DifferenceCounts(missing=2, out_of_order=1), "from record 3 on")
    both = CopyComparison((good, bad))
    assert (both.records, both.payload_bytes, both.is_exact) == (15, 150, False)
    assert both.difference == DifferenceCounts(missing=2, out_of_order=1)
    assert both.describe() == "t-1: 2 missing, 1 out of order; from record 3 on"
    assert CopyComparison((good,)).is_exact
