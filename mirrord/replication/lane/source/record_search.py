"""Searches the source for the records of a lane's batches, by the content of the records.

The records of a batch are consecutive in the source, apart from those that were removed from the source later. A record
that occurs only once in the source shows where the whole batch belongs. With a filter, records between two records of a
batch may have been excluded, so each record is searched for on its own.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from mirrord.ledger.facts.core import Reason
from mirrord.model.intervals import Interval, contain, joined, uncovered, within


class TargetBatch(NamedTuple):
    """One of the lane's own batches in the target: the ordinal of its first record, and the content of each record. The
    content is None for a record that the target's log cleaner has removed."""

    first: int
    contents: Sequence[Hashable]

    @property
    def last(self) -> int:
        """The ordinal of the batch's last record."""
        return self.first + len(self.contents) - 1


class SourceBatch(NamedTuple):
    """A source batch: its offsets [start, end), and the contents of its records by offset. If the batch is not copied,
    `contents` is empty."""

    start: int
    end: int
    contents: Mapping[int, Hashable]
    left_out: Reason | None = None
    """Why the batch is not copied, or None if it is copied."""
    epoch: int = -1
    """The leader epoch of the batch, or -1 if it has none."""


class LedgerAnswers(NamedTuple):
    """What `locate` needs to know from the ledger."""

    opens: Callable[[int], bool] = lambda _: False
    """Returns whether the record of an ordinal must be left unplaced if the source no longer has that record."""
    named: Callable[[int], int | None] = lambda _: None
    """Returns the source offset to which the ledger maps an ordinal."""
    explained: int = 0
    """The result of `explained_until`."""
    confirmed: Sequence[Interval] = ()
    """Ordinals [start, end) to which `named` is known to assign the right offsets."""
    is_filtered: bool = False
    """Whether the lane has a filter. The records of a batch then need not be consecutive in the source."""
    removed: int = 0
    """Number of ordinals after the last one in the target that a compacted target has had. Their records are the next
    ones that the source still has."""
    is_timed: bool = True
    """Whether the contents of records include the timestamps. If they do not, equal records are common."""
    may_have_lost: bool = False
    """Whether the source has had an election, in which it may have lost records."""
    is_whole: bool = False
    """Whether the source was searched up to its end."""


NO_LEDGER = LedgerAnswers()
_GONE = object()
"""Represents the content of a record that the source no longer has, although it has an equal one."""


class Unplaced(Exception):
    """Raised when there is no way, or more than one way, to assign source offsets to the target's records. The message
    says why."""


class Range(NamedTuple):
    """A range of source offsets: [start, end)."""

    start: int
    end: int


