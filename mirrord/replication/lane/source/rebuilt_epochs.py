"""Determines which leader epochs of the source the ledger gets together with a rebuilt offset map."""

from collections.abc import Sequence

from mirrord.model import intervals
from mirrord.model.runs import Run, Runs
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.source.recorded_epochs import UNKNOWN, Epochs, carried
from mirrord.replication.lane.target.relocation_result import Located


def rebuilt_epochs(
    record: LaneRecord, runs: Runs, end: Run, lacking: Sequence[tuple[int, int]], located: Located
) -> Epochs:
    """Return the source epochs of the rebuilt `runs`. The epoch of the source offset directly before `end` also applies
    to the records from `end` onward. The epochs of records that could not be determined are not known.

    Ordinals that the target lacks between its batches (`lacking`, ranges (first, last)) keep their epochs in the
    ledger, as they keep their offsets there. The source may have lost their records, and may now have records of
    another epoch at their offsets. If the ledger contained the epoch of these other records, it would say that the lane
    has read them. The lane would then conclude that a loss below them has been settled.
    """
    begin = runs.first
    if begin is None or not (located.epochs or record.epochs):
        return ()
    read, gaps = _from_start(located), [(first, last + 1) for first, last in lacking]
    found = list(carried(read, [(end.ordinal, end.offset - 1, 1)]))
    for ordinal, offset, length in runs.between(begin.ordinal, end.ordinal - 1):
        for at, behind in intervals.uncovered((ordinal, ordinal + length), [*located.open, *gaps]):
            found += carried(read, [(at, offset + at - ordinal, behind - at)])
    for at, behind in gaps:
        found += carried(record.epochs, [(at, at, behind - at)])
    found += [(at, UNKNOWN) for at, _ in located.open]
    return _changes(found)


def _changes(found: Sequence[tuple[int, int]]) -> Epochs:
    """Return the pairs (ordinal, epoch) in ascending order, without those that only repeat the epoch before them."""
    changes: list[tuple[int, int]] = []
    for each in sorted(found):
        if not changes or changes[-1][1] != each[1]:
            changes.append(each)
    return tuple(changes)


def _from_start(located: Located) -> Epochs:
    """Return `Located.epochs` without the source offsets that retention has deleted, whose epochs are not known. An
    epoch that is too high would make the lane believe that the source has lost these records in an election."""
    start = located.source_start
    known = [(max(offset, start), epoch) for offset, epoch in located.epochs]
    begun = [each for each in known if each[0] == start][-1:]
    unknown = ((0, UNKNOWN),) if start > 0 else ()
    return (*unknown, *begun, *(each for each in known if each[0] > start))
