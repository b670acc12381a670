"""Headers whose names are not UTF-8: read and written with exactly their bytes."""

import random
from collections.abc import Sequence

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from mirrord.kafka.protocol.crc32c import checksum
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import HEAD_OFFSET, HEADER, LOG_APPEND_TIME, Header
from mirrord.kafka.records import header_names
from mirrord.kafka.records.bounded_decompression import TooLarge
from mirrord.kafka.records.header_names import (
    builder_for,
    is_utf8,
    name_bytes,
    read_slowly,
    shown_name,
    writable_headers,
)
from mirrord.kafka.records.record_decoding import decode, reading
from mirrord.kafka.records.record_digest import digest
from mirrord.kafka.records.steps import finish

RAW = b"a\xff\xfe\xc3"
NAME = RAW.decode("utf-8", "surrogateescape")
OPTIONS = {
    "magic": 2,
    "is_transactional": 0,
    "producer_id": 7,
    "producer_epoch": 1,
    "base_sequence": 3,
    "batch_size": 1 << 30,
}


def records(chance: random.Random, names: Sequence[str]) -> list[DecodedRecord]:
    return [
        DecodedRecord(
            offset,
            1_700_000_000_000 + chance.randrange(-5_000, 5_000),
            chance.choice([None, b"", chance.randbytes(20)]),
            chance.choice([None, b"", b"value " * 50]),
            [(chance.choice(names), chance.choice([None, b"", b"\xff"])) for _ in range(chance.randrange(3))],
        )
        for offset in range(20)
    ]


def batch(wanted: Sequence[DecodedRecord], codec: int = 0, attributes: int = 0) -> bytearray:
    builder = finish(builder_for(wanted, compression_type=codec, **OPTIONS))
    for record in wanted:
        builder.append(record.offset, record.time_ms, record.key, record.value, writable_headers(record))
    data = bytearray(builder.build())
    header = Header(*HEADER.unpack_from(data))
    HEADER.pack_into(data, 0, *header._replace(attributes=header.attributes | attributes))
    header = Header(*HEADER.unpack_from(data))
    HEADER.pack_into(data, 0, *header._replace(crc=checksum(memoryview(data)[HEAD_OFFSET:])))
    return data


@pytest.mark.parametrize("codec", range(5))
def test_such_names_survive(codec: int, seed: int) -> None:
    wanted = records(random.Random(seed), ["h", "ä", NAME, ""])
    assert any(name == NAME for record in wanted for name, _ in record.headers)
    data = batch(wanted, codec)
    assert finish(reading(data, 0, len(data)))[:2] == (codec, wanted)
    if not codec:
        assert RAW in data


def test_the_append_time_is_the_time_of_all_records(seed: int) -> None:
    wanted = records(random.Random(seed), [NAME])
    data = batch(wanted, attributes=LOG_APPEND_TIME)
    latest = max(record.time_ms for record in wanted)
    assert [record.time_ms for record in decode(data, 0, len(data))] == [latest] * len(wanted)


@pytest.mark.parametrize("attributes", [0, LOG_APPEND_TIME])
def test_both_readers_agree(seed: int, attributes: int) -> None:
    wanted = records(random.Random(seed), ["h", "ä", "\U0001f600"])
    data = batch(wanted, attributes=attributes)
    slow = list(read_slowly(memoryview(data), Header(*HEADER.unpack_from(data))))
    assert slow == decode(data, 0, len(data))


def test_both_builders_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = records(random.Random(seed), ["h", "ä"])
    assert type(finish(builder_for(wanted, compression_type=0, **OPTIONS))) is DefaultRecordBatchBuilder
    fast = batch(wanted)
    monkeypatch.setattr(header_names, "is_utf8", lambda _: False)
    assert type(finish(builder_for(wanted, compression_type=0, **OPTIONS))) is not DefaultRecordBatchBuilder
    assert batch(wanted) == fast


def test_a_name_has_bytes_and_is_shown_as_java_shows_it() -> None:
    assert (name_bytes(NAME), shown_name(NAME), is_utf8(NAME)) == (RAW, "a\ufffd\ufffd\ufffd", False)
    assert (name_bytes("ä"), shown_name("ä"), is_utf8("ä"), is_utf8("")) == (b"\xc3\xa4", "ä", True, True)
    with pytest.raises(UnicodeEncodeError):
        name_bytes("\ud800")


def test_digests_tell_such_names_apart() -> None:
    other = b"a\xff\xfd\xc3".decode("utf-8", "surrogateescape")
    record = DecodedRecord(0, 0, None, None, [(NAME, None)])
    assert digest(record, timed=True) != digest(record._replace(headers=[(other, None)]), timed=True)


def test_many_records_with_such_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [DecodedRecord(at, 0, None, None, [(NAME, None)]) for at in range(3)]
    data = batch(wanted)
    monkeypatch.setattr(header_names, "MOST_SLOW", 6)
    assert decode(data, 0, len(data)) == wanted
    monkeypatch.setattr(header_names, "MOST_SLOW", 5)
    with pytest.raises(TooLarge, match="not UTF-8"):
        decode(data, 0, len(data))


def test_damaged_batches_are_refused(seed: int) -> None:
    """Each byte after the header is damaged. Nothing but ValueError is raised."""
    chance = random.Random(seed)
    data = batch(records(chance, [NAME]))
    header = Header(*HEADER.unpack_from(data))
    for at in range(61, len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << chance.randrange(8)
        try:
            found = list(read_slowly(memoryview(damaged), header))
        except ValueError:
            continue
        assert len(found) == header.record_count
