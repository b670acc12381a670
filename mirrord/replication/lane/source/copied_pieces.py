"""Determines the source offsets to which ordinals map. Holes in the target log are excluded, as are records that the
source lost after they were copied."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from mirrord.ledger.facts.core import HoleFound
from mirrord.model.intervals import Interval, joined, uncovered
from mirrord.model.runs import Runs
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.target.target_scan import but_not_void


def mapped(record: LaneRecord, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yield the pieces (ordinal, offset, length) of the ordinals first..last, excluding records that the source has
    lost. The runs must not change while the result is being read."""
    return mapped_by(record.source_runs, record.truncations, first, last)


def mapped_by(runs: Runs, cuts: Sequence[tuple[int, int]], first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yield the pieces (ordinal, offset, length) of the ordinals first..last, as `mapped` does. `runs` are the source
    runs, and `cuts` are the truncations of the source, in the form of `LaneRecord.truncations`."""
    for ordinal, offset, length in runs.between(first, last):
        # A run that continues the previous one is not stored, even if the source was truncated between the two.
        edges = sorted({ordinal, ordinal + length, *(cut for cut, _ in cuts if ordinal < cut < ordinal + length)})
        for begin, end in pairwise(edges):
            at = offset + begin - ordinal
            limit = min((start for beyond, start in cuts if begin < beyond), default=NEVER)
            if limit > at:
                yield begin, at, min(end - begin, limit - at)


class AscendingPart(NamedTuple):
    """Ordinals [first, end) whose source offsets are in ascending order. Of their records, the source has lost those
    with the offset `limit` or a higher one."""

    first: int
    end: int
    limit: int
    lowest: int
    """Source offset of the first ordinal."""


def ascending_parts(record: LaneRecord, first: int, end: int) -> list[AscendingPart]:
    """Split the ordinals [first, end) into parts whose source offsets are in ascending order, excluding ordinals whose
    records the source has lost."""
    runs, cuts = record.source_runs, record.truncations
    first = max(first, runs.at(0).ordinal)
    turns = runs.turns[bisect_right(runs.turns, first) : bisect_left(runs.turns, end)]
    inner = {*turns, *(cut for cut, _ in cuts if first < cut < end)}
    found: list[AscendingPart] = []
    for begin, behind in pairwise(sorted({*inner, first, max(first, end)})):
        limit = min((start for beyond, start in cuts if begin < beyond), default=NEVER)
        lowest = runs.offset_of(begin)
        if lowest is not None and lowest < limit:
            found.append(AscendingPart(begin, behind, limit, lowest))
    return found


def highest_of(record: LaneRecord, part: AscendingPart) -> int:
    """Return the highest source offset in a part."""
    found = _last(record.source_runs, part.first, part.end, part.limit)
    return part.lowest if found is None else found[0]


class HeldOffsets:
    """The source offsets of records that are known to be in the target under ordinals below a given one.

    `looked_up` contains ranges (first, last) of ordinals. It is already known which of their records are copied again.
    All of these records are therefore treated as if they were in the target, even if the ordinals are in holes."""

    def __init__(self, record: LaneRecord, below: int, looked_up: Sequence[tuple[int, int]] = ()) -> None:
        self._runs = runs = record.source_runs
        self._holes = _without(record.holes, looked_up)
        self._ascending = [
            (each, min((runs.offset_of(each.end - 1) or 0) + 1, each.limit))
            for each in ascending_parts(record, 0, below)
        ]

    def within(self, start: int, end: int) -> Iterator[Interval]:
        """Yield the parts of the source offsets [start, end) that are in the target. Only runs that can contain such
        offsets are read."""
        for part, behind in reversed(self._ascending):
            if part.lowest < end and start < behind:
                yield from self._read(part, start, min(end, part.limit))

    def _read(self, part: AscendingPart, start: int, end: int) -> Iterator[Interval]:
        runs = self._runs
        first = runs.position(part.first + 1) - 1
        at = max(runs.floor(start, first, runs.position(part.end)), first)
        for piece in self._live(max(runs.at(at).ordinal, part.first), part.end - 1):
            for _, offset, length in runs.between(*piece):
                if offset >= end:
                    return
                if offset + length > start:
                    yield max(offset, start), min(offset + length, end)

    def highest(self) -> int:
        """Return the highest source offset that is in the target, or -1 if there is none."""
        highest = -1
        for part, behind in sorted(self._ascending, key=lambda each: -each[1]):
            if behind - 1 <= highest:
                break
            pieces = reversed(self._live(part.first, part.end - 1))
            found = (_last(self._runs, first, last + 1, part.limit) for first, last in pieces)
            highest = max(highest, next((each[0] for each in found if each is not None), -1))
        return highest

    def _live(self, first: int, last: int) -> list[Interval]:
        return but_not_void([each for each in self._holes if each.first <= last and first <= each.last], first, last)


def with_unknown(
    record: LaneRecord, known: list[tuple[int, int]], ordinals: Sequence[Interval], end: int
) -> list[tuple[int, int]]:
    """Add the source offsets of unknown records to the pairs (source offset, epoch) in `known`, with the epoch -1. The
    unknown records have `ordinals`, which are ranges [start, end). If a record with an ordinal below `end` is known to
    be in the target, its offset is not added. After unknown records, the epoch of the known ones applies again, if
    there are further ones."""
    if not ordinals:
        return known
    held, found = HeldOffsets(record, end), list(known)
    pieces = (piece for first, behind in ordinals for piece in mapped(record, first, behind - 1))
    wholes = ((offset, offset + length) for _, offset, length in pieces)
    for start, behind in joined(part for each in wholes for part in uncovered(each, held.within(*each))):
        found.append((start, -1))
        found += [(behind, epoch) for offset, epoch in known if offset <= behind <= held.highest()][-1:]
    return sorted(found)


def _without(holes: Sequence[HoleFound], looked_up: Sequence[tuple[int, int]]) -> list[HoleFound]:
    """Return the parts of the holes that are outside all ranges of ordinals (first, last) in `looked_up`."""
    taken = [(first, last + 1) for first, last in looked_up]
    if not taken:
        return [hole for hole in holes if hole.first <= hole.last]
    return [
        replace(hole, first=start, last=end - 1)
        for hole in holes
        for start, end in uncovered((hole.first, hole.last + 1), taken)
    ]


def highest_copied(record: LaneRecord, first: int, end: int, below: int = NEVER) -> tuple[int, int] | None:
    """Return the highest source offset below `below` to which one of the ordinals [first, end) maps, together with that
    ordinal. Offsets that the source has lost are ignored."""
    return highest_in(record.source_runs, ascending_parts(record, first, end), below)


def highest_in(runs: Runs, parts: Sequence[AscendingPart], below: int) -> tuple[int, int] | None:
    """Return the same for the ordinals of these parts."""
    found = [_last(runs, *each[:2], min(each.limit, below)) for each in parts if each.lowest < below]
    return max((each for each in found if each is not None), default=None)


def ordinal_of(record: LaneRecord, first: int, end: int, offset: int) -> int | None:
    """Return the last of the ordinals [first, end) that maps to the source offset `offset`. Return None if there is
    none, or if the source has lost the record.

    Of several ordinals, all but the last one are in holes. The source may have lost their record before it was copied
    again, and the last ordinal may belong to the one that has its offset now."""
    for each in reversed(ascending_parts(record, first, end)):
        if each.lowest <= offset < each.limit:
            found = _last(record.source_runs, *each[:2], offset + 1)
            if found is not None and found[0] == offset:
                return found[1]
    return None


def _last(runs: Runs, first: int, end: int, limit: int) -> tuple[int, int] | None:
    """Return the last of the ordinals [first, end) that maps to a source offset below `limit`, as (offset, ordinal).
    The source offsets of these ordinals must be in ascending order."""
    lowest, highest = runs.offset_of(first), runs.offset_of(end - 1)
    if lowest is None or highest is None or lowest >= limit:
        return None
    if highest < limit:
        return highest, end - 1
    at = runs.floor(limit - 1, runs.position(first + 1) - 1, runs.position(end))
    run, behind = runs.at(at), end if at + 1 == len(runs) else min(end, runs.at(at + 1).ordinal)
    ordinal = min(behind - 1, run.ordinal + limit - 1 - run.offset)
    return run.offset + ordinal - run.ordinal, ordinal
