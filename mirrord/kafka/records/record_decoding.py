"""Decodes the records of batches with aiokafka's compiled classes.

This module is used by the second path, by audits, and by other parts of mirrord that need the content of records.

Messages of formats 0 and 1 are read as Kafka's own consumer reads them
(org.apache.kafka.common.record.AbstractLegacyRecordBatch). The result is the same as when a Kafka 3.9 broker converts
the messages to format 2 (LogValidator). Records of format 0 get the timestamp -1, because format 0 has no timestamps.
Compressed messages of these formats are stored inside another message, the wrapper. If the timestamp of a wrapper is
the broker's append time, all messages inside it get that timestamp. Records of these formats have no headers.
aiokafka's compiled class for old messages is not used, because it reads past the end of malformed data.
"""

# pyright: reportMissingTypeStubs=false

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, cast

from aiokafka.record.default_records import DefaultRecordBatch

from mirrord.kafka.protocol.crc32c import Bytes, extend, value
from mirrord.kafka.protocol.errors import WireError
from mirrord.kafka.protocol.legacy_messages import OldMessage, inside, is_old, parse
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import (
    CODEC_MASK,
    HEAD_OFFSET,
    HEADER,
    HEADER_LENGTH,
    LENGTH_OFFSET,
    Header,
    HeaderTuple,
)
from mirrord.kafka.records.bounded_decompression import (
    AT_ONCE_BYTES,
    GZIP,
    LZ4,
    MOST_BYTES,
    SNAPPY,
    TooLarge,
    decompress,
)
from mirrord.kafka.records.header_names import read_slowly, varint
from mirrord.kafka.records.steps import AT_ONCE, Steps, collected, finish, step_records

_MAGIC = 2
_OLD_CODECS = frozenset({GZIP, SNAPPY, LZ4})
"""The codecs of messages of formats 0 and 1."""
MOST_RECORDS = 1_000_000
"""Maximum number of records of a batch. Each record is an object that takes about 300 bytes, however small the record
is, and a few kilobytes can contain millions of equal records."""
MOST_HEADERS = 1_000_000
"""Maximum number of headers of a batch's records together. Each header is an object that takes about 100 bytes, and can
take two bytes in the batch."""
_HEADER_BYTES = 2
"""Size of the smallest header: the lengths of its name and of its value."""
_MOST_OLD_BYTES = 32 << 20
"""Maximum decompressed size of a wrapper. It has no number of messages. Each message takes at least 26 bytes."""

_SMALL_BYTES = 64 << 10
"""Compressed data up to this size is decompressed at once if the result is small, too."""
_CRC_AT_ONCE = 4 << 20
_FREED_AT_ONCE = 16 << 20
_CHECKED_AT_ONCE = 50_000


