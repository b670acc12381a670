"""Records that the lane has copied, that the target has lost, and that are not copied again. The source may lose them
as well and have others at their offsets."""

import pytest
from msgspec.structs import replace

from mirrord.ledger.facts.core import LaneFact, SourceRun, TargetRun
from mirrord.model.runs import Run
from mirrord.replication.lane.signals import AskDivergence, Chunk, DivergenceAnswer, FetchFrom
from mirrord.replication.lane.source.left_out_epochs import of_left_out
from mirrord.replication.lane.target.superseded_records import AskSuperseded
from tests.unit.replication.lane.test_eighth_faults import judged, read
from tests.unit.replication.lane.test_fourth_faults import retake
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import Faulty, one, opened, progress_at

# Source offsets 0 to 9 have epoch 1, 10 to 12 epoch 2, and 13 to 15 epoch 3. All have been copied.
COPIED: tuple[LaneFact, ...] = (
    SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 1), (10, 2), (13, 3))),
    TargetRun(LANE, 1, 0, 0, 1),
)


EPOCHS = ((10, 13, 2), (13, 16, 3))


def left_out() -> Faulty:
    """The target has lost ordinals 10 to 15, and another client has written newer records of their keys."""
    play = opened(*COPIED)
    retake(play, 16, 16, 16, epoch=1)
    own, others = (), tuple((at, at + 1) for at in range(10, 16))
    effects = read(play, play.ask_target(16, epoch=3), (1, 10), own=own, others=others)
    asked = one(effects, AskSuperseded)
    keys = {ordinal: b"%d" % ordinal for ordinal in range(16)}
    seen = [(ordinal, keys[ordinal], 3, -1) for ordinal in range(10, 16)]
    play.bind_all(play.tell(judged(asked, keys, *seen)))
    return play


def test_the_ledger_has_the_epochs_of_records_that_are_left_out() -> None:
    record = left_out().record
    assert [(each.start, each.end, each.reason) for each in record.newest_verdicts] == [(10, 16, "compacted")]
    assert record.left_out_epochs == EPOCHS
    assert record.epochs[-1] == (10, 3)


LOST = [(1, 10, 10), (1, 14, 10), (2, 12, 12), (2, 15, 13), (3, 15, 15)]
"""The answer of a source that has lost records: its highest epoch up to the requested one, and the end of this epoch.
The last number is the first offset at which the source has another record."""


def goes_back(play: Faulty, start: int) -> None:
    """Check that the lane reads from this offset on, and that the ledger says that the records from there are lost."""
    assert (play.lane.position, play.lane.next_ordinal) == (start, 10)
    assert play.record.truncations[-1] == (10, start)
    known = ((first, min(end, start), epoch) for first, end, epoch in EPOCHS)
    assert play.record.left_out_epochs == tuple(each for each in known if each[0] < each[1])
    assert {each.reason for each in play.record.newest_verdicts if each.end > start} == {"truncated"}


@pytest.mark.parametrize(("epoch", "end", "start"), LOST)
def test_the_lane_goes_back_to_the_first_left_out_record_that_the_source_has_lost(
    epoch: int, end: int, start: int
) -> None:
    """LOSS. The source had other records at offsets from 10 to 15. They were not copied, because the ledger did not
    have the epochs of the records that were left out."""
    play = left_out()
    play.take(progress_at(10))
    fetch = one(play.ask_target(16, epoch=3, last=9), FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (16, 3)
    lost = Chunk(fetch.question, 0, 40, 40, 0, (), bytearray(), 0, 0, diverging_epoch=epoch, diverging_end=end)
    play.bind_all(play.tell(lost))
    goes_back(play, start)


@pytest.mark.parametrize(("epoch", "end", "start"), LOST)
def test_the_source_is_asked_about_the_records_that_were_left_out(epoch: int, end: int, start: int) -> None:
    """LOSS. The epoch of the next record is not known, and nothing asked whether the source still had the records that
    were left out."""
    play = left_out()
    play.fold(SourceRun(LANE, play.record.grant, (Run(10, 16),), (), ((10, -1),)))
    play.take(progress_at(10))
    asked = one(play.ask_target(16, epoch=3, last=9), AskDivergence)
    assert (asked.position, asked.epoch) == (16, 3)
    play.bind_all(play.tell(DivergenceAnswer(asked.question, 0, epoch, end)))
    goes_back(play, start)


def test_the_lane_goes_on_if_the_source_has_the_records_that_were_left_out() -> None:
    play = left_out()
    play.fold(SourceRun(LANE, play.record.grant, (Run(10, 16),), (), ((10, -1),)))
    play.take(progress_at(10))
    asked = one(play.ask_target(16, epoch=3, last=9), AskDivergence)
    assert one(play.tell(DivergenceAnswer(asked.question, 0, 3, 20)), FetchFrom).position == 16


def test_records_that_were_left_out_are_not_copied_if_only_later_ones_are_lost() -> None:
    """DOUBLED. Ordinals 10 to 12 are offsets 16 to 18 of epoch 4. The source has lost them, and has others of epoch 3
    there. The lane went back to the offset after the last copied record before them, and copied records that it had
    left out because of newer ones."""
    play = left_out()
    play.fold(SourceRun(LANE, play.record.grant, (Run(10, 16),), (), ((10, 4),)), TargetRun(LANE, 2, 10, 16, 3))
    begun = replace(progress_at(13, epoch=3), grant=2, target_offset=19, source_offset=19)
    play.take(replace(begun, rewinds=len(play.record.rewinds)))
    fetch = one(play.ask_target(19, epoch=3, last=12), FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (19, 4)
    lost = Chunk(fetch.question, 0, 40, 40, 0, (), bytearray(), 0, 0, diverging_epoch=3, diverging_end=18)
    play.bind_all(play.tell(lost))
    assert (play.lane.position, play.record.left_out_epochs) == (16, EPOCHS)


@pytest.mark.parametrize(
    ("epochs", "again", "found"),
    [
        (((0, 1), (10, 2), (13, 3)), (), ((10, 13, 2), (13, 16, 3))),
        (((0, 1), (10, 2), (13, 3)), ((12, 14),), ((10, 12, 2), (12, 16, 3))),
        (((0, 1), (11, 2)), (), ((10, 11, 1), (11, 16, 2))),
        (((0, 1), (10, -1), (13, 3)), (), ((10, 16, 3),)),
        (((0, 1), (10, 3), (13, 2)), (), ()),
        (((0, -1),), (), ()),
    ],
)
def test_the_epochs_of_left_out_records(
    epochs: tuple[tuple[int, int], ...], again: tuple[tuple[int, int], ...], found: tuple[tuple[int, int, int], ...]
) -> None:
    record = opened(*COPIED).record
    assert of_left_out(record, epochs, ((10, 15),), again) == found


def test_offsets_before_a_left_out_record_may_belong_to_its_epoch() -> None:
    """Offsets 10 and 13 were not copied. Offset 13 may have epoch 2 or 3."""
    runs = SourceRun(LANE, 1, (Run(0, 0), Run(10, 11), Run(12, 14)), (), ((0, 1), (10, 2), (12, 3)))
    record = opened(runs, COPIED[1]).record
    assert of_left_out(record, record.epochs, ((10, 13),), ()) == ((10, 13, 2), (13, 16, 3))
