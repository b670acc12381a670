"""Finds and parses messages of formats 0 and 1, which Kafka wrote before version 0.11. The module itself does not
decompress messages.

All numbers are big-endian (org.apache.kafka.common.record.LegacyRecord). A message consists of these fields, with their
lengths in bytes: offset (8), size of the remaining fields (4), CRC-32 of the remaining fields (4), magic (1),
attributes (1), timestamp (8, only in format 1), key and value. The key and the value each begin with a length field
(4). The magic is at the same position as in a v2 batch, so one byte is enough to distinguish the formats.

A message whose attributes name a compression codec is a wrapper. Its value holds other messages in compressed form, and
its offset is the offset of the last of these messages. The caller decompresses the value, parses the messages in it and
passes them to `inside`.
"""

from binascii import crc32
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from mirrord.kafka.protocol.crc32c import Bytes
from mirrord.kafka.protocol.errors import Malformed
from mirrord.kafka.protocol.record_batch import CODEC_MASK, LENGTH_OFFSET, LOG_APPEND_TIME

_HEAD = Struct(">qiIBB")
_LEAST_SIZE = (14, 22)
"""The smallest valid values of the size field: in format 0 and in format 1. A message with neither a key nor a value
has this size."""
_TIME = Struct(">q")
_LENGTH = Struct(">i")
MAGIC_OFFSET = 16
NO_TIME = -1
"""The value that represents a missing timestamp (org.apache.kafka.common.record.RecordBatch.NO_TIMESTAMP)."""
GROUP_BYTES = 64 << 10
"""Kafka stores uncompressed messages one by one. This module combines them into groups of about this number of
bytes."""


class Group(NamedTuple):
    """Consecutive messages in buffer[start:end]. A group is either one wrapper or several uncompressed messages."""

    start: int
    end: int
    first: int
    """The offset of the first message. It is -1 for a wrapper, because the offset is not known until the wrapper is
    decompressed."""
    last: int


class OldMessage(NamedTuple):
    """One message of format 0 or 1. `time_ms` is NO_TIME in format 0."""

    offset: int
    magic: int
    attributes: int
    time_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        """The compression codec. It is 0 unless the message is a wrapper."""
        return self.attributes & CODEC_MASK

    @property
    def is_append_time(self) -> bool:
        """Whether the timestamp is the log append time."""
        return self.magic > 0 and bool(self.attributes & LOG_APPEND_TIME)


def is_old(buffer: Bytes, at: int, end: int) -> bool:
    """Return whether a message of format 0 or 1 begins at buffer[at]."""
    return end - at > MAGIC_OFFSET and buffer[at + MAGIC_OFFSET] <= 1


def group(buffer: Bytes, start: int, end: int, most: int = 1 << 30) -> Group | None:
    """Return the group that begins at buffer[start], with at most `most` messages. Return None if the first message is
    incomplete. Raises Malformed."""
    at, first, last, count = start, -1, -1, 0
    while count < most and at - start < GROUP_BYTES and is_old(buffer, at, end) and end - at >= _HEAD.size:
        offset, size, _, magic, attributes = _HEAD.unpack_from(buffer, at)
        behind = at + LENGTH_OFFSET + size
        if offset <= last or size < _LEAST_SIZE[magic]:
            raise Malformed(f"a message of format {magic} with offset {offset} after {last}, and {size} bytes")
        if behind > end:
            break  # a broker may cut off the last message of a response; the next response contains it in full
        if attributes & CODEC_MASK:
            return Group(at, behind, -1, offset) if at == start else Group(start, at, first, last)
        first = offset if first < 0 else first
        at, last, count = behind, offset, count + 1
    return Group(start, at, first, last) if count else None


def parse(data: bytes, *, checked: bool) -> Iterator[OldMessage]:
    """Yield the messages in these bytes. All of them must be complete. Raises Malformed.

    If `checked` is set, checksums are verified. Kafka verifies the checksums of messages in a log, but not of messages
    in a wrapper.
    """
    at = 0
    while at < len(data):
        if len(data) - at < _HEAD.size:
            raise Malformed(f"{len(data) - at} bytes are not a message")
        offset, size, crc, magic, attributes = _HEAD.unpack_from(data, at)
        behind = at + LENGTH_OFFSET + size
        if magic > 1 or size < _LEAST_SIZE[magic] or behind > len(data):
            raise Malformed(f"a message of format {magic} with {size} bytes, where {len(data) - at} are left")
        if checked and crc32(memoryview(data)[at + MAGIC_OFFSET : behind]) != crc:
            raise Malformed("the checksum does not match")
        place = at + _HEAD.size
        time_ms = NO_TIME
        if magic:
            (time_ms,) = _TIME.unpack_from(data, place)
            place += _TIME.size
        key, place = _field(data, place, behind)
        value, place = _field(data, place, behind)
        if place != behind:
            raise Malformed(f"{behind - place} bytes follow the value of a message")
        yield OldMessage(offset, magic, attributes, time_ms, key, value)
        at = behind


def inside(wrapper: OldMessage, found: Sequence[OldMessage]) -> Iterator[OldMessage]:
    """Yield the messages in a wrapper, with the offsets and timestamps that consumers see. `found` contains the
    messages in the decompressed value of the wrapper. Raises Malformed."""
    if not found:
        raise Malformed("a wrapper with nothing inside")
    # Format 1 introduced relative offsets inside wrappers (KIP-31). The wrapper itself has the offset of its last
    # message.
    base = wrapper.offset - found[-1].offset if wrapper.magic else 0
    for message in found:
        if message.magic != wrapper.magic or message.codec:
            raise Malformed(
                f"a wrapper of format {wrapper.magic} holds a message of format {message.magic}, packed again"
            )
        time_ms = wrapper.time_ms if wrapper.is_append_time else message.time_ms
        yield message._replace(offset=base + message.offset, time_ms=time_ms)


def _field(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Return the key or value at data[at], and the position after it."""
    if end - at < _LENGTH.size:
        raise Malformed("a message ends inside a length")
    (length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise Malformed(f"a key or value of {length} bytes, where {end - at} are left")
    return data[at : at + length], at + length