class SourceRecords:
    """The source's records in order, and the offsets of source batches that are not copied."""

    def __init__(
        self,
        originals: Sequence[SourceBatch],
        searched: Range,
        standing: Sequence[TargetBatch] = (),
        *,
        is_timed: bool = True,
    ) -> None:
        """`is_timed` is that of `LedgerAnswers`."""
        self.searched = searched
        self.offsets: list[int] = []
        self.contents: list[Hashable] = []
        self.uncopied = joined((each.start, each.end) for each in originals if each.left_out is not None)
        self.uncopied_offsets = sum(end - start for start, end in self.uncopied)
        for each in originals:
            for offset in sorted(each.contents):
                if searched.start <= offset < searched.end:
                    self.offsets.append(offset)
                    self.contents.append(each.contents[offset])
        counts = Counter(self.contents)
        self.known = counts.keys()
        self._copies = Counter(content for batch in standing for content in batch.contents) if is_timed else None
        """The number of records in the target with each content, or None if any content may be repeated."""
        self.unique = {content: at for at, content in enumerate(self.contents) if counts[content] == 1}

    def has(self, offset: int) -> bool:
        """Return whether the source has a record at this offset."""
        at = bisect_left(self.offsets, offset)
        return at < len(self.offsets) and self.offsets[at] == offset

    def holds(self, content: Hashable, offset: int) -> bool:
        """Return whether the source has a record with this content at this offset."""
        return self.has(offset) and self.contents[bisect_left(self.offsets, offset)] == content

    def is_free(self, offset: int) -> bool:
        """Return whether the search has covered this offset, and found neither a record nor a batch that is not
        copied."""
        is_searched = self.searched.start <= offset < self.searched.end
        return is_searched and not self.has(offset) and not contain(self.uncopied, offset)

    def may_be_repeated(self, content: Hashable) -> bool:
        """Return whether the source may have had several records with this content, of which it has one."""
        return self._copies is None or self._copies[content] > 1 or content not in self.unique

    def places(self, wanted: int, after: int, following: int, within: tuple[bool, bool]) -> list[int] | None:
        """Return the source offsets of `wanted` removed records, between the records at the offsets `after` and
        `following`. Return None if they cannot be determined.

        `following` is -1 if no record follows. `within` contains two values: whether the removed records are in the
        same target batch as the record before them, and whether they are in the same one as the record after them.
        This matters because only records within one target batch are consecutive in the source.
        """
        at = bisect_right(self.offsets, after)
        next_one = self.offsets[at] if at < len(self.offsets) else self.searched.end
        at = bisect_left(self.offsets, following) - 1
        last_one = self.offsets[at] if at >= 0 else self.searched.start - 1
        ends = next_one if following < 0 else min(following, next_one)
        tries = [(after, ends)] if following < 0 or after < following <= next_one else []
        if within[0]:
            tries.append((after, ends if following > after else next_one))
        if within[1]:
            tries.append((max(after, last_one) if after < following else last_one, following))
        for low, high in tries:
            if high - low - 1 <= wanted + self.uncopied_offsets:
                places = self._removed_between(low + 1, high)
                if sum(end - start for start, end in places) == wanted:
                    return [offset for start, end in places for offset in range(start, end)]
        return None

    def is_nowhere(self, contents: Iterable[Hashable], ledger: LedgerAnswers, after: int, following: int) -> bool:
        """Return whether it is certain that the source no longer has records with these contents, but may have had them
        between the records at the offsets `after` and `following`, or after the first one if `following` is -1.

        If the source has an equal record, or if it was not searched up to its end, a record with such a content may
        still be copied, although the target has it."""
        if not ledger.is_whole or any(content in self.known for content in contents):
            return False
        return ledger.may_have_lost or self.may_have_had_more(after, following)

    def may_have_had_more(self, after: int, following: int) -> bool:
        """Return whether the source may have had another record between the records at the offsets `after` and
        `following`, or after the first one if `following` is -1."""
        return bool(self._removed_between(after + 1, self.searched.end if following < 0 else following))

    def _removed_between(self, start: int, end: int) -> list[Interval]:
        """Return the offsets in [start, end) whose records were removed. The source has no record at these offsets, and
        no uncopied source batch contains them."""
        at = bisect_left(self.offsets, start)
        records = [(offset, offset + 1) for offset in self.offsets[at : bisect_left(self.offsets, end)]]
        return [*uncovered((start, end), [*records, *within((start, end), self.uncopied)])]


def search(source: SourceRecords, batch: TargetBatch, ledger: LedgerAnswers) -> list[int | None]:
    """Return the source offset of each record of the batch, or None for a record that was not found in the source. If a
    comparison has confirmed the offset of such a record, return this offset. Raises `Unplaced`."""
    found = _alone(source, batch, ledger) if ledger.is_filtered else _anchored(source, batch, ledger)
    return _confirmed(source, batch, found, ledger)


def _anchored(source: SourceRecords, batch: TargetBatch, ledger: LedgerAnswers) -> list[int | None]:
    """Return the source offset of each record of the batch, or None for a record that was not found in the source."""
    numbers = [_number(source, *each, ledger) for each in enumerate(batch.contents, batch.first)]
    anchors = [(at, number) for at, number in enumerate(numbers) if number is not None]
    if not anchors:
        return [_repeated(source, *each, ledger) for each in enumerate(batch.contents, batch.first)]
    if any(after <= before for (_, before), (_, after) in pairwise(anchors)):
        raise _in_a_different_order(batch)
    contents = [
        _GONE if _is_gone(source, ordinal, content, ledger) else content
        for ordinal, content in enumerate(batch.contents, batch.first)
    ]
    found: list[int | None] = [None] * len(contents)
    for step in (1, -1):
        _walk(source, TargetBatch(batch.first, contents), numbers, anchors[0][0], step, found)
    return found


def _number(source: SourceRecords, ordinal: int, content: Hashable, ledger: LedgerAnswers) -> int | None:
    """Return the position of a record in the source, if it shows its place by itself or the ledger confirms it."""
    if content is None or content not in source.known:
        return None
    named = None if ledger.opens(ordinal) else ledger.named(ordinal)
    if named is not None and source.holds(content, named):
        return bisect_left(source.offsets, named)
    return None if _is_gone(source, ordinal, content, ledger) else source.unique.get(content)


