"""How much of a flow's runs a process keeps in memory: half of its room for the newest runs, half for packed pieces.

The newest runs of each partition are always here: the more partitions, the sooner they are packed. Of the pieces those
stay here that were made or looked into last. The others go to an attic, a place outside memory, and come back when
somebody looks into them. So every question has the same answer with any room, and some take longer. What lies in the
archive (`mirrord.model.archive`) is read from there when it is asked for, and stays as long as there is room.
"""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Protocol

from mirrord.model.archive import Archive, ArchivedPart, ArchivedRuns, ArchiveLost
from mirrord.model.packed_runs import Columns, Packed

RUN_BYTES = 16
"""A run that is not packed."""
PIECE_RUNS = 8192
"""Runs in a packed piece. At least so many of the newest are not packed, and less than twice as many, unless memory is
short."""
FEWEST_RUNS = 128
"""So few are not packed, however short memory is."""
UNPACKED_BLOCKS = 2048
"""So many blocks, of 2 KiB each, are kept unpacked in a process."""
BLOCKS_BYTES = 4 << 20
PIECE_BYTES = 512
"""What is always in memory of a piece, with its key in the state topic."""


class Attic(Protocol):
    """A place for bytes outside memory. Nothing in it outlives the process."""

    def put(self, data: bytes) -> int | None:
        """The number under which they lie there; None when there is no room."""
        ...

    def get(self, number: int) -> bytes:
        """They stay there, too."""
        ...

    def free(self, number: int) -> None:
        """They are wanted no longer."""
        ...


class RunMemory:
    """The room for the runs of one flow in one process. Its pieces are dropped when nobody holds them any more."""

    def __init__(
        self, limit_bytes: int | None = None, attic: Attic | None = None, archive: Archive | None = None
    ) -> None:
        """Without a limit, or without an attic, everything stays in memory."""
        self.archive = archive
        """Where pieces are read that the ledger does not hold any more."""
        self.piece_runs = PIECE_RUNS
        """So many runs become a piece, as soon as there are twice as many that are not packed."""
        self._attic = attic
        self._limit = limit_bytes if attic is not None else None
        self._users = 0
        self._next = 0
        self._pieces = 0
        self._here: OrderedDict[int, Packed] = OrderedDict()
        self._here_bytes = 0
        self._away: dict[int, int] = {}
        """What lies in the attic, whether it is here, too, or not."""
        self._archived: dict[int, ArchivedPart] = {}
        self._dropped: list[int] = []

    @property
    def packed_bytes(self) -> int:
        """What the pieces take in memory now."""
        return self._here_bytes + self._pieces * PIECE_BYTES

    def limit(self, limit_bytes: int) -> None:
        """From now on there is so much room."""
        if self._attic is not None:
            self._limit = limit_bytes
            self._share()

    def join(self) -> None:
        """One more list of runs draws on it."""
        self._users += 1
        self._share()

    def leave(self) -> None:
        """One less; what that leaves is shared when the next one comes."""
        self._users -= 1

    def keep(self, packed: bytes) -> "Piece":
        """A new piece. Raises ValueError when it is none."""
        opened = Packed(packed)
        number, self._next = self._next, self._next + 1
        piece = Piece(self, number, opened)
        self._pieces += 1
        self._take_in(number, opened)
        return piece

    def archived(self, part: ArchivedPart) -> "Piece":
        """A piece of the archive. It is not looked into before somebody asks."""
        number, self._next = self._next, self._next + 1
        self._archived[number] = part
        self._pieces += 1
        return Piece(self, number, part)

    def open(self, number: int) -> Packed:
        """A piece's runs."""
        found = self._here.get(number)
        if found is None:
            found = Packed(self._from_archive(number) if number in self._archived else self._from_attic(number))
            self._take_in(number, found)
        elif self._limit is not None:
            with suppress(KeyError):  # another thread, which only reports, was quicker
                self._here.move_to_end(number)
        return found

    def drop(self, number: int) -> None:
        """Nobody holds this piece any more. May be called at any moment, so it only takes a note."""
        self._dropped.append(number)

    def _from_archive(self, number: int) -> bytes:
        if self.archive is None:
            raise ArchiveLost("the older part of the map was compacted, and no [compact] path says where it lies")
        return self.archive.get(self._archived[number])

    def _from_attic(self, number: int) -> bytes:
        assert self._attic is not None  # noqa: S101
        return self._attic.get(self._away[number])

    def _share(self) -> None:
        if self._limit is None:
            return
        room = self._half() // (2 * RUN_BYTES * max(self._users, 1))
        self.piece_runs = min(max(1 << room.bit_length() >> 1, FEWEST_RUNS), PIECE_RUNS)

    def _half(self) -> int:
        return max((self._limit or 0) - BLOCKS_BYTES, 0) // 2

    def _take_in(self, number: int, opened: Packed) -> None:
        self._sweep()
        self._here[number] = opened
        self._here_bytes += opened.size_bytes
        if self._limit is None or self._attic is None:
            return
        while self.packed_bytes > self._half() and len(self._here) > 1:
            oldest, packed = next(iter(self._here.items()))
            if oldest not in self._away and oldest not in self._archived:
                place = self._attic.put(packed.packed)
                if place is None:
                    return
                self._away[oldest] = place
            del self._here[oldest]
            self._here_bytes -= packed.size_bytes

    def _sweep(self) -> None:
        while self._dropped:
            number = self._dropped.pop()
            self._pieces -= 1
            self._archived.pop(number, None)
            packed = self._here.pop(number, None)
            if packed is not None:
                self._here_bytes -= packed.size_bytes
            place = self._away.pop(number, None)
            if place is not None and self._attic is not None:
                self._attic.free(place)


class Piece:
    """Packed runs that never change, wherever they lie. Equal to another one only when it is the same."""

    __slots__ = (
        "_memory",
        "_number",
        "archived",
        "checksum",
        "count",
        "first_offset",
        "first_ordinal",
        "last_offset",
        "last_ordinal",
        "turns",
    )

    def __init__(self, memory: RunMemory, number: int, told: Packed | ArchivedPart) -> None:
        self._memory = memory
        self._number = number
        self.archived: ArchivedRuns | None = None
        """Where it lies, if not in the ledger."""
        self.checksum: int | None = None
        """For whoever wants to remember one of `packed`."""
        if isinstance(told, Packed):
            self.first_ordinal, self.first_offset = told.ordinals[0], told.offsets[0]
            head = told
        else:
            head = self.archived = told.runs
            self.first_ordinal, self.first_offset = head.first_ordinal, head.first_offset
        self.count = head.count
        self.last_ordinal = head.last_ordinal
        self.last_offset = head.last_offset
        self.turns: Sequence[int] = head.turns

    def __del__(self) -> None:
        self._memory.drop(self._number)

    @property
    def packed(self) -> bytes:
        """As `pack` made it."""
        return self.open().packed

    def open(self) -> Packed:
        """Its runs."""
        return self._memory.open(self._number)

    def block(self, number: int) -> Columns:
        """The runs of a block; not to be changed."""
        return _block(self, number)


@lru_cache(maxsize=UNPACKED_BLOCKS)
def _block(piece: Piece, number: int) -> Columns:
    return piece.open().inflate(number)


ALL_OF_IT = RunMemory()
"""Everything stays in memory."""
