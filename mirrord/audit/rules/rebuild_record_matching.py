"""Matches a lane's copied records with the source records one by one. Memory use does not grow with the number of
records.

Both logs are read backwards. Each copied record is matched with the next equal source record in this direction. The
source records in between count as skipped, for example by a filter. The result must be unique: if a skipped record
equals the matched record directly before or after it, `Unplaced` is raised.
"""

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import NamedTuple

from mirrord.audit.rules.rebuild_placement import GONE, NOWHERE, CopiedRecords, OriginalRecords, Placed
from mirrord.replication.lane.source.record_search import Unplaced

MATCHED, LEFT_OUT = object(), object()
MOST_IN_FRONT = 2_000_000
"""Maximum number of digests that are kept in memory for the source records that precede the first matched one. The
first copies count as expired only if none of these records equals them."""


class UnmatchedUnits(NamedTuple):
    """The batches of both logs that have to be compared record by record: the copies with the indexes [first, end), and
    the originals with the indexes [start, behind)."""

    first: int
    end: int
    start: int
    behind: int


class Matched(NamedTuple):
    """The result of matching one part of both logs, in the order of the logs. Records that are consecutive in both logs
    are merged into one pair."""

    pairs: Sequence[tuple[CopiedRecords, OriginalRecords]]
    left_out: Sequence[OriginalRecords]
    expired: Sequence[CopiedRecords]
    """The first copies, if the source no longer holds their originals."""


def stretches(placed: Placed, *, filtered: bool) -> list[UnmatchedUnits] | None:
    """Return the parts of both logs in which batches alone do not determine which records correspond to each other.

    Each part begins and ends with a matched batch, or at the beginning or the end of the logs. With `filtered`, both
    logs form a single part, because a target batch that holds only some of the records of its source batch may equal a
    different source batch. Return None if the target lacks ordinals, or if the copies are not in source order.
    Individual records cannot be matched in these cases.
    """
    copies, at = placed.copies, placed.at
    known = [each for each in at if each >= 0]
    if placed.has_holes or any(copy.key is GONE for copy in copies):
        return None
    if any(after <= before for before, after in pairwise(known)):
        return None
    if filtered:
        return [UnmatchedUnits(0, len(copies), 0, len(placed.originals))] if copies else []
    open_ones = {number for number, each in enumerate(at) if each < 0}
    for number, (before, after) in enumerate(pairwise(at)):
        if before < 0 or after != before + 1:
            open_ones |= {number, number + 1}
    found: list[UnmatchedUnits] = []
    for number in sorted(open_ones):
        if found and found[-1].end == number:
            found[-1] = found[-1]._replace(end=number + 1)
        else:
            found.append(UnmatchedUnits(number, number + 1, 0, 0))
    return [_bounded(each, placed) for each in found]


def _bounded(stretch: UnmatchedUnits, placed: Placed) -> UnmatchedUnits:
    first, last = placed.at[stretch.first], placed.at[stretch.end - 1]
    start = max(first, 0)
    return stretch._replace(start=start, behind=last + 1 if last >= 0 else len(placed.originals))


