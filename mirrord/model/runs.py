"""The runs on one side of a lane. They form one side of the lane's offset map.

A run begins at an ordinal and an offset. Until the next run begins, ordinals and offsets advance together, so the
difference between offset and ordinal is constant. Therefore a partition without gaps has only one run, no matter how
long the partition is.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from operator import gt, sub
from sys import byteorder
from typing import TypeAlias

import msgspec

from mirrord.model.archived_runs import ArchivedPart
from mirrord.model.packed_runs import PackedRuns
from mirrord.model.run_codec import Packed, RunColumns, pack
from mirrord.model.run_memory import ALL_OF_IT, RUN_BYTES, PackedPiece, RunMemory

REST_RUNS = 64
"""When a list of runs is no longer expected to change, its older runs are packed if there are more than this number of
unpacked runs. Fewer runs take less memory unpacked than a piece does."""
_NO_PIECES = PackedRuns(ALL_OF_IT)
"""Shared by all lists of runs without packed pieces, because a flow has many of them. It is never changed."""
_ZERO = (0,)


_Column: TypeAlias = "array[int] | tuple[int, ...]"
"""The ordinals or the offsets of the unpacked runs."""


class Run(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The ordinal and the offset at which a run begins."""

    ordinal: int
    """The first ordinal of the run."""
    offset: int
    """The offset of the record with this ordinal, on the source or on the target."""


