"""The lookup of records that a compacted target lacks, while other clients write to the target in transactions."""

import pytest

from mirrord.kafka.client.range_reader import ReadBatch
from mirrord.kafka.protocol.record_batch import TRANSACTIONAL
from mirrord.ledger.facts.core import SourceRun
from mirrord.model.runs import Run
from mirrord.replication.lane.target.scan_result import Missing
from mirrord.replication.lane.target.superseded_records import AskSuperseded
from tests.fixtures.superseded_logs import FakeLog, lookup, marker, written
from tests.unit.replication.lane.test_rebuilding import LANE, Play

ONE, OTHER = 7, 8
"""Producer ids of other clients."""


def by(producer_id: int, offset: int, keys: str, *, aborted: bool = False) -> ReadBatch:
    return written(offset, keys, attributes=TRANSACTIONAL, producer=(producer_id, 0), aborted=aborted)


OPEN = by(ONE, 3, "a")
"""A transaction that is open holds back the last stable offset."""


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("target", "stable", "again"),
    [
        ([by(ONE, 3, "abc"), marker(6, ONE, commit=True)], 7, ()),
        ([by(ONE, 3, "abc", aborted=True), marker(6, ONE, commit=False)], 7, ((0, 2),)),
        ([by(ONE, 3, "abc")], 3, ((0, 2),)),
        ([OPEN, written(4, "b")], 3, ((0, 0), (2, 2))),
        ([OPEN, by(OTHER, 4, "b"), marker(5, OTHER, commit=True)], 3, ((0, 0), (2, 2))),
        ([OPEN, by(OTHER, 4, "b"), marker(5, OTHER, commit=False)], 3, ((0, 2),)),
        ([OPEN, by(OTHER, 4, "b"), marker(5, OTHER, commit=False), by(OTHER, 6, "c")], 3, ((0, 2),)),
        (
            [OPEN, by(OTHER, 4, "b"), marker(5, OTHER, commit=False), by(OTHER, 6, "c"), marker(7, OTHER, commit=True)],
            3,
            ((0, 1),),
        ),
        ([OPEN, by(OTHER, 4, "b"), by(OTHER, 5, "c"), marker(6, OTHER, commit=True)], 3, ((0, 0),)),
    ],
    ids=[
        "committed",
        "aborted",
        "open",
        "without a transaction, above an open one",
        "committed above an open one",
        "aborted above an open one",
        "aborted, and the next one open",
        "aborted, and the next one committed",
        "two batches committed",
    ],
)
async def test_only_committed_records_of_others_supersede_lost_ones(
    target: list[ReadBatch], stable: int, again: tuple[tuple[int, int], ...]
) -> None:
    """The target has lost the keys a to c at offsets 0 to 2, and begins a later epoch with records of other clients."""
    end = target[-1].header.last_offset + 1
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)))
    missing = Missing("lost", 0, 2, 3, has_room=False, leader_epoch=1)
    search = lookup(FakeLog([written(0, "abc")], 3, 3), FakeLog(target, end, stable), play.record)
    assert (await search.run(AskSuperseded(1, (missing,), end))).again == again
