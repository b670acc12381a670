"""Runs: the offset map as a list of breakpoints.

A run says that from `ordinal` on, ordinals and offsets advance together, until the next run begins. Inside a run
`offset - ordinal` is constant, so a gap-free partition of any length is one run.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import gt, sub
from sys import byteorder

import msgspec

RUN_BYTES = 16


class Run(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The point where a run begins."""

    ordinal: int
    offset: int


class Runs:
    """A lane's runs of one side (source or target), in ascending order of ordinals.

    The last run is open: it grows for as long as records follow each other. Held as two arrays of int64, so a run costs
    16 bytes.
    """

    __slots__ = ("_offsets", "_ordinals", "_turns")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._ordinals = array("q")
        self._offsets = array("q")
        self._turns: list[int] = []
        for run in runs:
            self.add(run.ordinal, run.offset)

    def __len__(self) -> int:
        return len(self._ordinals)

    def __iter__(self) -> Iterator[Run]:
        return map(Run, self._ordinals, self._offsets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and self._ordinals == other._ordinals and self._offsets == other._offsets

    def __hash__(self) -> int:
        raise TypeError("runs grow, so they are no key")

    def __repr__(self) -> str:
        return f"Runs({[(run.ordinal, run.offset) for run in self]})"

    @property
    def last(self) -> Run | None:
        """The open run, or None when there is none yet."""
        return Run(self._ordinals[-1], self._offsets[-1]) if self._ordinals else None

    def add(self, ordinal: int, offset: int) -> None:
        """Let a run begin. Runs that began at this ordinal or later are superseded: the newer word counts.

        A run that only goes on with the one before it is not stored.
        """
        while self._ordinals and self._ordinals[-1] >= ordinal:
            self._ordinals.pop()
            self._offsets.pop()
        while self._turns and self._turns[-1] >= ordinal:
            self._turns.pop()
        if self._ordinals:
            ahead = offset - ordinal - self._offsets[-1] + self._ordinals[-1]
            if ahead == 0:
                return
            if ahead < 0:
                self._turns.append(ordinal)
        self._ordinals.append(ordinal)
        self._offsets.append(offset)

    @property
    def turns(self) -> Sequence[int]:
        """The ordinals of the runs that begin at a lower offset than the run before them ends: between two of them
        offsets ascend."""
        return self._turns

    def floor(self, offset: int, first: int, end: int) -> int:
        """The last position in [first, end) whose run begins at or below an offset; first - 1 when there is none.

        Offsets must ascend from position to position there (`turns`).
        """
        return bisect_right(self._offsets, offset, first, end) - 1

    def offset_of(self, ordinal: int) -> int | None:
        """The offset of an ordinal, or None when it lies below the first run."""
        at = bisect_right(self._ordinals, ordinal) - 1
        return None if at < 0 else self._offsets[at] + ordinal - self._ordinals[at]

    def run_at(self, ordinal: int) -> Run | None:
        """The run that an ordinal lies in."""
        at = bisect_right(self._ordinals, ordinal) - 1
        return None if at < 0 else Run(self._ordinals[at], self._offsets[at])

    def after(self, ordinal: int) -> Run | None:
        """The first run that begins behind an ordinal."""
        at = bisect_right(self._ordinals, ordinal)
        return Run(self._ordinals[at], self._offsets[at]) if at < len(self._ordinals) else None

    def between(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """The pieces `(ordinal, offset, length)` that cover the ordinals first..last (both included)."""
        at = max(bisect_right(self._ordinals, first) - 1, 0)
        while at < len(self._ordinals) and self._ordinals[at] <= last:
            start = max(self._ordinals[at], first)
            end = self._ordinals[at + 1] - 1 if at + 1 < len(self._ordinals) else last
            end = min(end, last)
            if end >= start:
                yield start, self._offsets[at] + start - self._ordinals[at], end - start + 1
            at += 1

    def forget_below(self, ordinal: int) -> int:
        """Drop the runs that end before an ordinal; the number of runs dropped."""
        drop = max(bisect_right(self._ordinals, ordinal) - 1, 0)
        del self._ordinals[:drop]
        del self._offsets[:drop]
        if drop:
            self._turns = [turn for turn in self._turns if turn > self._ordinals[0]]
        return drop

    def at(self, position: int) -> Run:
        """The run at a position, counted from 0. Raises IndexError when there are not so many."""
        return Run(self._ordinals[position], self._offsets[position])

    def position(self, ordinal: int) -> int:
        """How many runs begin below an ordinal."""
        return bisect_left(self._ordinals, ordinal)

    def packed(self, first: int, end: int) -> bytes:
        """The runs at the positions [first, end) as little-endian int64: all ordinals, then all offsets."""
        columns = self._ordinals[first:end] + self._offsets[first:end]
        if byteorder == "big":
            columns.byteswap()
        return columns.tobytes()

    def extend_packed(self, packed: bytes) -> None:
        """Take over what `packed` made; it must lie behind what is here. Raises ValueError when it does not."""
        if len(packed) % RUN_BYTES:
            raise ValueError(f"{len(packed)} bytes are no whole number of runs")
        columns = array("q", packed)
        if byteorder == "big":
            columns.byteswap()
        count = len(packed) // RUN_BYTES
        ordinals = self._ordinals[-1:] + columns[:count]
        if any(after <= before for before, after in pairwise(ordinals)):
            raise ValueError("runs out of order")
        self._turns += _turns(ordinals, self._offsets[-1:] + columns[count:])
        self._ordinals.extend(columns[:count])
        self._offsets.extend(columns[count:])

    def copy(self) -> "Runs":
        """An independent copy."""
        twin = Runs()
        twin._ordinals = self._ordinals[:]
        twin._offsets = self._offsets[:]
        twin._turns = self._turns[:]
        return twin


def _turns(ordinals: "array[int]", offsets: "array[int]") -> list[int]:
    ahead = array("q", map(sub, offsets, ordinals))
    if not any(map(gt, ahead, ahead[1:])):
        return []
    return [ordinals[at + 1] for at, (before, after) in enumerate(pairwise(ahead)) if after < before]
