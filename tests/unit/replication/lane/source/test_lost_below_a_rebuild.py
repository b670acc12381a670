"""The source has lost copied records. Before anything shows this, the offset map of later ones is rebuilt, and none of
these is on the source any more."""

import pytest

from mirrord.ledger.facts.core import HoleFound, MapRebuilt, SourceRun, TargetRun, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane.signals import (
    Append,
    AskDivergence,
    DivergenceAnswer,
    FetchFrom,
    OwnBatch,
    RebuildAnswer,
)
from mirrord.replication.lane.target.relocation_result import Located
from tests.unit.replication.lane.source.test_source_epochs import chunk, data
from tests.unit.replication.lane.test_fourth_faults import retake
from tests.unit.replication.lane.test_rebuilding import LANE, Play
from tests.unit.replication.lane.test_second_faults import Faulty, one, opened


def rebuilt(*follow: Run, until: int, begin: int = 0) -> Faulty:
    """Ordinals 0 to 9 belong to the offsets 0 to 9, of epoch 0. The records of ordinals 10 to 13 are unknown. Of the
    records that the source has now, of epoch 2, these runs follow."""
    copied = (Run(0, 0),) if begin == 0 else ()
    epochs = ((0, 0), (10, -1), (14, 2)) if begin == 0 else ((10, -1), (14, 2))
    play = opened(
        SourceRun(LANE, 1, (*copied, Run(10, 10), Run(12, 20), *follow), (), epochs),
        TargetRun(LANE, 1, begin, 0, 1),
        HoleFound(LANE, 1, 10, 13, 14, 14),
        MapRebuilt(LANE, 1, 10, 13, until),
    )
    retake(play, 14, 14 - begin, follow[0].offset)
    return play


@pytest.mark.parametrize(
    ("follow", "until"),
    [((Run(14, 11), Run(15, 13), Run(16, 22)), 16), ((Run(14, 13), Run(22, 22)), 22), ((Run(14, 22),), 14)],
)
def test_the_source_is_asked_about_the_records_before_the_unknown_ones(follow: tuple[Run, ...], until: int) -> None:
    """LOSS. The fetch carried no epoch, or that of the records that the rebuild had read. It did not show that the
    source has other records from offset 4 on, and these were never copied."""
    play = rebuilt(*follow, until=until)
    effects = play.ask_target(14, last=13)
    for each in effects:
        if isinstance(each, FetchFrom):
            assert each.last_epoch == -1
            effects = play.tell(chunk(each, data((22, 1, 2, 0))))
    asked = one(effects, AskDivergence)
    assert (asked.position, asked.epoch) == (10, 0)
    effects = play.tell(DivergenceAnswer(asked.question, 0, 0, 4))
    (fact,) = one(effects, Append).facts
    assert isinstance(fact, SourceRun)
    assert fact.runs == (Run(14, 4),)
    assert [(each.start, each.reason) for each in fact.verdicts] == [(4, "truncated")]


def test_if_nothing_else_was_copied_a_fetch_shows_what_the_source_has_lost_since() -> None:
    """NEEDLESS HALT. The fetch carried no epoch. When the source log ended below the position, the lane halted."""
    play = rebuilt(Run(14, 22), until=14, begin=10)
    fetch = one(play.ask_target(4, last=13), FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (22, 2)
    effects = play.tell(chunk(fetch, bytearray(), diverging_epoch=2, diverging_end=21))
    (fact,) = one(effects, Append).facts
    assert isinstance(fact, SourceRun)
    assert (fact.runs, fact.verdicts) == ((Run(14, 21),), (Verdict(21, 22, "truncated"),))
    assert one(effects, FetchFrom).position == 21


def test_all_copied_records_of_later_epochs_are_lost() -> None:
    """LOSS. The next leader has a different history: records of epoch 0 up to offset 7. Offsets 4 to 9 were copied in
    epoch 1. The epochs of the records that follow are not known, and the lane went back to offset 8 only."""
    play = opened(
        SourceRun(LANE, 1, (Run(0, 0), Run(14, 11), Run(15, 13), Run(16, 22)), (), ((0, 0), (4, 1), (10, -1))),
        TargetRun(LANE, 1, 0, 0, 1),
        HoleFound(LANE, 1, 10, 13, 14, 14),
        MapRebuilt(LANE, 1, 10, 13, 16),
    )
    retake(play, 14, 14, 11)
    asked = one(play.ask_target(14, last=13), AskDivergence)
    assert (asked.position, asked.epoch) == (10, 1)
    effects = play.tell(DivergenceAnswer(asked.question, 0, 0, 8))
    (fact,) = one(effects, Append).facts
    assert isinstance(fact, SourceRun)
    assert fact.runs == (Run(14, 4),)
    assert [(each.start, each.reason) for each in fact.verdicts] == [(4, "truncated")]


def test_what_the_source_has_at_the_offsets_of_a_hole_was_not_read() -> None:
    """LOSS. The next leader has records of epoch 3 up to offset 30. Offsets 8 to 10 were copied in epoch 4, offset 7 of
    epoch 3 was copied again after them, and the target lacks ordinals 11 and 12, which were records of epoch 4. The
    rebuild gave them the epoch of the records that the source has at their offsets now. The lane then concluded that it
    had read records of epoch 3 from offset 7 to 19, and that the loss of offsets 8 to 10 had been settled."""
    play = Play.opened()
    runs = (Run(0, 0), Run(7, 8), Run(10, 7), Run(11, 18))
    play.fold(SourceRun(LANE, 1, runs, (), ((0, 3), (7, 4), (10, 3), (11, 4))), TargetRun(LANE, 1, 0, 0, 1))
    play.bind(play.differ())
    play.sandwich(16)
    own = (OwnBatch(10, 1, 10, 0), OwnBatch(13, 3, 13, 0))
    located = Located((Run(10, 7),), (), ((11, 31),), 31, epochs=((0, 3),), open=((13, 16),))
    play.bind(play.tell(RebuildAnswer(play.lane.asked, 0, own, located)))
    asked = one(play.sandwich(16), AskDivergence)
    assert (asked.position, asked.epoch) == (11, 4)
    (fact,) = one(play.tell(DivergenceAnswer(asked.question, 0, 3, 31)), Append).facts
    assert isinstance(fact, SourceRun)
    assert (fact.runs, fact.verdicts) == ((Run(16, 8),), (Verdict(8, 11, "truncated"),))
