"""The lookup of records that a compacted target lacks: records that a lane never copies were never appended."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

import pytest

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.range_reader import ReadBatch
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import CONTROL, HEADER, TRANSACTIONAL, Header
from mirrord.ledger.facts.core import SourceRun
from mirrord.model.names import TopicId
from mirrord.model.runs import Run
from mirrord.replication.host import superseded_lookup
from mirrord.replication.host.superseded_lookup import SupersededLookup
from mirrord.replication.lane.target import superseded_records
from mirrord.replication.lane.target.scan_result import Missing
from mirrord.replication.lane.target.superseded_records import AskSuperseded
from tests.fixtures.fake_pipe import as_any
from tests.unit.replication.host.test_batch_rebuild import BASE, batch
from tests.unit.replication.lane.test_rebuilding import LANE, Play

PARTITION = PartitionId("orders", TopicId("S" * 22), 0)


@dataclass
class FakeLog:
    """A partition's batches, the end of what can be read, and its last stable offset."""

    batches: list[ReadBatch]
    end: int
    stable: int

    async def read(
        self, partition: PartitionId, start: int, end: int, *, committed: bool = False
    ) -> AsyncGenerator[ReadBatch, None]:
        del partition
        assert not committed or end <= self.stable, "such a read waits"
        for each in self.batches:
            if each.header.last_offset >= start and each.header.base_offset < end:
                yield each._replace(aborted=each.aborted and committed)


@pytest.fixture(autouse=True)
def known_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def bounds(log: FakeLog, partition: PartitionId) -> tuple[int, int]:
        del partition
        return log.end, 0

    async def last_stable_offset(log: FakeLog, partition: PartitionId) -> int:
        del partition
        return log.stable

    monkeypatch.setattr(superseded_lookup, "bounds", bounds)
    monkeypatch.setattr(superseded_lookup, "last_stable_offset", last_stable_offset)


def written(offset: int, keys: str, *, attributes: int = 0, aborted: bool = False, leader_epoch: int = 4) -> ReadBatch:
    rows = [DecodedRecord(BASE + at, 1_000, key.encode(), b"value", ()) for at, key in enumerate(keys)]
    data = batch(rows, base_offset=offset, attributes=attributes, leader_epoch=leader_epoch)
    return ReadBatch(Header(*HEADER.unpack_from(data)), data, 0, len(data), aborted)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("read_committed", "uncopied", "stable", "until"),
    [
        (True, written(2, "cde", attributes=TRANSACTIONAL, aborted=True), 6, 2),
        (False, written(2, "cde", attributes=TRANSACTIONAL, aborted=True), 6, 6),
        (True, written(2, "cde", attributes=TRANSACTIONAL), 2, 2),
        (True, written(2, "c", attributes=CONTROL), 6, 2),
        (True, written(2, "cde"), 6, 6),
    ],
    ids=["aborted", "aborted, and copied", "open transaction", "control", "copied"],
)
async def test_nothing_after_a_record_that_a_lane_never_copies_was_appended(
    *, read_committed: bool, uncopied: ReadBatch, stable: int, until: int
) -> None:
    """The ledger has a run from offset 0 on and nothing else, and other writers have newer records of all keys."""
    source = FakeLog([written(0, "ab"), uncopied, written(5, "f")], 6, stable)
    target = FakeLog([written(6, "abcdef")], 12, 12)
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)))
    sides = (as_any(source), PARTITION), (as_any(target), PARTITION)
    lookup = SupersededLookup(
        *sides, (as_any(source), as_any(target)), play.record, None, read_committed=read_committed
    )
    missing = Missing("last", 0, 5, 0, has_room=True)
    answer = await lookup.run(AskSuperseded(1, (missing,), 12))
    assert (answer.error, answer.trouble, answer.until) == (0, "", until)


def lookup(**options: Callable[[int], bool]) -> SupersededLookup:
    """The source has keys a to h at offsets 0 to 7, the target a newer record of c, e and h, from a later epoch."""
    source, target = FakeLog([written(0, "abcdefgh")], 8, 8), FakeLog([written(3, "che")], 6, 6)
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)))
    sides = (as_any(source), PARTITION), (as_any(target), PARTITION)
    asks = (as_any(source), as_any(target))
    return SupersededLookup(*sides, asks, play.record, None, read_committed=True, **options)


LOST = AskSuperseded(1, (Missing("lost", 0, 7, 9, has_room=False, leader_epoch=1),), 6)


@pytest.mark.asyncio
@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 100])
async def test_many_records_are_looked_up_in_several_parts(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(superseded_records, "MOST_AT_ONCE", at_once)
    assert (await lookup().run(LOST)).again == ((0, 1), (3, 3), (5, 6))


@pytest.mark.asyncio
async def test_more_ranges_than_one_entry_of_the_ledger_can_contain_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(superseded_lookup, "MOST_RANGES", 2)
    answer = await lookup().run(LOST)
    assert (answer.again, answer.trouble) == (
        (),
        "more than 2 separate ranges of records would have to be copied again",
    )


@pytest.mark.asyncio
async def test_a_lookup_that_the_lane_no_longer_waits_for_ends_after_the_current_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its answer must not say that the other records are superseded."""
    monkeypatch.setattr(superseded_records, "MOST_AT_ONCE", 3)
    open_for = iter((True, True, False))
    answer = await lookup(is_open=lambda _: next(open_for)).run(LOST)
    assert (answer.error, answer.again) == (13, ())
