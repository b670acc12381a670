"""Where MirrorMaker 2 left off in a partition: by its own word, and by what stands at the end of the target.

MirrorMaker 2 copies in the order of the source and writes its position down now and then (every
`offset.flush.interval.ms`, 60 s by default). What it copied behind that, a crash makes it copy again. So its word may
be too low, and the last records of the target may stand there twice, but whatever stands in the target has in front of
it all that comes before it in the source.

A `Tail` is given the last records of the target, then the source's records in order from some way in front of the word
on, until it has seen enough. It holds digests only, of as many records as the tail has and some more.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from mirrord.flow.ranges import ranges
from mirrord.model.facts import InheritedBy

MOST_AGREEING = 200
"""So many records that agree leave no doubt; where all records are alike, more would not help either."""


class Row(NamedTuple):
    """A record: its offset, and a digest of what it holds."""

    offset: int
    content: bytes
    aborted: bool = False
    """Of a transaction that was aborted. MirrorMaker 2 copies such records unless it was told not to."""


class Ending(NamedTuple):
    """What was found out."""

    position: int
    """The source offset at which a lane goes on; -1 when that cannot be told."""
    found: InheritedBy
    doubled: tuple[tuple[int, int], ...] = ()
    """Source offsets [start, end) whose records stand more than once among those of the target that were read."""
    missing: tuple[tuple[int, int], ...] = ()
    """Source offsets [start, end) that the target lacks between others that stand there."""


class Tail:
    """The search for one partition. `said` is the source offset behind the last one that MirrorMaker 2 wrote down."""

    def __init__(self, said: int, target: Sequence[Row], *, whole: bool = True) -> None:
        """`whole`: no record was removed between those of the target, so whatever is not there never was."""
        self._said = said
        self._whole = whole
        self._target = [row.content for row in target]
        self._counts = Counter(self._target)
        self._source: list[Row] = []
        self._last_match = -1
        """Index of the newest record of the source that stands in the target, too."""

    @property
    def patience(self) -> int:
        """So many records of the source without a match mean that no more will come."""
        return len(self._target)

    def take(self, row: Row) -> bool:
        """The source's next record; False when no more is needed."""
        self._source.append(row)
        if row.content in self._counts:
            self._last_match = len(self._source) - 1
        quiet = len(self._source) - 1 - self._last_match
        if self._last_match < 0 and quiet > 2 * self.patience:
            del self._source[: self.patience]
        return row.offset < self._said or self._last_match < 0 or quiet <= self.patience

    def result(self) -> Ending:
        """What the records so far tell."""
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
                return Ending(-1, "strange")
            return Ending(self._said, "unverifiable")
        behind = self._source[last].offset + 1
        found: InheritedBy = "behind" if in_front and last < in_front[-1] else "verified"
        position = behind if found == "behind" else max(behind, self._said)
        return Ending(position, found, self._doubled(matches), self._missing(matches, places, last))

    def _end_of_target(self) -> int:
        """Index of the record that the target ends with: where most of what comes before it agrees, too.

        Of several that agree equally far the one in front of MirrorMaker 2's word, or else the first: rather a record
        twice than one not at all.
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
