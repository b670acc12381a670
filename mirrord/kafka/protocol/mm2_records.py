"""Encodes and decodes the records that MirrorMaker 2 writes for Kafka's own tools: heartbeats, checkpoints and offset
syncs.

The encoding is that of Heartbeat, Checkpoint and OffsetSync in org.apache.kafka.connect.mirror. The fields follow one
another without padding, and numbers are big-endian. A string is encoded as its length (INT16) and its UTF-8 bytes
(org.apache.kafka.common.protocol.types.Type.STRING). The value of a heartbeat or a checkpoint begins with the version
of the layout, an INT16 that is 0. An offset sync has no version. As in the Java classes, bytes after the last known
field are ignored.
"""

from struct import Struct

import msgspec

from mirrord.kafka.protocol.errors import Malformed, UnknownLayout
from mirrord.kafka.protocol.primitives import INT16, INT32, Reader

VERSION = 0
_LONGEST = (1 << 15) - 1
_PAIR = Struct(">qq")
_VERSIONED_PAIR = Struct(">hqq")
_VERSIONED_TIME = Struct(">hq")


class Heartbeat(msgspec.Struct, frozen=True):
    """A record in the topic `heartbeats`. It shows that the flow from `source` to `target` was running at
    `timestamp_ms`."""

    source: str
    target: str
    timestamp_ms: int

    @property
    def key(self) -> bytes:
        """Return the record's key. Raises Malformed for an invalid name."""
        return _string(self.source) + _string(self.target)

    @property
    def value(self) -> bytes:
        """Return the record's value."""
        return _VERSIONED_TIME.pack(VERSION, self.timestamp_ms)

    @staticmethod
    def decode(key: bytes | None, value: bytes | None) -> "Heartbeat":
        """Return the heartbeat in a record. Raises WireError if the record does not contain a heartbeat."""
        names, body = _reader(key, "key"), _reader(value, "value")
        _version(body)
        return Heartbeat(_text(names), _text(names), body.int64())


class Checkpoint(msgspec.Struct, frozen=True):
    """A record in the topic `<source>.checkpoints.internal` on the target. It shows that a consumer group's committed
    offset `upstream` on the source corresponds to the offset `downstream` on the target."""

    group: str
    topic: str
    """The topic's name on the target."""
    partition: int
    upstream: int
    downstream: int
    """The next offset to read on the target."""
    metadata: str = ""

    @property
    def key(self) -> bytes:
        """Return the record's key. Raises Malformed for an invalid name."""
        return _string(self.group) + _string(self.topic) + INT32.pack(self.partition)

    @property
    def value(self) -> bytes:
        """Return the record's value. Raises Malformed for invalid metadata."""
        return _VERSIONED_PAIR.pack(VERSION, self.upstream, self.downstream) + _string(self.metadata)

    @staticmethod
    def decode(key: bytes | None, value: bytes | None) -> "Checkpoint":
        """Return the checkpoint in a record. Raises WireError if the record does not contain a checkpoint."""
        names, body = _reader(key, "key"), _reader(value, "value")
        _version(body)
        return Checkpoint(_text(names), _text(names), names.int32(), body.int64(), body.int64(), _text(body))


class OffsetSync(msgspec.Struct, frozen=True):
    """A record in the topic `mm2-offset-syncs.<other cluster>.internal`. It contains the offsets of one copied record
    on the source (`upstream`) and on the target (`downstream`)."""

    topic: str
    """The topic's name on the source."""
    partition: int
    upstream: int
    downstream: int

    @property
    def key(self) -> bytes:
        """Return the record's key. Raises Malformed for an invalid name."""
        return _string(self.topic) + INT32.pack(self.partition)

    @property
    def value(self) -> bytes:
        """Return the record's value."""
        return _PAIR.pack(self.upstream, self.downstream)

    @staticmethod
    def decode(key: bytes | None, value: bytes | None) -> "OffsetSync":
        """Return the offset sync in a record. Raises WireError if the record does not contain an offset sync."""
        names, body = _reader(key, "key"), _reader(value, "value")
        return OffsetSync(_text(names), names.int32(), body.int64(), body.int64())


def _string(text: str) -> bytes:
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        raise Malformed(f"{text!r} cannot be written as UTF-8") from None
    if len(data) > _LONGEST:
        raise Malformed(f"a text of {len(data)} bytes; {_LONGEST} fit")
    return INT16.pack(len(data)) + data


def _text(reader: Reader) -> str:
    length = reader.int16()
    start = reader.advance(length)
    try:
        return str(reader.buffer[start : start + length], "utf-8")
    except UnicodeDecodeError:
        raise Malformed(f"a string at byte {start} is not UTF-8") from None


def _reader(data: bytes | None, what: str) -> Reader:
    if data is None:
        raise Malformed(f"a record without a {what}")
    return Reader(data)


def _version(reader: Reader) -> None:
    version = reader.int16()
    if version != VERSION:
        raise UnknownLayout(f"a value of version {version}; {VERSION} is known")
