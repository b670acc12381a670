"""How often a batch is rebuilt until it fits."""

from types import SimpleNamespace
from typing import cast

import pytest

from mirrord.replication.lane.second_path import RebuildRequest, RebuiltBatch
from mirrord.replication.lane.source.batch_splitting import rebuild
from mirrord.replication.lane.state import Lane

LARGEST = 1_000


def rebuilt_counts(sizes: list[int]) -> list[int]:
    """Return how many records each attempt contained. `sizes` are the sizes of the records."""
    counts: list[int] = []

    def attempt(wanted: RebuildRequest) -> RebuiltBatch:
        count = min(wanted.most, len(sizes))
        counts.append(count)
        return RebuiltBatch(bytearray(sum(sizes[:count])), ((0, count),), 0)

    refusal = SimpleNamespace(refused_codecs=frozenset(), largest=LARGEST)
    lane = cast(Lane, SimpleNamespace(refusal=refusal, rebuild=attempt))
    found = rebuild(lane, RebuildRequest(bytearray(), 0, 0, 0, 1, 0, 0))
    assert found is not None
    assert found.is_cut == (len(counts) > 1)
    assert found.pieces == ((0, counts[-1]),)
    return counts


def test_a_batch_that_fits_is_built_once() -> None:
    assert rebuilt_counts([10] * 100) == [100]


def test_records_of_the_same_size_fit_at_the_second_attempt() -> None:
    assert rebuilt_counts([10] * 150) == [150, 100]


@pytest.mark.parametrize("large", [LARGEST, LARGEST + 1, LARGEST + 10])
def test_one_large_record_does_not_cost_an_attempt_for_each_other_one(large: int) -> None:
    """Each attempt reads the whole source batch. A client of the source chooses the sizes of its records."""
    counts = rebuilt_counts([large, *([1] * 10_000)])
    assert counts[-1] == 1
    assert len(counts) < 20
