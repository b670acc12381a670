"""The last copied record of which the ledger knows the source epoch, and the first copied record that is lost."""

import pytest

from mirrord.ledger.facts.core import HoleFound, SourceRun
from mirrord.model.runs import Run
from mirrord.replication.lane.source import last_copied, source_epochs
from tests.unit.replication.lane.test_rebuilding import LANE, Play


@pytest.mark.parametrize(
    ("epochs", "known"),
    [
        (((0, 0), (11, -1)), (11, 0)),
        (((0, 0), (9, -1), (11, -1)), (9, 0)),
        (((0, -1), (9, 2), (11, -1)), (11, 2)),
        (((0, -1),), None),
    ],
)
def test_the_source_is_asked_about_the_record_before_an_unknown_epoch(
    epochs: tuple[tuple[int, int], ...], known: tuple[int, int] | None
) -> None:
    """LOSS. The source was truncated at offset 9. A holder resumed at ordinal 11 and ended before it copied a record,
    so the ledger does not know the epoch from there on. The next holder finds newer records of the key of ordinal 11
    and resumes at ordinal 12. A comparison reads epoch 1 from the source, but it cannot show that the copied records
    are of this epoch. Without the question, the new records at offsets 9 and 10 were never copied."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), epochs))
    play.begin("second")
    play.lane.next_ordinal = play.lane.resume_ordinal = play.lane.position = 12
    play.lane.history.found_epoch = (12, 1)
    assert last_copied.last_copied(play.lane) == known
    source_epochs.recall(play.lane)
    assert play.lane.epoch == (1 if known is None else -1)


@pytest.mark.parametrize(
    ("epochs", "start", "epoch", "end", "lost"),
    [
        (((0, 0), (3, 1), (10, 0), (11, 2)), 3, 0, 5, 5),  # epoch 1 began at offset 5, or in the gap before it
        (((0, 0), (3, 1), (10, 0), (11, 2)), 3, 0, 4, 4),
        (((0, 0), (3, 1), (10, 0), (11, 2)), 7, 1, 7, 7),
        (((0, 0), (3, 1), (10, 0), (11, 2)), 8, 1, 12, 10),
        (((0, 0), (3, -1), (10, 0), (11, 2)), 3, 0, 5, 3),  # it is not known
        (((0, 0), (3, 1), (10, 0), (11, 2)), 8, 1, 9, 9),
    ],
)
def test_the_first_lost_record_after_a_hole(
    epochs: tuple[tuple[int, int], ...], start: int, epoch: int, end: int, lost: int
) -> None:
    """FALSE TRUNCATION. Ordinals 0 to 2 are offsets 0 to 2, 3 to 5 are 5 to 7, and 2 was copied again as 10. Offsets 3,
    4, 8 and 9 were skipped. If the source still has them, it has not lost them."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0), Run(3, 5)), (), epochs[:2]))
    runs = (Run(10, 2), Run(11, 10))
    play.fold(HoleFound(LANE, 1, 2, 2, 10, 11), SourceRun(LANE, 1, runs, (), epochs[2:]))
    play.begin("second")
    play.lane.next_ordinal = 13
    assert last_copied.first_lost(play.lane, start, epoch, end) == lost


def test_records_of_unknown_epochs_after_a_hole_do_not_hide_those_before_them() -> None:
    """LOSS. Nothing asked whether the source still had any of the copied records."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0), (6, -1))))
    play.fold(HoleFound(LANE, 1, 2, 2, 10, 11), SourceRun(LANE, 1, (Run(10, 2), Run(11, 10)), (), ((10, 0),)))
    play.begin("second")
    play.lane.next_ordinal = play.lane.acked = 10
    play.lane.position = 2
    assert last_copied.furthest(play.lane) == (6, 0)
    play.lane.next_ordinal, play.lane.position = 11, 10
    assert last_copied.last_copied(play.lane) == (6, 0)