class _AioRecord(Protocol):
    """The type of a record that aiokafka's compiled classes return. These classes have no type annotations for
    headers."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def decode(buffer: Bytes, start: int, end: int, rebuild_bytes: int | None = None) -> list[DecodedRecord]:
    """Return the records in buffer[start:end], which holds one batch, or messages of formats 0 and 1.

    If the broker has set the timestamps of a batch (LogAppendTime, KIP-32), all its records get the broker's append
    time. Raises ValueError if the data cannot be read, if the decompressed records are larger than `rebuild_bytes`, or
    if there are more than `MOST_RECORDS` or `MOST_HEADERS`. `rebuild_bytes` is the limit of the flow to which the data
    belong. If they belong to no flow, the limit is `bounded_decompression.MOST_BYTES`.
    """
    return finish(reading(buffer, start, end, rebuild_bytes)).records


class ReadRecords(NamedTuple):
    """The records of a batch, in ascending order of offset."""

    codec: int
    records: list[DecodedRecord]
    at_once: int = AT_ONCE
    """How many of these records belong to one step."""


def reading(buffer: Bytes, start: int, end: int, rebuild_bytes: int | None = None) -> Steps[ReadRecords]:
    """Read the records in steps. The input is the same as for `decode`. The buffer is read only in the first step.
    Raises ValueError if the data cannot be read, and MemoryError or OSError if there is not enough memory."""
    data = bytes(memoryview(buffer)[start:end])
    try:
        found = yield from (_read_old if is_old(data, 0, len(data)) else _read_batch)(data, rebuild_bytes)
    except WireError as error:
        raise ValueError(str(error)) from error
    except TooLarge as error:
        if rebuild_bytes is not None and error.most_bytes == rebuild_bytes:
            raise TooLarge(f"{error}, the limit of limits.rebuild_bytes", error.most_bytes) from error
        raise
    except (ValueError, MemoryError, OSError):  # a lack of memory says nothing about the batch
        raise
    # Each codec raises different exceptions. Their only common base class is Exception.
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    for at in range(0, len(found.records), _CHECKED_AT_ONCE):
        if at:
            yield None
        some = found.records[at : at + _CHECKED_AT_ONCE + 1]
        if any(later.offset <= earlier.offset for earlier, later in pairwise(some)):
            raise ValueError("the offsets are not in ascending order")
    return found


def _read_batch(data: bytes, most: int | None) -> Steps[ReadRecords]:
    if len(data) < HEADER_LENGTH:
        raise ValueError(f"{len(data)} bytes are not a batch")
    header = Header(*cast(HeaderTuple, HEADER.unpack_from(data)))
    crc = value(data[HEAD_OFFSET : HEAD_OFFSET + _CRC_AT_ONCE])
    for at in range(HEAD_OFFSET + _CRC_AT_ONCE, len(data), _CRC_AT_ONCE):
        yield None
        crc = extend(crc, data[at : at + _CRC_AT_ONCE])
    if crc != header.crc:
        raise ValueError("the checksum does not match")
    codec = header.attributes & CODEC_MASK
    if len(data) == HEADER_LENGTH:
        return ReadRecords(codec, [])  # a codec cannot decompress zero bytes
    _check_count(header.record_count)
    plain = memoryview(data)
    if codec:
        plain = yield from _decompressed(codec, plain[HEADER_LENGTH:], HEADER_LENGTH, most)
        length = len(plain) - LENGTH_OFFSET
        HEADER.pack_into(plain, 0, *header._replace(length=length, attributes=header.attributes & ~CODEC_MASK))
    if len(plain) > HEADER_LENGTH + _HEADER_BYTES * MOST_HEADERS:
        yield from _check_large_records(plain, header.record_count)
    at_once = step_records(header.record_count, len(plain))
    records = yield from _read_records(plain, header, at_once)
    if len(plain) > _FREED_AT_ONCE:
        held = [plain]
        del plain
        yield held.clear  # to free a large buffer takes up to 20 ms
    return ReadRecords(codec, records, at_once)


def _read_records(plain: memoryview, header: Header, at_once: int) -> Steps[list[DecodedRecord]]:
    """Read the records of an uncompressed batch."""
    try:
        records = _read_fast(DefaultRecordBatch(plain))
        return list(records) if header.record_count <= at_once else (yield from collected(records, at_once))
    except UnicodeDecodeError:
        return (yield from collected(read_slowly(plain, header), at_once))


def _read_fast(batch: Any) -> Iterator[DecodedRecord]:
    """Yield the records of an uncompressed batch. Raises UnicodeDecodeError if the name of a header is not UTF-8."""
    headers = 0
    for record in cast(Iterator[_AioRecord], iter(batch)):
        headers += len(record.headers)
        if headers > MOST_HEADERS:
            raise _too_many_headers()
        yield DecodedRecord(record.offset, record.timestamp, record.key, record.value, record.headers)


def _check_count(records: int) -> None:
    if records > MOST_RECORDS:
        raise TooLarge(f"it contains {records:,} records, more than {MOST_RECORDS:,}")


def _check_large_records(plain: memoryview, count: int) -> Steps[None]:
    """Raise TooLarge if a single record has too many headers. aiokafka's class would create all of them at once. Only a
    large record can contain that many, so most batches are not read."""
    at = HEADER_LENGTH
    for number in range(count):
        if len(plain) - at <= _HEADER_BYTES * MOST_HEADERS:
            return
        if number % AT_ONCE == AT_ONCE - 1:
            yield None
        length, start = varint(plain, at)
        if length > _HEADER_BYTES * MOST_HEADERS and _headers(plain, start + 1) > MOST_HEADERS:
            raise _too_many_headers()
        at = start + max(length, 0)


def _headers(plain: memoryview, at: int) -> int:
    """Return the number of headers of a record. `at` is the position of the record's timestamp delta, after the length
    and the attributes."""
    _, at = varint(plain, at)
    _, at = varint(plain, at)  # the offset delta
    for _ in ("key", "value"):
        length, at = varint(plain, at)
        at += max(length, 0)
    return varint(plain, at)[0]


def _too_many_headers() -> TooLarge:
    return TooLarge(f"its records contain more than {MOST_HEADERS:,} headers")


def _decompressed(codec: int, data: memoryview, room: int, most: int | None) -> Steps[memoryview]:
    """Decompress data as `decompress` does: at once if data and result are small, and otherwise elsewhere."""
    if len(data) <= _SMALL_BYTES:
        limit = MOST_BYTES if most is None else most
        try:
            return decompress(codec, data, room, min(limit, AT_ONCE_BYTES))
        except TooLarge:
            if limit <= AT_ONCE_BYTES:
                raise
    return (yield partial(decompress, codec, data, room, most))


def _read_old(data: bytes, most: int | None) -> Steps[ReadRecords]:
    """Return the records of messages of formats 0 and 1. A message may be a wrapper, which contains compressed
    messages."""
    codec = 0
    records: list[DecodedRecord] = []
    for message in parse(data, checked=True):
        if not message.codec:
            records.append(_of_old(message))
            continue
        codec = message.codec
        unpacked = yield from _unpack(message, most)
        found = yield from collected(parse(unpacked, checked=False))
        _check_count(len(found))
        records += yield from collected(map(_of_old, inside(message, found)))
        if records[-1].offset != message.offset:
            raise ValueError(f"the last message inside the one at offset {message.offset} has a different offset")
    size = sum(len(record.value or b"") for record in records[:AT_ONCE])
    return ReadRecords(codec, records, step_records(min(len(records), AT_ONCE), size))


def _of_old(message: OldMessage) -> DecodedRecord:
    return DecodedRecord(message.offset, message.time_ms, message.key, message.value, ())


def _unpack(wrapper: OldMessage, most: int | None) -> Steps[bytes]:
    if wrapper.codec not in _OLD_CODECS or wrapper.value is None:
        raise ValueError(f"a wrapper with the codec {wrapper.codec}, or without a value")
    if wrapper.magic == 0 and wrapper.codec == LZ4:
        raise ValueError("LZ4 in a message of format 0, whose frames clients encoded incorrectly (KAFKA-3160)")
    most = _MOST_OLD_BYTES if most is None else min(most, _MOST_OLD_BYTES)
    return bytes((yield from _decompressed(wrapper.codec, memoryview(wrapper.value), 0, most)))
