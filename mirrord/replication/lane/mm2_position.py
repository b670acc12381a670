"""Determines where MirrorMaker 2 stopped in a partition, based on the position that it stored and on the last records
of the target.

MirrorMaker 2 copies records in source order and stores its position from time to time (every
`offset.flush.interval.ms`, 60 s by default). After a crash, it copies the records after that position again. The
position may therefore be too low, and the target may contain the last records twice. However, for each record in the
target, all records that precede it in the source also precede it in the target.

A `Tail` first receives the last records of the target. It then receives the source's records in order, starting at an
offset before the stored position, until it needs no more of them. It keeps only digests of the target's records and of
a somewhat larger number of source records.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from mirrord.ledger.facts.core import InheritedBy
from mirrord.model.intervals import ranges

MOST_AGREEING = 200
"""Largest number of consecutive records that are compared for one possible match. If this many records agree, there is
usually no doubt left. If all records have the same content, doubt remains, but comparing more of them would not
help."""


class OffsetRow(NamedTuple):
    """A record: its offset, and a digest of its content."""

    offset: int
    content: bytes
    aborted: bool = False
    """Whether the record's transaction was aborted. MirrorMaker 2 copies such records unless it is configured not
    to."""


class TopicEnd(NamedTuple):
    """The point up to which MirrorMaker 2 has copied one partition, as found by the search."""

    position: int
    """The source offset at which a lane resumes; -1 if it cannot be determined."""
    found: InheritedBy
    doubled: tuple[tuple[int, int], ...] = ()
    """Source offsets [start, end) whose records appear more than once among the target records that were read."""
    missing: tuple[tuple[int, int], ...] = ()
    """Source offsets [start, end) whose records are not in the target, although the target has records with lower and
    higher source offsets."""


class Tail:
    """The search for the point up to which MirrorMaker 2 has copied one partition.

    `said` is one more than the source offset that MirrorMaker 2 last stored.
    """

    def __init__(self, said: int, target: Sequence[OffsetRow], *, whole: bool = True) -> None:
        """`target` contains the last records of the target. `whole` says whether it is known that no record between the
        first and the last of them was removed. If so, a source record that is missing between them was never copied."""
        self._said = said
        self._whole = whole
        self._target = [row.content for row in target]
        self._counts = Counter(self._target)
        self._source: list[OffsetRow] = []
        self._last_match = -1
        """Index of the latest source record that is also in the target."""

    @property
    def patience(self) -> int:
        """Number of consecutive source records without a match after which no further matches are expected."""
        return len(self._target)

    def take(self, row: OffsetRow) -> bool:
        """Take the next record of the source. Return False if no more records are needed."""
        self._source.append(row)
        if row.content in self._counts:
            self._last_match = len(self._source) - 1
        quiet = len(self._source) - 1 - self._last_match
        if self._last_match < 0 and quiet > 2 * self.patience:
            del self._source[: self.patience]
        return row.offset < self._said or self._last_match < 0 or quiet <= self.patience

    def result(self) -> TopicEnd:
        """Return the result that follows from the records that have been taken so far."""
        matches = Counter(row.content for row in self._source)
        last = self._end_of_target()
        places = [at for at, row in enumerate(self._source) if row.content in self._counts]
        for at in reversed(places):
            if at <= last:
                break
            if matches[self._source[at].content] == 1:
                last = at
                break
        in_front = [at for at, row in enumerate(self._source) if row.offset < self._said and not row.aborted]
        if last < 0:
            if in_front and self._target:
                return TopicEnd(-1, "strange")
            return TopicEnd(self._said, "unverifiable")
        behind = self._source[last].offset + 1
        found: InheritedBy = "behind" if in_front and last < in_front[-1] else "verified"
        position = behind if found == "behind" else max(behind, self._said)
        return TopicEnd(position, found, self._doubled(matches), self._missing(matches, places, last))

    def _end_of_target(self) -> int:
        """Return the index of the source record whose copy is the last record of the target. Return -1 if there is
        none.

        Each source record with the same content as the last record of the target is a candidate. The source records
        before a candidate are compared with the target records before the target's last record. The candidate with the
        most agreeing records is chosen. If several candidates tie, the one directly before MirrorMaker 2's stored
        position is chosen. If none of the tied candidates is there, the first of them is chosen: a duplicate is better
        than a loss.
        """
        if not self._target:
            return -1
        best, longest = -1, 0
        for at, row in enumerate(self._source):
            if row.content != self._target[-1]:
                continue
            length = self._agreeing(at)
            if length > longest or (length == longest and row.offset == self._said - 1):
                best, longest = at, length
        return best

    def _agreeing(self, at: int) -> int:
        length = 0
        while (
            length <= at
            and length < min(len(self._target), MOST_AGREEING)
            and self._source[at - length].content == self._target[~length]
        ):
            length += 1
        return length

    def _doubled(self, matches: Counter[bytes]) -> tuple[tuple[int, int], ...]:
        return ranges([row.offset for row in self._source if self._counts[row.content] > matches[row.content]])

    def _missing(self, matches: Counter[bytes], places: Sequence[int], last: int) -> tuple[tuple[int, int], ...]:
        if not self._whole:
            return ()
        first = next((at for at in places if matches[self._source[at].content] == 1), last)
        between = self._source[first : last + 1]
        return ranges([row.offset for row in between if not row.aborted and row.content not in self._counts])
