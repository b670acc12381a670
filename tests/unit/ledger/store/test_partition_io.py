"""A reader of a ledger's partition at places where a log has no records."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.kafka.protocol.crc32c import checksum
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.fetch import FetchedPartition
from mirrord.kafka.protocol.record_batch import CONTROL, HEAD_OFFSET, HEADER
from mirrord.kafka.records import bounded_decompression, record_decoding
from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.store import partition_io
from mirrord.ledger.store.partition_io import (
    BATCH_BYTES,
    EMPTY_LOOKS,
    FETCH_WAIT_MS,
    OutOfRange,
    PartitionReader,
    _batches,
    _LogRead,
)
from mirrord.ledger.store.topics import AskAgain, LedgerTopics
from tests.unit.kafka.records.test_bounded_decompression import bomb, headed


class Topics:
    """Asks until there is an answer."""

    timeout_s = 10.0

    async def asking(self, ask: Callable[[], Awaitable[Any]], *, patient: bool) -> Any:
        assert patient
        while True:
            try:
                return await ask()
            except AskAgain:
                await asyncio.sleep(0)


def reading(
    monkeypatch: pytest.MonkeyPatch,
    *answers: FetchedPartition,
    topics: object = None,
    compacted: bool = True,
    buffer: bytes = b"",
) -> tuple[PartitionReader, list[int]]:
    """A reader at offset 10 that gets these answers, the last one repeatedly; and the positions of its requests."""
    reader = PartitionReader(cast(LedgerTopics, topics or Topics()), "state", compacted=compacted)
    asked: list[int] = []

    async def fetch() -> tuple[bytes, FetchedPartition]:
        await asyncio.sleep(0)
        asked.append(reader.position)
        return buffer, answers[min(len(asked), len(answers)) - 1]

    monkeypatch.setattr(reader, "_fetch", fetch)
    reader.seek(10)
    return reader, asked


def answer(high_watermark: int, error: int = 0) -> FetchedPartition:
    return FetchedPartition("state", 0, error, high_watermark, -1, 0, 0, 0, [])


async def test_an_end_that_was_compacted_away_is_stepped_over(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, asked = reading(monkeypatch, answer(13))
    assert await reader.take() == []
    assert reader.position == 13
    assert asked == [10] * EMPTY_LOOKS


async def test_an_empty_answer_of_a_log_that_is_not_compacted_skips_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    reader, asked = reading(monkeypatch, answer(13), compacted=False)
    fetch = reader._fetch

    async def noting() -> tuple[Any, FetchedPartition]:
        waits.append(reader._limits().max_wait_ms)
        return await fetch()

    monkeypatch.setattr(reader, "_fetch", noting)
    taking = asyncio.create_task(reader.take())
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(asked) > EMPTY_LOOKS
    assert not taking.done()
    assert reader.position == 10
    # Before Kafka 3.8 remote storage is read for no longer than the fetch waits.
    assert (waits[0], set(waits[1:])) == (FETCH_WAIT_MS, {6000})
    taking.cancel()
    reader.stop()


async def test_records_that_never_come_are_an_error_that_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = LedgerTopics("eu-us", ClusterConfig(("127.0.0.1:1",), Security()), timeout_s=0.2)
    reader, _ = reading(monkeypatch, answer(13), topics=topics, compacted=False)
    said = "state: no records at offset 10, although it ends at offset 13"
    with pytest.raises(LedgerUnavailable, match=said):
        await reader.take()
    assert reader.position == 10


async def test_at_the_end_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, asked = reading(monkeypatch, answer(10), answer(11), answer(10))
    taking = asyncio.create_task(reader.take())
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(asked) > 10
    assert not taking.done()
    assert reader.position == 10
    taking.cancel()
    reader.stop()


async def test_an_offset_that_does_not_exist_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    later = answer(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    reader, asked = reading(monkeypatch, later, later, answer(5, ErrorCode.OFFSET_OUT_OF_RANGE))
    with pytest.raises(OutOfRange):
        await reader.take()
    assert len(asked) == 3


async def test_what_may_not_be_read_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, _ = reading(monkeypatch, answer(-1, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(LedgerUnavailable, match="state: TOPIC_AUTHORIZATION_FAILED"):
        await reader.take()


def test_batches_are_bounded_and_a_record_is_never_split() -> None:
    half, whole = bytes(BATCH_BYTES // 2), bytes(2 * BATCH_BYTES)
    records = [(None, half), (b"k", half), (None, b"small"), (b"large", whole), (b"k", None)]
    assert [[value for _, value in batch.records] for batch in _batches(records)] == [
        [half],
        [half, b"small"],
        [whole],
        [None],
    ]
    assert list(_batches([])) == []


@pytest.mark.parametrize("compacted", [False, True])
async def test_a_marker_of_a_transaction_takes_the_place_of_a_record(
    monkeypatch: pytest.MonkeyPatch, *, compacted: bool
) -> None:
    """Another client can write in a transaction. In a log without gaps, its marker must not look like a lost record."""
    reader, _ = reading(monkeypatch, compacted=compacted)
    header = (9, 0, 4, 2, 0, CONTROL, 2, 0, 0, 0, 0, 0, 1)
    marker = (0, 0, 9, 11, 1, CONTROL, header)
    records, position, epoch = await reader._with_batch(_LogRead([], 10, 3), b"", marker)
    found = [(record.offset, record.value, record.leader_epoch) for record in records]
    assert found == ([] if compacted else [(10, None, 4), (11, None, 4)])
    assert (position, epoch) == (12, 4)


def stored(base: int, data: bytes) -> bytes:
    """A batch as a broker stores it."""
    return base.to_bytes(8) + data[8:]


def with_header(name: bytes) -> bytes:
    """A batch of one record with a header of this name. Brokers do not check that it is text."""
    body = b"\0\0\0\x01\x02v\x02" + bytes([2 * len(name)]) + name + b"\x01"
    records = bytes([2 * len(body)]) + body
    data = bytearray(HEADER.pack(0, 49 + len(records), 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1) + records)
    struct.pack_into(">I", data, 17, checksum(memoryview(data)[HEAD_OFFSET:]))
    return bytes(data)


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("foreign", [with_header(b"\xff"), headed([20_000]), bomb(4, 2 << 20)])
async def test_a_batch_that_mirrord_cannot_have_written_does_not_stop_the_reader(
    monkeypatch: pytest.MonkeyPatch, foreign: bytes, *, compacted: bool
) -> None:
    """It was taken for a damaged answer, and read again for ever."""
    monkeypatch.setattr(record_decoding, "MOST_HEADERS", 10_000)
    monkeypatch.setattr(bounded_decompression, "MOST_BYTES", 1 << 20)
    buffer = stored(10, with_header(b"h")) + stored(11, foreign) + stored(12, with_header(b"h"))
    found = FetchedPartition("state", 0, 0, 13, -1, 0, 0, len(buffer), [])
    reader, _ = reading(monkeypatch, found, compacted=compacted, buffer=buffer)
    records = [(record.offset, record.value) for record in await reader.take()]
    assert records == [(10, b"v"), *([] if compacted else [(11, None)]), (12, b"v")]
    assert reader.position == 13


async def test_millions_of_records_of_another_client_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_decoding, "MOST_RECORDS", 2)
    monkeypatch.setattr(partition_io, "FOREIGN_AT_ONCE", 2)
    buffer = stored(9, headed([0] * 6)) + stored(15, with_header(b"h"))
    found = FetchedPartition("state", 0, 0, 16, -1, 0, 0, len(buffer), [])
    reader, asked = reading(monkeypatch, found, compacted=False, buffer=buffer)
    parts = [[record.offset for record in await reader.take()] for _ in range(3)]
    assert (parts, asked) == ([[10, 11], [12, 13], [14, 15]], [10, 12, 14])


async def test_a_damaged_batch_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    good = stored(10, with_header(b"h"))
    found = FetchedPartition("state", 0, 0, 11, -1, 0, 0, len(good), [])
    reader, _ = reading(monkeypatch, found, compacted=False, buffer=good[:-1] + b"\xff")
    with pytest.raises(AskAgain, match="the checksum does not match"):
        await reader._read_next()
