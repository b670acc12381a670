"""Ranges of offsets."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

Interval = tuple[int, int]
"""[start, end)."""


def uncovered(whole: Interval, taken: Iterable[Interval]) -> Iterator[Interval]:
    """Yield the parts of an interval that no other interval covers, in ascending order.

    The others may be in any order.
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
    """Return the union of the intervals in ascending order. Intervals that touch or overlap are merged."""
    found: list[Interval] = []
    for start, end in sorted(parts):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def within(whole: Interval, parts: Sequence[Interval]) -> Iterator[Interval]:
    """Yield the portions of the parts that are inside an interval. The parts ascend and do not overlap."""
    begin, end = whole
    for at in range(bisect_right(parts, begin, key=lambda part: part[1]), len(parts)):
        start, behind = parts[at]
        if start >= end:
            return
        yield max(start, begin), min(behind, end)


def ranges(offsets: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return ascending offsets as ranges [start, end) that do not touch each other."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return tuple(found)
