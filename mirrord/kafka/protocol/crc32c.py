"""Computes CRC-32C checksums (Castagnoli). If some bytes of the data change, `carried` adjusts the checksum instead of
computing it again.

The register of a CRC is linear over GF(2). Therefore the change in the checksum depends only on the changed bytes, and
on the number of bytes after them. The change is computed with a register that begins at zero. The register first
processes the XOR of the old and the new bytes. It then processes one zero byte for each unchanged byte that follows.
The result is the XOR of the old and the new checksum. With this method, the records after a changed header do not have
to be read.

Processing the zero bytes takes little time. All whole units of 4 KiB are processed in one step: the new register is the
XOR of four values, each of which is looked up in a separate table. Only the remaining zeros, less than 4 KiB, are
passed to the checksum function.
"""

from collections.abc import Callable
from functools import lru_cache

import google_crc32c

Bytes = bytes | bytearray | memoryview

extend: Callable[[int, bytes], int] = google_crc32c.extend  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
value: Callable[[bytes], int] = google_crc32c.value  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

ONES = 0xFFFFFFFF
UNIT_BITS = 12
UNIT = 1 << UNIT_BITS
_ZEROS = bytes(UNIT)

HEAD_LENGTH = 40
"""Number of bytes of a v2 batch header that the CRC covers, from the attributes to the record count
(DefaultRecordBatch)."""

Operator = tuple[list[int], list[int], list[int], list[int]]
"""The effect of a fixed number of zero bytes on a CRC register, as four tables: one for each byte of the register,
lowest byte first. The new register is the XOR of one value from each table."""


def checksum(data: Bytes) -> int:
    """Return the CRC-32C of the bytes. The bytes are copied first, because the checksum function accepts only
    `bytes`."""
    return value(bytes(data))


def advance(register: int, data: bytes, zeros: int) -> int:
    """Return the CRC register after it has processed `data` and then `zeros` zero bytes, without the usual inversions
    at the start and the end.

    The call takes about 1 µs for any number of zeros below 4 MiB. It allocates one object with a copy of `data` and
    less than 4 KiB of zeros.
    """
    register = extend(register ^ ONES, data + _ZEROS[: zeros & (UNIT - 1)]) ^ ONES
    units = zeros >> UNIT_BITS
    if units:
        lowest, low, high, highest = _operator(units)
        return lowest[register & 255] ^ low[register >> 8 & 255] ^ high[register >> 16 & 255] ^ highest[register >> 24]
    return register


def carried(old_crc: int, old_head: Bytes, new_head: Bytes, records_length: int) -> int:
    """Return the new CRC of a batch whose header fields have been replaced, computed from the old CRC. `old_head` and
    `new_head` are the header bytes that the CRC covers, before and after the change. Both have the same length.

    If the old CRC is wrong, the new CRC is also wrong. A damaged batch therefore remains detectable.
    """
    difference = int.from_bytes(bytes(old_head)) ^ int.from_bytes(bytes(new_head))
    return old_crc ^ advance(0, difference.to_bytes(HEAD_LENGTH), records_length)


def records_crc(header_crc: int, head: Bytes, records_length: int) -> int:
    """Return the CRC of a batch's records without the header, computed from the CRC in the header. This CRC remains the
    same when a batch is copied raw."""
    return header_crc ^ advance(checksum(head), b"", records_length)


# The cache holds 1,024 operators of 40 KB each, one for each number of 4 KiB units up to 4 MiB. Larger batches are rare
# and take milliseconds anyway. One operator for each exact length would save 0.5 µs per batch if lengths repeated, but
# would cost 200 µs for each new length. Compressed batches seldom have the same length.
@lru_cache(maxsize=1024)
def _operator(units: int) -> Operator:
    if units == 1:
        return _tabulate([advance(1 << bit, _ZEROS, 0) for bit in range(32)])
    half, rest = _operator(units // 2), _operator(units - units // 2)
    return _tabulate([_apply(rest, _apply(half, 1 << bit)) for bit in range(32)])


def _apply(operator: Operator, register: int) -> int:
    lowest, low, high, highest = operator
    return lowest[register & 255] ^ low[register >> 8 & 255] ^ high[register >> 16 & 255] ^ highest[register >> 24]


def _tabulate(images: list[int]) -> Operator:
    """Return the four tables of an `Operator`. For each of the 32 bits of the register, `images` contains the register
    after the zero bytes if only this bit was set before them.

    The table entry for a byte is the XOR of the entries for its set bits.
    """
    tables: list[list[int]] = []
    for first in range(0, 32, 8):
        table = [0] * 256
        for byte in range(1, 256):
            lowest = byte & -byte
            table[byte] = table[byte ^ lowest] ^ images[first + lowest.bit_length() - 1]
        tables.append(table)
    return tables[0], tables[1], tables[2], tables[3]
