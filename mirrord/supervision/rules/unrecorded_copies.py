"""Decides which records of a deleted source topic were copied, based on a lane's progress record and on the batches
that the target holds beyond it."""

from collections.abc import Iterator
from typing import NamedTuple

from mirrord.kafka.protocol.sequence import nearest
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.source_ends import CopiedPart
from mirrord.ledger.state import LaneState
from mirrord.model.intervals import Interval


class WrittenBatch(NamedTuple):
    """A batch of a lane in the target log."""

    base_sequence: int
    records: int
    """How many ordinals the batch was written with, even if the log cleaner has removed some of its records."""


class Written(NamedTuple):
    """The batches of one lane, in log order."""

    batches: tuple[WrittenBatch, ...] = ()
    trouble: str = ""
    """Why the target partition cannot be read, or an empty string. If it is not empty, batches may be missing."""


def is_final(lane: LaneState, progress: Progress | None) -> bool:
    """Return whether the lane's progress record shows everything that was copied. This is the case if the last holder
    has drained the lane, so that none of its batches was in flight."""
    drained = progress is not None and progress.state == "drained" and progress.settled
    return drained and progress is not None and progress.grant == lane.grant


def settled_by(lane: LaneState, progress: Progress | None, position: int, written: Written) -> CopiedPart:
    """Return which records were copied. `position` is the lane's position in the ledger, and `written` contains the
    batches in the target after this position.

    The ordinals of these batches lead to source offsets through the ledger's runs, because each run is recorded before
    its first record is written. If ordinals were reassigned since the progress record was saved, a batch may hold the
    records of an earlier assignment. In this case, only the ledger's position counts, so that no loss is concealed.
    """
    if written.trouble:
        return CopiedPart(position, remark=f"the target may hold the first of these records, but {written.trouble}")
    known = progress.rewinds if progress is not None else 0
    if lane.regiven >= 0 or len(lane.rewinds) > known:
        remark = "the target may hold the first of these records, because ordinals were reassigned"
        return CopiedPart(position, remark=remark if written.batches else "")
    first = expected = progress.ordinal if progress is not None else 0
    missing: list[Interval] = []
    for batch in written.batches:
        ordinal = nearest(batch.base_sequence, expected)
        if ordinal > expected:
            missing += _source_ranges(lane, expected, ordinal - 1)
        expected = max(expected, ordinal + batch.records)
    if expected == first:
        return CopiedPart(position)
    last = lane.source_runs.offset_of(expected - 1)
    if last is None or last < position:
        return CopiedPart(position)
    return CopiedPart(last + 1, tuple(missing))


def _source_ranges(lane: LaneState, first: int, last: int) -> Iterator[Interval]:
    for _, offset, length in lane.source_runs.between(first, last):
        yield offset, offset + length
