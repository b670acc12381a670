"""In which order lost records and the rest of a hole are copied again."""

from mirrord.ledger.facts.core import HoleFound, LaneFact, SourceRun, TargetRun
from mirrord.model.runs import Run
from mirrord.replication.lane.signals import OwnBatch
from mirrord.replication.lane.target.superseded_records import AskSuperseded
from tests.unit.replication.lane.test_eighth_faults import judged, read
from tests.unit.replication.lane.test_fourth_faults import offsets, retake
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened

# Ordinals 0 to 3 are a hole, and are copied again as 10 to 13. Ordinals 4 to 9 are at the target offsets 0 to 5.
PLAN: tuple[LaneFact, ...] = (
    BEGUN[0],
    TargetRun(LANE, 1, 4, 0, 1),
    HoleFound(LANE, 1, 0, 3, 10, 14),
    SourceRun(LANE, 1, (Run(10, 0), Run(14, 10))),
)


def lost(play: Faulty, *seen: tuple[int, bytes, int, int], end: int = 2) -> None:
    """An election removes all records from the target offset 2 on. Then the lane resumes."""
    log = (OwnBatch(0, 2, 4, 0, 1),)
    asked = one(
        read(play, play.ask_target(end, epoch=3), (1, 2), own=log, others=((2, end),)[: end - 2]), AskSuperseded
    )
    keys: dict[int, bytes] = {7: b"key"}
    play.bind_all(play.bind_all(play.tell(judged(asked, keys, *seen))))


def test_the_rest_of_a_hole_is_copied_before_newer_lost_records() -> None:
    """STALE VALUE. Nothing of the hole was copied again when ordinals 6 to 9 were lost."""
    play = opened(*PLAN)
    retake(play, 10, 6, 10)
    lost(play)
    assert offsets(play, 6, 16) == [0, 1, 2, 3, *range(6, 13)]


def test_the_rest_of_a_hole_is_copied_in_source_order_with_its_lost_copies() -> None:
    """STALE VALUE. Ordinals 10 and 11 had been copied, and were lost together with ordinals 6 to 9."""
    play = opened(*PLAN)
    retake(play, 12, 8, 2)
    lost(play)
    assert offsets(play, 6, 16) == [0, 1, 2, 3, *range(6, 13)]


def test_lost_records_that_are_left_out_do_not_change_the_order_of_the_rest() -> None:
    """Another client's record supersedes ordinal 7."""
    play = opened(*PLAN)
    retake(play, 12, 8, 2)
    lost(play, (2, b"key", 3, -1), end=3)
    assert offsets(play, 6, 16) == [0, 1, 2, 3, 6, 8, *range(9, 14)]
