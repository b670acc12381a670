"""The last copied record of which the ledger knows the source epoch."""

import pytest

from mirrord.ledger.facts.core import SourceRun
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
