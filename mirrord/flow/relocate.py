"""What really stands in the target: own batches, found again in the source by what their records hold.

The writers of these batches saw different views of one source: a cleaner removed records in between. So the records of
one batch are, without those that were removed since, records of the source that follow each other. One record that the
source holds once is enough to place a batch, and its other records follow from their order. A record that the source no
longer holds is placed only when there is exactly one way to do it. Nothing is guessed: what cannot be placed is said.
"""

import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from mirrord.flow.lineage import standing as standing_pieces
from mirrord.flow.located import Located
from mirrord.flow.ranges import ranges
from mirrord.flow.reading import but_not_void
from mirrord.flow.signals import LaneRecord
from mirrord.model.runs import Runs

LOOK_AROUND = 1_000
"""How far around what the map says the search goes: so many records lie at most between two views."""


class Standing(NamedTuple):
    """An own batch in the target: the ordinal of its first record, and what each of them holds; None for one that the
    target's cleaner removed."""

    first: int
    contents: Sequence[Hashable]

    @property
    def last(self) -> int:
        """The ordinal of its last record."""
        return self.first + len(self.contents) - 1


class Original(NamedTuple):
    """A source batch of the offsets [start, end): what its records hold, by offset; none in one that is not copied."""

    start: int
    end: int
    contents: Mapping[int, Hashable]
    copied: bool = True
    epoch: int = -1
    """The leader epoch of the batch, or -1 when it has none."""


class Unplaced(Exception):
    """There is no single way to place what the target holds; the text says why."""


class Range(NamedTuple):
    """The source offsets [start, end)."""

    start: int
    end: int


def search_range(record: LaneRecord, first: int, last: int) -> Range:
    """The source offsets in which the ordinals [first, last] can stand, and whatever is still to be copied again."""
    runs = record.source_runs
    lowest = runs.at(0).ordinal
    around = list(runs.between(max(first - LOOK_AROUND, lowest), max(last, first)))
    planned = [run.offset for run in runs.beginning_in(first, sys.maxsize)]
    start = min([offset for _, offset, _ in around] + planned)
    end = max([offset + length for _, offset, length in around] + planned)
    return Range(max(start, 0), end + max(last - first, 0) + LOOK_AROUND)


def covered_below(record: LaneRecord, first: int) -> list[Range]:
    """The source offsets that the ordinals below `first` stand for: ascending, and apart from each other."""
    runs = record.source_runs
    if first <= runs.at(0).ordinal:
        return []
    pieces = but_not_void(record.holes, runs.at(0).ordinal, first - 1)
    merged: list[Range] = []
    for start, length in sorted((at, length) for piece in pieces for _, at, length in standing_pieces(record, *piece)):
        if merged and merged[-1].end >= start:
            merged[-1] = Range(merged[-1].start, max(merged[-1].end, start + length))
        else:
            merged.append(Range(start, start + length))
    return merged


def last_below(record: LaneRecord, first: int) -> int:
    """The source offset of the ordinal in front of `first`, or the one in front of the whole lane."""
    runs = record.source_runs
    known = runs.offset_of(first - 1)
    if known is None:
        return runs.at(0).offset - 1
    return min([known, *(start - 1 for ordinal, start in record.cuts if first <= ordinal)])


def is_open(record: LaneRecord, ordinal: int) -> bool:
    """Should the source no longer have what stands under this ordinal, nothing tells what it was: other records may
    have been sent under it too."""
    regiven = 0 <= record.regiven <= ordinal
    return regiven or any(hole.first <= ordinal <= hole.last for hole in record.holes)


class _Source:
    """The source's records in order, and the offsets that hold none."""

    def __init__(self, originals: Sequence[Original], searched: Range) -> None:
        self.searched = searched
        self.offsets: list[int] = []
        self.contents: list[Hashable] = []
        self.uncopied = [Range(each.start, each.end) for each in originals if not each.copied]
        for each in originals:
            for offset in sorted(each.contents):
                if searched.start <= offset < searched.end:
                    self.offsets.append(offset)
                    self.contents.append(each.contents[offset])
        counts = Counter(self.contents)
        self.known = counts.keys()
        self.unique = {content: at for at, content in enumerate(self.contents) if counts[content] == 1}

    def places(self, wanted: int, after: int, behind: int, within: tuple[bool, bool], ordinal: int) -> list[int]:
        """The offsets of so many records that were removed, between the one at `after` and the one at `behind`.

        `behind` is -1 when nothing follows. `within` says whether they are of one batch with their neighbours in front
        and behind: batches need not follow each other in the source. Raises Unplaced.
        """
        at = bisect_right(self.offsets, after)
        next_one = self.offsets[at] if at < len(self.offsets) else self.searched.end
        at = bisect_left(self.offsets, behind) - 1
        last_one = self.offsets[at] if at >= 0 else self.searched.start - 1
        ends = next_one if behind < 0 else min(behind, next_one)
        tries = [(after, ends)] if behind < 0 or after < behind <= next_one else []
        if within[0]:
            tries.append((after, ends if behind > after else next_one))
        if within[1]:
            tries.append((max(after, last_one) if after < behind else last_one, behind))
        for low, high in tries:
            if high - low - 1 <= wanted + sum(end - start for start, end in self.uncopied):
                places = self._removed_between(low + 1, high - 1)
                if len(places) == wanted:
                    return places
        raise Unplaced(
            f"the source no longer holds the records of ordinals {ordinal} to {ordinal + wanted - 1}, and it is open "
            "where they stood"
        )

    def _removed_between(self, first: int, last: int) -> list[int]:
        """The offsets of [first, last] whose record was removed: none is there, and none was ever left out."""
        return [
            offset
            for offset in range(first, last + 1)
            if (at := bisect_left(self.offsets, offset)) == len(self.offsets) or self.offsets[at] != offset
            if not any(start <= offset < end for start, end in self.uncopied)
        ]


