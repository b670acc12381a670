"""Batches that decompress to more memory than there is."""

import gzip
import resource
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import cast

import cramjam
import pytest
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from mirrord.kafka.client.range_reader import ReadBatch
from mirrord.kafka.protocol.crc32c import checksum
from mirrord.kafka.protocol.errors import WireError
from mirrord.kafka.protocol.record_batch import HEAD_OFFSET, HEADER, HEADER_LENGTH, Header, HeaderTuple
from mirrord.kafka.records import bounded_decompression, record_decoding
from mirrord.kafka.records.bounded_decompression import GZIP, LZ4, SNAPPY, ZSTD, TooLarge, decompress
from mirrord.kafka.records.record_decoding import decode
from tests.fixtures.old_messages import Message, messages

ENCODERS = {GZIP: gzip_encode, SNAPPY: snappy_encode, LZ4: lz4_encode, ZSTD: zstd_encode}
MIB = 1 << 20


@pytest.mark.parametrize("codec", ENCODERS)
@pytest.mark.parametrize("data", [b"", b"x", b"abc" * 1_000, bytes(range(256)) * 5_000, bytes(20 * MIB)])
def test_data_is_as_before(codec: int, data: bytes) -> None:
    packed = ENCODERS[codec](data)
    assert decompress(codec, packed) == data
    assert decompress(codec, packed, room=61) == bytes(61) + data
    assert decompress(codec, memoryview(packed)) == data


def test_snappy_without_blocks_and_gzip_in_parts() -> None:
    data = bytes(range(256)) * 1_000
    assert decompress(SNAPPY, snappy_encode(data, xerial_compatible=False)) == data
    assert decompress(GZIP, gzip.compress(data[:1_000]) + gzip.compress(data[1_000:])) == data


@pytest.mark.parametrize("codec", ENCODERS)
def test_more_than_the_limit_is_refused(codec: int) -> None:
    packed = ENCODERS[codec](bytes(3 * MIB))
    assert len(decompress(codec, packed, most=3 * MIB)) == 3 * MIB
    with pytest.raises(TooLarge, match="larger than 2 MiB when they are decompressed"):
        decompress(codec, packed, most=3 * MIB - 1)


