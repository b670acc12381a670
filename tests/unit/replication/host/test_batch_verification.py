"""The comparison of batches with the source, where the source has lost records and uses their offsets again."""

import pytest

from mirrord.ledger.facts.core import SourceRun, TargetRun, Verdict
from mirrord.model.runs import Run
from mirrord.replication.host.batch_verification import LOST, BatchVerification
from mirrord.replication.lane.signals import AskCheck
from mirrord.replication.lane.target.batch_compare import BatchFinding
from tests.fixtures.fake_pipe import as_any
from tests.fixtures.superseded_logs import PARTITION, FakeLog, written
from tests.unit.replication.lane.test_rebuilding import LANE, Play

PRODUCER = 501


async def compared(
    source: str, epochs: tuple[tuple[int, int], ...] = ((0, 3),), *, truncated: int | None = None
) -> BatchFinding:
    """Compare the ordinals 0 to 4 of a target, with the keys a to e, with the source offsets 10 to 14. The source's
    records there have the keys `source`, are all of leader epoch 4, and end the source log. According to the ledger,
    the source has lost what was copied from the offset `truncated` on."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 10),), (), epochs), TargetRun(LANE, 1, 0, 0, 1))
    if truncated is not None:
        play.fold(SourceRun(LANE, 1, (Run(5, truncated),), (Verdict(truncated, 15, "truncated"),), ((5, 3),)))
    end = 10 + len(source)
    originals, copies = (
        FakeLog([written(10, source)], end, end),
        FakeLog([written(0, "abcde", producer=(PRODUCER, 0))], 5, 5),
    )
    wanted = AskCheck(1, PRODUCER, 0, 4, 0, 5, 15, epochs)
    sides = as_any(originals), as_any(copies), PARTITION, PARTITION
    return await BatchVerification(*sides, play.record, wanted).run((end, 0))


@pytest.mark.parametrize(
    ("source", "replaced", "equal_until"),
    [("xyzde", ((0, 3),), 5), ("abxyz", ((2, 5),), 2), ("xy", ((0, 5),), -1), ("ab", ((2, 5),), 2)],
)
async def test_what_the_source_has_in_place_of_copied_records(
    source: str, replaced: tuple[tuple[int, int], ...], equal_until: int
) -> None:
    finding = await compared(source)
    assert finding == BatchFinding("unverifiable", finding.note, (), equal_until, replaced)


async def test_the_very_same_records_in_a_later_epoch_are_equal() -> None:
    assert await compared("abcde") == BatchFinding("equal", equal_until=5)


async def test_only_a_record_of_the_recorded_epoch_differs() -> None:
    assert (await compared("xbcde", ((0, 4),))).outcome == "different"
    finding = await compared("xbcdy", ((0, 3), (4, 4)))
    assert (finding.outcome, finding.note) == ("different", "ordinal 4 (source offset 14) differs in its key")


async def test_records_that_the_source_has_lost_according_to_the_ledger_are_not_compared() -> None:
    finding = await compared("xyzuv", truncated=12)
    assert finding == BatchFinding("unverifiable", LOST.note, (), -1, ((0, 2),))
