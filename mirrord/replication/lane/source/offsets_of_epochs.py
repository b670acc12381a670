"""Determines the source offsets of the copied records of each leader epoch of the source."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from mirrord.model.intervals import Interval, joined, uncovered, within
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.source.copied_pieces import AscendingPart, ascending_parts, highest_of
from mirrord.replication.lane.source.recorded_epochs import Epochs, epoch_at


def offsets_of_epochs(record: LaneRecord, epochs: Epochs, first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield pairs (source offset, epoch) for the records of the ordinals [first, end). For each epoch, the lowest
    source offset of its records is included.

    Records of which neither the source offset nor the epoch is known (see `unknown_ordinals`) are ignored. So are
    records that the source has replaced (see `replaced_from`), and records in whose places the lane has read others
    since. If the target lacked such a record as well, the ledger does not say that the source has lost it
    (`LaneRecord.truncations`).
    """
    unknown = unknown_ordinals(record, epochs, first, end)
    parts = [
        (part, epoch_at(epochs, piece[0]))
        for piece in _pieces(epochs, first, end)
        for known in uncovered(piece, unknown)
        for part in ascending_parts(record, *known)
    ]
    return _standing(record, parts)


def replaced_from(record: LaneRecord, epochs: Epochs, first: int, end: int) -> Iterator[tuple[Interval, int, int]]:
    """Yield the ordinals [first, end) in pieces of one epoch, the last piece first: the piece, its epoch, and the
    source offset from which onward the source has replaced its records.

    The epochs in a log are in ascending order. If the lane has later read a record of a higher epoch, the source no
    longer has records of lower epochs at or above the offset of this record.
    """
    begun: dict[int, int] = {}
    for piece in reversed(list(_pieces(epochs, first, end))):
        epoch = epoch_at(epochs, piece[0])
        yield piece, epoch, _first_higher(begun, epoch)
        if epoch >= 0:
            lowest = (part.lowest for part in ascending_parts(record, *piece))
            begun[epoch] = min(begun.get(epoch, NEVER), *lowest, NEVER)


def _first_higher(begun: Mapping[int, int], epoch: int) -> int:
    """Return the lowest source offset of an epoch that is higher than this one. `begun` contains the lowest source
    offset of each epoch. If the epoch is not known, no other one is known to be higher."""
    return min((start for known, start in begun.items() if known > epoch >= 0), default=NEVER)


def unknown_ordinals(record: LaneRecord, epochs: Epochs, first: int, end: int) -> list[Interval]:
    """Return those of the ordinals [first, end) whose records a rebuild could not determine (`HoleFound.is_open`) and
    whose epochs are not known either."""
    void = joined((hole.first, hole.last + 1) for hole in record.holes if hole.is_open)
    pieces = _pieces(epochs, first, end)
    return [part for piece in pieces if epoch_at(epochs, piece[0]) < 0 for part in within(piece, void)]


def is_unknown_at(record: LaneRecord, epochs: Epochs, ordinal: int) -> bool:
    """Return whether this is one of the `unknown_ordinals`."""
    is_open = any(hole.is_open and hole.first <= ordinal <= hole.last for hole in record.holes)
    return is_open and epoch_at(epochs, ordinal) < 0


def _pieces(epochs: Epochs, first: int, end: int) -> Iterator[Interval]:
    """Yield the ordinals [first, end) in pieces, each of one epoch."""
    return pairwise([first, *(each for each, _ in epochs if first < each < end), end])


def _standing(record: LaneRecord, parts: Sequence[tuple[AscendingPart, int]]) -> Iterator[tuple[int, int]]:
    """Yield the lowest source offset and the epoch of each part. Between two records of one epoch, a log has no records
    of another, and after a record of an epoch, it has none of a lower one. If an earlier part has such records, they
    have been lost."""
    read: list[Interval] = []
    begun: dict[int, int] = {}
    for part, epoch in reversed(parts):
        whole = part.lowest, highest_of(record, part) + 1
        left = next(uncovered(whole, read), None)
        if left is not None and left[0] < _first_higher(begun, epoch):
            yield left[0], epoch
        if epoch >= 0:
            read = joined([*read, whole])
            begun[epoch] = min(part.lowest, begun.get(epoch, NEVER))
