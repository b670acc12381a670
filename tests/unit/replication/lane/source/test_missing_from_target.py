"""Which of the records that the target lacks a filter excludes, according to the ledger, and which were never appended
to the log of a compacted target."""

import pytest

from mirrord.ledger.facts.core import HoleFound, Verdict
from mirrord.model.intervals import Interval
from mirrord.model.names import LaneId
from mirrord.model.runs import Run, Runs
from mirrord.replication.lane.signals import OwnBatch
from mirrord.replication.lane.source.missing_from_target import (
    ReturnedBatches,
    are_in_another_log,
    without_undecided,
)
from mirrord.replication.lane.target.relocation_result import Located
from tests.unit.replication.lane.test_answers import Record

RECORD = Record(source_runs=Runs((Run(0, 0), Run(2, 4), Run(4, 8))), epochs=((0, 1),))
"""Ordinals 0 and 1 are offsets 0 and 1, ordinals 2 and 3 are offsets 4 and 5, and offset 8 follows. All are of epoch 1.
The verdicts on the offsets in between are older than those in the state."""


def decided(
    *missing: Interval,
    until: int,
    placed: tuple[Interval, ...] = (),
    epochs: tuple[Interval, ...] = ((0, 1),),
) -> tuple[tuple[Interval, ...], int] | None:
    """Return the missing records that are to be copied from ordinal 2 on, and the offset at which the lane goes on."""
    located = Located((), (), missing, 10, epochs)
    found = without_undecided(RECORD, 2, until, placed, located)
    return None if found is None else (found.missing, found.next_offset)


def test_the_ledger_has_the_decision_on_records_before_acknowledged_ones() -> None:
    assert decided((2, 4), (5, 6), until=4) == (((5, 6),), 10)
    assert decided((2, 6), (6, 8), until=5) == (((4, 6),), 10)


def test_what_the_filter_has_excluded_is_recorded_as_such() -> None:
    """LIE. An ordinal whose record is unknown belongs to an offset at which the source has another record by now. The
    filter has excluded this one. It counted as a record that the source does not have."""
    found = without_undecided(RECORD, 2, 4, (), Located((), (), ((2, 4),), 10, ((0, 1),)))
    assert found is not None
    assert found.left_out == (Verdict(2, 4, "filtered"),)


def test_records_without_a_decision_are_read_again() -> None:
    """The last run also includes records that were never read, and those that the filter has excluded since."""
    assert decided((5, 6), (6, 10), until=4) == (((5, 6),), 6)
    assert decided((5, 6), (8, 10), until=4) == (((5, 6),), 8)
    assert decided((5, 6), (8, 10), until=5) == (((5, 6), (8, 9)), 9)
    assert decided((5, 6), (8, 10), until=6) == (((5, 6), (8, 10)), 10)


def test_a_decision_is_not_about_a_record_that_has_replaced_another_one() -> None:
    assert decided((2, 4), until=4, epochs=((0, 1), (3, 2))) == ((), 3)
    assert decided((4, 6), until=4, epochs=((0, 1), (5, 2))) == (((4, 5),), 5)


@pytest.mark.parametrize(("placed", "is_known"), [(((4, 6), (7, 8)), True), (((8, 9),), False)])
def test_nothing_is_read_again_that_the_target_has(placed: tuple[Interval, ...], *, is_known: bool) -> None:
    """DOUBLE. The lane would copy the records that the target has after the one without a decision a second time."""
    assert decided((8, 9), until=4, placed=placed) == (((), 8) if is_known else None)


# Ordinals 3 to 5, which were assigned to offsets 3 to 5 after these batches had been appended at the offsets 7 to 9.
CAME_BACK = (OwnBatch(7, 1, 3, 0, 1), OwnBatch(8, 2, 4, 0, 1))


@pytest.mark.parametrize(
    ("own", "log_end", "reassigned", "runs", "missing", "is_certain"),
    [
        (CAME_BACK, 10, ((3, 6),), (), ((3, 6),), True),
        (CAME_BACK, 10, ((3, 6),), (), ((3, 4), (5, 6)), True),
        # Another client has written since, or the cleaner has removed what was there.
        (CAME_BACK, 11, ((3, 6),), (), ((3, 6),), False),
        ((CAME_BACK[0], OwnBatch(9, 2, 4, 0, 1)), 11, ((3, 6),), (), ((3, 6),), False),
        # The lane itself has copied a later record, or the records of other ordinals are missing as well.
        ((*CAME_BACK, OwnBatch(10, 1, 9, 0, 3)), 11, ((3, 6),), (Run(9, 9),), ((3, 6),), False),
        (CAME_BACK, 10, ((3, 5),), (), ((3, 6),), False),
        (CAME_BACK, 10, ((3, 6),), (), ((2, 6),), False),
        (CAME_BACK, 10, (), (), ((3, 6),), False),
    ],
)
def test_records_whose_ordinals_older_batches_have_were_never_appended(
    own: tuple[OwnBatch, ...],
    log_end: int,
    reassigned: tuple[Interval, ...],
    runs: tuple[Run, ...],
    missing: tuple[Interval, ...],
    is_certain: bool,
) -> None:
    """NEEDLESS HALT. An election had brought back batches of other records, and the lane took it for possible that the
    cleaner had removed the records to which their ordinals belong."""
    record = Record(source_runs=Runs((Run(0, 0),)))
    located = Located(runs, (), missing, 10)
    returned = ReturnedBatches(reassigned, own, log_end)
    assert are_in_another_log(record, 3, returned, located, missing) is is_certain


@pytest.mark.parametrize("is_open", [False, True])
def test_records_that_were_copied_out_of_order_were_not_excluded(*, is_open: bool) -> None:
    """LOSS. The ledger has a higher offset for ordinal 2 than for the ordinals after it: the others were copied again
    later, or its record is unknown, and the offset is wrong. The offsets up to that of ordinal 2 counted as excluded,
    although the filter had kept records there that the target has lost."""
    holes = (HoleFound(LaneId("a.0.b"), 1, 2, 2, 3, 3),) if is_open else ()
    runs = Runs((Run(0, 0), Run(2, 7), Run(3, 3), Run(6, 8)))
    record = Record(source_runs=runs, epochs=((0, 1),), holes=holes)
    located = Located((), (), ((2, 6),), 8, ((0, 1),))
    found = without_undecided(record, 3, 7, (), located)
    assert found is not None
    assert (found.missing, found.next_offset) == (((3, 6),), 8)
