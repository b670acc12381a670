"""What of a deleted topic was copied, according to the progress record and the batches beyond it."""

import pytest
from msgspec.structs import replace

from mirrord.ledger.facts.core import AnyFact, HoleFound, LaneTaken, LeaseTaken, Progress, SourceRun, TargetRun, Verdict
from mirrord.ledger.fold import fold
from mirrord.ledger.offset_map import CopiedPosition
from mirrord.ledger.source_ends import CopiedPart
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.runs import Run
from mirrord.supervision.rules.unrecorded_copies import (
    Written,
    WrittenBatch,
    copied_position,
    is_all,
    is_final,
    is_plan_open,
    settled_by,
)
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

LANE = lane_id(0)
PROGRESS = Progress(LANE, 1, 1, 40, 140, 0, 40, 90, 1, 1, protected=True, state="copying")
GAP = (Run(0, 0), Run(50, 60))
"""The source offsets 50 to 59 hold no records that are copied."""


def lane(*runs: Run, regiven: bool = False, target: tuple[TargetRun, ...] = ()) -> LaneState:
    """Return the state of a lane that was opened once."""
    made = FlowState()
    facts = opened(0), LaneTaken(LANE, 1, "replicator-1"), SourceRun(LANE, 1, runs, regiven=regiven), *target
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
    assert settled_by(lane(*GAP), PROGRESS, 40, batches((40, 50))) == CopiedPart(60)
    assert settled_by(lane(*GAP), PROGRESS, 40, batches((40, 50), (50, 52))) == CopiedPart(62)
    assert settled_by(lane(*GAP), PROGRESS, 40, batches()) == CopiedPart(60, ((40, 50),))


def test_a_lane_without_a_progress_record_is_followed_from_its_beginning() -> None:
    assert settled_by(lane(Run(0, 7)), None, 7, batches((0, 5))) == CopiedPart(12)


def test_records_that_the_target_lacks_between_others_are_lost() -> None:
    found = settled_by(lane(*GAP), PROGRESS, 40, batches((40, 44), (52, 55)))
    assert found == CopiedPart(65, ((44, 50), (60, 62)))


def test_batches_that_the_target_has_removed_since_were_copied() -> None:
    """FALSE LOSS. The log cleaner, or retention, has removed the batches of the ordinals 40 to 49. The target cannot
    have held more records than offsets are empty."""
    beyond = WrittenBatch(50, 2, empty=10)
    assert settled_by(lane(Run(0, 0)), PROGRESS, 40, Written((beyond,))) == CopiedPart(52)
    fewer = beyond._replace(empty=9)
    assert settled_by(lane(Run(0, 0)), PROGRESS, 40, Written((fewer,))) == CopiedPart(52, ((40, 50),))
    found = settled_by(lane(Run(0, 0)), PROGRESS, 40, Written((), empty=3))
    assert (found.position, found.missing) == (40, ())
    assert "retention" in found.remark


def mended(*facts: AnyFact, at: int) -> LaneState:
    """Return the state of a lane whose ledger has these facts as well."""
    made = FlowState()
    begun = opened(0), LaneTaken(LANE, 1, "replicator-1"), SourceRun(LANE, 1, (Run(0, 0),))
    for offset, each in enumerate((entry(FLOW), entry(LeaseTaken(1, HOLDER, 6_000)), entry(*begun), entry(*facts))):
        fold(made, each, offset)
    assert made.lanes[LANE].source_runs.last == Run(*(at, made.lanes[LANE].source_runs.offset_of(at) or 0))
    return made.lanes[LANE]


HOLE = HoleFound(LANE, 1, 20, 29, 40, 50), SourceRun(LANE, 1, (Run(40, 20), Run(50, 40)))
"""The records of the ordinals 20 to 29 are copied again under the ordinals 40 to 49."""


@pytest.mark.parametrize(
    ("written", "copied"),
    [
        (batches(), CopiedPart(40, ((20, 30),))),
        (batches((40, 44)), CopiedPart(40, ((24, 30),))),
        (batches((40, 50), (50, 53)), CopiedPart(43)),
        (batches((40, 44), (50, 53)), CopiedPart(43, ((24, 30),))),
    ],
)
def test_records_of_a_hole_that_were_not_copied_again_are_lost(written: Written, copied: CopiedPart) -> None:
    """CONCEALED LOSS. The position is above the hole."""
    mending = mended(*HOLE, at=50)
    assert is_plan_open(mending, PROGRESS)
    assert settled_by(mending, PROGRESS, 40, written) == copied


