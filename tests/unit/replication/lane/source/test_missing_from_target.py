"""Which of the records that the target lacks a filter excludes, according to the ledger."""

import pytest

from mirrord.model.intervals import Interval
from mirrord.model.runs import Run, Runs
from mirrord.replication.lane.source.missing_from_target import without_undecided
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
