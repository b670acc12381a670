"""A compacted target loses the records of a plan before the records of an earlier hole have been copied again."""

import pytest

from mirrord.ledger.facts.core import Displaced, HoleFound, SourceRun, TargetRun
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.target.superseded_records import AskSuperseded
from tests.unit.replication.lane.test_eighth_faults import judged, read
from tests.unit.replication.lane.test_fourth_faults import offsets, retake
from tests.unit.replication.lane.test_lost_again import told
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened

OTHERS = ((2, 4),)


def planned(runs: tuple[Run, ...] = (Run(9, 3), Run(11, 6), Run(13, 9))) -> Faulty:
    """Ordinals 0 to 5 were acknowledged in epoch 1. The leader of epoch 3 had lost 2 to 7, and has ordinal 8 at their
    place. Ordinals 2 and 5 are superseded; 3, 4, 6 and 7 are planned as 9 to 12, and nothing of that was produced.
    Then the leader of epoch 5 has ordinals 0 and 1 only, and two records of others behind them."""
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 0, 1))
    play.fold(
        TargetRun(LANE, 1, 8, 2, 3, (Displaced(2, 5, 2, 1),)),
        HoleFound(LANE, 1, 3, 4, 9, 13),
        HoleFound(LANE, 1, 6, 7, 11, 13),
        HoleFound(LANE, 1, 8, 7, 9, 11),
        SourceRun(LANE, 1, runs),
    )
    retake(play, 6, 6, 6, epoch=1)
    return play


@pytest.mark.parametrize("superseded", [(2, 3, 4, 5), (2, 3, 5), (2, 5), (4,), ()])
def test_records_of_a_hole_that_are_still_to_be_copied_are_looked_up_and_copied_in_order(
    superseded: tuple[int, ...],
) -> None:
    """STALE VALUE. The next holder knows ordinals below 6 only. It did not look up offsets 3 and 4, because ordinals 3
    and 4 are a hole. It copied them after 6 to 8, as the ledger had planned it, so that they followed newer records of
    the same keys: those of others, and offsets 6 and 7."""
    play = planned()
    effects = read(play, play.ask_target(4, epoch=5), (1, 2), own=(), others=OTHERS)
    asked = one(effects, AskSuperseded)
    assert [each for part in asked.missing for each in range(part.first, part.last + 1)] == [2, 3, 4, 5]
    keys = dict.fromkeys(superseded, b"key")
    told(play, play.tell(judged(asked, keys, (3, b"key", 5, -1))))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 2)
    assert offsets(play, 2, 12)[: 8 - len(superseded)] == [each for each in range(2, 10) if each not in superseded]


def test_records_that_a_plan_omits_are_not_copied_because_of_their_hole() -> None:
    """DOUBLE. Offset 4 was skipped on purpose when the plan was made, so nothing copies it."""
    play = planned((Run(9, 3), Run(10, 6), Run(12, 9)))
    effects = read(play, play.ask_target(4, epoch=5), (1, 2), own=(), others=OTHERS)
    asked = one(effects, AskSuperseded)
    assert [each for part in asked.missing for each in range(part.first, part.last + 1)] == [2, 3, 5]
    told(play, play.tell(judged(asked, {3: b"key"}, (3, b"key", 5, -1))))
    assert offsets(play, 2, 9)[:6] == [2, 5, 6, 7, 8, 9]
