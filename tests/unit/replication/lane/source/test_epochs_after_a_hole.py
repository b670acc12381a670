"""The source epochs at a resume: after a hole, their order is that of source offsets, not that of ordinals."""

from mirrord.ledger.facts.core import HoleFound, SourceRun
from mirrord.model.runs import Run
from mirrord.replication.lane.source import source_epochs
from tests.unit.replication.lane.test_rebuilding import LANE, Play


def resumed(epochs: tuple[tuple[int, int], ...], runs: tuple[Run, ...], hole: HoleFound, ordinal: int, at: int) -> Play:
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, runs, (), epochs), hole)
    play.begin("second")
    play.lane.resume_ordinal, play.lane.position = ordinal, at
    source_epochs.recall(play.lane)
    return play


def test_records_that_were_copied_again_do_not_move_the_beginning_of_a_later_epoch() -> None:
    """Ordinals 0 to 3 are a hole, and were copied again as 10 to 13. Offsets 0 to 6 are of epoch 0, 7 to 9 of epoch 1,
    and those from 10 on of epoch 3."""
    hole = HoleFound(LANE, 1, 0, 3, 10, 14)
    runs, epochs = (Run(0, 0), Run(10, 0), Run(14, 10)), ((0, 0), (7, 1), (10, 0), (14, 3))
    seen = resumed(epochs, runs, hole, 18, 14).lane.seen
    assert [seen.before(at) for at in (4, 7, 8, 10, 11)] == [0, 0, 1, 1, 3]
    assert (seen.divergence(0, 7), seen.divergence(1, 12)) == (7, 10)


def test_in_a_gap_the_epoch_of_the_next_record_applies() -> None:
    hole = HoleFound(LANE, 1, 11, 11, 12, 12)
    runs, epochs = (Run(0, 0), Run(2, 3), Run(12, 14)), ((0, 0), (12, 1))
    assert resumed(epochs, runs, hole, 12, 14).lane.epoch == 1


def test_an_epoch_of_which_nothing_was_copied_is_not_assumed() -> None:
    hole = HoleFound(LANE, 1, 11, 11, 12, 12)
    runs, epochs = (Run(0, 0), Run(12, 12)), ((0, 0), (12, 1))
    assert resumed(epochs, runs, hole, 12, 12).lane.epoch == 0
