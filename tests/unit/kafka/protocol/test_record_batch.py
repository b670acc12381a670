"""Batch headers, checked against what aiokafka's record classes build and read."""

from typing import Literal

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from mirrord.kafka.protocol import record_batch
from mirrord.kafka.protocol.crc32c import checksum
from mirrord.kafka.protocol.errors import Malformed, OldMagic, Truncated, UnknownLayout
from mirrord.kafka.protocol.record_batch import HEADER, HEADER_LENGTH, Header, intact, patch, records_digest, scan

CODECS = range(5)


def build(count: int = 3, codec: int = 0, base: int = 0, **fields: int) -> bytearray:
    """A batch as a broker would store it: built by aiokafka, then given a base offset and leader epoch."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=17,
        batch_size=1 << 20,
    )
    for offset in range(count):
        assert builder.append(offset, 1_700_000_000_000 + offset, b"key", b"value" * 50, [("h", b"x")])
    data = bytearray(builder.build())
    fields = {"base_offset": base, "leader_epoch": 5} | fields
    rewrite(data, **fields)
    return data


def rewrite(data: bytearray, **fields: int) -> None:
    header = Header(*HEADER.unpack_from(data, 0))._replace(**fields)
    HEADER.pack_into(data, 0, *header)
    crc = header.crc if "crc" in fields else checksum(data[21:])
    HEADER.pack_into(data, 0, *header._replace(crc=crc))


def test_the_header_is_what_aiokafka_reads() -> None:
    data = build(count=4, base=1000)
    theirs = DefaultRecordBatch(bytes(data))
    ours = Header(*HEADER.unpack_from(data, 0))
    assert HEADER_LENGTH == 61
    assert (ours.base_offset, ours.magic, ours.crc) == (theirs.base_offset, theirs.magic, theirs.crc)
    assert (ours.attributes, ours.last_offset_delta) == (theirs.attributes, theirs.last_offset_delta)
    assert (ours.base_timestamp, ours.max_timestamp) == (theirs.first_timestamp, theirs.max_timestamp)
    assert (ours.producer_id, ours.producer_epoch) == (theirs.producer_id, theirs.producer_epoch)
    assert ours.last_offset == 1003
    assert ours.records_length == len(data) - HEADER_LENGTH


def test_scan_finds_the_batches_of_a_section() -> None:
    parts = [build(count=3, base=10), build(count=1, base=13), build(count=5, base=20)]
    section = bytearray(b"before") + b"".join(parts) + b"behind it"
    batches, end = scan(section, 6, len(section) - 9)
    assert [(first, last, count) for _, _, first, last, count, _, _ in batches] == [
        (10, 12, 3),
        (13, 13, 1),
        (20, 24, 5),
    ]
    assert end == len(section) - 9
    assert [section[start:stop] for start, stop, *_ in batches] == parts
    assert batches[0][6] == HEADER.unpack_from(section, 6)


@pytest.mark.parametrize("cut", [1, 30, 61, 62, 150])
def test_a_batch_that_was_cut_short_is_left_out(cut: int) -> None:
    whole, partial = build(base=0), build(base=3)
    section = whole + partial[: len(partial) - cut]
    batches, end = scan(section, 0, len(section))
    assert len(batches) == 1
    assert end == len(whole)
    assert scan(partial[:20], 0, 20) == ([], 0)


@pytest.mark.parametrize("codec", CODECS)
def test_a_patched_batch_is_a_new_producers_batch_with_the_same_records(codec: int) -> None:
    attributes = codec | record_batch.TRANSACTIONAL | record_batch.DELETE_HORIZON
    data = bytearray(b"in front") + build(count=7, codec=codec, base=99, attributes=attributes)
    before = bytes(data)
    ((start, end, *_, header),), _ = scan(data, 8, len(data))
    patch(data, start, header, 77, 1, 2**31 - 3)
    after = Header(*HEADER.unpack_from(data, start))
    assert intact(data, start, end)
    assert after == Header(*header)._replace(
        base_offset=0, leader_epoch=-1, attributes=codec, producer_id=77, producer_epoch=1, base_sequence=2**31 - 3,
        crc=after.crc,
    )  # fmt: skip
    assert data[:8] == before[:8]
    assert data[start + HEADER_LENGTH :] == before[start + HEADER_LENGTH :]
    assert records_digest(data, start) == records_digest(before, start) == checksum(data[start + HEADER_LENGTH :])


def test_damage_before_the_patch_is_seen_after_it() -> None:
    data = build()
    header = HEADER.unpack_from(data, 0)
    data[-5] ^= 0x01
    patch(data, 0, header, 77, 0, 0)
    assert not intact(data, 0, len(data))


def test_the_delete_horizon_leaves_record_times_alone() -> None:
    data = build()
    times = [record.timestamp for record in DefaultRecordBatch(bytes(data))]
    rewrite(data, attributes=record_batch.DELETE_HORIZON)
    patch(data, 0, HEADER.unpack_from(data, 0), 77, 0, 0)
    assert [record.timestamp for record in DefaultRecordBatch(bytes(data))] == times


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("value", [b"", b"value" * 100])
def test_old_formats_are_distinguished(magic: Literal[0, 1], value: bytes) -> None:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=1 << 20)
    builder.append(0, timestamp=1_700_000_000_000, key=None, value=value)
    old = builder.build()
    with pytest.raises(OldMagic, match=f"of format {magic}, from before Kafka 0.11"):
        scan(old, 0, len(old))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"magic": 3}, UnknownLayout),
        ({"magic": -1}, UnknownLayout),
        ({"length": -1}, Malformed),
        ({"length": 48}, Malformed),
        ({"record_count": -1}, Malformed),
        ({"last_offset_delta": -1}, Malformed),
    ],
)
def test_a_header_that_cannot_be_is_refused(fields: dict[str, int], error: type[Exception]) -> None:
    data = build(base=42, **fields)
    with pytest.raises(error, match="offset 42"):
        scan(data, 0, len(data))


def test_less_than_a_header_is_not_intact() -> None:
    with pytest.raises(Truncated):
        intact(b"x" * 60, 0, 60)
