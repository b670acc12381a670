"""Says which leader epochs of the source the ledger contains for the lane's ordinals.

An unclean election may remove records. The source then assigns their offsets to other records, in a higher leader
epoch. An offset therefore identifies a record only together with its epoch. The ledger contains both. Before the first
record of a new epoch is produced, a `SourceRun` must record the ordinal at which this epoch begins. The ledger also
contains the truncations, which show for which ordinals the source has lost the records.
"""

from collections.abc import Iterable

from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.state import Lane

Epochs = tuple[tuple[int, int], ...]
"""Pairs (ordinal, leader epoch of the source) in ascending order. Each epoch applies to its ordinal and the following
ones, until the ordinal of the next pair."""


UNKNOWN = -1
"""According to the ledger, the epoch is not known for this ordinal and the following ones, because the lane skipped
records without seeing them."""
UNRECORDED = -2
"""The ledger says nothing about the epoch."""


def recorded_at(epochs: Epochs, ordinal: int) -> int:
    """Return the leader epoch that the record with this ordinal has in the source, according to the ledger. The result
    is the epoch, `UNKNOWN` or `UNRECORDED`."""
    return next((epoch for first, epoch in reversed(epochs) if first <= ordinal), UNRECORDED)


def epoch_at(epochs: Epochs, ordinal: int) -> int:
    """Return the leader epoch that the record with this ordinal has in the source, or -1 if it is not known."""
    return max(recorded_at(epochs, ordinal), UNKNOWN)


def follows(record: LaneRecord, ordinal: int) -> bool:
    """Return whether an ordinal maps to the source offset directly after that of the previous ordinal."""
    offset, former = record.source_runs.offset_of(ordinal), record.source_runs.offset_of(ordinal - 1)
    return offset is not None and former is not None and offset == former + 1


def recorded_before(record: LaneRecord, epochs: Epochs, ordinal: int) -> int:
    """Return what is recorded about the epoch of the source record that directly precedes the record of an ordinal.

    The result is what the ledger has for the ordinal itself, with one exception. The ledger may say that the epoch is
    not known from this ordinal onward, although the ordinal maps to the source offset directly after that of the
    previous ordinal. In this case, `epochs_again` has revoked the previously recorded epochs, and the epoch of the
    previous ordinal applies.
    """
    is_anew = (ordinal, UNKNOWN) in epochs and follows(record, ordinal)
    return recorded_at(epochs, ordinal - 1 if is_anew else ordinal)


def carried(recorded: Epochs, pieces: Iterable[tuple[int, int, int]]) -> Epochs:
    """Return the source epochs of records that get new ordinals, by new ordinal. `recorded` contains the epochs of
    these records either by former ordinal or by source offset. Each of the `pieces` describes consecutive records: (new
    ordinal, former ordinal or source offset, length)."""
    found: list[tuple[int, int]] = []
    for ordinal, former, length in pieces:
        begun = (former, max(recorded_at(recorded, former), UNKNOWN))
        for at, epoch in (begun, *(each for each in recorded if former < each[0] < former + length)):
            if not found or found[-1][1] != epoch:
                found.append((ordinal + at - former, epoch))
    return tuple(found)


def is_truncated(record: LaneRecord, ordinal: int, offset: int) -> bool:
    """Return whether the source has lost the record that was copied from this offset under this ordinal."""
    return any(ordinal < first and offset >= start for first, start in record.truncations)


def is_of_another_epoch(epochs: Epochs, ordinal: int, epoch: int) -> bool:
    """Return whether a source record has a different leader epoch than was recorded for its ordinal. If so, this record
    has not been produced under this ordinal, because the ledger records a new epoch before the first record of that
    epoch is produced. Usually its epoch is later. It is earlier if the source has elected a replica that lacks the
    records of the recorded epoch and has earlier ones at their offsets."""
    recorded = recorded_at(epochs, ordinal)
    return epoch >= 0 and recorded > UNKNOWN and recorded != epoch


def known_epochs(lane: Lane, first: int) -> Epochs:
    """Return the epochs of the ordinal `first` and of all later ordinals, according to the ledger and the progress
    record."""
    record = lane.record
    epochs = record.epochs if record is not None else ()
    if recorded_at(epochs, first) != UNRECORDED or not lane.history.epochs_recorded or record is None:
        return tuple(epochs)
    offset = record.source_runs.offset_of(first)
    seen = lane.seen.before(offset + 1) if offset is not None else -1
    return ((first, seen if seen >= 0 else lane.seen.last), *(each for each in epochs if each[0] > first))
