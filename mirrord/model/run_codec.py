"""Defines the packed form of a lane's older runs.

A packed run takes one to three bytes. A piece of packed runs is created once and never changes. Its runs are divided
into blocks, and an index at the beginning of the piece contains the first run of each block. A lookup therefore unpacks
only one block.

A block stores how much each ordinal exceeds the previous one, and how much the difference between offset and ordinal
changes from run to run. All numbers of the same kind in a block have the same width: the smallest of 1, 2, 4 and 8
bytes that fits all of them. The block is then compressed with deflate.
"""

import struct
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import add, sub
from sys import byteorder

BLOCK_RUNS = 128
"""Number of runs in a block. The last block of a piece may contain fewer runs. The number is part of the format, so it
cannot be changed."""

_HEAD = struct.Struct("<IIIqq")
"""The header of a piece. It contains the number of runs, the number of blocks, the number of ordinals in
`Packed.turns`, and the ordinal and offset of the last run."""
_ORDINAL_CODES = "BHIQ"
_OFFSET_CODES = "bhiq"
_HALF = 1 << 63
_OBJECTS_BYTES = 512
"""Memory in bytes that Python needs for a `Packed` object, excluding the packed bytes and the numbers in the index."""

RunColumns = tuple["array[int]", "array[int]"]
"""The ordinals and the offsets at which consecutive runs begin, as two arrays."""


class Packed:
    """One piece of packed runs. The index of its blocks is unpacked, but the blocks are not."""

    __slots__ = ("_ends", "_start", "count", "last_offset", "last_ordinal", "offsets", "ordinals", "packed", "turns")

    def __init__(self, packed: bytes) -> None:
        """Unpack the index of a piece, but not its blocks. `packed` must be a result of `pack`. Raises ValueError if it
        is not."""
        try:
            self.count, blocks, turns, self.last_ordinal, self.last_offset = _HEAD.unpack_from(packed)
            numbers = _numbers(packed[_HEAD.size : _HEAD.size + 8 * (3 * blocks + turns)])
        except (struct.error, ValueError) as error:
            raise ValueError(f"not packed runs: {error}") from None
        if len(numbers) != 3 * blocks + turns or not 0 < blocks <= self.count <= blocks * BLOCK_RUNS:
            raise ValueError("not packed runs: cut off")
        self.packed = packed
        self.ordinals = numbers[:blocks]
        """The ordinal at which each block begins. `offsets` contains the offset at which each block begins."""
        self.offsets = numbers[blocks : 2 * blocks]
        self._ends = numbers[2 * blocks : 3 * blocks]
        self.turns: Sequence[int] = numbers[3 * blocks :]
        self._start = _HEAD.size + 8 * len(numbers)
        if self._start + self._ends[-1] != len(packed):
            raise ValueError("not packed runs: of another length")

    @property
    def size_bytes(self) -> int:
        """Memory in bytes that this object occupies."""
        return len(self.packed) + self._start - _HEAD.size + _OBJECTS_BYTES

    def block_of(self, ordinal: int) -> int:
        """Return the number of the block that contains an ordinal, or 0 if the ordinal is before the first block."""
        return max(bisect_right(self.ordinals, ordinal) - 1, 0)

    def unpack(self) -> RunColumns:
        """Return all runs of the piece. Raises ValueError if the data is damaged."""
        ordinals, offsets = array("q"), array("q")
        try:
            for number in range(len(self.ordinals)):
                more = self.inflate(number)
                ordinals += more[0]
                offsets += more[1]
        except (zlib.error, IndexError, OverflowError, ValueError) as error:
            raise ValueError(f"damaged packed runs: {error}") from None
        if not len(ordinals) == len(offsets) == self.count:
            raise ValueError("damaged packed runs: not as many as there should be")
        return ordinals, offsets

    def inflate(self, number: int) -> RunColumns:
        """Unpack the runs of the block with this number. The result is not cached. Raises zlib.error, IndexError or
        ValueError if the data is damaged."""
        start = self._start + (self._ends[number - 1] if number else 0)
        block = self.packed[start : self._start + self._ends[number]]
        count = min(BLOCK_RUNS, self.count - number * BLOCK_RUNS) - 1
        widths = block[0]
        width = count << (widths & 3)
        length = width + (count << (widths >> 2))
        # Whoever can write to the ledger can put a block of a kilobyte there that decompresses to a megabyte.
        columns = zlib.decompressobj(-zlib.MAX_WBITS).decompress(block[1:], length + 1)
        if len(columns) != length:
            raise ValueError("a block of another length")
        steps = _numbers(columns[:width], _ORDINAL_CODES[widths & 3])
        gaps = _numbers(columns[width:], _OFFSET_CODES[widths >> 2])
        ordinals = array("q", accumulate(steps, initial=self.ordinals[number]))
        ahead = accumulate(gaps, initial=self.offsets[number] - self.ordinals[number])
        offsets = list(map(add, ordinals, ahead))
        try:
            return ordinals, array("q", offsets)
        except OverflowError:
            return ordinals, array("q", map(_wrapped, offsets))


def pack(ordinals: "array[int]", offsets: "array[int]", turns: Sequence[int]) -> bytes:
    """Pack runs into one piece. `turns` contains the first ordinal of each run whose first offset is lower than the end
    of the previous run."""
    starts = range(0, len(ordinals), BLOCK_RUNS)
    blocks = [_pack_block(ordinals[at : at + BLOCK_RUNS], offsets[at : at + BLOCK_RUNS]) for at in starts]
    numbers = array("q", [ordinals[at] for at in starts])
    numbers.extend(offsets[at] for at in starts)
    numbers.extend(accumulate(map(len, blocks)))
    numbers.extend(turns)
    head = _HEAD.pack(len(ordinals), len(blocks), len(turns), ordinals[-1], offsets[-1])
    return b"".join((head, _bytes(numbers), *blocks))


def _pack_block(ordinals: "array[int]", offsets: "array[int]") -> bytes:
    ahead = array("q", map(sub, offsets, ordinals))
    first, steps = _narrow(_ORDINAL_CODES, map(sub, ordinals[1:], ordinals))
    second, gaps = _narrow(_OFFSET_CODES, map(sub, ahead[1:], ahead))
    deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    return bytes((first | second << 2,)) + deflate.compress(steps + gaps) + deflate.flush()


def _narrow(codes: str, numbers: Iterator[int]) -> tuple[int, bytes]:
    wide = list(numbers)
    for width, code in enumerate(codes):
        try:
            return width, _bytes(array(code, wide))
        except OverflowError:
            continue
    # If two offsets differ by more than half of the range of int64, their difference is stored modulo 2^64.
    return len(codes) - 1, _bytes(array(codes[-1], map(_wrapped, wide)))


def _wrapped(number: int) -> int:
    """Return the int64 that is equal to this number modulo 2^64."""
    return (number + _HALF) % (2 * _HALF) - _HALF


def _bytes(column: "array[int]") -> bytes:
    if byteorder == "big":
        column.byteswap()
    return column.tobytes()


def _numbers(packed: bytes, code: str = "q") -> "array[int]":
    numbers: array[int] = array(code)  # pyright: ignore[reportCallIssue, reportArgumentType]
    numbers.frombytes(packed)
    if byteorder == "big":
        numbers.byteswap()
    return numbers
