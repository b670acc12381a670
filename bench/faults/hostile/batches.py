"""Record batches that no honest broker sends. Pure."""

import zlib
from functools import cache

import cramjam

from bench.faults.hostile.rotation import BATCHES
from mirrord.kafka.protocol.crc32c import checksum
from mirrord.kafka.protocol.primitives import unsigned_varint
from mirrord.kafka.protocol.record_batch import HEAD_OFFSET, HEADER, SHORTEST_LENGTH
from mirrord.kafka.records.bounded_decompression import GZIP, ZSTD

BOMB_BYTES = (1 << 30) + (64 << 20)
"""The size of a bomb after decompression."""
_PART_BYTES = 16 << 20
_MOST = (1 << 31) - 1
_STEP = 10
_VALUE = b"hostile"
_LIE = 1_000_000


def answer(attack: str, offset: int) -> tuple[bytes, int]:
    """Return the records section for a fetch from this offset, and by how many bytes its announced length is longer."""
    match attack:
        case "zstd bomb":
            return batch(offset, bomb(ZSTD), codec=ZSTD), 0
        case "gzip bomb":
            return batch(offset, bomb(GZIP), codec=GZIP), 0
        case "2^31-1 records":
            return batch(offset, _record(), count=_MOST, delta=_MOST - 1), 0
        case "broken CRC":
            return batch(offset, _record(), crc_change=1), 0
        case "offsets that run backwards":
            return b"".join(batch(max(0, offset - _STEP * at), _record()) for at in range(3)), 0
        case "records beyond the frame":
            return batch(offset, _record()), _LIE
        case _:
            raise ValueError(f"{attack} is none of {', '.join(BATCHES)}")


def batch(
    base: int, records: bytes, *, codec: int = 0, count: int = 1, delta: int | None = None, crc_change: int = 0
) -> bytes:
    """Return a batch without a producer id. `crc_change` is XORed to its checksum."""
    last = count - 1 if delta is None else delta
    length = SHORTEST_LENGTH + len(records)
    header = bytearray(HEADER.size)
    HEADER.pack_into(header, 0, base, length, 0, 2, 0, codec, last, 0, 0, -1, -1, -1, count)
    crc = checksum(bytes(header[HEAD_OFFSET:]) + records) ^ crc_change
    HEADER.pack_into(header, 0, base, length, 0, 2, crc, codec, last, 0, 0, -1, -1, -1, count)
    return bytes(header) + records


@cache
def bomb(codec: int) -> bytes:
    """Return zeros in this codec: a few kilobytes with zstd, one megabyte with gzip."""
    part = bytes(_PART_BYTES)
    if codec == ZSTD:
        # Frames that follow each other decompress to their contents one after the other.
        return bytes(cramjam.zstd.compress(part, level=19)) * (BOMB_BYTES // _PART_BYTES)
    squeezer = zlib.compressobj(9, wbits=31)
    parts = [squeezer.compress(part) for _ in range(BOMB_BYTES // _PART_BYTES)]
    return b"".join([*parts, squeezer.flush()])


def _record() -> bytes:
    """Return one record with a value and without key and headers. All its numbers are zigzag varints."""
    body = b"\0" + b"\0" + b"\0" + _zigzag(-1) + _zigzag(len(_VALUE)) + _VALUE + _zigzag(0)
    return _zigzag(len(body)) + body


def _zigzag(number: int) -> bytes:
    return unsigned_varint((number << 1) ^ (number >> 31))
