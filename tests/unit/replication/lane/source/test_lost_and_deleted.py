"""The source loses copied records in an election, and retention deletes records of the same history."""

import pytest

from mirrord.ledger.facts.core import HoleFound, MapRebuilt, SourceRun, TargetRun, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AskDivergence,
    DivergenceAnswer,
    Effects,
    FetchFrom,
    Lost,
    OwnBatch,
    RebuildAnswer,
)
from mirrord.replication.lane.source.copied_pieces import with_unknown
from mirrord.replication.lane.source.last_copied import copied_from
from mirrord.replication.lane.target.relocation_result import Located
from tests.unit.replication.lane.source.test_source_epochs import chunk
from tests.unit.replication.lane.test_fourth_faults import retake
from tests.unit.replication.lane.test_rebuilding import LANE, Play
from tests.unit.replication.lane.test_second_faults import Faulty, opened


@pytest.mark.parametrize(
    ("located", "epochs"),
    [
        (Located((Run(13, 13),), (), (), 16, ((0, 5), (16, -1)), ((10, 13),), source_start=13), ((10, -1), (13, 5))),
        (Located((), (), (), 16, ((0, 5),), ((10, 16),), source_start=16), ((10, -1),)),
        (Located((Run(13, 13),), (), (), 16, ((0, 5), (16, -1)), ((10, 13),)), ((10, -1), (13, 5))),
    ],
)
def test_the_epochs_of_deleted_records_are_not_known(located: Located, epochs: tuple[tuple[int, int], ...]) -> None:
    """FALSE LOSS. Retention has deleted the records of ordinals 10 to 12, and nothing shows which they were. The ledger
    said that they had the epoch of the first record that the source still has. If the source then lost that record, the
    lane went back to the deleted records, and reported them as lost in the election."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 3),)), TargetRun(LANE, 1, 0, 0, 1))
    play.bind(play.differ())
    play.sandwich(16)
    own = (OwnBatch(10, 3, 10, 0), OwnBatch(13, 3, 13, 0))
    play.bind(play.tell(RebuildAnswer(play.lane.asked, 0, own, located)))
    assert play.record.epochs == ((0, 3), *epochs)


def resumed(*runs: Run) -> tuple[Faulty, FetchFrom]:
    """Ordinals 0 to 5 belong to the offsets 0 to 5, and ordinals from 10 on to the offsets from 12 on. The source had
    deleted offsets 10 and 11 before they were copied. The records of ordinals 6 to 9 are unknown; the rebuilt map has
    these runs for them. The next holder finds ordinals 10 to 12 in the target, and copies."""
    play = opened(
        SourceRun(LANE, 1, (Run(0, 0), *runs), (), ((0, 0), (6, -1))),
        TargetRun(LANE, 1, 0, 0, 1),
        HoleFound(LANE, 1, 6, 9, 10, 10),
        MapRebuilt(LANE, 1, 6, 9, 10),
        SourceRun(LANE, 1, (Run(10, 12),), (Verdict(10, 12, "expired"),), ((10, 2),)),
    )
    retake(play, 13, 13, 15)
    effects = play.ask_target(13, last=12)
    for each in effects:
        if isinstance(each, AskDivergence):
            effects = play.tell(DivergenceAnswer(each.question, 0))
    assert play.lane.phase is Phase.COPYING
    (fetch,) = [each for each in effects if isinstance(each, FetchFrom)]
    return play, fetch


def test_the_epochs_of_unknown_records_do_not_count() -> None:
    """NEEDLESS HALT. Offset 13 belongs to ordinal 11 and, according to the ledger, to the unknown ordinal 6, too. The
    fetch had no epoch, so the lane halted if the source log ended below its position."""
    play, fetch = resumed(Run(6, 13), Run(7, 10))
    assert (fetch.position, fetch.last_epoch) == (15, 2)
    assert [play.lane.seen.before(at) for at in (6, 11, 12, 13, 14, 15)] == [0, -1, -1, 2, 2, 2]


def test_after_unknown_records_no_epoch_is_known() -> None:
    """FALSE LOSS. The epoch of an unknown record at the highest offsets is not that of the known record before it."""
    play, _ = resumed(Run(6, 15))
    known = [(0, 0), (12, 2)]
    assert with_unknown(play.record, known, [(6, 10)], 13) == [*known, (15, -1)]
    assert with_unknown(play.record, known, [(6, 10)], 15) == [*known, (17, -1)]
    assert with_unknown(play.record, known, [(6, 10)], 17) == known
    play, _ = resumed(Run(6, 8))
    assert with_unknown(play.record, known, [(6, 10)], 13) == [(0, 0), (8, -1), (12, 2), (12, 2)]


def test_only_copied_records_are_lost() -> None:
    """FALSE LOSS. The source has lost everything from offset 12 on, or from 10 on. Nothing was copied from offsets 10
    and 11."""
    play, fetch = resumed()
    effects: Effects = play.tell(chunk(fetch, bytearray(), diverging_epoch=1, diverging_end=14))
    (append,) = [each for each in effects if isinstance(each, Append)]
    (fact,) = append.facts
    assert isinstance(fact, SourceRun)
    assert fact.runs == (Run(13, 10),)
    assert fact.verdicts == (Verdict(12, 15, "truncated"),)
    assert any(isinstance(each, Lost) for each in effects)


def test_the_offsets_copied_beside_holes() -> None:
    """The records of ordinals 4 and 5 have been copied again as ordinals 10 and 11."""
    play = opened(SourceRun(LANE, 1, (Run(0, 0),)))
    again = SourceRun(LANE, 1, (Run(0, 0), Run(10, 4), Run(12, 20)))
    play.fold(HoleFound(LANE, 1, 4, 5, 10, 12), again)
    assert [copied_from(play.record, at, 13) for at in (0, 4, 5, 6, 10, 21, 22)] == [0, 4, 5, 6, 20, 21, None]