class Matching:
    """Matches the copies of one part of the logs with source records, from the last record to the first."""

    def __init__(self, *, may_expire: bool) -> None:
        """Start the matching; the records are added later. With `may_expire`, the source may have deleted the originals
        of the first copies."""
        self.has_failed = False
        """Whether the source lacks a copied record that it should still hold."""
        self._may_expire = may_expire
        self._is_drained = False
        self._here: list[CopiedRecords] = []
        self._there: list[OriginalRecords] = []
        self._pairs: list[tuple[CopiedRecords, OriginalRecords]] = []
        self._left: list[OriginalRecords] = []
        self._last: Hashable = None
        self._front: set[Hashable] = set()
        self._is_front_whole = True
        self._expired: list[CopiedRecords] = []

    @property
    def wants_copies(self) -> bool:
        """Whether the caller must call `copies` next. If not, it must call `originals`."""
        return not self._here

    def copies(self, records: Sequence[CopiedRecords]) -> None:
        """Add copied records, in the order of the target log. All of them must precede the previously added copies.
        Raises Unplaced if no unique match can be determined."""
        self._here = [*records]
        self._match()

    def originals(self, records: Sequence[OriginalRecords]) -> None:
        """Add source records, in the order of the source log. All of them must precede the previously added source
        records. Raises Unplaced if no unique match can be determined."""
        self._there = [*records]
        self._match()

    def no_more_copies(self) -> None:
        """Declare that all copies have been added and matched. The lane has therefore skipped the remaining source
        records. Raises Unplaced if no unique match can be determined."""
        while self._there:
            self._leave_out(self._there.pop())

    def no_more_originals(self) -> None:
        """Declare that the source holds no records before those that have been added. Raises Unplaced if too many
        records would have to be compared."""
        self._is_drained = True
        self._match()

    def found(self) -> Matched:
        """Return the matched pairs, the skipped source records and the expired copies, each in log order."""
        return Matched(self._pairs[::-1], self._left[::-1], self._expired[::-1])

    def _match(self) -> None:
        while self._here and not self.has_failed:
            if self._there:
                original = self._there.pop()
                if self._here[-1].key == original.key:
                    self._pair(self._here.pop(), original)
                else:
                    self._leave_out(original)
            elif self._is_drained:
                self._expire(self._here.pop())
            else:
                return

    def _pair(self, copy: CopiedRecords, original: OriginalRecords) -> None:
        self._last = copy.key
        self._front.clear()
        self._is_front_whole = True
        after = self._pairs[-1] if self._pairs else None
        if after is not None and _adjoin(copy, original, *after):
            later, behind = after
            copy = copy._replace(length=copy.length + later.length)
            self._pairs[-1] = (
                copy._replace(key=MATCHED),
                original._replace(length=original.length + behind.length, key=MATCHED),
            )
        else:
            self._pairs.append((copy._replace(key=MATCHED), original._replace(key=MATCHED)))

    def _leave_out(self, original: OriginalRecords) -> None:
        if self._pairs and original.key == self._last:
            copy = self._pairs[-1][0]
            raise Unplaced(f"the source holds the record of ordinal {copy.ordinal} more than once")
        if self._pairs and self._may_expire:
            if len(self._front) < MOST_IN_FRONT:
                self._front.add(original.key)
            else:
                self._is_front_whole = False
        after = self._left[-1] if self._left else None
        if after is not None and (original.end, original.epoch) == (after.offset, after.epoch):
            self._left[-1] = original._replace(length=original.length + after.length, key=LEFT_OUT)
        else:
            self._left.append(original._replace(key=LEFT_OUT))

    def _expire(self, copy: CopiedRecords) -> None:
        """Handle a copy for which no source record is left: count it as expired, or make the matching fail."""
        if not self._is_front_whole:
            raise Unplaced(f"more than {MOST_IN_FRONT:,} records would have to be compared one by one")
        if not self._may_expire or not self._pairs or copy.key in self._front:
            self.has_failed = True
            return
        after = self._expired[-1] if self._expired else None
        if after is not None and _adjoin_copies(copy, after):
            self._expired[-1] = copy._replace(length=copy.length + after.length, key=MATCHED)
        else:
            self._expired.append(copy._replace(key=MATCHED))


def _adjoin(copy: CopiedRecords, original: OriginalRecords, later: CopiedRecords, behind: OriginalRecords) -> bool:
    return _adjoin_copies(copy, later) and (original.end, original.epoch) == (behind.offset, behind.epoch)


def _adjoin_copies(copy: CopiedRecords, later: CopiedRecords) -> bool:
    return (copy.end, copy.offset + copy.length, copy.epoch) == (later.ordinal, later.offset, later.epoch)


def _offset(original: OriginalRecords) -> int:
    return original.offset


def assembled(placed: Placed, parts: Sequence[tuple[UnmatchedUnits, Matched]]) -> Placed | None:
    """Combine the parts that were matched record by record (`parts`) with the batches outside them (`placed`), and
    return the positions of all copies.

    Return None if a target batch had fewer records than ordinals because a log cleaner had removed some of its records.
    """
    pairs: list[tuple[CopiedRecords, OriginalRecords]] = []
    others: list[OriginalRecords] = []
    expired: Sequence[CopiedRecords] = ()
    here = there = 0

    def batches(until: int, behind: int) -> None:
        pairs.extend((placed.copies[each], placed.originals[placed.at[each]]) for each in range(here, until))
        taken = set(placed.at[here:until])
        others.extend(placed.originals[each] for each in range(there, behind) if each not in taken)

    for stretch, matched in parts:
        batches(stretch.first, stretch.start)
        here, there = stretch.end, stretch.behind
        pairs += matched.pairs
        others += matched.left_out
        expired = expired or matched.expired
    batches(len(placed.copies), len(placed.originals))
    originals = sorted((*(original for _, original in pairs), *others), key=_offset)
    numbers = {original.offset: number for number, original in enumerate(originals)}
    made = Placed(
        [*expired, *(copy for copy, _ in pairs)],
        originals,
        [*(NOWHERE for _ in expired), *(numbers[original.offset] for _, original in pairs)],
        len(expired),
    )
    is_whole = sum(map(_length, made.copies)) == sum(map(_length, placed.copies))
    return made if is_whole else None


def _length(copy: CopiedRecords) -> int:
    return copy.length
