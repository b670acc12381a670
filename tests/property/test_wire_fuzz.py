"""Given any bytes, a parser returns a value or raises a WireError, and it ends."""

import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrord.kafka.protocol import (
    acls,
    configs,
    delete_topics,
    describe_cluster,
    fetch,
    list_offsets,
    metadata,
    produce,
    producer_ids,
    quotas,
    transaction_markers,
)
from mirrord.kafka.protocol.crc32c import HEAD_LENGTH, carried, checksum, records_crc
from mirrord.kafka.protocol.errors import WireError
from mirrord.kafka.protocol.primitives import (
    Reader,
    compact_array,
    compact_nullable_string,
    unsigned_varint,
    uuid_bytes,
    uuid_text,
)
from mirrord.kafka.protocol.record_batch import HEADER, HEADER_LENGTH, patch, scan

VECTORS: dict[str, str] = json.loads((Path(__file__).parents[1] / "golden/wire/vectors.json").read_text())

PARSERS: dict[str, Callable[[Reader], object]] = {
    "FetchResponse 12": lambda reader: fetch.decode(12, reader),
    "FetchResponse 18": lambda reader: fetch.decode(18, reader),
    "ProduceResponse 9": lambda reader: produce.decode(9, reader),
    "ProduceResponse 13": lambda reader: produce.decode(13, reader),
    "MetadataResponse 11": lambda reader: metadata.decode(11, reader),
    "MetadataResponse 13": lambda reader: metadata.decode(13, reader),
    "InitProducerIdResponse 4": producer_ids.decode_init_producer_id,
    "DescribeProducersResponse 0": producer_ids.decode_describe_producers,
    "WriteTxnMarkersResponse 1": transaction_markers.decode_markers,
    "ListOffsetsResponse 7": list_offsets.decode_list_offsets,
    "OffsetForLeaderEpochResponse 4": list_offsets.decode_epoch_ends,
    "DescribeConfigsResponse 4": configs.decode_describe,
    "IncrementalAlterConfigsResponse 1": configs.decode_alter,
    "DeleteTopicsResponse 6": delete_topics.decode_delete_topics,
    "DescribeAclsResponse 3": acls.decode_describe,
    "CreateAclsResponse 3": acls.decode_create,
    "DescribeClusterResponse 0": describe_cluster.decode_describe_cluster,
    "DeleteAclsResponse 3": acls.decode_delete,
    "DescribeClientQuotasResponse 1": quotas.decode_describe,
}

BYTES = st.binary(max_size=300)


def survives(parse: Callable[[Reader], object], data: bytes) -> None:
    for buffer in (bytearray(data), memoryview(data)):
        reader = Reader(buffer)
        try:
            parse(reader)
        except WireError:
            pass
        else:
            assert reader.position == len(data)


@pytest.mark.parametrize("name", PARSERS)
@given(data=BYTES)
def test_any_bytes(name: str, data: bytes) -> None:
    survives(PARSERS[name], data)


@pytest.mark.parametrize("name", PARSERS)
@given(st.data())
def test_answers_with_damage(name: str, data: st.DataObject) -> None:
    good = bytes.fromhex(VECTORS[name])
    start = data.draw(st.integers(0, len(good)))
    cut = data.draw(st.integers(0, 8))
    survives(PARSERS[name], good[:start] + data.draw(st.binary(max_size=8)) + good[start + cut :])


@given(st.binary(min_size=57, max_size=57))
def test_answers_as_long_as_one_for_one_batch(data: bytes) -> None:
    survives(PARSERS["ProduceResponse 13"], data)


@pytest.mark.parametrize("name", PARSERS)
def test_answers_that_end_anywhere(name: str) -> None:
    good = bytes.fromhex(VECTORS[name])
    for end in range(len(good)):
        with pytest.raises(WireError):
            PARSERS[name](Reader(good, 0, end))


@pytest.mark.parametrize("name", PARSERS)
def test_a_count_alone_allocates_nothing(name: str) -> None:
    good = bytes.fromhex(VECTORS[name])
    huge = b"\xff\xff\xff\xff\x0f"
    tracemalloc.start()
    try:
        for at in range(len(good)):
            survives(PARSERS[name], good[:at] + huge + good[at + 1 :])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


HEADERS = st.builds(
    HEADER.pack,
    *(st.integers(-(2**63), 2**63 - 1), st.integers(-5, 200), st.integers(-(2**31), 2**31 - 1)),
    *(st.sampled_from([2, 2, 2, 0, 1, 3, -1]), st.integers(0, 2**32 - 1), st.integers(-(2**15), 2**15 - 1)),
    *(st.integers(-2, 2**31 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1)),
    *(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1)),
    st.integers(-2, 2**31 - 1),
)
SECTIONS = st.lists(st.one_of(HEADERS, BYTES), max_size=6).map(b"".join)


