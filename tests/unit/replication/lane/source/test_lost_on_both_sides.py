"""The target loses records that the source has lost before. The next holder has to go back as far as the holder that
noticed the loss of the source."""

import pytest

from mirrord.ledger.facts.core import LaneFact, SourceRun, TargetRun, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane.signals import FetchFrom, OwnBatch
from mirrord.replication.lane.source.declared_runs import continues_at
from tests.unit.replication.lane.source.test_short_source import scanned
from tests.unit.replication.lane.test_fourth_faults import retake
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import one, opened

# Offsets 0 to 9 are of epoch 1. Offset 10 is a transaction marker, the first record of epoch 2. Offsets 11 to 14 are of
# epoch 2 as well.
COPIED: tuple[LaneFact, ...] = (
    SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 1),)),
    TargetRun(LANE, 1, 0, 0, 1),
    SourceRun(LANE, 1, (Run(10, 11),), (Verdict(10, 11, "control"),), ((10, 2),)),
)
GONE = Verdict(11, 15, "truncated")
# The source has lost offsets 11 to 14, and has records of epoch 4 there.
LOST = (
    *COPIED,
    SourceRun(LANE, 1, (Run(14, 11),), (GONE,), ((14, 2),)),
    SourceRun(LANE, 1, (Run(14, 11),), (), ((14, 4),)),
)
# It has lost the marker as well, and has records of epoch 1 from offset 10 on, which the lane has not read yet.
BRANCHED = (*COPIED, SourceRun(LANE, 1, (Run(14, 10),), (GONE,), ((14, 1),)))


def resumed(facts: tuple[LaneFact, ...], ordinal: int) -> FetchFrom:
    """The target has lost all records from this ordinal on, although they had been acknowledged."""
    play = opened(*facts)
    retake(play, 15, 15, 12)
    return one(scanned(play, play.ask_target(ordinal, epoch=2), OwnBatch(0, ordinal, 0, 0, 1)), FetchFrom)


@pytest.mark.parametrize("ordinal", [10, 12])
@pytest.mark.parametrize("facts", [LOST, BRANCHED])
def test_the_lane_continues_after_the_last_copied_record_that_the_source_has(
    facts: tuple[LaneFact, ...], ordinal: int
) -> None:
    """LOSS, FALSE LOSS. The lane continued at offset 11, and the fetch carried epoch 1, that of offset 9. If offset 10
    is a record of epoch 1 now, it was never copied. If it still is the marker of epoch 2, the broker reported that its
    log diverges there, and the ledger said that the source has lost the marker, and that it had been copied."""
    fetch = resumed(facts, ordinal)
    assert (fetch.position, fetch.last_epoch) == (10, 1)


def test_if_nothing_was_copied_before_the_lane_goes_back_as_far_as_before() -> None:
    play = opened(SourceRun(LANE, 1, (Run(0, 4),)))
    play.fold(SourceRun(LANE, 1, (Run(6, 3),), (Verdict(4, 10, "truncated"),), ((6, 0),)))
    assert [continues_at(play.record, ordinal) for ordinal in (0, 5, 6)] == [3, 3, 3]
    play.fold(SourceRun(LANE, 1, (Run(6, 5),), (Verdict(3, 5, "control"),), ((6, 2),)))
    assert [continues_at(play.record, ordinal) for ordinal in (0, 5, 6)] == [4, 4, 5]