class Runs:
    """The runs on one side of a lane (source or target), in ascending order of ordinals.

    The last run has no end yet. It grows while the records are consecutive. The newest runs are stored in two arrays of
    int64, with 16 bytes per run. A single run, which is all that most lanes have, is stored in two tuples, because an
    array takes more memory. Older runs are packed (`PackedRuns`), and stay in memory while `RunMemory` has room for
    them.
    """

    __slots__ = (
        "_memory",
        "_offsets",
        "_ordinals",
        "_packed",
        "_turns",
    )

    def __init__(self, runs: Iterable[Run] = (), memory: RunMemory = ALL_OF_IT) -> None:
        self._memory = memory
        memory.join()
        self._ordinals: _Column = ()
        self._offsets: _Column = ()
        self._turns: list[int] | tuple[()] = ()
        self._packed = _NO_PIECES
        for run in runs:
            self.add(run.ordinal, run.offset)

    def __del__(self) -> None:
        self._memory.leave()

    def __len__(self) -> int:
        return self._packed.count + len(self._ordinals)

    def __iter__(self) -> Iterator[Run]:
        return (Run(*each) for columns in self._columns(0) for each in zip(*columns, strict=True))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Runs) or len(self) != len(other):
            return False
        if self.pieces or other.pieces:
            return all(map(Run.__eq__, self, other))
        return list(self._ordinals) == list(other._ordinals) and list(self._offsets) == list(other._offsets)

    def __hash__(self) -> int:
        raise TypeError("runs grow, so they are no key")

    def __repr__(self) -> str:
        return f"Runs({[(run.ordinal, run.offset) for run in self]})"

    @property
    def first(self) -> Run | None:
        """The oldest known run, or None if there are no runs. Reading this property does not unpack a piece."""
        if self._packed.pieces:
            return Run(self._packed.first_ordinals[0], self._packed.first_offsets[0])
        return Run(self._ordinals[0], self._offsets[0]) if self._ordinals else None

    @property
    def last(self) -> Run | None:
        """The newest run, which is still growing, or None if there are no runs."""
        return Run(self._ordinals[-1], self._offsets[-1]) if self._ordinals else None

    @property
    def turns(self) -> Sequence[int]:
        """Each ordinal whose offset is not higher than the offset of the preceding ordinal. A run begins at each of
        these ordinals.

        Between two of these ordinals, a higher ordinal always has a higher offset.
        """
        return self._turns

    @property
    def pieces(self) -> Sequence[PackedPiece]:
        """The packed pieces. They contain the runs before the unpacked runs."""
        return self._packed.pieces

    def add(self, ordinal: int, offset: int) -> None:
        """Add a run that begins at this ordinal and offset. First remove the runs that begin at this ordinal or later.

        If the previous run already maps this ordinal to this offset, no run is added.
        """
        self._supersede(ordinal)
        if self._ordinals:
            ahead = offset - ordinal - self._offsets[-1] + self._ordinals[-1]
            if ahead == 0:
                return
            if ahead < 0:
                if isinstance(self._turns, tuple):
                    self._turns = [ordinal]
                else:
                    self._turns.append(ordinal)
        elif not self._packed.pieces:
            first = array("q", (ordinal, offset))  # raises OverflowError, as for every later run
            self._ordinals, self._offsets = map(_single, first)
            return
        ordinals, offsets = self._arrays()
        ordinals.append(ordinal)
        offsets.append(offset)
        if len(ordinals) >= 2 * self._memory.piece_runs:
            self.settle()

    def add_ascending(self, ordinal: int, offset: int) -> None:
        """Add a run on a side where each run begins at a higher offset than the previous run.

        The method works like `add`, but also removes the runs that begin above this offset.
        """
        before = self.run_at(ordinal - 1)
        if before is not None and before.offset > offset:
            self._supersede(self.at(self.floor(offset, 0, self.position(ordinal)) + 1).ordinal)
        self.add(ordinal, offset)

    def settle(self) -> None:
        """Pack the oldest unpacked runs, if there are more unpacked runs than `RunMemory` allows."""
        while len(self._ordinals) >= 2 * (count := self._memory.piece_runs):
            self._own_pieces().append_merged(*self._take_oldest(count), self._turns)

    def rest(self) -> None:
        """Reduce the memory of runs that are not expected to change soon: pack all unpacked runs except the newest, if
        packing them saves memory."""
        count = len(self._ordinals) - 1
        if count > REST_RUNS:
            self._own_pieces().append_merged(*self._take_oldest(count), self._turns)
        self._shrink()

    def _shrink(self) -> None:
        if len(self._ordinals) == 1:
            self._ordinals, self._offsets = _single(self._ordinals[0]), _single(self._offsets[0])

    def offset_of(self, ordinal: int) -> int | None:
        """Return the offset of an ordinal, or None if the ordinal is below the first run."""
        packed, ordinals, offsets = self._packed, self._ordinals, self._offsets
        if packed.pieces:
            number = bisect_left(packed.first_ordinals, ordinal)
            if number < len(packed.first_ordinals) and packed.first_ordinals[number] == ordinal:
                return packed.first_offsets[number]
            ordinals, offsets, _ = self._around(ordinal)
        at = bisect_right(ordinals, ordinal) - 1
        return None if at < 0 else offsets[at] + ordinal - ordinals[at]

    def run_at(self, ordinal: int) -> Run | None:
        """Return the run that contains an ordinal, or None if the ordinal is below the first run."""
        ordinals, offsets, _ = self._around(ordinal)
        at = bisect_right(ordinals, ordinal) - 1
        return None if at < 0 else Run(ordinals[at], offsets[at])

    def after(self, ordinal: int) -> Run | None:
        """Return the first run that begins after an ordinal, or None if there is none."""
        at = self.position(ordinal + 1)
        return self.at(at) if at < len(self) else None

    def between(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Yield `(ordinal, offset, length)` for each run that contains ordinals from `first` to `last` (inclusive).
        Each result covers only the part of the run that lies in this range."""
        runs = chain.from_iterable(
            zip(*columns, strict=True) for columns in self._columns(max(self.position(first + 1) - 1, 0))
        )
        for (ordinal, offset), (following, _) in pairwise(chain(runs, [(last + 1, 0)])):
            if ordinal > last:
                return
            start, end = max(ordinal, first), min(following - 1, last)
            if end >= start:
                yield start, offset + start - ordinal, end - start + 1

    def beginning_in(self, first: int, last: int) -> Iterator[Run]:
        """Yield the runs that begin at an ordinal from `first` to `last` (inclusive)."""
        for ordinals, offsets in self._columns(self.position(first)):
            for ordinal, offset in zip(ordinals, offsets, strict=True):
                if ordinal > last:
                    return
                yield Run(ordinal, offset)

    def forget_below(self, ordinal: int) -> int:
        """Remove runs that end before an ordinal, and return how many were removed. A packed piece is removed only as a
        whole."""
        drop = max(self.position(ordinal + 1) - 1, 0)
        packed = self._packed
        whole = bisect_right(packed.starts, drop) - 1
        if whole < len(packed.pieces):
            drop = packed.starts[whole]
        elif drop:
            ordinals, offsets = self._arrays()
            del ordinals[: drop - packed.starts[whole]]
            del offsets[: drop - packed.starts[whole]]
        if drop:
            if packed.pieces:
                packed.replace(packed.pieces[whole:])
            first = packed.first_ordinals[0] if packed.pieces else self._ordinals[0]
            self._turns = [turn for turn in self._turns if turn > first]
        return drop

    def archive(self, parts: Sequence[ArchivedPart]) -> None:
        """Record that the runs in these parts are now in the archive instead of the ledger. The parts must be in
        ascending order of ordinals.

        The offset map itself does not change, because this object already contains the same runs. A part is ignored if
        it begins before the first known run. It is also ignored if its number of runs differs from the number of known
        runs in the same range of ordinals.
        """
        first = self.first
        parts = [part for part in parts if first is not None and part.runs.first_ordinal >= first.ordinal]
        if not parts:
            return
        # All runs up to the end of the last part must be packed, except for the newest run.
        count = min(bisect_right(self._ordinals, parts[-1].runs.last_ordinal), len(self._ordinals) - 1)
        packed = self._own_pieces()
        if count > 0:
            packed.append(*self._take_oldest(count), self._turns)
        packed.archive(parts, self._turns)

    def at(self, position: int) -> Run:
        """Return the run at a position. The first run has position 0. Raises IndexError if there are fewer runs."""
        packed = self._packed.count
        if position >= packed:
            return Run(self._ordinals[position - packed], self._offsets[position - packed])
        return Run(*self._packed.at(position))

    def position(self, ordinal: int) -> int:
        """Return the number of runs that begin below an ordinal. That number is the position of the first run at or
        above the ordinal."""
        packed = self._packed
        if not packed.pieces:
            return bisect_left(self._ordinals, ordinal)
        number = bisect_left(packed.first_ordinals, ordinal) - 1
        if number >= 0 and packed.first_ordinals[number] + 1 == ordinal:
            return packed.starts[number] + 1
        ordinals, _, first = self._around(ordinal)
        return first + bisect_left(ordinals, ordinal)

    def near(self, ordinal: int) -> int:
        """Return the position of the run that contains an ordinal. If a piece would have to be unpacked to find that
        run, the method may return the position of an earlier run instead.

        From the returned position up to the run that contains the ordinal, each run begins at a higher offset than the
        previous run.
        """
        packed = self._packed
        if not packed.pieces:
            return max(bisect_left(self._ordinals, ordinal + 1) - 1, 0)
        number = bisect_right(packed.first_ordinals, ordinal) - 1
        if number < 0:
            return 0
        if ordinal < self._ordinals[0]:
            first = packed.first_ordinals[number]
            if bisect_right(self._turns, first) == bisect_right(self._turns, ordinal):
                return packed.starts[number]
        return max(self.position(ordinal + 1) - 1, 0)

    def floor(self, offset: int, first: int, end: int) -> int:
        """Return the position of the last run that begins at or below an offset. Only the positions from `first` up to
        but not including `end` are searched. Return `first - 1` if there is no such run.

        At the searched positions, each run must begin at a higher offset than the previous run (see `turns`).
        """
        packed = self._packed.count
        if end > packed:
            start = max(first - packed, 0)
            at = bisect_right(self._offsets, offset, start, end - packed) - 1
            if at >= start or first >= packed:
                return packed + at
        if first >= min(end, packed):
            return first - 1
        return self._packed.floor(offset, first, min(end, packed))

    def tail_packed(self) -> bytes:
        """Return the unpacked runs in packed form, or empty bytes if there are none. These are the runs that are not in
        `pieces`."""
        if not self._ordinals:
            return b""
        columns = array("q", self._ordinals), array("q", self._offsets)
        return pack(*columns, [turn for turn in self._turns if turn >= self._ordinals[0]])

    @staticmethod
    def restored(pieces: Sequence[PackedPiece], tail: bytes, memory: RunMemory = ALL_OF_IT) -> "Runs":
        """Create `Runs` from packed pieces and a result of `tail_packed`. Raises ValueError if the runs are not in
        order."""
        runs = Runs(memory=memory)
        last = Packed(tail) if tail else pieces[-1].open() if pieces else None
        packed = list(pieces if tail else pieces[:-1])
        ends = [(piece.first_ordinal, piece.last_ordinal) for piece in packed]
        ends += [(last.ordinals[0], last.last_ordinal)] if last else []
        if any(after[0] <= before[1] for before, after in pairwise(ends)):
            raise ValueError("runs out of order")
        if packed:
            runs._own_pieces().replace(packed)
        columns = (array("q"), array("q")) if last is None else last.unpack()
        if any(after <= before for before, after in pairwise(columns[0])):
            raise ValueError("runs out of order")
        first = packed[0].first_ordinal if packed else 0
        turns = [turn for piece in packed for turn in piece.turns if turn > first]
        before = [(piece.last_ordinal, piece.last_offset) for piece in packed[-1:]]
        ordinals = array("q", [ordinal for ordinal, _ in before]) + columns[0]
        turns += _turns(ordinals, array("q", [offset for _, offset in before]) + columns[1])
        runs._turns = turns or ()
        runs._ordinals, runs._offsets = columns
        runs.settle()
        runs._shrink()
        return runs

    def extend_columns(self, columns: bytes) -> None:
        """Append runs in the format of older snapshots: all ordinals, then all offsets, as little-endian int64.

        Raises ValueError if the new runs do not follow the existing ones in order.
        """
        if len(columns) % RUN_BYTES:
            raise ValueError(f"{len(columns)} bytes are no whole number of runs")
        numbers = array("q", columns)
        if byteorder == "big":
            numbers.byteswap()
        count = len(columns) // RUN_BYTES
        known = self._arrays()
        ordinals = known[0][-1:] + numbers[:count]
        if any(after <= before for before, after in pairwise(ordinals)):
            raise ValueError("runs out of order")
        self._turns = [*self._turns, *_turns(ordinals, known[1][-1:] + numbers[count:])]
        known[0].extend(numbers[:count])
        known[1].extend(numbers[count:])
        self.settle()

    def copy(self) -> "Runs":
        """Return an independent copy."""
        twin = Runs(memory=self._memory)
        twin._ordinals = self._ordinals[:]
        twin._offsets = self._offsets[:]
        twin._turns = self._turns[:]
        if self._packed.pieces:
            twin._own_pieces().replace(self._packed.pieces[:])
        return twin

    def _own_pieces(self) -> PackedRuns:
        """Return the packed pieces, which the caller may change."""
        if self._packed is _NO_PIECES:
            self._packed = PackedRuns(self._memory)
        return self._packed

    def _arrays(self) -> RunColumns:
        """Return the unpacked runs as arrays, which the caller may change."""
        ordinals, offsets = self._ordinals, self._offsets
        if isinstance(ordinals, tuple) or isinstance(offsets, tuple):
            ordinals, offsets = array("q", ordinals), array("q", offsets)
            self._ordinals, self._offsets = ordinals, offsets
        return ordinals, offsets

    def _take_oldest(self, count: int) -> RunColumns:
        """Remove the oldest `count` unpacked runs, and return them."""
        ordinals, offsets = self._arrays()
        oldest = ordinals[:count], offsets[:count]
        del ordinals[:count]
        del offsets[:count]
        return oldest

    def _supersede(self, ordinal: int) -> None:
        if self._packed.pieces and self._ordinals[0] >= ordinal:
            self._ordinals, self._offsets = self._packed.unpack_from(ordinal)
        if self._ordinals and self._ordinals[-1] >= ordinal:
            ordinals, offsets = self._arrays()
            while ordinals and ordinals[-1] >= ordinal:
                ordinals.pop()
                offsets.pop()
        while self._turns and self._turns[-1] >= ordinal:
            self._turns.pop()

    def _around(self, ordinal: int) -> tuple[_Column, _Column, int]:
        """Return the ordinals and offsets of consecutive runs that include the run with this ordinal. Also return the
        position of the first of these runs."""
        if not self._packed.pieces or self._ordinals[0] <= ordinal:
            return self._ordinals, self._offsets, self._packed.count
        return self._packed.around(ordinal)

    def _columns(self, position: int) -> Iterator[tuple[_Column, _Column]]:
        """Yield the ordinals and offsets of the runs from `position` to the last one, in several parts."""
        yield from self._packed.columns(position)
        position = max(position - self._packed.count, 0)
        yield self._ordinals[position:], self._offsets[position:]


def _single(number: int) -> tuple[int, ...]:
    """Return a tuple of one number. Most lanes have a single run that begins at ordinal 0, and often at offset 0, so
    these lanes share one tuple."""
    return (number,) if number else _ZERO


def _turns(ordinals: "array[int]", offsets: "array[int]") -> list[int]:
    try:
        ahead = array("q", map(sub, offsets, ordinals))
    except OverflowError as error:  # damaged data
        raise ValueError("runs out of range") from error
    if not any(map(gt, ahead, ahead[1:])):
        return []
    return [ordinals[at + 1] for at, (before, after) in enumerate(pairwise(ahead)) if after < before]