@pytest.mark.parametrize("codec", ENCODERS)
def test_damaged_data(codec: int) -> None:
    packed = bytes(ENCODERS[codec](bytes(range(256)) * 40))
    for damaged in (packed[: len(packed) // 2], packed[:3], b"\xff" * 100, b"\x82SNAPPY\x00" + bytes(8) + b"\xff" * 9):
        with pytest.raises(WireError):
            decompress(codec, damaged)


@pytest.mark.parametrize("size", [-4, 0, 1 << 30])
def test_blocks_of_snappy_with_an_impossible_size(size: int) -> None:
    with pytest.raises(WireError, match="a block of snappy data"):
        decompress(SNAPPY, b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", size) + b"abc")


def test_unknown_codecs() -> None:
    with pytest.raises(WireError, match="no codec with the number 5"):
        decompress(5, b"abc")


def test_the_message_of_the_library_is_known() -> None:
    with pytest.raises(cramjam.DecompressionError, match=bounded_decompression._FULL):  # pyright: ignore[reportPrivateUsage]
        cramjam.zstd.decompress_into(zstd_encode(bytes(100)), bytearray(10))


def bomb(codec: int, size: int) -> bytes:
    """A batch with one record of zeros."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 31,
    )  # fmt: skip
    builder.append(0, 0, None, bytes(size), [])
    return bytes(builder.build())


@pytest.mark.parametrize("codec", [0, *ENCODERS])
def test_batches_are_read_as_before(codec: int) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=7, producer_epoch=1, base_sequence=3,
        batch_size=1 << 20,
    )  # fmt: skip
    for number in range(50):
        builder.append(number, 1_000 + number, f"k{number}".encode(), b"v" * 100, [("h", b"x"), ("n", None)])
    data = bytes(builder.build())
    records = decode(data, 0, len(data))
    assert [record.offset for record in records] == list(range(50))
    assert records[3].key == b"k3"
    assert [(name, value) for name, value in records[3].headers] == [("h", b"x"), ("n", None)]


def test_a_bomb_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_decompression, "MOST_BYTES", 4 * MIB)
    for codec in ENCODERS:
        data = bomb(codec, 8 * MIB)
        with pytest.raises(TooLarge, match="larger than 4 MiB"):
            decode(data, 0, len(data))


@pytest.mark.parametrize("codec", ENCODERS)
def test_the_limit_of_a_flow_is_named(codec: int) -> None:
    data = bomb(codec, 8 * MIB)
    assert len(decode(data, 0, len(data), 9 * MIB)) == 1
    with pytest.raises(TooLarge, match=r"larger than 4 MiB when .* decompressed, the limit of limits\.rebuild_bytes$"):
        decode(data, 0, len(data), 4 * MIB)


def test_the_records_of_a_batch_in_a_log_are_limited() -> None:
    data = bomb(ZSTD, 2 * MIB)
    header = Header(*cast(HeaderTuple, HEADER.unpack_from(data)))
    assert len(ReadBatch(header, data, 0, len(data), rebuild_bytes=3 * MIB).records()) == 1
    with pytest.raises(TooLarge, match=r"limits\.rebuild_bytes"):
        ReadBatch(header, data, 0, len(data), rebuild_bytes=MIB).records()


def test_too_many_records_are_not_read() -> None:
    data = bytearray(bomb(ZSTD, 100))
    (count,) = struct.unpack_from(">i", data, HEADER_LENGTH - 4)
    assert count == 1
    struct.pack_into(">i", data, HEADER_LENGTH - 4, 1_000_001)
    struct.pack_into(">I", data, 17, checksum(memoryview(data)[HEAD_OFFSET:]))
    with pytest.raises(TooLarge, match="it contains 1,000,001 records, more than 1,000,000"):
        decode(data, 0, len(data))


def test_too_many_old_messages_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = messages(1, [Message(offset, 0, None, b"") for offset in range(11)], GZIP)
    assert len(decode(data, 0, len(data))) == 11
    monkeypatch.setattr(record_decoding, "MOST_RECORDS", 10)
    with pytest.raises(TooLarge, match="it contains 11 records, more than 10"):
        decode(data, 0, len(data))


def varint(number: int) -> bytes:
    coded = (number << 1) ^ (number >> 63)
    parts = bytearray()
    while coded > 0x7F:
        parts.append(coded & 0x7F | 0x80)
        coded >>= 7
    return bytes((*parts, coded))


def long_varint(number: int) -> bytes:
    """Ten bytes that a decoder of 64 bits reads as the number. The highest bits are superfluous."""
    coded = number << 1 | 0x7E << 63
    return bytes(coded >> 7 * index & 0x7F | (0x80 if index < 9 else 0) for index in range(10))


def headed(counts: list[int], value: bytes = b"", size: Callable[[int], bytes] = varint) -> bytes:
    """A batch whose records have these numbers of headers. Each header takes two bytes: no name, and no value."""
    records = b""
    for delta, count in enumerate(counts):
        body = b"\0\0" + varint(delta) + varint(-1) + varint(len(value)) + value + varint(count) + b"\0\x01" * count
        records += size(len(body)) + body
    packed = bytes(zstd_encode(records))
    head = HEADER.pack(0, 49 + len(packed), 0, 2, 0, ZSTD, len(counts) - 1, 0, 0, -1, -1, -1, len(counts))
    data = bytearray(head + packed)
    struct.pack_into(">I", data, 17, checksum(memoryview(data)[HEAD_OFFSET:]))
    return bytes(data)


@pytest.mark.parametrize("size", [varint, long_varint])
@pytest.mark.parametrize("counts", [[30_000], [5, 10_001, 5], [4, 30_000], [5_000, 5_001], [3, *([1_000] * 11)]])
def test_too_many_headers_are_not_read(
    counts: list[int], size: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_decoding, "MOST_HEADERS", 10_000)
    data = headed(counts, size=size)
    tracemalloc.start()
    with pytest.raises(TooLarge, match="its records contain more than 10,000 headers"):
        decode(data, 0, len(data))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000 * 110 + len(data)


@pytest.mark.parametrize(("counts", "value"), [([10_000], b""), ([4_000] * 2, b"v"), ([1, 2, 0], bytes(30_000))])
@pytest.mark.parametrize("size", [varint, long_varint])
def test_many_headers_and_large_records_are_read(
    counts: list[int], value: bytes, size: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_decoding, "MOST_HEADERS", 10_000)
    data = headed(counts, value, size)
    assert [len(record.headers) for record in decode(data, 0, len(data))] == counts


def test_a_bomb_does_not_fill_the_memory() -> None:
    """One gibibyte of zeros in a process that may use 700 MiB."""
    program = """
import resource, sys
from tests.unit.kafka.records.test_bounded_decompression import bomb, decode
from mirrord.kafka.records.bounded_decompression import TooLarge
data = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decode(data, 0, len(data))
except TooLarge as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before >> 10)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], input=bomb(ZSTD, 1 << 30), capture_output=True, check=True, timeout=60
    )
    assert int(done.stdout) < 600
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0


@pytest.mark.parametrize("blocks", [True, False])
def test_snappy_that_names_an_impossible_length_allocates_nothing(blocks: bool) -> None:
    """The fuzzer found it: 300 bytes that named 132 MiB used 132 MiB before they turned out to be damaged."""
    raw = b"\xe5\xd5\xd4\x3f" + b"\x2a" * 300
    data = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(raw)) + raw if blocks else raw
    assert cramjam.snappy.decompress_raw_len(raw) > 100 * MIB
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="304 bytes of snappy data cannot have the"):
            decompress(SNAPPY, data)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("data", [b"", b"a", bytes(64), bytes(65_536), b"ab" * 40_000, bytes(40 * MIB)])
def test_no_valid_snappy_data_is_shorter_than_the_ratio_says(data: bytes) -> None:
    packed = bytes(cramjam.snappy.compress_raw(data))
    assert len(data) <= bounded_decompression._SNAPPY_RATIO * len(packed)
    assert decompress(SNAPPY, packed) == data
