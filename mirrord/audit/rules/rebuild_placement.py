"""Determines the source position of each record that a lane has copied, based on the content of the record. If the
ledger is lost, the offset map is derived from these positions.

Each log is given as a sequence of units. A unit is a whole batch, identified by the checksum of its records, or a
single record, identified by a digest. The position of a unit is known if its content occurs exactly once in each log.
It is also known if, in both logs, the unit directly follows or precedes a unit with a known position. If a log cleaner
has removed the records between two known positions, their ordinals are assigned to the offsets in between. This is
possible only if there are exactly as many offsets as ordinals. Nothing is guessed: if there are two possible positions,
or none, `Unplaced` is raised.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from mirrord.kafka.protocol.sequence import SEQUENCES, nearest
from mirrord.ledger.facts.core import Reason
from mirrord.model.intervals import Interval, uncovered
from mirrord.replication.lane.source.record_search import Unplaced

LOOK_AROUND = 1_000
"""The first iteration compares this many more source records than there are copied records with unknown positions.
Later iterations compare even more source records."""
NOWHERE = -1
GONE = object()
"""The key of records whose content is unknown because the target's log cleaner has removed them from the target log."""


class CopiedRecords(NamedTuple):
    """A batch or a single record that the lane wrote to the target. Its ordinals and its offsets are consecutive."""

    ordinal: int
    offset: int
    length: int
    key: Hashable
    """Identifies the content of the records: units with equal keys have equal content. It is `GONE` if the target's log
    cleaner has removed the records. It is a new `object()` if the batch must not be matched as a whole."""
    epoch: int = -1
    """The leader epoch under which the target accepted the records."""

    @property
    def end(self) -> int:
        """The ordinal after the last record."""
        return self.ordinal + self.length


class OriginalRecords(NamedTuple):
    """A source batch that a consumer receives, or a single record of such a batch, with consecutive offsets."""

    offset: int
    length: int
    """Number of offsets that the unit occupies."""
    key: Hashable
    epoch: int = -1
    """The leader epoch of the source batch."""
    is_torn: bool = False
    """Whether some of the unit's offsets no longer hold a record."""

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.offset + self.length


class Other(NamedTuple):
    """Source offsets [start, end) that no lane copies, for example those of control batches and aborted batches."""

    start: int
    end: int
    reason: Reason


class SequencedBatch(NamedTuple):
    """The position of a batch in the target log, and the sequence number from which its ordinal is derived."""

    sequence: int
    offset: int
    length: int
    vacant: int
    """Number of target offsets that lie between the lane's previous batch and this batch and belong to no batch."""
    close: int
    """Number of target offsets that lie directly before this batch and belong to no batch."""


