"""The older runs of a lane, packed into pieces that never change. `PackedRuns` keeps the first ordinal and the first
offset of each piece, so a lookup unpacks only part of one piece."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from mirrord.model.archived_runs import ArchivedPart
from mirrord.model.run_codec import BLOCK_RUNS, RunColumns, pack
from mirrord.model.run_memory import PIECE_RUNS, PackedPiece, RunMemory


class PackedRuns:
    """The packed pieces on one side of a lane (source or target), in ascending order of ordinals.

    Some methods have a parameter `turns`. It contains the first ordinal of each run whose first offset is lower than
    the end of the previous run on this side (see `Runs.turns`).
    """

    __slots__ = ("_memory", "first_offsets", "first_ordinals", "pieces", "starts")

    def __init__(self, memory: RunMemory) -> None:
        self._memory = memory
        self.replace([])

    @property
    def count(self) -> int:
        """Number of packed runs."""
        return self.starts[-1]

    def replace(self, pieces: list[PackedPiece]) -> None:
        """Replace all existing pieces with these pieces."""
        self.pieces = pieces
        self.first_ordinals = array("q", [piece.first_ordinal for piece in pieces])
        self.first_offsets = array("q", [piece.first_offset for piece in pieces])
        self.starts = array("q", accumulate((piece.count for piece in pieces), initial=0))
        """For each piece, the number of packed runs before it. That number is the position of the piece's first run.
        The last entry is the total number of packed runs."""

    def append(self, ordinals: "array[int]", offsets: "array[int]", turns: Sequence[int]) -> None:
        """Pack these runs, and append them as a new piece. They must follow all runs that are already packed."""
        piece = self._pack(ordinals, offsets, turns)
        self.pieces.append(piece)
        self.first_ordinals.append(piece.first_ordinal)
        self.first_offsets.append(piece.first_offset)
        self.starts.append(self.starts[-1] + piece.count)

    def append_merged(self, ordinals: "array[int]", offsets: "array[int]", turns: Sequence[int]) -> None:
        """Pack these runs, and append them as a new piece. They must follow all runs that are already packed. Small
        pieces before the new piece are merged into it."""
        while (
            self.pieces
            and self.pieces[-1].archived is None
            and self.pieces[-1].count <= len(ordinals) <= PIECE_RUNS - self.pieces[-1].count
        ):
            earlier = self._drop_last()
            ordinals, offsets = earlier[0] + ordinals, earlier[1] + offsets
        self.append(ordinals, offsets, turns)

    def unpack_from(self, ordinal: int) -> RunColumns:
        """Find the last piece that begins before the ordinal. Remove that piece and all later pieces, and return the
        runs of that piece. Return no runs if there is no such piece."""
        pieces = self.pieces[: bisect_left(self.first_ordinals, ordinal)]
        last = pieces.pop() if pieces else None
        columns = last.open().unpack() if last else (array("q"), array("q"))
        self.replace(pieces)
        return columns

    def archive(self, parts: Sequence[ArchivedPart], turns: Sequence[int]) -> None:
        """Replace archived runs with pieces whose runs are read from the archive when they are needed. Each part
        describes consecutive runs in the archive. The parts must be in ascending order of ordinals.

        A piece is split if only some of its runs are archived. A part is ignored if its number of runs differs from the
        number of packed runs in the same range of ordinals.
        """
        pieces, kept, at = list(self.pieces), list[PackedPiece](), 0
        for part in parts:
            start, last = part.runs.first_ordinal, part.runs.last_ordinal
            while at < len(pieces) and pieces[at].last_ordinal < start:
                kept.append(pieces[at])
                at += 1
            end = at
            while end < len(pieces) and pieces[end].first_ordinal <= last:
                end += 1
            if not any(piece.archived for piece in pieces[at:end]):
                before, within, behind = self._split(pieces[at:end], start, last, turns)
                if within == part.runs.count:
                    pieces[at:end] = [*before, self._memory.archived(part), *behind]
        self.replace([*kept, *pieces[at:]])

    def at(self, position: int) -> tuple[int, int]:
        """Return the ordinal and the offset at which the run at this position begins. The position of a run is the
        number of runs before it."""
        number = bisect_right(self.starts, position) - 1
        if position == self.starts[number]:
            return self.first_ordinals[number], self.first_offsets[number]
        block, position = divmod(position - self.starts[number], BLOCK_RUNS)
        ordinals, offsets = self.pieces[number].block(block)
        return ordinals[position], offsets[position]

    def around(self, ordinal: int) -> tuple["array[int]", "array[int]", int]:
        """Return the ordinals and offsets of runs around an ordinal, and the position of the first of these runs. These
        are all runs of one block, which is the part of a piece that is unpacked at once (`BLOCK_RUNS`)."""
        number = max(bisect_right(self.first_ordinals, ordinal) - 1, 0)
        piece = self.pieces[number]
        block = piece.open().block_of(ordinal)
        return *piece.block(block), self.starts[number] + block * BLOCK_RUNS

    def floor(self, offset: int, first: int, end: int) -> int:
        """Return the position of the last run that begins at or below an offset. Only the positions from `first` up to
        but not including `end` are searched (see `Runs.floor`)."""
        lowest, highest = (bisect_right(self.starts, each) - 1 for each in (first, end - 1))
        number = bisect_right(self.first_offsets, offset, lowest + 1, highest + 1) - 1
        piece, start = self.pieces[number], self.starts[number]
        index = piece.open().offsets
        first_here, end_here = max(first - start, 0), min(end - start, piece.count)
        lowest, highest = first_here // BLOCK_RUNS, (end_here - 1) // BLOCK_RUNS
        block = bisect_right(index, offset, lowest + 1, highest + 1) - 1
        offsets, start_here = piece.block(block)[1], block * BLOCK_RUNS
        lower, upper = max(first_here - start_here, 0), min(end_here - start_here, len(offsets))
        return start + start_here + bisect_right(offsets, offset, lower, upper) - 1

    def columns(self, position: int) -> Iterator[RunColumns]:
        """Yield the ordinals and offsets of the packed runs from `position` to the last one. Each result contains up to
        `BLOCK_RUNS` runs."""
        while position < self.starts[-1]:
            number = bisect_right(self.starts, position) - 1
            block, skipped = divmod(position - self.starts[number], BLOCK_RUNS)
            ordinals, offsets = self.pieces[number].open().inflate(block)
            position += len(ordinals) - skipped
            yield ordinals[skipped:], offsets[skipped:]

    def _split(
        self, pieces: Sequence[PackedPiece], first: int, last: int, turns: Sequence[int]
    ) -> tuple[list[PackedPiece], int, list[PackedPiece]]:
        """Split these pieces at the ordinals `first` and `last`.

        Return the pieces before `first`, the number of runs that begin between `first` and `last` (inclusive), and the
        pieces after `last`.
        """
        before: list[PackedPiece] = []
        behind: list[PackedPiece] = []
        within = 0
        for piece in pieces:
            if first <= piece.first_ordinal and piece.last_ordinal <= last:
                within += piece.count
                continue
            ordinals, offsets = piece.open().unpack()
            low, high = bisect_left(ordinals, first), bisect_right(ordinals, last)
            within += high - low
            if low:
                before.append(self._pack(ordinals[:low], offsets[:low], turns))
            if high < len(ordinals):
                behind.append(self._pack(ordinals[high:], offsets[high:], turns))
        return before, within, behind

    def _pack(self, ordinals: "array[int]", offsets: "array[int]", turns: Sequence[int]) -> PackedPiece:
        own = [turn for turn in turns if ordinals[0] <= turn <= ordinals[-1]]
        return self._memory.keep(pack(ordinals, offsets, own))

    def _drop_last(self) -> RunColumns:
        """Remove the last piece, and return its runs."""
        for column in (self.first_ordinals, self.first_offsets, self.starts):
            column.pop()
        return self.pieces.pop().open().unpack()
