"""Any bytes as old messages give a batch of the lane, or a ValueError, which halts the lane; nothing else."""

import random
from contextlib import suppress
from itertools import pairwise

from aiokafka.codec import gzip_encode
from hypothesis import given
from hypothesis import strategies as st

from mirrord.kafka.protocol.errors import Malformed
from mirrord.kafka.protocol.legacy_messages import group
from mirrord.kafka.protocol.record_batch import intact
from mirrord.replication.lane.second_path import RebuildRequest
from tests.fixtures.old_messages import Magic, Message, messages, with_checksum
from tests.fixtures.rebuilt import rebuild

MAGICS = st.sampled_from((0, 1))
NUMBERS = st.integers(0, 1 << 32)


def attempt(data: bytes) -> None:
    with suppress(ValueError):
        rebuilt = rebuild(RebuildRequest(bytearray(data), 0, len(data), 0, 1, 0, 0))
        if rebuilt is None:
            return
        assert intact(rebuilt.data, 0, len(rebuilt.data))
        ends = [(offset, offset + length) for offset, length in rebuilt.pieces]
        assert all(earlier[1] < later[0] for earlier, later in pairwise(ends))


def some(magic: Magic, codec: int, chance: random.Random) -> bytes:
    records = [
        Message(10 + 2 * number, chance.randrange(1 << 41), chance.choice([None, b"", b"key"]), chance.randbytes(9))
        for number in range(chance.randrange(1, 6))
    ]
    return messages(magic, records, codec)


@given(data=st.binary(max_size=120), magic=MAGICS, sound=st.booleans())
def test_any_bytes(data: bytes, magic: Magic, sound: bool) -> None:
    message = bytearray(bytes(8) + len(data).to_bytes(4) + data)
    if len(message) > 16:
        message[16] = magic
    attempt(with_checksum(message) if sound and len(message) > 16 else bytes(message))
    with suppress(Malformed):
        group(message, 0, len(message))


@given(magic=MAGICS, codec=st.sampled_from((0, 1, 2, 3)), seed=NUMBERS, flips=st.lists(NUMBERS, min_size=1, max_size=4))
def test_damage_with_a_matching_checksum(magic: Magic, codec: int, seed: int, flips: list[int]) -> None:
    codec = 1 if (magic, codec) == (0, 3) else codec
    data = bytearray(some(magic, codec, random.Random(seed)))
    for flip in flips:
        at = flip % (len(data) * 8)
        data[at // 8] ^= 1 << at % 8
    if data[16] <= 1:
        attempt(with_checksum(data))
    attempt(bytes(data))


@given(seed=NUMBERS, flips=st.lists(NUMBERS, min_size=1, max_size=4))
def test_damage_inside_a_wrapper(seed: int, flips: list[int]) -> None:
    """The unpacked bytes are as random as the packed ones."""
    chance = random.Random(seed)
    inside = bytearray(some(chance.choice((0, 1)), 0, chance))
    for flip in flips:
        at = flip % (len(inside) * 8)
        inside[at // 8] ^= 1 << at % 8
    attempt(wrapped(bytes(inside), chance.choice((0, 1))))


def wrapped(inside: bytes, magic: Magic) -> bytes:
    """These bytes, compressed, as the value of a wrapper."""
    value = gzip_encode(inside)
    body = bytes((magic, 1)) + (bytes(8) if magic else b"") + (-1).to_bytes(4, signed=True)
    body += len(value).to_bytes(4) + value
    return with_checksum(bytearray((10).to_bytes(8) + (4 + len(body)).to_bytes(4) + bytes(4) + body))
