"""Decides which records of a deleted source topic were copied, based on a lane's progress record and on the batches
that the target holds beyond it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from mirrord.kafka.protocol.sequence import nearest
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.offset_map import CopiedPosition
from mirrord.ledger.source_ends import CopiedPart
from mirrord.ledger.state import LaneState
from mirrord.model.intervals import Interval, joined, uncovered
from mirrord.replication.lane.source.copied_pieces import mapped_by


class WrittenBatch(NamedTuple):
    """A batch of a lane in the target log."""

    base_sequence: int
    records: int
    """How many ordinals the batch was written with, even if the log cleaner has removed some of its records."""
    empty: int = 0
    """How many target offsets between the lane's previous batch and this one no longer have a batch, because the log
    cleaner or retention has removed it."""
    base_offset: int = -1
    """Target offset of its first ordinal, or -1 if it is not known."""


class Written(NamedTuple):
    """The batches of one lane, in log order."""

    batches: tuple[WrittenBatch, ...] = ()
    trouble: str = ""
    """Why the target partition cannot be read, or an empty string. If it is not empty, batches may be missing."""
    empty: int = 0
    """How many target offsets after the lane's last batch no longer have a batch."""


def is_final(lane: LaneState, progress: Progress | None) -> bool:
    """Return whether the lane's progress record shows everything that was copied. This is the case if the last holder
    has drained the lane, so that none of its batches was in flight."""
    drained = progress is not None and progress.state == "drained" and progress.settled
    return drained and progress is not None and progress.grant == lane.grant


def is_plan_open(lane: LaneState, progress: Progress | None) -> bool:
    """Return whether records before the lane's position may have been still to be copied, for example those of a
    hole."""
    last = lane.source_runs.last
    return last is not None and last.ordinal > (progress.ordinal if progress is not None else 0)


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
        remark = "the target may hold some of these records, because ordinals were reassigned"
        # Records after those that were to be copied again may be before the resume position in the target.
        return CopiedPart(position, remark=remark if written.batches or is_plan_open(lane, progress) else "")
    first = progress.ordinal if progress is not None else 0
    held, removed = _ordinals(first, written.batches)
    end = max((behind for _, behind in held), default=first)
    position = _position(lane, first, end, position)
    last = lane.source_runs.last
    # The ledger assigns the ordinals up to the last run to records that were still to be copied, among them the records
    # of holes.
    planned = [(end, last.ordinal)] if last is not None and end < last.ordinal else []
    excused = [*held, *removed, *((each.first, each.last + 1) for each in lane.displaced)]
    lost = joined(_source_ranges(lane, [*uncovered((first, end), excused), *planned]))
    copied = joined(_source_ranges(lane, held))
    missing = [
        (start, min(behind, position)) for each in lost for start, behind in uncovered(each, copied) if start < position
    ]
    remark = "the log cleaner or retention of the target may have removed copies of the first of these records"
    return CopiedPart(position, tuple(missing), remark if written.empty else "")


def copied_position(lane: LaneState, progress: Progress | None, written: Written | None) -> CopiedPosition | None:
    """Return the resume position of a lane that no longer copies: the one in its progress record or, if the ledger's
    runs lead to the batches in `written` as well, the one after the last of these batches. Return None if neither is
    known."""
    known = None if progress is None else CopiedPosition.by(progress)
    if written is None or written.trouble or not written.batches:
        return known
    if lane.regiven >= 0 or len(lane.rewinds) > (progress.rewinds if progress is not None else 0):
        return known
    end, after = (0, 0) if known is None else (known.ordinal, known.target_offset)
    for batch in written.batches:
        ordinal = nearest(batch.base_sequence, end)
        if ordinal != end or lane.target_runs.offset_of(ordinal) != batch.base_offset:
            return known
        end, after = ordinal + batch.records, batch.base_offset + batch.records
    position = _position(lane, 0 if known is None else known.ordinal, end, 0 if known is None else known.source_offset)
    return CopiedPosition(end, after, position)


def is_all(copied: CopiedPosition | None, written: Written | None) -> bool:
    """Return whether the target is known to hold no records of a lane after its position `copied_position`."""
    if written is None:
        return True
    if written.trouble or not written.batches:
        return not written.trouble
    last = written.batches[-1]
    return copied is not None and last.base_offset + last.records <= copied.target_offset


def _ordinals(first: int, batches: Sequence[WrittenBatch]) -> tuple[list[Interval], list[Interval]]:
    """Return two lists of ranges [start, end) of ordinals: those of the batches, and those between the batches whose
    batches may have been removed from the target log, because enough offsets are empty there."""
    held: list[Interval] = []
    removed: list[Interval] = []
    end = first
    for batch in batches:
        ordinal = nearest(batch.base_sequence, end)
        if end < ordinal <= end + batch.empty:
            removed.append((end, ordinal))
        held.append((ordinal, ordinal + batch.records))
        end = max(end, ordinal + batch.records)
    return held, removed


def _position(lane: LaneState, first: int, end: int, position: int) -> int:
    """Return the source offset up to which the lane had finished with all records, except for those that were to be
    copied again. `position` is the one in the progress record, which ends at the ordinal `first`; `end` is the ordinal
    after the last batch."""
    runs, last = lane.source_runs, lane.source_runs.last
    if last is None:
        return position
    begins = runs.offset_of(first)
    is_cut = any(first < ordinal and offset < position for ordinal, offset in lane.truncations)
    is_cut = is_cut or (
        first < end and begins is not None and begins < position and any(each == first for each, _ in lane.truncations)
    )
    # If the source was truncated since the progress record was saved, other records have the offsets below `position`.
    known = 0 if is_cut else position
    if end <= last.ordinal:
        return max(known, last.offset)
    copied = runs.offset_of(end - 1)
    return known if copied is None else max(known, copied + 1)


def _source_ranges(lane: LaneState, ordinals: Iterable[Interval]) -> Iterator[Interval]:
    for first, end in ordinals:
        for _, offset, length in mapped_by(lane.source_runs, lane.truncations, first, end - 1):
            yield offset, offset + length
