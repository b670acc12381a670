"""CRC-32C (Castagnoli), with functions that adjust a checksum to changed bytes instead of computing it again.

The register of a CRC is linear over GF(2). When some bytes of the data change, the checksum changes by the register for
the following sequence: the XOR difference of these bytes, and then as many zero bytes as there are bytes after them. So
the records after a changed header are never read. Zero bytes are cheap: up to 4 KiB are passed to the checksum
function, and all whole units of 4 KiB together take one look-up in four tables.
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
"""Number of bytes of a v2 batch header that the CRC covers: from the attributes to the record count
(DefaultRecordBatch)."""

Operator = tuple[list[int], list[int], list[int], list[int]]
"""The effect of zero bytes on a register, as a table for each of its four bytes, lowest byte first."""


def checksum(data: Bytes) -> int:
    """Return the CRC-32C of the bytes. They are copied first, because the checksum function accepts only `bytes`."""
    return value(bytes(data))


def advance(register: int, data: bytes, zeros: int) -> int:
    """Return the CRC register after `data` and then `zeros` zero bytes, without the usual inversions at start and end.

    Takes about 1 µs for any number of zeros below 4 MiB. Allocates one copy of `data`, followed by at most 4 KiB of
    zeros.
    """
    register = extend(register ^ ONES, data + _ZEROS[: zeros & (UNIT - 1)]) ^ ONES
    units = zeros >> UNIT_BITS
    if units:
        lowest, low, high, highest = _operator(units)
        return lowest[register & 255] ^ low[register >> 8 & 255] ^ high[register >> 16 & 255] ^ highest[register >> 24]
    return register


def carried(old_crc: int, old_head: Bytes, new_head: Bytes, records_length: int) -> int:
    """Return the CRC of a batch after its head was replaced by another of the same length, computed from the previous
    CRC.

    If the old CRC was wrong, so is the new one. A damaged batch therefore remains recognizable.
    """
    difference = int.from_bytes(bytes(old_head)) ^ int.from_bytes(bytes(new_head))
    return old_crc ^ advance(0, difference.to_bytes(HEAD_LENGTH), records_length)


def records_crc(header_crc: int, head: Bytes, records_length: int) -> int:
    """Return the CRC of a batch's records alone, computed from the CRC in its header. It stays the same when a batch is
    copied raw."""
    return header_crc ^ advance(checksum(head), b"", records_length)


# 4 MiB batches are rare, and larger ones cost milliseconds anyway, so 1,024 operators (40 KB each) cover every length
# that matters. Keeping one operator per exact length instead would save 0.5 µs a batch while lengths repeat, but cost
# 200 µs for each new length. Compressed batches hardly ever repeat a length.
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
    """Return the four tables of an operator, given its effect on each of the 32 single bits.

    The effect on a byte is the XOR of the effects on its bits.
    """
    tables: list[list[int]] = []
    for first in range(0, 32, 8):
        table = [0] * 256
        for byte in range(1, 256):
            lowest = byte & -byte
            table[byte] = table[byte ^ lowest] ^ images[first + lowest.bit_length() - 1]
        tables.append(table)
    return tables[0], tables[1], tables[2], tables[3]
