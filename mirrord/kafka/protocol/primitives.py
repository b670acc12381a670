"""The primitive types of Kafka's protocol: a reader with bounds checks, and functions that encode values.

Kafka's protocol guide defines the types ("Protocol Primitive Types"), and KIP-482 defines the compact forms and tagged
fields. All numbers are big-endian. A reader never reads past its end. It rejects a length or a count that is larger
than the number of remaining bytes. Therefore invalid data cannot make the reader allocate a large amount of memory.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from functools import lru_cache
from struct import Struct, unpack_from
from typing import Any, TypeVar

from mirrord.kafka.protocol.crc32c import Bytes
from mirrord.kafka.protocol.errors import Malformed, Oversize, Truncated

T = TypeVar("T")
TopicAndPartition = tuple[str, int]
"""A topic and the number of one of its partitions. The topic is given by its name, or by its id if the version of the
request requires ids."""

INT8 = Struct(">b")
INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")
FLOAT64 = Struct(">d")
_FEW = [Struct(f">{count}i") for count in range(8)]
"""The layouts of short arrays of INT32, by the number of elements."""

UUID_LENGTH = 16
ZERO_UUID = "A" * 22
"""The text of the null id (org.apache.kafka.common.Uuid.ZERO_UUID)."""

NO_TAGS = b"\x00"
EMPTY_ARRAY = b"\x01"
NULL = b"\x00"
"""The encoding of a null compact string, null compact bytes or a null compact array."""


@lru_cache(maxsize=8192)
def uuid_text(raw: bytes) -> str:
    """Return a 16-byte id as text, in the format of Kafka's Uuid.toString: 22 characters of URL-safe base64 without
    padding."""
    return urlsafe_b64encode(raw)[:22].decode("ascii")


@lru_cache(maxsize=8192)
def uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of an id that is given as text. Raises Malformed if the text is not an id."""
    try:
        raw = urlsafe_b64decode(text.encode("ascii") + b"==")
    except ValueError:
        raw = b""
    if len(raw) != UUID_LENGTH or len(text) != len(ZERO_UUID):
        raise Malformed(f"not a topic id: {text!r}")
    return raw


