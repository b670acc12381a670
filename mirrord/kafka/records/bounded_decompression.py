"""Decompresses batches into a bounded amount of memory.

A producer can write a batch of a few kilobytes that decompresses to gigabytes, and a broker checks only the compressed
size. A process that decompressed such a batch completely would run out of memory, and so would the next process that
takes over the partition.
"""

# pyright: reportMissingTypeStubs=false

import mmap
import struct
from typing import Any

import cramjam

from mirrord.kafka.protocol.crc32c import Bytes
from mirrord.kafka.protocol.errors import WireError

MOST_BYTES = 256 << 20
"""Maximum size of the decompressed records of a batch that belongs to no flow, for example a batch of the ledger. For a
flow, it is the default of `limits.rebuild_bytes`."""
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
"""Numbers of codecs (org.apache.kafka.common.record.CompressionType)."""
AT_ONCE_BYTES = 512 << 10
"""A caller can first try to decompress data into this many bytes, which takes at most about two milliseconds."""
_LEAST_BYTES = 64 << 10
_USUAL_RATIO = 8
_GROWTH = 4
_MAPPED_BYTES = 1 << 20
"""Buffers of this size and above are mapped. A `bytearray` is filled with zeros when it is created, which takes a tenth
of a second for 256 MiB. No other thread runs Python code in this time."""
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_FULL = "failed to write whole buffer"
"""The message of cramjam's error if the result does not fit in the buffer. A test checks it."""
_SNAPPY_RATIO = 22
"""Snappy data is never shorter than its content by more than this factor: three bytes copy at most 64 bytes."""
_XERIAL = b"\x82SNAPPY\x00"
"""The beginning of snappy data in blocks, as Kafka's Java client writes it (org.xerial.snappy.SnappyCodec)."""
_XERIAL_HEADER = 16
_CODECS: dict[int, Any] = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}


class TooLarge(ValueError):
    """Raised when the decompressed records of a batch are larger than `most_bytes`, or too many."""

    def __init__(self, why: str, most_bytes: int = 0) -> None:
        super().__init__(why)
        self.most_bytes = most_bytes


def decompress(codec: int, data: Bytes, room: int = 0, most: int | None = None) -> memoryview:
    """Return `room` zero bytes, followed by the decompressed data. `codec` is the number of the codec, and `most` is
    the maximum size of the decompressed data, `MOST_BYTES` by default.

    The result is decompressed into its place: nothing is copied afterwards. Untouched memory of a large buffer is not
    resident, so its size costs little. Other threads run while the data is decompressed.

    Raises TooLarge, and WireError if the data cannot be decompressed.
    """
    limit = MOST_BYTES if most is None else most
    if codec == SNAPPY:
        return _snappy(data, room, limit)
    if codec not in _CODECS:
        raise WireError(f"there is no codec with the number {codec}")
    size = min(max(_LEAST_BYTES, _USUAL_RATIO * len(data)), limit)
    while (plain := _decompressed_into(codec, data, room, size)) is None:
        if size >= limit:
            raise _too_large(limit)
        size = min(size * _GROWTH, limit)
    return plain


def _decompressed_into(codec: int, data: Bytes, room: int, size: int) -> memoryview | None:
    """Return the decompressed data after `room` zero bytes, or None if it has more than `size` bytes. The buffer is
    released before an error is raised, because the error's traceback would keep it in memory."""
    buffer = _buffer(room + size)
    fault = ""
    try:
        count = _CODECS[codec].decompress_into(data, buffer[room:])
        return buffer[: room + count]
    except cramjam.DecompressionError as error:
        fault = str(error)
    buffer.release()
    if _FULL in fault:
        return None
    raise WireError(f"the records cannot be decompressed: {fault}")


def _buffer(size: int) -> memoryview:
    """Return a buffer of zeros."""
    return memoryview(bytearray(size) if size < _MAPPED_BYTES else mmap.mmap(-1, size, flags=_PRIVATE))


def _snappy(data: Bytes, room: int, limit: int) -> memoryview:
    blocks = _snappy_blocks(memoryview(data))
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        if sum(sizes) > limit:
            raise _too_large(limit)
        for block, size in zip(blocks, sizes, strict=True):
            if size > _SNAPPY_RATIO * len(block):  # the buffer must not be created because of a wrong number
                raise WireError(f"{len(block)} bytes of snappy data cannot have the {size:,} bytes that they name")
        buffer = _buffer(room + sum(sizes))
        at = room
        for block, size in zip(blocks, sizes, strict=True):
            cramjam.snappy.decompress_raw_into(block, buffer[at : at + size])
            at += size
    except cramjam.DecompressionError as error:
        raise WireError(f"the records cannot be decompressed: {error}") from error
    return buffer


def _snappy_blocks(data: memoryview) -> list[memoryview]:
    """Return the blocks of snappy data. Data without the header of a block format are one block."""
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return [data]
    blocks: list[memoryview] = []
    at = _XERIAL_HEADER
    while at < len(data):
        if at + 4 > len(data):
            raise WireError("the size of a block of snappy data is cut off")
        (size,) = struct.unpack_from(">i", data, at)
        if not 0 < size <= len(data) - at - 4:
            raise WireError(f"a block of snappy data has {size} bytes, of which {len(data) - at - 4} are there")
        blocks.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return blocks


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"its records are larger than {limit >> 20} MiB when they are decompressed", limit)
