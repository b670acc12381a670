"""Finds disorder that the offset map itself documents: records that were copied after newer ones, or copied twice.

A lane copies records again if the target refused or lost them. The facts `HoleFound` and `MapRebuilt` record this. The
offset map then contains the target offsets of the later copies, so a comparison based on the map finds these copies
equal. A reader of the target topic nevertheless reads the records out of order.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from mirrord.audit.rules.audit_range import MapPiece
from mirrord.audit.rules.results import Explained
from mirrord.model.intervals import Interval, joined, uncovered, within


def mapped_disorder(pieces: Sequence[MapPiece]) -> Iterator[Explained]:
    """Yield the source offsets of records that were copied after newer records, or copied twice.

    Truncated records are ignored, because the source has lost them and reuses their offsets for other records.
    """
    highest = -1
    covered: list[Interval] = []
    for piece in sorted(pieces, key=_target):
        if piece.truncated:
            continue
        start, end = piece.source, piece.source + piece.length
        if start < highest:
            first = bisect_left(covered, start, key=_end)
            near = covered[first : bisect_right(covered, min(end, highest), key=_start)]
            repeated = list(within((start, end), near))
            yield from (Explained("doubled", "source", *part) for part in repeated)
            late = uncovered((start, min(end, highest)), repeated)
            yield from (Explained("out-of-order", "source", *part) for part in late)
        _cover(covered, start, end)
        highest = max(highest, end)


def _cover(covered: list[Interval], start: int, end: int) -> None:
    """Add an interval to a sorted list of disjoint intervals."""
    if not covered or covered[-1][1] < start:
        covered.append((start, end))
        return
    first, behind = bisect_left(covered, start, key=_end), bisect_right(covered, end, key=_start)
    covered[first:behind] = joined([*covered[first:behind], (start, end)])


def _target(piece: MapPiece) -> int:
    return piece.target


def _start(interval: Interval) -> int:
    return interval[0]


def _end(interval: Interval) -> int:
    return interval[1]
