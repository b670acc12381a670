"""The second path: what a consumer sees stays the same, and the bytes are a batch of the lane."""

import random
from collections.abc import Sequence

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from mirrord.kafka.protocol.crc32c import checksum
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import HEADER, LOG_APPEND_TIME, Header, intact
from mirrord.kafka.records.record_decoding import decode
from mirrord.replication.lane.second_path import RebuildRequest, RebuiltBatch
from tests.fixtures.rebuilt import rebuild

BASE = 1_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PRODUCER = (77, 3, 2**31 - 2)


def batch(records: Sequence[DecodedRecord], codec: int = 0, **header: int) -> bytearray:
    """A batch as a broker stores it: its records at their offsets, `header` overriding fields."""
    builder = DefaultRecordBatchBuilder(2, codec, 1, 5, 0, 0, 1 << 30)
    for record in records:
        builder.append(record.offset - BASE, record.time_ms, record.key, record.value, list(record.headers))
    data = bytearray(builder.build())
    fields = Header(*HEADER.unpack_from(data, 0))._replace(base_offset=BASE, leader_epoch=4)
    HEADER.pack_into(data, 0, *fields._replace(**header))
    crc = checksum(data[21:])
    HEADER.pack_into(data, 0, *fields._replace(**header)._replace(crc=crc))
    return data


def again(data: bytearray, from_offset: int = 0) -> RebuiltBatch | None:
    padded = bytearray(b"front") + data + b"behind"
    return rebuild(RebuildRequest(padded, 5, 5 + len(data), from_offset, *PRODUCER))


def records(offsets: Sequence[int], chance: random.Random) -> list[DecodedRecord]:
    return [
        DecodedRecord(
            BASE + offset,
            1_700_000_000_000 + chance.randrange(-5_000, 5_000),
            chance.choice([None, b"", b"key", chance.randbytes(20)]),
            chance.choice([None, b"", b"value " * 50]),
            chance.choice([(), [("h", b"1"), ("h", None), ("", b""), ("ä", b"\xff")]]),
        )
        for offset in offsets
    ]


@pytest.mark.parametrize("codec", range(5), ids=CODECS)
def test_holes_are_closed_and_nothing_else_changes(codec: int, seed: int) -> None:
    chance = random.Random(seed)
    originals = records([0, 1, 4, 5, 6, 9], chance)
    rebuilt = again(batch(originals, codec, last_offset_delta=11))
    assert rebuilt is not None
    assert rebuilt.pieces == ((BASE, 2), (BASE + 4, 3), (BASE + 9, 1))
    header = Header(*HEADER.unpack_from(rebuilt.data, 0))
    assert intact(rebuilt.data, 0, len(rebuilt.data))
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (0, 5, 6)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == PRODUCER
    assert header.attributes in (codec, 0)  # tiny batches may not gain from the codec
    assert rebuilt.newest_ms == header.max_timestamp == max(record.time_ms for record in originals)
    copies = decode(rebuilt.data, 0, len(rebuilt.data))
    assert [record.offset for record in copies] == list(range(6))
    assert [record[1:4] for record in copies] == [record[1:4] for record in originals]
    assert [list(record.headers) for record in copies] == [list(record.headers) for record in originals]


def test_a_codec_that_gains_is_kept() -> None:
    originals = [DecodedRecord(BASE + offset, 1, None, b"x" * 1_000, ()) for offset in range(10)]
    for codec in range(5):
        rebuilt = again(batch(originals, codec), BASE + 3)
        assert rebuilt is not None
        assert Header(*HEADER.unpack_from(rebuilt.data, 0)).attributes == codec
        assert rebuilt.pieces == ((BASE + 3, 7),)


def test_append_times_become_creation_times() -> None:
    originals = [DecodedRecord(BASE + offset, offset, b"k", b"v", ()) for offset in range(3)]
    rebuilt = again(batch(originals, attributes=LOG_APPEND_TIME, max_timestamp=9_999))
    assert rebuilt is not None
    assert Header(*HEADER.unpack_from(rebuilt.data, 0)).attributes == 0
    assert [record.time_ms for record in decode(rebuilt.data, 0, len(rebuilt.data))] == [9_999] * 3
    assert rebuilt.newest_ms == 9_999


def test_a_position_after_every_record_leaves_nothing() -> None:
    originals = [DecodedRecord(BASE, 1, None, None, ())]
    assert again(batch(originals, last_offset_delta=5), BASE + 3) is None


def test_records_without_a_time_stay_so() -> None:
    rebuilt = again(batch([DecodedRecord(BASE, -1, None, b"v", ())]))
    assert rebuilt is not None
    assert decode(rebuilt.data, 0, len(rebuilt.data))[0].time_ms == -1


@pytest.mark.parametrize("codec", range(5), ids=CODECS)
def test_bytes_that_are_no_records_are_refused(codec: int, seed: int) -> None:
    chance = random.Random(seed)
    good = batch(records(range(20), chance), codec)
    for _ in range(200):
        data = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(61, len(data))] ^= 1 << chance.randrange(8)
        fields = Header(*HEADER.unpack_from(data, 0))
        if data == good:
            continue
        with pytest.raises(ValueError, match="checksum"):
            again(data)
        # The same with a matching checksum: whatever the records have become, only ValueError is raised.
        HEADER.pack_into(data, 0, *fields._replace(crc=checksum(data[21:])))
        try:
            again(data)
        except ValueError:
            continue