def ordinals(batches: Sequence[SequencedBatch], log_start: int, vacant_behind: int) -> list[tuple[int, int]]:
    """Return two numbers for each batch: its first ordinal, and the number of ordinals directly before it that the
    target's log cleaner has removed. Raises Unplaced if these numbers cannot be determined.

    Sequence numbers wrap at 2^31. How many times they wrapped before the log start offset is unknown, but this does not
    matter, because ordinals only have to be unique. `vacant_behind` is the number of target offsets that follow the
    lane's last batch and belong to no batch.
    """
    if vacant_behind:
        raise Unplaced("the target's cleaner has removed its last records, so it is not known how far it was copied")
    found: list[tuple[int, int]] = []
    expected = batches[0].sequence if batches and (log_start > 0 or batches[0].sequence >= SEQUENCES // 2) else 0
    for batch in batches:
        ordinal = nearest(batch.sequence, expected)
        if ordinal < expected:
            raise Unplaced(f"ordinal {ordinal} is on the target a second time, at offset {batch.offset}")
        lacking = ordinal - expected
        if batch.vacant and lacking > batch.close:
            raise Unplaced(
                f"before target offset {batch.offset}, {lacking} ordinals and {batch.vacant} offsets are missing: "
                "it is not known which of them the target has refused, and which its cleaner has removed"
            )
        found.append((ordinal, lacking if batch.vacant else 0))
        expected = ordinal + batch.length
    return found


class Placed(NamedTuple):
    """The copies of a lane, each with its position in the source if the position is known."""

    copies: Sequence[CopiedRecords]
    originals: Sequence[OriginalRecords]
    at: Sequence[int]
    """For each copy, the index of its original in `originals`; `NOWHERE` if the original is unknown."""
    gone: int = 0
    """Number of copies at the beginning of `copies` whose originals are known to be older than the oldest record in the
    source."""

    @property
    def is_any(self) -> bool:
        """Whether the source position of at least one copy is known."""
        return any(at >= 0 for at in self.at)

    @property
    def has_common(self) -> bool:
        """Whether the content of at least one copy occurs in the source, even if the position of the copy is
        unknown."""
        held = {each.key for each in self.originals}
        return any(copy.key in held for copy in self.copies)

    @property
    def has_holes(self) -> bool:
        """Whether the target lacks ordinals because it refused their batch rather than because its log cleaner removed
        the records."""
        return any(before.end != after.ordinal for before, after in pairwise(self.copies))

    def expired(self) -> int:
        """Return the number of copies at the beginning of `copies` whose originals are below the log start offset of
        the source.

        If ordinals are missing because the target refused a batch, the copies may be in any order. No copy then counts
        as expired.
        """
        if self.gone:
            return self.gone
        first = next((number for number, at in enumerate(self.at) if at >= 0), len(self.at))
        if first == len(self.at) or self.originals[0].offset == 0:
            return 0
        if self.has_holes:
            return 0
        return first if set(range(self.at[first])) <= set(self.at) else 0


def place(copies: Sequence[CopiedRecords], originals: Sequence[OriginalRecords]) -> Placed:
    """Determine the source positions of the copies. The position of a copy is known if its content occurs exactly once
    in each log, or if it follows from the position of an adjacent copy. Otherwise, it is `NOWHERE`. Raises Unplaced if
    a copy was matched through an adjacent copy, but another source unit could also be its original."""
    here, there = Counter(copy.key for copy in copies), Counter(original.key for original in originals)
    only = {original.key: number for number, original in enumerate(originals) if there[original.key] == 1}
    anchors = [only.get(copy.key, NOWHERE) if here[copy.key] == 1 else NOWHERE for copy in copies]
    at = list(anchors)
    for number in range(1, len(copies)):
        if at[number] < 0 <= at[number - 1] and _follows(copies, number):
            following = at[number - 1] + 1
            if following < len(originals) and originals[following].key == copies[number].key:
                at[number] = following
    for number in range(len(copies) - 2, -1, -1):
        before = at[number + 1] - 1
        if before < 0 or not _follows(copies, number + 1):
            continue
        if anchors[number] < 0 and originals[before].key == copies[number].key:
            if at[number] not in {NOWHERE, before}:
                raise _ambiguous(copies[number])
            at[number] = before
    placed = Placed(copies, originals, at)
    _refuse_alike(placed, anchors, there)
    return placed


def _refuse_alike(placed: Placed, anchors: Sequence[int], there: Mapping[Hashable, int]) -> None:
    """Raise Unplaced if a copy was matched only because of the copies next to it, although a different source unit with
    the same content could also be its original."""
    copies, originals, at = placed.copies, placed.originals, placed.at
    for number, (left, right) in enumerate(pairwise(at)):
        if 0 <= left < right - 1 and min(anchors[number : number + 2]) < 0:
            # None of the units between the two matched units may have the same content as either of them.
            between = {original.key for original in originals[left + 1 : right]}
            for copy in copies[number : number + 2]:
                if copy.key in between:
                    raise _ambiguous(copy)
    if placed.has_holes:
        # If the target refused records, the copies may be in any order, so neighbors prove little.
        for number, copy in enumerate(copies):
            if at[number] >= 0 and there[copy.key] > 1:
                raise _ambiguous(copy)
    _refuse_twice(copies, originals, at)


def _follows(copies: Sequence[CopiedRecords], number: int) -> bool:
    """Return whether this copy directly follows the previous one in the order of ordinals."""
    copy = copies[number]
    return copies[number - 1].end == copy.ordinal


def _ambiguous(copy: CopiedRecords) -> Unplaced:
    return Unplaced(f"the source holds the records of ordinals {copy.ordinal} to {copy.end - 1} more than once")


def _refuse_twice(copies: Sequence[CopiedRecords], originals: Sequence[OriginalRecords], at: Sequence[int]) -> None:
    placed = Counter(number for number in at if number >= 0)
    for copy, number in zip(copies, at, strict=True):
        if number >= 0 and placed[number] > 1:
            raise Unplaced(
                f"the record of source offset {originals[number].offset} is on the target more than once, at "
                f"{copy.offset} and elsewhere, or the source has lost an identical one"
            )


def doubtful(placed: Placed, around: int = LOOK_AROUND) -> tuple[set[int], set[int]]:
    """Return the indexes of the copies and of the originals that have to be compared record by record.

    These are the units whose positions are unknown, and the units directly before and after them, because a part of a
    batch may equal another batch. Between two matched units, not all source records are included, only those near the
    two units: near each of them, as many as there are copied records with unknown positions in between, plus `around`.
    """
    copies, originals, at = placed.copies, placed.originals, placed.at
    covered = {number for number in at if number >= 0}
    here: set[int] = set()
    # For records that were skipped or have to be copied again, it must be known which offsets hold a record.
    between = range(min(covered, default=0), max(covered, default=NOWHERE) + 1)
    there = {number for number in between if number not in covered and originals[number].is_torn}
    begin = placed.expired()
    for number in range(begin, len(copies) + 1):
        if number < len(copies) and at[number] < 0:
            continue
        left, right = at[begin - 1] if begin else NOWHERE, at[number] if number < len(copies) else NOWHERE
        is_leap = 0 <= left < right - 1
        if number > begin or is_leap:
            here.update(range(max(begin - 1, 0), min(number + 1, len(copies))))
            need = sum(copy.length for copy in copies[begin:number]) + around
            if left >= 0 or right < 0:
                there |= _until_covered(originals, left, 1, need, covered)
            if right >= 0:
                there |= _until_covered(originals, right, -1, need, covered)
        begin = number + 1
    # Units with the same content must be compared either all as batches or all as individual records.
    alike = {originals[number].key for number in there}
    here |= {number for number, copy in enumerate(copies) if at[number] >= 0 and copy.key in alike}
    there |= {at[number] for number in here if at[number] >= 0}
    return {number for number in here if copies[number].key is not GONE}, there


def _until_covered(
    originals: Sequence[OriginalRecords], begin: int, step: int, need: int, covered: set[int]
) -> set[int]:
    found: set[int] = set()
    number = begin + step
    while 0 <= number < len(originals) and number not in covered and need > 0:
        found.add(number)
        need -= originals[number].length
        number += step
    return found


def refined(
    placed: Placed, copies: Mapping[int, Sequence[CopiedRecords]], originals: Mapping[int, Sequence[OriginalRecords]]
) -> Placed:
    """Replace some units of both logs by their individual records, and determine the positions of all units again.
    `copies` and `originals` map the index of each replaced unit to its records. Raises Unplaced.

    If the target's log cleaner has removed records of a batch, the ordinals of these records become units with the
    content `GONE`.
    """
    made: list[CopiedRecords] = []
    for number, copy in enumerate(placed.copies):
        if number not in copies:
            made.append(copy)
            continue
        position = copy.ordinal
        for record in (*copies[number], CopiedRecords(copy.end, copy.offset + copy.length, 0, GONE)):
            if record.ordinal > position:
                length = record.ordinal - position
                made.append(CopiedRecords(position, record.offset - length, length, GONE, copy.epoch))
            position = record.end
            if record.length:
                made.append(record)
    each = (originals.get(number, (original,)) for number, original in enumerate(placed.originals))
    return place(made, list(chain.from_iterable(each)))


def is_open(placed: Placed) -> bool:
    """Return whether any copy has an unknown position although the source should still hold its records."""
    begin = placed.expired()
    rest = zip(placed.copies[begin:], placed.at[begin:], strict=True)
    return any(at < 0 and copy.key is not GONE for copy, at in rest)


class PlacedPiece(NamedTuple):
    """A range of consecutive ordinals whose records have consecutive source offsets."""

    ordinal: int
    offset: int
    length: int
    epoch: int


def pieces(placed: Placed, others: Sequence[Other], log_start: int) -> list[PlacedPiece]:
    """Return the source positions of the ordinals. The result begins with the first ordinal whose record the source
    still holds. Raises Unplaced if a position cannot be determined.

    A log cleaner may have removed records between two copies with known positions. The source positions of these
    records can be determined only if there are as many offsets as ordinals between the two copies.
    """
    copies, originals, at = placed.copies, placed.originals, placed.at
    number = placed.expired()
    found: list[PlacedPiece] = []
    taken = [(each.start, each.end) for each in others]
    visible = [*taken, *((each.offset, each.end) for each in originals)]
    starts = [each.offset for each in originals]
    while number < len(copies):
        begin = number
        while number < len(copies) and at[number] < 0:
            number += 1
        if number == len(copies):
            if begin < number:
                raise _nowhere(copies[begin], copies[-1])
            break
        copy, original = copies[number], originals[at[number]]
        if number > begin:
            first = copies[begin]
            edge = found[-1].offset + found[-1].length if found else log_start
            if placed.has_holes:
                raise _nowhere(first, copy)  # the records may come from anywhere in the source
            wanted = copy.ordinal - first.ordinal
            known = any(each.key is not GONE for each in copies[begin:number])
            is_begin = not found and (first.ordinal, first.offset, log_start) == (0, 0, 0)
            free = _free((edge, original.offset), taken, wanted) if found or is_begin else None
            if free is None and found and all(each.key is not GONE for each in copies[begin:number]):
                # The source no longer holds the originals of these copies. The lane skipped the records that the source
                # still holds between the two known positions.
                free = _free((edge, original.offset), visible, wanted)
            if free is None:
                if found or known:
                    raise _nowhere(first, copy)
                free = []  # the removed records precede everything that the target still holds
            found += _filled(first.ordinal, free, copies[begin:number], originals, starts, original.epoch)
        found.append(PlacedPiece(copy.ordinal, original.offset, copy.length, original.epoch))
        number += 1
    return found


def _free(whole: Interval, taken: Sequence[Interval], wanted: int) -> list[Interval] | None:
    """Return the offsets in `whole` that are not in `taken`. Return None if their number is not exactly `wanted`."""
    if not wanted:
        return []
    found = list(uncovered(whole, taken)) if whole[0] < whole[1] else []
    return found if sum(end - start for start, end in found) == wanted else None


def _filled(
    ordinal: int,
    free: Sequence[Interval],
    copies: Sequence[CopiedRecords],
    originals: Sequence[OriginalRecords],
    starts: Sequence[int],
    epoch: int,
) -> list[PlacedPiece]:
    """Assign consecutive ordinals, beginning with `ordinal`, to the source offsets in `free`. Raises Unplaced if a copy
    and the source record at its assigned offset have different content."""
    made: list[PlacedPiece] = []
    for start, end in free:
        made.append(PlacedPiece(ordinal, start, end - start, epoch))
        ordinal += end - start
    held = {copy.ordinal: copy for copy in copies}
    for piece in made:
        for at in range(piece.length):
            copy = held.get(piece.ordinal + at)
            original = originals[bisect_right(starts, piece.offset + at) - 1] if originals else None
            is_there = original is not None and original.offset <= piece.offset + at < original.end
            if (
                copy is not None
                and copy.key is not GONE
                and is_there
                and original is not None
                and original.key != copy.key
            ):
                raise _nowhere(copy, copy)
    return made


def _nowhere(first: CopiedRecords, last: CopiedRecords) -> Unplaced:
    return Unplaced(
        f"the records of ordinals {first.ordinal} to {last.end - 1}, from target offset {first.offset} on, are not all "
        "found in the source, so their source offsets are not known"
    )


def is_in_order(found: Sequence[PlacedPiece]) -> bool:
    """Return whether the source offsets increase with the ordinals."""
    return all(before.offset + before.length <= after.offset for before, after in pairwise(found))
