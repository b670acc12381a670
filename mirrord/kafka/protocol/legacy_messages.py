"""Finds and parses messages of formats 0 and 1, which Kafka wrote before 0.11. It does not decompress wrappers.

Layout (org.apache.kafka.common.record.LegacyRecord), big-endian: offset (8 bytes), size (4, of the bytes that follow
it), CRC-32 (4, of the bytes that follow it), magic (1), attributes (1); in format 1 the time (8); then key and value,
each with its length in 4 bytes. The magic is in the same place as in a v2 batch, so one byte distinguishes them. A
message with a codec in its attributes is a wrapper: its value holds other messages, and its offset is that of the last
inner message.
"""

from binascii import crc32
from struct import Struct
from typing import NamedTuple

from mirrord.kafka.protocol.crc32c import Bytes
from mirrord.kafka.protocol.errors import Malformed
from mirrord.kafka.protocol.record_batch import CODEC_MASK, LENGTH_OFFSET, LOG_APPEND_TIME

_HEAD = Struct(">qiIBB")
_LEAST_SIZE = (14, 22)
"""The size of a message with an empty key and value, by format."""
_TIME = Struct(">q")
_LENGTH = Struct(">i")
MAGIC_OFFSET = 16
NO_TIME = -1
"""The time of a record that has none (org.apache.kafka.common.record.RecordBatch.NO_TIMESTAMP)."""
GROUP_BYTES = 64 << 10
"""Kafka stores uncompressed messages one by one. They are handled in groups of about this number of bytes."""


class Group(NamedTuple):
    """Consecutive messages buffer[start:end]: either one wrapper, or several uncompressed messages."""

    start: int
    end: int
    first: int
    """The offset of the first message; -1 for a wrapper, because only its content shows the offset."""
    last: int


class OldMessage(NamedTuple):
    """One message. `time_ms` is NO_TIME in format 0."""

    offset: int
    magic: int
    attributes: int
    time_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        """The compression codec. It is not 0 in a wrapper."""
        return self.attributes & CODEC_MASK

    @property
    def is_append_time(self) -> bool:
        """Whether the time is the log append time."""
        return self.magic > 0 and bool(self.attributes & LOG_APPEND_TIME)


def is_old(buffer: Bytes, at: int, end: int) -> bool:
    """Return whether a message of format 0 or 1 begins at buffer[at]."""
    return end - at > MAGIC_OFFSET and buffer[at + MAGIC_OFFSET] <= 1


def group(buffer: Bytes, start: int, end: int, most: int = 1 << 30) -> Group | None:
    """Return the group of messages at buffer[start], at most `most` of them. Return None if not even one message is
    complete. Raises Malformed."""
    at, first, last, count = start, -1, -1, 0
    while count < most and at - start < GROUP_BYTES and is_old(buffer, at, end) and end - at >= _HEAD.size:
        offset, size, _, magic, attributes = _HEAD.unpack_from(buffer, at)
        behind = at + LENGTH_OFFSET + size
        if offset <= last or size < _LEAST_SIZE[magic]:
            raise Malformed(f"a message of format {magic} with offset {offset} after {last}, and {size} bytes")
        if behind > end:
            break  # a broker may cut off the last message of a response; the next response has it in full
        if attributes & CODEC_MASK:
            return Group(at, behind, -1, offset) if at == start else Group(start, at, first, last)
        first = offset if first < 0 else first
        at, last, count = behind, offset, count + 1
    return Group(start, at, first, last) if count else None


def parse(data: bytes, *, checked: bool) -> list[OldMessage]:
    """Return the messages in these bytes, all of which must be complete. Raises Malformed.

    `checked` says whether checksums are verified. Kafka verifies those of messages in a log, but not those of messages
    inside a wrapper.
    """
    found: list[OldMessage] = []
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
        found.append(OldMessage(offset, magic, attributes, time_ms, key, value))
        at = behind
    return found


def inside(wrapper: OldMessage, unpacked: bytes) -> list[OldMessage]:
    """Return the messages in a wrapper, with the offsets and times that consumers see. Raises Malformed."""
    found = parse(unpacked, checked=False)
    if not found:
        raise Malformed("a wrapper with nothing inside")
    # Format 1 introduced relative offsets (KIP-31). The wrapper has the offset of the last message.
    base = wrapper.offset - found[-1].offset if wrapper.magic else 0
    read: list[OldMessage] = []
    for message in found:
        if message.magic != wrapper.magic or message.codec:
            raise Malformed(
                f"a wrapper of format {wrapper.magic} holds a message of format {message.magic}, packed again"
            )
        time_ms = wrapper.time_ms if wrapper.is_append_time else message.time_ms
        read.append(message._replace(offset=base + message.offset, time_ms=time_ms))
    return read


def _field(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Return a key or a value, and the position after it."""
    if end - at < _LENGTH.size:
        raise Malformed("a message ends inside of a length")
    (length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise Malformed(f"a key or value of {length} bytes, where {end - at} are left")
    return data[at : at + length], at + length