def _is_gone(source: SourceRecords, ordinal: int, content: Hashable, ledger: LedgerAnswers) -> bool:
    """Return whether the source no longer has this record, although it has an equal one: only one record was sent under
    the ordinal, and the source has nothing at its offset. Records with the same timestamp that occur only once in each
    log are not taken for different ones."""
    if content not in source.known or ledger.opens(ordinal) or not source.may_be_repeated(content):
        return False
    named = ledger.named(ordinal)
    return named is not None and source.is_free(named)


def _walk(
    source: SourceRecords,
    batch: TargetBatch,
    numbers: Sequence[int | None],
    at: int,
    step: int,
    found: list[int | None],
) -> None:
    """Add the source offsets of the records before the anchor `at` (`step` is -1) or after it (1) to `found`. The next
    record of the batch either is the source's next record, or was removed from the source. `numbers` contains the
    positions of the anchors in the source.

    A record that the target's cleaner removed is the source's next record if no offset between that record and the last
    match is free. This holds only before the last anchor: the source may have lost the records after that anchor, and
    may now have other records there. If an offset is free, the next anchor shows which records of the source are in
    between. All of them were in the batch.
    """
    taken = {number for number in numbers if number is not None}
    last_anchor = max(here for here, number in enumerate(numbers) if number is not None)
    here, there, last = at, numbers[at] or 0, at
    pending: list[int] = []
    """The records since the last match that may be one of the source's next records. The first one was removed by the
    target's cleaner."""
    while 0 <= here < len(numbers) and 0 <= there < len(source.contents):
        content, number = batch.contents[here], numbers[here]
        is_next = number is None and there not in taken
        if is_next and content is None:
            is_full = abs(source.offsets[there] - source.offsets[there - step]) == abs(here - last)
            is_next = is_full and here < last_anchor and not pending
        elif is_next:
            # Before the next anchor, the removed records may be equal ones of the source.
            has_anchor = step > 0 and here < last_anchor
            is_next = content == source.contents[there] and not (pending and has_anchor)
        if number is not None:
            _match_pending(source, batch, pending, range(there, number, step), found)
        if is_next or number is not None:
            there = there if number is None else number
            found[here] = source.offsets[there]
            there, last, pending = there + step, here, []
        elif content is None or (pending and content in source.known):
            pending.append(here)
        here += step


def _match_pending(
    source: SourceRecords, batch: TargetBatch, pending: Sequence[int], between: range, found: list[int | None]
) -> None:
    """Add the source offsets of the records `pending` to `found`, if there are as many records in the source between
    the anchors around them (`between`). If there are fewer, it is not known which of them the target's cleaner has
    removed."""
    is_full, at = len(between) == len(pending), 0
    if len(between) > len(pending):
        raise _in_a_different_order(batch)
    for here in pending:
        content = batch.contents[here]
        if content is None and not is_full:
            continue
        while at < len(between) and content not in (None, source.contents[between[at]]):
            if is_full:
                raise _in_a_different_order(batch)
            at += 1
        if at < len(between):
            found[here] = source.offsets[between[at]]
            at += 1


def _in_a_different_order(batch: TargetBatch) -> Unplaced:
    return Unplaced(f"ordinals {batch.first} to {batch.last} are in a different order")


def _alone(source: SourceRecords, batch: TargetBatch, ledger: LedgerAnswers) -> list[int | None]:
    """Return the same as `_anchored` for a lane with a filter. The filter may have excluded any source record between
    two records of the batch, so each record is searched for on its own."""
    numbers = ((*each, _number(source, *each, ledger)) for each in enumerate(batch.contents, batch.first))
    return [
        _repeated(source, ordinal, content, ledger) if number is None else source.offsets[number]
        for ordinal, content, number in numbers
    ]


def _repeated(source: SourceRecords, ordinal: int, content: Hashable, ledger: LedgerAnswers) -> None:
    """Return None for a record that the source does not have any more. Raises `Unplaced` if the source has several
    equal records, and the ledger does not show which of them it is."""
    if content in source.known and not _is_gone(source, ordinal, content, ledger):
        raise Unplaced(f"the source holds the record of ordinal {ordinal} more than once")


def _confirmed(
    source: SourceRecords, batch: TargetBatch, found: Sequence[int | None], ledger: LedgerAnswers
) -> list[int | None]:
    """Add the offsets of records that the source no longer has, if a comparison has confirmed them."""
    offsets: list[int | None] = []
    for ordinal, offset in enumerate(found, batch.first):
        is_known = offset is None and contain(ledger.confirmed, ordinal) and not ledger.opens(ordinal)
        named = ledger.named(ordinal) if is_known and batch.contents[ordinal - batch.first] is not None else None
        offsets.append(offset if named is None or source.has(named) else named)
    return offsets
