"""What of a deleted topic was copied, according to the progress record and the batches beyond it."""

from msgspec.structs import replace

from mirrord.ledger.facts.core import LaneTaken, LeaseTaken, Progress, SourceRun
from mirrord.ledger.fold import fold
from mirrord.ledger.source_ends import CopiedPart
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.runs import Run
from mirrord.supervision.rules.unrecorded_copies import Written, WrittenBatch, is_final, settled_by
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

LANE = lane_id(0)
PROGRESS = Progress(LANE, 1, 1, 40, 140, 0, 40, 90, 1, 1, protected=True, state="copying")
GAP = (Run(0, 0), Run(50, 60))
"""The source offsets 50 to 59 hold no records that are copied."""


def lane(*runs: Run, regiven: bool = False) -> LaneState:
    """Return the state of a lane that was opened once."""
    made = FlowState()
    facts = opened(0), LaneTaken(LANE, 1, "replicator-1"), SourceRun(LANE, 1, runs, regiven=regiven)
    for offset, each in enumerate((entry(FLOW), entry(LeaseTaken(1, HOLDER, 6_000)), entry(*facts))):
        fold(made, each, offset)
    return made.lanes[LANE]


def batches(*ranges: tuple[int, int]) -> Written:
    return Written(tuple(WrittenBatch(first, end - first) for first, end in ranges))


def test_only_the_record_of_a_lane_that_was_drained_under_its_last_grant_is_final() -> None:
    final = replace(PROGRESS, state="drained", settled=True)
    assert is_final(lane(*GAP), final)
    assert not is_final(lane(*GAP), PROGRESS)
    assert not is_final(lane(*GAP), replace(final, settled=False))
    assert not is_final(lane(*GAP), replace(final, grant=0))
    assert not is_final(lane(*GAP), None)


def test_batches_after_the_progress_record_were_copied() -> None:
    assert settled_by(lane(Run(0, 0)), PROGRESS, 40, batches((40, 45), (45, 47))) == CopiedPart(47)
    assert settled_by(lane(*GAP), PROGRESS, 40, batches((40, 50))) == CopiedPart(50)
    assert settled_by(lane(*GAP), PROGRESS, 40, batches((40, 50), (50, 52))) == CopiedPart(62)
    assert settled_by(lane(*GAP), PROGRESS, 40, batches()) == CopiedPart(40)


def test_a_lane_without_a_progress_record_is_followed_from_its_beginning() -> None:
    assert settled_by(lane(Run(0, 7)), None, 7, batches((0, 5))) == CopiedPart(12)


def test_records_that_the_target_lacks_between_others_are_lost() -> None:
    found = settled_by(lane(*GAP), PROGRESS, 40, batches((40, 44), (52, 55)))
    assert found == CopiedPart(65, ((44, 50), (60, 62)))


def test_a_batch_that_is_stored_twice_or_before_the_position_changes_nothing() -> None:
    assert settled_by(lane(Run(0, 0)), PROGRESS, 40, batches((38, 40), (40, 45), (40, 45))) == CopiedPart(45)


def test_nothing_beyond_the_position_counts_if_the_target_cannot_be_read_or_ordinals_were_reassigned() -> None:
    unread = settled_by(lane(Run(0, 0)), PROGRESS, 40, Written((), "eu.orders is gone"))
    assert unread.position == 40
    assert "eu.orders is gone" in unread.remark
    again = settled_by(lane(Run(0, 0), regiven=True), PROGRESS, 40, batches((40, 45)))
    assert again.position == 40
    assert "reassigned" in again.remark
