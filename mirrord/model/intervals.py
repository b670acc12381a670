"""Operations on ranges of offsets, such as their union."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

Interval = tuple[int, int]
"""A range of offsets from `start` to `end`. The end is exclusive."""


def uncovered(whole: Interval, taken: Iterable[Interval]) -> Iterator[Interval]:
    """Yield, in ascending order, the parts of the range `whole` that are outside all ranges in `taken`.

    The ranges in `taken` may be in any order and may overlap.
    """
    position, end = whole
    for start, behind in sorted(taken):
        if start >= end:
            break
        if start > position:
            yield position, start
        position = max(position, behind)
    if position < end:
        yield position, end


def joined(parts: Iterable[Interval]) -> list[Interval]:
    """Return the union of the ranges in ascending order. Ranges that touch or overlap are merged."""
    found: list[Interval] = []
    for start, end in sorted(parts):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def within(whole: Interval, parts: Sequence[Interval]) -> Iterator[Interval]:
    """Yield the portions of the ranges in `parts` that are inside the range `whole`. The ranges in `parts` must be in
    ascending order and must not overlap."""
    begin, end = whole
    for at in range(bisect_right(parts, begin, key=lambda part: part[1]), len(parts)):
        start, behind = parts[at]
        if start >= end:
            return
        yield max(start, begin), min(behind, end)


def contains(parts: Sequence[Interval], offset: int) -> bool:
    """Return whether one of the ranges in `parts` contains the offset. The ranges must be in ascending order and must
    not overlap."""
    at = bisect_right(parts, offset, key=lambda part: part[0]) - 1
    return at >= 0 and offset < parts[at][1]


def ranges(offsets: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Combine offsets in ascending order into as few ranges as possible. The end of each range is exclusive."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return tuple(found)