def test_the_ordinals_of_a_hole_are_not_lost_if_their_records_were_copied_again() -> None:
    """FALSE LOSS. The progress record is older than the hole."""
    before = replace(PROGRESS, ordinal=10, source_offset=10)
    written = batches((10, 20), (30, 40), (40, 50), (50, 51))
    assert settled_by(mended(*HOLE, at=50), before, 10, written) == CopiedPart(41)


def test_the_source_was_truncated_since_the_progress_record_was_saved() -> None:
    """CONCEALED LOSS. The records at the source offsets 35 to 39 are new ones; the target has the first two."""
    cut = SourceRun(LANE, 1, (Run(40, 35),), (Verdict(35, 40, "truncated"),))
    assert settled_by(mended(cut, at=40), PROGRESS, 40, batches((40, 42))) == CopiedPart(37)
    before = replace(PROGRESS, ordinal=38)
    assert settled_by(mended(cut, at=40), before, 40, batches((38, 40))) == CopiedPart(35)


def test_what_was_filtered_is_not_lost() -> None:
    """The position is above the last copied record, because a filter has dropped the following ones."""
    held_back = replace(PROGRESS, ordinal=30, source_offset=48)
    assert settled_by(lane(Run(0, 0)), held_back, 48, batches((30, 40))) == CopiedPart(48)
    assert settled_by(lane(Run(0, 0)), held_back, 48, batches((30, 32), (34, 40))) == CopiedPart(48, ((32, 34),))


def test_a_batch_that_is_stored_twice_or_before_the_position_changes_nothing() -> None:
    assert settled_by(lane(Run(0, 0)), PROGRESS, 40, batches((38, 40), (40, 45), (40, 45))) == CopiedPart(45)


def test_nothing_beyond_the_position_counts_if_the_target_cannot_be_read_or_ordinals_were_reassigned() -> None:
    unread = settled_by(lane(Run(0, 0)), PROGRESS, 40, Written((), "eu.orders is gone"))
    assert unread.position == 40
    assert "eu.orders is gone" in unread.remark
    again = settled_by(lane(Run(0, 0), regiven=True), PROGRESS, 40, batches((40, 45)))
    assert again.position == 40
    assert "reassigned" in again.remark


def position_after(written: Written | None, *runs: Run, regiven: bool = False) -> CopiedPosition | None:
    held = lane(*runs, regiven=regiven, target=(TargetRun(LANE, 1, 0, 100, 0),))
    return copied_position(held, PROGRESS, written)


def test_the_position_after_batches_that_no_progress_record_covers() -> None:
    beyond = Written((WrittenBatch(40, 5, base_offset=140), WrittenBatch(45, 2, base_offset=145)))
    assert position_after(beyond, Run(0, 0)) == CopiedPosition(47, 147, 47)


@pytest.mark.parametrize(
    "written",
    [
        None,
        Written(),
        Written((WrittenBatch(40, 5, base_offset=140),), trouble="it is offline"),
        Written((WrittenBatch(40, 5, base_offset=141),)),
        Written((WrittenBatch(41, 5, base_offset=141),)),
        Written((WrittenBatch(40, 5),)),
    ],
)
def test_the_position_in_the_progress_record_counts_if_the_map_does_not_lead_to_the_batches(
    written: Written | None,
) -> None:
    assert position_after(written, Run(0, 0)) == CopiedPosition.by(PROGRESS)


def test_reassigned_ordinals_prove_no_position() -> None:
    beyond = Written((WrittenBatch(40, 5, base_offset=140),))
    assert position_after(beyond, Run(0, 0), regiven=True) == CopiedPosition.by(PROGRESS)


def test_records_before_the_resume_position_may_be_there_although_their_ordinals_were_reassigned() -> None:
    """FALSE LOSS. The records of a hole at the source offsets 20 to 29 were to be copied again, so the position is
    before records that the target has."""
    reassigned = replace(HOLE[1], regiven=True)
    mending = mended(HOLE[0], reassigned, at=50)
    found = settled_by(mending, PROGRESS, 20, batches())
    assert found.position == 20
    assert "reassigned" in found.remark


@pytest.mark.parametrize(
    ("written", "is_known"),
    [
        (None, True),
        (Written(), True),
        (Written(trouble="it is offline"), False),
        (Written((WrittenBatch(40, 5, base_offset=140),)), True),
        (Written((WrittenBatch(40, 5, base_offset=140), WrittenBatch(45, 1, base_offset=145))), False),
    ],
)
def test_whether_the_target_holds_records_after_the_position(written: Written | None, *, is_known: bool) -> None:
    assert is_all(CopiedPosition(45, 145, 45), written) == is_known
