"""Determines with which leader epochs of the source the records of a lane were copied, although the ledger no longer
has these epochs.

When a lane resumes, it may record that the epochs from an ordinal onward are not known, until it has read the records
again. If the holder ends before that, and the source then loses these records, other records have the same offsets.
Only their higher epoch shows that they were never copied.
"""

from collections.abc import Sequence

from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.source.recorded_epochs import UNKNOWN, Epochs, recorded_at
from mirrord.replication.lane.state import Lane


def of_copied(lane: Lane, record: LaneRecord) -> Epochs:
    """Return the epochs in the ledger. If the epochs of acknowledged records are not known, the epoch of the last of
    these records takes their place, as known from the saved position. No acknowledged record has a higher epoch, unless
    records were copied out of order because of a hole."""
    until, epoch = lane.history.saved_epoch
    below = [each for each in record.epochs if each[0] < until]
    if epoch < 0 or record.holes or all(known > UNKNOWN for _, known in below):
        return record.epochs
    known_below = ((at, epoch if known == UNKNOWN else known) for at, known in below)
    above = (each for each in record.epochs if each[0] > until)
    return (*known_below, (until, recorded_at(record.epochs, until)), *above)


def first_other(lane: Lane, record: LaneRecord, epochs: Sequence[tuple[int, int]], otherwise: int) -> int:
    """Return the first ordinal to which `epochs` assign a higher epoch than that with which its record was copied. The
    pairs in `epochs` are (ordinal, leader epoch of the source). Return `otherwise` if there is none."""
    lost, copied = lane.history.acknowledged_epochs, of_copied(lane, record) if epochs else ()
    known = ((at, epoch, max(recorded_at(lost, at), UNKNOWN)) for at, epoch in epochs)
    found = ((at, epoch, each if each > UNKNOWN else recorded_at(copied, at)) for at, epoch, each in known)
    return min((at for at, epoch, each in found if epoch > each > UNKNOWN), default=otherwise)
