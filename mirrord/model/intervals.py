"""Ranges of offsets."""

from collections.abc import Iterable, Iterator

Interval = tuple[int, int]
"""[start, end)."""


def uncovered(whole: Interval, taken: Iterable[Interval]) -> Iterator[Interval]:
    """The parts of an interval that no other covers, in ascending order; the others come in any."""
    position, end = whole
    for start, behind in sorted(taken):
        if start >= end:
            break
        if start > position:
            yield position, start
        position = max(position, behind)
    if position < end:
        yield position, end
