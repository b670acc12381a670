"""Which batches a reader beside transactions is given, and how far it reads for that."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.committed_batches import unaborted_batches
from mirrord.kafka.client.range_reader import ReadBatch
from mirrord.kafka.protocol.record_batch import TRANSACTIONAL
from mirrord.model.names import TopicId
from tests.fixtures.superseded_logs import FakeLog, marker, written

PARTITION = PartitionId("orders", TopicId("S" * 22), 0)
ONE, OTHER = 11, 12


def by(producer_id: int, offset: int, *, aborted: bool = False) -> ReadBatch:
    return written(offset, "a", attributes=TRANSACTIONAL, producer=(producer_id, 0), aborted=aborted)


def found(log: FakeLog, start: int, end: int) -> list[tuple[int, str]]:
    """The offsets and fates of the batches between `start` and `end`."""

    async def read() -> list[tuple[int, str]]:
        batches = unaborted_batches(log, PARTITION, start, log.stable, end, log.end)
        return [(batch.header.base_offset, fate) async for batch, fate in batches]

    return asyncio.run(read())


@pytest.mark.parametrize(
    ("after", "fate"),
    [
        ([marker(4, ONE, commit=True)], [(3, "committed")]),
        ([marker(4, ONE, commit=False)], []),
        ([marker(4, OTHER, commit=True)], [(3, "open")]),
        ([written(4, "b")], [(3, "open")]),
    ],
)
def test_a_marker_after_the_range_ends_its_transaction(after: Sequence[ReadBatch], fate: list[tuple[int, str]]) -> None:
    log = FakeLog([by(OTHER, 2), by(ONE, 3), *after], 5, 2)
    assert found(log, 3, 4) == fate


def test_the_broker_says_which_transactions_below_the_last_stable_offset_were_aborted() -> None:
    log = FakeLog([by(ONE, 0, aborted=True), by(ONE, 1, aborted=True), marker(2, ONE, commit=False)], 3, 3)
    assert (found(log, 1, 3), log.reads) == ([], [(1, 3)])


def test_a_log_is_read_no_further_than_to_the_end_of_the_transactions() -> None:
    later = [marker(5, ONE, commit=True), *(written(offset, "b") for offset in range(6, 20))]

    class Counted(list[ReadBatch]):
        """Batches that count how many of them were read."""

        read = 0

        def __iter__(self) -> Iterator[ReadBatch]:
            for each in super().__iter__():
                self.read += 1
                yield each

    batches = Counted([by(OTHER, 2), by(ONE, 3), written(4, "b"), *later])
    log = FakeLog(batches, 20, 2)
    assert found(log, 3, 5) == [(3, "committed"), (4, "committed")]
    # Twice, of which the second time is that of the range; a fake log looks at all of its batches for that.
    assert log.reads == [(3, 20), (3, 5)]
    assert batches.read == 4 + len(batches)
