"""Header names that are not UTF-8.

The message format stores the name of a header as bytes. Kafka's Java client and its brokers accept any bytes:
org.apache.kafka.common.utils.Utils.utf8 replaces those that are not UTF-8. aiokafka's compiled classes refuse them. In
a `DecodedRecord`, such bytes are lone surrogates, as Python's error handler "surrogateescape" represents them, so that
a name can be written again with exactly its bytes.
"""

# pyright: reportMissingTypeStubs=false, reportPrivateUsage=false

from collections.abc import Iterator, Sequence

from aiokafka.record._protocols import DefaultRecordBatchBuilderProtocol
from aiokafka.record.default_records import (
    DefaultRecordBatchBuilder,
    _DefaultRecordBatchBuilderPy,
)

from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import HEADER_LENGTH, LOG_APPEND_TIME, Header
from mirrord.kafka.records.bounded_decompression import TooLarge
from mirrord.kafka.records.steps import AT_ONCE, Steps

MOST_SLOW = 100_000
"""Maximum number of records and headers of a batch that has such names. Python reads about 500,000 of them per
second."""
_VARINT_BYTES, _VARINT_MASK = 10, (1 << 64) - 1
_RAW = "surrogateescape"


class _RawName(str):
    """A name whose bytes are those of the original name, for aiokafka's builder in pure Python."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = _RAW) -> bytes:
        """Return the bytes of the original name."""
        return super().encode(encoding, _RAW if errors == "strict" else errors)


def name_bytes(name: str) -> bytes:
    """Return the bytes of a header's name in the log. Raises UnicodeEncodeError if no bytes have this name."""
    return name.encode("utf-8", _RAW)


def shown_name(name: str) -> str:
    """Return the name as Kafka's Java client shows it."""
    return name_bytes(name).decode("utf-8", "replace")


def is_utf8(name: str) -> bool:
    """Return whether the bytes of the name are UTF-8."""
    return name.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in name)


def builder_for(
    records: Sequence[DecodedRecord], at_once: int = AT_ONCE, **options: int
) -> Steps[DefaultRecordBatchBuilderProtocol]:
    """Look for the right one of aiokafka's builders for a batch that holds these records. One step examines `at_once`
    of them. `options` are those of the builder. The compiled builder is about 20 times faster, so the one in pure
    Python is used only for names that are not UTF-8."""
    for at in range(0, len(records), at_once):
        if at:
            yield None
        some = records[at : at + at_once]
        if not all(is_utf8(name) for record in some for name, _ in record.headers):
            return _DefaultRecordBatchBuilderPy(**options)
    return DefaultRecordBatchBuilder(**options)


def writable_headers(record: DecodedRecord) -> list[tuple[str, bytes | None]]:
    """Return the record's headers as the builder for them takes them."""
    return [(name if is_utf8(name) else _RawName(name), value) for name, value in record.headers]


def read_slowly(plain: memoryview, header: Header) -> Iterator[DecodedRecord]:
    """Yield the records of an uncompressed batch whose headers may have any names.

    Raises ValueError if the batch is malformed, and TooLarge if it has more than `MOST_SLOW` records and headers.
    """
    append_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    at, left = HEADER_LENGTH, MOST_SLOW
    for _ in range(header.record_count):
        length, at = varint(plain, at)
        fields = _Fields(plain, at + 1, at + length)  # 1: the attributes, which are not used
        time_ms = header.base_timestamp + fields.number()
        offset = header.base_offset + fields.number()
        key, value = fields.data(), fields.data()
        count = fields.number()
        left -= 1 + max(count, 0)
        if left < 0:
            raise TooLarge(f"names of headers are not UTF-8, and it has more than {MOST_SLOW:,} records and headers")
        headers = [(fields.name(), fields.data()) for _ in range(count)]
        at = fields.finish()
        yield DecodedRecord(offset, time_ms if append_ms is None else append_ms, key, value, headers)


def varint(plain: memoryview, at: int) -> tuple[int, int]:
    """Return the signed varint at plain[at], and the position after it. Raises ValueError if it has no end."""
    coded = 0
    for index, byte in enumerate(plain[at : at + _VARINT_BYTES]):
        coded |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            coded &= _VARINT_MASK  # aiokafka drops further bits, too
            return (coded >> 1) ^ -(coded & 1), at + index + 1
    raise ValueError("a varint has no end")


class _Fields:
    """Reads the fields of one record, which ends at `end`."""

    def __init__(self, plain: memoryview, at: int, end: int) -> None:
        if not at <= end <= len(plain):
            raise ValueError("a record is longer than its batch")
        self._plain = plain
        self._at = at
        self._end = end

    def number(self) -> int:
        number, self._at = varint(self._plain, self._at)
        return number

    def data(self) -> bytes | None:
        length = self.number()
        return None if length < 0 else self._bytes(length)

    def name(self) -> str:
        length = self.number()
        if length < 0:
            raise ValueError("a header has no name")
        return self._bytes(length).decode("utf-8", _RAW)

    def finish(self) -> int:
        """Return the end of the record. Raises ValueError if the fields end elsewhere."""
        if self._at != self._end:
            raise ValueError("the fields of a record do not fill it")
        return self._end

    def _bytes(self, length: int) -> bytes:
        start, self._at = self._at, self._at + length
        if self._at > self._end:
            raise ValueError("a field is longer than its record")
        return bytes(self._plain[start : self._at])