class Reader:
    """Reads values from buffer[position:end], one after another.

    Raises Truncated if the bytes end too early, and Oversize if a length exceeds the remaining bytes. Raises Malformed
    for a value outside the range of its type.
    """

    __slots__ = ("buffer", "end", "position")

    def __init__(self, buffer: Bytes, position: int = 0, end: int | None = None) -> None:
        self.buffer = buffer
        self.position = position
        self.end = len(buffer) if end is None else end

    @property
    def remaining(self) -> int:
        return self.end - self.position

    def advance(self, length: int) -> int:
        """Skip `length` bytes and return the position of the first skipped byte."""
        start = self.position
        if length < 0:
            raise Malformed(f"a length of {length} at byte {start}")
        if length > self.end - start:
            raise Truncated(f"{length} bytes wanted at byte {start}, {self.end - start} left")
        self.position = start + length
        return start

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """Read several values of fixed size at once."""
        return layout.unpack_from(self.buffer, self.advance(layout.size))

    def boolean(self) -> bool:
        return self.int8() != 0

    def int8(self) -> int:
        return INT8.unpack_from(self.buffer, self.advance(1))[0]

    def int16(self) -> int:
        return INT16.unpack_from(self.buffer, self.advance(2))[0]

    def int32(self) -> int:
        return INT32.unpack_from(self.buffer, self.advance(4))[0]

    def int64(self) -> int:
        return INT64.unpack_from(self.buffer, self.advance(8))[0]

    def float64(self) -> float:
        return FLOAT64.unpack_from(self.buffer, self.advance(8))[0]

    def unsigned_varint(self) -> int:
        """Read an unsigned varint of at most five bytes and 32 bits (ByteUtils.readUnsignedVarint)."""
        buffer, position, end = self.buffer, self.position, self.end
        if position < end and buffer[position] < 0x80:  # almost always
            self.position = position + 1
            return buffer[position]
        value = shift = 0
        while True:
            if position >= end:
                raise Truncated(f"a varint has no end before byte {end}")
            byte = buffer[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise Malformed(f"a varint of more than five bytes at byte {self.position}")
        if value > 0xFFFFFFFF:
            raise Malformed(f"a varint of more than 32 bits at byte {self.position}")
        self.position = position
        return value

    def uuid(self) -> str:
        start = self.advance(UUID_LENGTH)
        return uuid_text(bytes(self.buffer[start : start + UUID_LENGTH]))

    def compact_length(self) -> int:
        """Read the length of a compact string, of compact bytes or of a records section. Return -1 for null."""
        length = self.unsigned_varint() - 1
        if length > self.end - self.position:
            raise Oversize(f"a value of {length} bytes at byte {self.position}, {self.remaining} left")
        return length

    def string(self) -> str:
        """Read a string with an INT16 length. This is the encoding that all strings had before KIP-482."""
        return self._text(self.int16())

    def compact_string(self) -> str:
        text = self.compact_nullable_string()
        if text is None:
            raise Malformed(f"null where a string must be, before byte {self.position}")
        return text

    def compact_nullable_string(self) -> str | None:
        length = self.compact_length()
        return None if length < 0 else self._text(length)

    def compact_array(self, element: Callable[["Reader"], T]) -> list[T]:
        """Read a compact array and return an empty list for null. `element` reads one element and must consume at least
        one byte."""
        return [element(self) for _ in range(self.compact_count())]

    def int32s(self) -> tuple[int, ...]:
        """Read a compact array of INT32, and return an empty tuple for null. No function is called for each element:
        the metadata of a large cluster contain hundreds of thousands of such arrays."""
        count = self.compact_count()
        start = self.advance(4 * count)
        if count < len(_FEW):
            return _FEW[count].unpack_from(self.buffer, start)
        return unpack_from(f">{count}i", self.buffer, start)

    def compact_count(self) -> int:
        """Read the number of elements of a compact array, which is 0 for null."""
        count = self.unsigned_varint() - 1
        # Every element is at least one byte long, so a larger count cannot be valid.
        if count > self.end - self.position:
            raise Oversize(f"an array of {count} elements at byte {self.position}, {self.remaining} bytes left")
        return max(count, 0)

    def skip_tags(self) -> None:
        """Skip the tagged fields."""
        for _ in range(self.compact_tags()):
            self.tag()

    def compact_tags(self) -> int:
        """Read the number of tagged fields that follow. The caller then reads each tagged field with `tag`."""
        buffer, position = self.buffer, self.position
        if position < self.end and buffer[position] == 0:  # almost always
            self.position = position + 1
            return 0
        count = self.unsigned_varint()
        if count > self.remaining:
            raise Oversize(f"{count} tagged fields at byte {self.position}, {self.remaining} bytes left")
        return count

    def tag(self) -> tuple[int, "Reader"]:
        """Read one tagged field. Return its number, and a reader that is limited to its bytes."""
        number = self.unsigned_varint()
        length = self.unsigned_varint()
        start = self.advance(length)
        return number, Reader(self.buffer, start, start + length)

    def expect_end(self) -> None:
        """Raise Malformed if there are unread bytes."""
        if self.position != self.end:
            raise Malformed(f"{self.remaining} bytes too many, from byte {self.position} on")

    def _text(self, length: int) -> str:
        start = self.advance(length)
        try:
            return str(self.buffer[start : start + length], "utf-8")
        except UnicodeDecodeError:
            raise Malformed(f"a string at byte {start} is not UTF-8") from None


def unsigned_varint(value: int) -> bytes:
    """Encode an unsigned varint: at most five bytes with seven bits each, lowest bits first."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80)) + unsigned_varint(
        value >> 21
    )


def compact_string(text: str) -> bytes:
    data = text.encode("utf-8")
    return unsigned_varint(len(data) + 1) + data


def compact_nullable_string(text: str | None) -> bytes:
    return NULL if text is None else compact_string(text)


def nullable_string(text: str | None) -> bytes:
    """Encode a string with an INT16 length. The client id in a request header has this form."""
    if text is None:
        return INT16.pack(-1)
    data = text.encode("utf-8")
    return INT16.pack(len(data)) + data


def compact_array(elements: Iterable[bytes]) -> bytes:
    """Encode a compact array of elements that have already been encoded."""
    parts = list(elements)
    return unsigned_varint(len(parts) + 1) + b"".join(parts)
