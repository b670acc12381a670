"""The source has lost a record that the target refuses, and another record has its offset. The decision to skip the
refused record does not apply to that one."""

import pytest
from msgspec.structs import replace

from mirrord.ledger.facts.core import HoleFound, LaneFact, SourceRun, TargetRun, Verdict
from mirrord.ledger.facts.quarantine import Quarantined
from mirrord.model.runs import Run
from mirrord.replication.lane.signals import FetchFrom, OwnBatch
from tests.unit.replication.lane.source.test_short_source import scanned
from tests.unit.replication.lane.source.test_source_epochs import chunk, data
from tests.unit.replication.lane.test_fourth_faults import offsets
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import Faulty, one, opened, progress_at

# Offsets 0 to 9 have been copied, and offset 10 has been skipped.
SKIPPED: tuple[LaneFact, ...] = (
    SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 1),)),
    TargetRun(LANE, 1, 0, 0, 1),
    Quarantined(LANE, 1, 10, 11, 87, "refused", skip=True, epoch=1),
    SourceRun(LANE, 1, (Run(10, 11),), (Verdict(10, 11, "rejected"),)),
)


def resumed(*facts: LaneFact, ordinal: int = 8) -> tuple[Faulty, FetchFrom]:
    """The target has lost its last records, from this ordinal on."""
    play = opened(*facts)
    play.take(replace(progress_at(12), source_epoch=1))
    return play, one(scanned(play, play.ask_target(ordinal, epoch=2), OwnBatch(0, ordinal, 0, 0, 1)), FetchFrom)


@pytest.mark.parametrize(("epoch", "copied"), [(1, [8, 9, 11, 12]), (4, [8, 9, 10, 11, 12]), (0, [8, 9, 10, 11, 12])])
def test_a_record_of_another_epoch_is_not_the_refused_one(epoch: int, copied: list[int]) -> None:
    """LOSS. The source has lost everything from offset 8 on, and has records of epoch 4 there, or of epoch 0 if the
    next leader has a different history."""
    play, fetch = resumed(*SKIPPED)
    play.bind_all(play.tell(chunk(fetch, data((8, 5, epoch, 0)))))
    assert offsets(play, 8, 8 + len(copied) - 1) == copied


def test_the_ledger_shows_that_the_refused_record_is_gone() -> None:
    """The same, and the target then loses its records from ordinal 9 on."""
    play, fetch = resumed(*SKIPPED, SourceRun(LANE, 1, (Run(8, 8),), (), ((8, 4),)), ordinal=9)
    assert (fetch.position, fetch.last_epoch) == (9, 4)
    play.bind_all(play.tell(chunk(fetch, data((9, 3, 4, 0)))))
    assert offsets(play, 8, 11) == [8, 9, 10, 11]


@pytest.mark.parametrize(("recorded", "position"), [(4, 10), (1, 11), (-1, 11)])
def test_a_rebuilt_map_shows_that_the_refused_record_is_gone(recorded: int, position: int) -> None:
    """LOSS. A search in both logs has read the record that the source now has at offset 10, and could not determine
    ordinals 8 and 9. The epoch of the record before them was of no use, so the refused record seemed to be there."""
    epochs = ((0, 1), (8, -1), (10, recorded))
    hole = HoleFound(LANE, 1, 8, 9, 10, 10)
    play = opened(*SKIPPED[:3], SourceRun(LANE, 1, (Run(8, 11), Run(10, 10)), (), epochs), hole)
    play.take(progress_at(10))
    play.bind_all(play.ask_target(10, last=9))
    assert play.lane.position == position


@pytest.mark.parametrize(("former", "epoch", "found"), [(1, 4, 4), (1, 1, 1), (-1, 4, -1), (1, -1, 1), (-1, -1, -1)])
def test_the_target_refuses_the_other_record_as_well(former: int, epoch: int, found: int) -> None:
    """NO END. The fact about the second record did not count, because the same offset had been skipped before. The lane
    sent this record again and again."""
    play = opened(*SKIPPED[:2])
    for each in (former, epoch):
        play.fold(Quarantined(LANE, 1, 10, 11, 87, "refused", skip=True, epoch=each))
    assert [(each.start, each.end, each.epoch) for each in play.record.quarantine] == [(10, 11, found)]