def locate(
    standing: Sequence[Standing],
    originals: Sequence[Original],
    covered: Sequence[Range],
    before: int,
    searched: Range,
    opens: Callable[[int], bool] = lambda _: False,
    named: Callable[[int], int | None] = lambda _: None,
) -> Located:
    """Where each ordinal stands in the source, what stands there twice, and what the target lacks.

    `standing` are in the order of the target log, `originals` are all source batches in `searched`, `covered` are the
    offsets that earlier ordinals stand for, `before` is the one of the last of them. `opens` says of an ordinal that
    its record is not to be placed without the source, `named` which offset stands for it so far. Raises Unplaced.
    """
    source = _Source(originals, searched)
    ordinals = [batch.first + at for batch in standing for at in range(len(batch.contents))]
    offsets = _fill(source, standing, [_anchored(source, batch) for batch in standing], before, opens)
    placed = [(ordinal, offset) for ordinal, offset in zip(ordinals, offsets, strict=True) if offset is not None]
    counts = Counter(offset for _, offset in placed)
    twice = {offset for offset, count in counts.items() if count > 1 or _within(covered, offset)}
    left = ranges(ordinal for ordinal, offset in zip(ordinals, offsets, strict=True) if offset is None)
    # What is left open may be any record up to there; what the source still holds of those, and nobody copied, follows.
    # A run may name offsets that the source does not have yet. Those were never read.
    furthest = min(max((named(end - 1) or 0 for _, end in left), default=-1), searched.end - 1)
    top = max(max(counts, default=-1), covered[-1].end - 1 if covered else -1, searched.start - 1, furthest)
    lacking = [offset for offset in source.offsets if offset <= top and offset not in counts]
    missing = ranges(offset for offset in lacking if not _within(covered, offset))
    told_twice = ranges(sorted(twice))
    runs = Runs()
    for ordinal, offset in placed:
        runs.add(ordinal, offset)
    wrong = Range(min(counts, default=top + 1), max(counts, default=top) + 1)
    return Located(tuple(runs), told_twice, missing, top + 1, *wrong, _epochs(originals), left)


def _epochs(originals: Sequence[Original]) -> tuple[tuple[int, int], ...]:
    """From which source offset on which leader epoch counts. What was removed is of the epoch of what follows it."""
    found: list[tuple[int, int]] = []
    start = 0
    for each in originals:
        if each.epoch != (found[-1][1] if found else -1):
            found.append((start, each.epoch))
        start = each.end
    return tuple(found)


def _anchored(source: _Source, batch: Standing) -> list[int | None]:
    """The source offsets of a batch's records, as far as the source still holds them."""
    contents = batch.contents
    found: list[int | None] = [None] * len(contents)
    anchors = [(at, source.unique[content]) for at, content in enumerate(contents) if content in source.unique]
    if not anchors:
        if any(content in source.known for content in contents):
            raise Unplaced(f"the source holds the records of ordinals {batch.first} to {batch.last} more than once")
        return found
    if any(content is None for content in contents):
        raise Unplaced(f"the target no longer holds all records of ordinals {batch.first} to {batch.last}")
    # From the first anchor both ways: the next record is the source's next one, or was removed from the source.
    at, number = anchors[0]
    for step in (1, -1):
        here, there = at, number
        while 0 <= here < len(contents) and 0 <= there < len(source.contents):
            if contents[here] == source.contents[there]:
                found[here] = source.offsets[there]
                there += step
            here += step
    if any(found[where] != source.offsets[anchor] for where, anchor in anchors):
        raise Unplaced(f"ordinals {batch.first} to {batch.last} are in another order")
    return found


def _fill(
    source: _Source,
    standing: Sequence[Standing],
    found: Sequence[Sequence[int | None]],
    before: int,
    opens: Callable[[int], bool],
) -> list[int | None]:
    """Give offsets to the records that were removed from the source: there must be exactly as many as places. None
    where that is left open."""
    ordinals = [batch.first + at for batch in standing for at in range(len(batch.contents))]
    removed = {batch.first + at for batch in standing for at, each in enumerate(batch.contents) if each is None}
    flat = [offset for batch in found for offset in batch]
    batches = [number for number, batch in enumerate(found) for _ in batch]
    edges = [(-1, before), *((at, offset) for at, offset in enumerate(flat) if offset is not None), (len(flat), -1)]
    offsets: list[int | None] = []
    for (left, after), (right, behind) in pairwise(edges):
        if any(opens(ordinal) for ordinal in ordinals[left + 1 : right]):
            offsets += [None] * (right - left - 1)
        elif not removed.isdisjoint(ordinals[left + 1 : right]):
            places = f"ordinals {ordinals[left + 1]} to {ordinals[right - 1]}"
            raise Unplaced(f"neither the source nor the target still holds all records of {places}")
        elif right - left > 1:
            within = (
                left >= 0 and batches[left] == batches[right - 1],
                right < len(flat) and batches[right] == batches[left + 1],
            )
            offsets += source.places(right - left - 1, after, behind, within, ordinals[left + 1])
        if right < len(flat):
            offsets.append(behind)
    return offsets


def _within(ranges: Sequence[Range], offset: int) -> bool:
    at = bisect_right(ranges, offset, key=lambda each: each.start) - 1
    return at >= 0 and offset < ranges[at].end
