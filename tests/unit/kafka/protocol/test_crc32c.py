"""The algebra against the checksum function itself."""

import random
from itertools import pairwise

import pytest

from mirrord.kafka.protocol.crc32c import HEAD_LENGTH, UNIT, advance, carried, checksum, records_crc

LENGTHS = [0, 1, 3, 40, 100, UNIT - 1, UNIT, UNIT + 1, 16_000, 65_536, 3 * UNIT + 7, 255 * UNIT, 1_500_001]


def test_the_checksum_is_castagnoli() -> None:
    # The check value of CRC-32/ISCSI in every catalogue of CRCs.
    assert checksum(b"123456789") == 0xE3069283
    assert checksum(memoryview(bytearray(b"123456789"))) == 0xE3069283


@pytest.mark.parametrize("length", LENGTHS)
def test_a_carried_crc_is_the_one_that_would_be_computed(length: int, seed: int) -> None:
    chance = random.Random(seed + length)
    records, old, new = (chance.randbytes(size) for size in (length, HEAD_LENGTH, HEAD_LENGTH))
    assert carried(checksum(old + records), old, new, length) == checksum(new + records)
    assert records_crc(checksum(old + records), old, length) == checksum(records)


def test_a_wrong_crc_stays_wrong() -> None:
    old, new, records = bytes(HEAD_LENGTH), b"x" * HEAD_LENGTH, b"records"
    damaged = checksum(old + records) ^ 0x10
    assert carried(damaged, old, new, len(records)) == checksum(new + records) ^ 0x10


def test_zeros_add_up() -> None:
    for many, more in pairwise(LENGTHS):
        at_once = advance(0x1234ABCD, b"", many + more)
        assert advance(advance(0x1234ABCD, b"", many), b"", more) == at_once
