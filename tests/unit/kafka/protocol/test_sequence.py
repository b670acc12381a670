"""Ordinals from sequence numbers, which start again at 0 after 2^31 records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrord.kafka.protocol.sequence import SEQUENCES, nearest

HALF = SEQUENCES // 2


@given(st.integers(0, 1 << 50), st.integers(-HALF + 1, HALF - 1))
def test_the_nearest_ordinal_is_found(ordinal: int, distance: int) -> None:
    assert nearest((ordinal + distance) % SEQUENCES, ordinal) == ordinal + distance


@pytest.mark.parametrize(
    ("sequence", "ordinal", "found"),
    [
        (SEQUENCES - 1, SEQUENCES, SEQUENCES - 1),
        (0, SEQUENCES - 1, SEQUENCES),
        (5, 3 * SEQUENCES - 5, 3 * SEQUENCES + 5),
        (SEQUENCES - 5, 3 * SEQUENCES + 5, 3 * SEQUENCES - 5),
    ],
)
def test_both_sides_of_the_wrap(sequence: int, ordinal: int, found: int) -> None:
    assert nearest(sequence, ordinal) == found
