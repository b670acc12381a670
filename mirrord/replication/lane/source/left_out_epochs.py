"""Keeps the leader epochs of source records that the lane has copied, that the target has lost, and that are not copied
again. Records that were skipped on operator commands are similar: their epochs are kept with the seeks.

The plan for copying lost records again assigns the ordinals of these records to others, so the ledger no longer has
their epochs by ordinal. If the source then loses the same records, only their epochs show that it has others at their
offsets. The ledger therefore keeps these epochs by source offset (`VerdictGiven.epochs`).
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from mirrord.ledger.seeks import skipped_epochs
from mirrord.model.intervals import uncovered, within
from mirrord.replication.lane.lane_record import LaneRecord
from mirrord.replication.lane.source.copied_pieces import highest_copied, mapped
from mirrord.replication.lane.source.recorded_epochs import Epochs, epoch_at

EpochRanges = tuple[tuple[int, int, int], ...]
"""Triples (start, end, epoch) of source offsets, in ascending order and without overlap."""


def of_left_out(
    record: LaneRecord, epochs: Epochs, lost: Sequence[tuple[int, int]], again: Sequence[tuple[int, int]]
) -> EpochRanges:
    """Return the source epochs of those of the `lost` records that are not copied again. `lost` and `again` contain
    ordinals (first, last), and `epochs` the epochs by ordinal. Records whose epochs are not known are omitted.

    The epochs of a log ascend. Offsets between two records of one epoch therefore have this epoch too. Offsets between
    records of different epochs may belong to the later one. If a record has a lower epoch than one before it, the
    source has lost one of them, and neither counts.
    """
    found: list[tuple[int, int, int]] = []
    for start, end, epoch in sorted(_pieces(record, epochs, lost, again)):
        if found and epoch == found[-1][2]:
            found[-1] = (found[-1][0], max(end, found[-1][1]), epoch)
        elif found and epoch < found[-1][2]:
            found = [each for each in found if each[2] < epoch]
        else:
            before = found[-1][1] if found else _behind_copied(record, lost, start)
            found.append((min(before, start), end, epoch))
    return tuple(found)


def passed_epochs(record: LaneRecord) -> list[tuple[int, int, int]]:
    """Return triples (start, end, epoch) of source offsets whose records have no ordinals, although their epochs are
    known: left-out records, and records that were skipped on operator commands."""
    return [*record.left_out_epochs, *skipped_epochs(record.seeks)]


def behind_earlier(record: LaneRecord, offset: int, epoch: int) -> int:
    """Return the source offset after the last record of `passed_epochs` before `offset` that has an earlier epoch than
    `epoch`. Return 0 if there is none."""
    return max((end for _, end, known in passed_epochs(record) if end <= offset and known < epoch), default=0)


def among(record: LaneRecord, known: Sequence[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    """Add the `passed_epochs` below the source offset `end` to the pairs (source offset, epoch) in `known`, which are
    in ascending order. Epochs that do not ascend with those of copied records are not added. If the epoch of
    a copied record is not known, none is added."""
    added = [(start, epoch) for start, _, epoch in passed_epochs(record) if start < end]
    if not added or any(epoch < 0 for _, epoch in known):
        return list(known)
    found: list[tuple[int, int]] = []
    for pair in sorted({*known, *(each for each in added if _ascends(each, known))}):
        if not found or found[-1][1] != pair[1]:
            found.append(pair)
    return found


def _ascends(pair: tuple[int, int], known: Sequence[tuple[int, int]]) -> bool:
    """Return whether the epoch of this pair is neither below an epoch before its offset nor above a later one."""
    offset, epoch = pair
    return all(other <= epoch if start <= offset else other >= epoch for start, other in known)


def _behind_copied(record: LaneRecord, lost: Sequence[tuple[int, int]], start: int) -> int:
    """Return the offset after the last source record before `start` that has a lower ordinal than the lost records.
    Return `start` if there is none."""
    last = highest_copied(record, 0, min(first for first, _ in lost), start)
    return start if last is None else last[0] + 1


def _pieces(
    record: LaneRecord, epochs: Epochs, lost: Sequence[tuple[int, int]], again: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int, int]]:
    kept = [(first, last + 1) for first, last in again]
    changes = [ordinal for ordinal, _ in epochs]
    for first, last in lost:
        for ordinal, offset, length in mapped(record, first, last):
            piece = (ordinal, ordinal + length)
            for begin, behind in uncovered(piece, within(piece, kept)):
                edges = [begin, *(each for each in changes if begin < each < behind), behind]
                for at, end in pairwise(edges):
                    epoch = epoch_at(epochs, at)
                    if epoch >= 0:
                        yield offset + at - ordinal, offset + end - ordinal, epoch
