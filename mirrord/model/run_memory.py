"""Limits the memory that a process uses for a flow's runs. Half of the limit is for the newest runs, and half is for
packed pieces of older runs.

The newest runs of each partition are always in memory. The more partitions there are, the sooner their runs are packed.
The most recently created or used pieces stay in memory. All other pieces are moved to a store outside memory (`Attic`),
and are loaded again when they are needed.

The limit does not affect the result of a lookup, only the time that the lookup takes. Pieces in the archive
(`mirrord.model.archived_runs`) are read when they are needed, and stay in memory while there is room.
"""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Protocol

from mirrord.model.archived_runs import Archive, ArchivedPart, ArchivedRuns, ArchiveLost
from mirrord.model.run_codec import Packed, RunColumns

RUN_BYTES = 16
"""Memory in bytes for an unpacked run."""
PIECE_RUNS = 8192
"""Maximum number of runs in a packed piece. It also determines how many runs a lane keeps unpacked on each side if
memory is not scarce. The lane keeps its newest runs unpacked: fewer than twice this number, but at least this number if
it has that many."""
FEWEST_RUNS = 128
"""Even if memory is scarce, a lane keeps at least this number of its newest runs unpacked on each side, or all its runs
if it has fewer."""
UNPACKED_BLOCKS = 2048
"""Maximum number of unpacked blocks that a process caches. A block takes 2 KiB."""
BLOCKS_BYTES = 4 << 20
PIECE_BYTES = 512
"""Memory in bytes that a piece takes even if its runs are not in memory. This includes the memory for the key under
which the state topic stores the piece."""


class Attic(Protocol):
    """A store for packed pieces outside memory. Its contents are lost when the process exits."""

    def put(self, data: bytes) -> int | None:
        """Store these bytes. Return the number under which they are stored, or None if there is no room."""
        ...

    def get(self, number: int) -> bytes:
        """Return the bytes that are stored under this number. The bytes remain in the store."""
        ...

    def free(self, number: int) -> None:
        """Remove the bytes that are stored under this number."""
        ...


class RunMemory:
    """Manages the memory for the runs of one flow in one process.

    The memory of a piece is released once no object refers to the piece.
    """

    def __init__(
        self, limit_bytes: int | None = None, attic: Attic | None = None, archive: Archive | None = None
    ) -> None:
        """`limit_bytes` limits the memory for all runs. Pieces that exceed the limit are moved to `attic`. If either of
        these arguments is None, all pieces stay in memory. `archive` holds runs that `mirrord compact` has moved."""
        self.archive = archive
        """The archive that holds the runs that `mirrord compact` has moved out of the ledger."""
        self.piece_runs = PIECE_RUNS
        """When one side of a lane has twice this number of unpacked runs, the older half is packed into a piece."""
        self._attic = attic
        self._limit = limit_bytes if attic is not None else None
        self._users = 0
        self._next = 0
        self._pieces = 0
        self._here: OrderedDict[int, Packed] = OrderedDict()
        self._here_bytes = 0
        self._away: dict[int, int] = {}
        """The pieces that are stored in the attic. Maps the number of a piece to the number under which the attic
        stores its bytes. The piece may also be in memory."""
        self._archived: dict[int, ArchivedPart] = {}
        self._dropped: list[int] = []

    @property
    def packed_bytes(self) -> int:
        """Memory in bytes that the packed pieces currently occupy."""
        return self._here_bytes + self._pieces * PIECE_BYTES

    def limit(self, limit_bytes: int) -> None:
        """Set a new limit, and recompute how many of the newest runs each list of runs may keep unpacked."""
        if self._attic is not None:
            self._limit = limit_bytes
            self._share()

    def join(self) -> None:
        """Register another list of runs that uses this memory. Then recompute how many of the newest runs each list may
        keep unpacked."""
        self._users += 1
        self._share()

    def leave(self) -> None:
        """Unregister a list of runs. Its share of the memory is divided among the other lists on the next call to
        `join` or `limit`."""
        self._users -= 1

    def keep(self, packed: bytes) -> "PackedPiece":
        """Create a piece from packed runs. Raises ValueError if the data is not a packed piece."""
        opened = Packed(packed)
        number, self._next = self._next, self._next + 1
        piece = PackedPiece(self, number, opened)
        self._pieces += 1
        self._take_in(number, opened)
        return piece

    def archived(self, part: ArchivedPart) -> "PackedPiece":
        """Create a piece for runs in the archive. The runs are read when they are first needed."""
        number, self._next = self._next, self._next + 1
        self._archived[number] = part
        self._pieces += 1
        return PackedPiece(self, number, part)

    def open(self, number: int) -> Packed:
        """Return the packed runs of the piece with this number. Load them first if they are not in memory."""
        found = self._here.get(number)
        if found is None:
            found = Packed(self._from_archive(number) if number in self._archived else self._from_attic(number))
            self._take_in(number, found)
        elif self._limit is not None:
            with suppress(KeyError):  # a thread that creates a report may have removed the piece from memory
                self._here.move_to_end(number)
        return found

    def drop(self, number: int) -> None:
        """Record that the piece with this number is no longer referenced by any object.

        Python's garbage collector may call this method at any moment, even while another method of this object is
        running. Therefore the memory of the piece is released later.
        """
        self._dropped.append(number)

    def _from_archive(self, number: int) -> bytes:
        if self.archive is None:
            raise ArchiveLost("the older part of the map was compacted, and no [compact] path says where it is")
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


class PackedPiece:
    """A piece of packed runs. Its bytes are in memory, in the store outside memory (`Attic`), or in the files of
    `mirrord compact` (the archive). A piece is equal only to itself, even if another piece contains the same runs."""

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

    def __init__(self, memory: RunMemory, number: int, content: Packed | ArchivedPart) -> None:
        self._memory = memory
        self._number = number
        self.archived: ArchivedRuns | None = None
        """The summary of the runs, if they are in the archive. Otherwise None."""
        self.checksum: int | None = None
        """A checksum of `packed`, if a caller has computed and stored it here. Otherwise None."""
        if isinstance(content, Packed):
            self.first_ordinal, self.first_offset = content.ordinals[0], content.offsets[0]
            head = content
        else:
            head = self.archived = content.runs
            self.first_ordinal, self.first_offset = head.first_ordinal, head.first_offset
        self.count = head.count
        self.last_ordinal = head.last_ordinal
        self.last_offset = head.last_offset
        self.turns: Sequence[int] = head.turns

    def __del__(self) -> None:
        self._memory.drop(self._number)

    @property
    def packed(self) -> bytes:
        """The packed runs, in the form that `mirrord.model.run_codec.pack` returns."""
        return self.open().packed

    def open(self) -> Packed:
        """Return the packed runs. Load them first if they are not in memory."""
        return self._memory.open(self._number)

    def block(self, number: int) -> RunColumns:
        """Return the runs of the block with this number. The result is cached, so the caller must not change it."""
        return _block(self, number)


@lru_cache(maxsize=UNPACKED_BLOCKS)
def _block(piece: PackedPiece, number: int) -> RunColumns:
    return piece.open().inflate(number)


ALL_OF_IT = RunMemory()
"""A `RunMemory` without a limit, in which all pieces stay in memory."""