@given(SECTIONS, st.integers(0, 20), st.integers(0, 20))
def test_any_records_section(section: bytes, before: int, behind: int) -> None:
    buffer = bytearray(before) + section + bytes(behind)
    end = before + len(section)
    try:
        batches, stop = scan(buffer, before, end)
    except WireError:
        return
    assert before <= stop <= end
    position = before
    for start, batch_end, *_, header in batches:
        assert start == position
        assert batch_end - start >= HEADER_LENGTH
        position = batch_end
        patch(buffer, start, header, 2**63 - 1, 2**15 - 1, 2**31 - 1)
    assert position == stop
    assert not any(buffer[:before])
    assert not any(buffer[end:])


@given(
    st.binary(min_size=HEAD_LENGTH, max_size=HEAD_LENGTH), st.binary(min_size=HEAD_LENGTH, max_size=HEAD_LENGTH), BYTES
)
def test_crc_algebra(old: bytes, new: bytes, records: bytes) -> None:
    assert carried(checksum(old + records), old, new, len(records)) == checksum(new + records)
    assert records_crc(checksum(new + records), new, len(records)) == checksum(records)


@given(st.integers(0, 2**32 - 1))
def test_varints_read_back(value: int) -> None:
    reader = Reader(unsigned_varint(value))
    assert reader.unsigned_varint() == value
    reader.expect_end()


@given(st.lists(st.one_of(st.none(), st.text(max_size=200)), max_size=20))
def test_strings_and_arrays_read_back(texts: list[str | None]) -> None:
    reader = Reader(compact_array(map(compact_nullable_string, texts)))
    assert reader.compact_array(Reader.compact_nullable_string) == texts
    reader.expect_end()


@given(st.binary(min_size=16, max_size=16))
def test_topic_ids_read_back(raw: bytes) -> None:
    assert uuid_bytes(uuid_text(raw)) == raw


@given(st.text(max_size=30))
def test_any_text_is_a_topic_id_or_an_error(text: str) -> None:
    with suppress(WireError):
        assert len(uuid_bytes(text)) == 16


POSITIONS = st.builds(
    fetch.FetchPosition,
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**31 - 1),
    st.just(1 << 20),
)
TOPIC_IDS = st.binary(min_size=16, max_size=16).map(uuid_text)
WANTED = st.dictionaries(st.tuples(TOPIC_IDS, st.integers(0, 2**31 - 1)), POSITIONS, max_size=8)


@given(WANTED)
def test_a_fetch_request_says_what_is_wanted(wanted: dict[fetch.TopicAndPartition, fetch.FetchPosition]) -> None:
    reader = Reader(fetch.encode(13, fetch.FetchLimits(), fetch.SessionStep(7, 1, list(wanted.items()), list(wanted))))
    reader.advance(4 + 4 + 4 + 4 + 1 + 4 + 4)
    read: dict[fetch.TopicAndPartition, fetch.FetchPosition] = {}
    for _ in range(reader.compact_count()):
        topic = reader.uuid()
        for _ in range(reader.compact_count()):
            partition, leader_epoch = reader.int32(), reader.int32()
            offset, last_epoch, _, max_bytes = reader.int64(), reader.int32(), reader.int64(), reader.int32()
            reader.skip_tags()
            read[topic, partition] = fetch.FetchPosition(offset, leader_epoch, last_epoch, max_bytes)
        reader.skip_tags()
    assert read == wanted


@given(st.dictionaries(st.tuples(TOPIC_IDS, st.integers(0, 100)), BYTES, max_size=8))
def test_a_produce_request_holds_every_batch(batches: dict[fetch.TopicAndPartition, bytes]) -> None:
    parts, size = produce.encode(13, 1000, [(topic, partition, batch) for (topic, partition), batch in batches.items()])
    data = b"".join(parts)
    assert len(data) == size
    reader = Reader(data)
    reader.advance(1 + 2 + 4)
    read: dict[fetch.TopicAndPartition, bytes] = {}
    for _ in range(reader.compact_count()):
        topic = reader.uuid()
        for _ in range(reader.compact_count()):
            partition = reader.int32()
            length = reader.compact_length()
            start = reader.advance(length)
            read[topic, partition] = data[start : start + length]
            reader.skip_tags()
        reader.skip_tags()
    reader.skip_tags()
    reader.expect_end()
    assert read == batches
