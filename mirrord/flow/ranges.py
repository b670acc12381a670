"""Conversion of offsets to ranges."""

from collections.abc import Iterable


def ranges(offsets: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return ascending offsets as ranges [start, end) that do not touch each other."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return tuple(found)
