"""A lane that goes back because the source has lost copied records may reach offsets that it has skipped because of a
decision. It skips them again if the source has not lost them."""

import pytest
from msgspec.structs import replace

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import LaneFact, SourceRun, TargetRun, Verdict
from mirrord.ledger.facts.quarantine import Quarantined
from mirrord.ledger.facts.seeks import LaneSought, SeekDone
from mirrord.model.runs import Run
from mirrord.replication.lane.signals import Append, Chunk, Effects, FetchFrom
from tests.unit.replication.lane.test_eighth_faults import chunk
from tests.unit.replication.lane.test_fourth_faults import offsets
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import Faulty, one, opened, progress_at

ADA = Origin("ada@host", "investigated", 0)
COPIED: tuple[LaneFact, ...] = (
    SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 1),)),
    TargetRun(LANE, 1, 0, 0, 1),
)


def told(play: Faulty, effects: Effects) -> Effects:
    """Let all appends take effect. Return the further effects."""
    found: Effects = []
    while any(isinstance(each, Append) for each in effects):
        effects = play.bind_all(effects)
        found += effects
    return found


def lost_from(play: Faulty, end: int) -> list[int]:
    """Offsets 12 and 13 were copied in epoch 3. The next holder learns that the source has records of epoch 1 up to
    `end`, and then records of epoch 4. Return the offsets of the next four ordinals."""
    play.take(replace(progress_at(10), source_offset=14))
    fetch = one(play.ask_target(10, last=9), FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (14, 3)
    effects = play.tell(Chunk(fetch.question, 0, 40, 40, 0, (), bytearray(), 0, 0, None, 1, end))
    fetch = [each for each in (*effects, *told(play, effects)) if isinstance(each, FetchFrom)][-1]
    batches = ((8, end - 1, 1), (end, 20, 4))
    told(play, play.tell(chunk(fetch.question, *(each for each in batches if each[1] >= each[0]))))
    return offsets(play, 10, 13)


@pytest.mark.parametrize(
    ("end", "copied"),
    [
        (14, [12, 13, 14, 15]),
        (12, [12, 13, 14, 15]),
        # The source may have other records at offsets 8 and 9 than those that the operator skipped.
        (10, [8, 9, 10, 11]),
        (8, [8, 9, 10, 11]),
    ],
)
def test_a_range_that_an_operator_skipped(end: int, copied: list[int]) -> None:
    play = opened(*COPIED)
    play.fold(LaneSought(LANE, 8, 12, 0, ADA))
    skip = SourceRun(LANE, 1, (Run(8, 12),), (Verdict(8, 12, "skipped"),), ((8, -1),))
    play.fold(skip, SeekDone(LANE, 1, 8, 12))
    play.fold(SourceRun(LANE, 1, (Run(8, 12),), (), ((8, 3),)))
    assert lost_from(play, end) == copied


@pytest.mark.parametrize(
    ("epoch", "end", "copied"),
    [
        (1, 12, [8, 9, 11, 12]),
        (1, 11, [8, 9, 11, 12]),
        (1, 10, [8, 9, 10, 11]),
        (2, 12, [8, 9, 10, 11]),
        (-1, 12, [8, 9, 11, 12]),
    ],
)
def test_a_record_that_the_target_refuses(epoch: int, end: int, copied: list[int]) -> None:
    """Offsets 8, 9 and 11 were not copied either, because a filter dropped them."""
    play = opened(*COPIED)
    play.fold(Quarantined(LANE, 1, 10, 11, 87, "refused", skip=True, epoch=epoch))
    verdicts = (Verdict(8, 10, "filtered"), Verdict(10, 11, "rejected"), Verdict(11, 12, "filtered"))
    play.fold(SourceRun(LANE, 1, (Run(8, 12),), verdicts, ((8, 3),)))
    assert lost_from(play, end) == copied
