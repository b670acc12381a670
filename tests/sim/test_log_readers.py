"""What the product's code reads from the fake logs."""

from collections.abc import AsyncGenerator
from random import Random

import pytest

from mirrord.kafka.client.range_reader import ReadBatch, ReadFailed
from mirrord.kafka.records.record_decoding import decode
from mirrord.replication.lane.second_path import RebuildRequest
from tests.fixtures.rebuilt import rebuild
from tests.sim import toy
from tests.sim.log_readers import PARTITION, TIMED_OUT, SourceReader, TargetReader, at_once
from tests.sim.source import OUT_OF_RANGE, FakeSource
from tests.sim.target import FakeTarget, Stored

Contents = list[tuple[int, int, int, list[tuple[int, bytes | None, int]]]]


def contents(reading: AsyncGenerator[ReadBatch, None]) -> Contents:
    """The batches that are read: first offset, last offset, leader epoch, and records (offset, key, number)."""

    async def read() -> Contents:
        return [
            (
                each.header.base_offset,
                each.header.last_offset,
                each.header.leader_epoch,
                [
                    (record.offset, record.key, int.from_bytes(record.value or b"", signed=True))
                    for record in decode(each.buffer, each.start, each.end)
                ],
            )
            async for each in reading
        ]

    return at_once(read())


def two_batches() -> FakeTarget:
    """Return a target with three records of the lane, of which the cleaner has removed the second, a record of another
    client, and one that is not committed yet."""
    target = FakeTarget()
    target.keys = 3
    log = target.brokers[0]
    log.append(Stored(0, 3, 501, 0, 7, 1, (1001, 0, 1003), 1))
    log.append(Stored(3, 1, -1, -1, -1, 1, (-5,), 2))
    log.append(Stored(4, 1, 501, 0, 10, 1, (1004,), 2))
    target.high_watermark = 4
    return target


def test_a_batch_of_the_target_holds_what_the_cleaner_has_left() -> None:
    reading = TargetReader(two_batches()).read(PARTITION, 1, 4)
    assert contents(reading) == [
        (0, 2, 1, [(0, b"\x02", 1001), (2, b"\x01", 1003)]),
        (3, 3, 2, [(3, b"\x02", -5)]),
    ]


@pytest.mark.parametrize(("start", "end", "error"), [(0, 5, TIMED_OUT), (4, 5, TIMED_OUT), (6, 7, OUT_OF_RANGE)])
def test_the_target_cannot_be_read_above_the_high_watermark(start: int, end: int, error: int) -> None:
    with pytest.raises(ReadFailed) as failure:
        contents(TargetReader(two_batches()).read(PARTITION, start, end))
    assert failure.value.error == error


def with_open_transaction() -> SourceReader:
    """Return a source with four records, and two more in an open transaction."""
    source = FakeSource(Random(0))
    source.append(4, 1)
    source.append(2, 1, producer=3)
    return SourceReader(source)


@pytest.mark.parametrize(("end", "committed", "batches"), [(6, False, [(0, 3), (4, 5)]), (4, True, [(0, 3)])])
def test_committed_records_end_where_a_transaction_is_open(
    end: int, batches: list[tuple[int, int]], *, committed: bool
) -> None:
    found = contents(with_open_transaction().read(PARTITION, 2, end, committed=committed))
    assert [each[:2] for each in found] == batches


@pytest.mark.parametrize(
    ("start", "end", "committed", "error"),
    [(0, 6, True, TIMED_OUT), (0, 7, False, TIMED_OUT), (7, 8, False, OUT_OF_RANGE)],
)
def test_records_that_do_not_exist_yet_cannot_be_read(start: int, end: int, error: int, *, committed: bool) -> None:
    with pytest.raises(ReadFailed) as failure:
        contents(with_open_transaction().read(PARTITION, start, end, committed=committed))
    assert failure.value.error == error


def test_batches_of_aborted_transactions_are_marked() -> None:
    source = FakeSource(Random(0))
    source.append(1, 1, producer=3)
    source.append(1, 1, producer=4)
    source.finish(3, 1, commit=False)
    source.finish(4, 1, commit=True)

    async def marks(*, committed: bool) -> list[bool]:
        reading = SourceReader(source).read(PARTITION, 0, 4, committed=committed)
        return [each.aborted async for each in reading]

    assert at_once(marks(committed=True)) == [True, False, False, False]
    assert not any(at_once(marks(committed=False)))


@pytest.mark.parametrize("keys", [0, 3])
def test_the_second_path_of_the_simulation_builds_what_the_product_builds(keys: int) -> None:
    batch = toy.encode(10, 13, [(10, 1), (12, 2), (13, 3)], newest_ms=5, keys=keys)
    request = RebuildRequest(batch, 0, len(batch), 11, 501, 0, 7)
    made, true = toy.rebuild(request), rebuild(request)
    assert made is not None
    assert true is not None
    assert made.pieces == true.pieces
    assert decode(made.data, 0, len(made.data)) == decode(true.data, 0, len(true.data))
    assert toy.records(made.data) == toy.records(true.data) == [(0, 2), (1, 3)]
