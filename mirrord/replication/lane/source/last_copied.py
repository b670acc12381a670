"""Determines the last copied records, about which the source is asked whether its log still has them, and the offset at
which a source log diverges from the copied records.

A request contains the source offset after a copied record and the leader epoch of that record. According to KIP-595,
the broker's answer shows whether its log has this record.
"""

from itertools import pairwise

from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.source.copied_pieces import ascending_parts, highest_copied, mapped, ordinal_of
from mirrord.replication.lane.source.recorded_epochs import epoch_at, is_truncated, known_epochs, recorded_at
from mirrord.replication.lane.state import Lane


def furthest(lane: Lane) -> tuple[int, int] | None:
    """Return the source offset after the copied record with the highest source offset, and the leader epoch of that
    record. Records that are known to be lost are ignored, as are records whose epoch is not known. Return None if the
    ledger has no holes, or if that record is below the lane's position."""
    record = lane.record
    if record is None or not record.holes:
        return None
    known = _highest(lane, record, record.holes[0].first - 1, lane.acked)
    return known if known is not None and known[0] > lane.position else None


def last_copied(lane: Lane) -> tuple[int, int] | None:
    """Return the source offset after the last copied record below the lane's position, and the leader epoch of that
    record. Records that are known to be lost are ignored, as are records whose epoch is not known. Return None if there
    is no other record.

    Only facts that have taken effect are considered. Within a round, use `read_until` instead.
    """
    record, ordinal = lane.record, lane.next_ordinal - 1
    offset = record.source_runs.offset_of(ordinal) if record is not None and ordinal >= 0 else None
    if record is None or offset is None:
        return None
    if not record.holes and offset < lane.position and not is_truncated(record, ordinal, offset):
        epoch = epoch_at(known_epochs(lane, ordinal), ordinal)
        if epoch >= 0:
            return offset + 1, epoch
    return _highest(lane, record, 0, lane.next_ordinal, lane.position)


def _highest(lane: Lane, record: LaneRecord, first: int, end: int, below: int = NEVER) -> tuple[int, int] | None:
    """Of the records of the ordinals [first, end) that have source offsets below `below` and known epochs, return the
    one with the highest source offset: the source offset after it, and its epoch."""
    highest = highest_copied(record, first, end, below)
    if highest is None:
        return None
    offset, ordinal = highest
    epoch = epoch_at(known_epochs(lane, ordinal), ordinal)
    if epoch >= 0:
        return offset + 1, epoch
    first = max(first, record.source_runs.at(0).ordinal)
    edges = [first, *(each for each, _ in record.epochs if first < each < end), end]
    found = ((highest_copied(record, *pair, below), recorded_at(record.epochs, pair[0])) for pair in pairwise(edges))
    return max(((at[0] + 1, known) for at, known in found if at is not None and known >= 0), default=None)


def read_until(lane: Lane) -> tuple[int, int] | None:
    """Return the position that the lane had before it skipped ahead in this round, and the epoch of the last batch
    before that position.

    If the lane has not skipped ahead in this round, or did not know that epoch, return the result of `last_copied`.
    """
    return lane.history.left_position or last_copied(lane)


def copied_from(record: LaneRecord, offset: int, last: int) -> int | None:
    """Return the lowest source offset at or above `offset` to which an ordinal up to `last` maps. Return None if there
    is none."""
    runs = record.source_runs
    found: list[int] = []
    for begin in (*reversed(runs.turns), runs.at(0).ordinal):
        at = max(runs.floor(offset, runs.position(begin), runs.position(last + 1)), runs.position(begin))
        pieces = mapped(record, runs.at(at).ordinal, last)
        found += [max(start, offset) for _, start, length in pieces if start + length > offset]
        if runs.at(at).offset <= offset:
            break  # records that were copied earlier and are not lost have lower offsets
        last = begin - 1
    return min(found, default=None)


def divergence(lane: Lane, epoch: int, end: int) -> int:
    """Return the source offset at which a source log diverges from the copied records.

    `epoch` and `end` are the source broker's answer: the highest epoch in its log that is not above the requested
    epoch, and the offset at which that epoch ends. Therefore, if records of a higher epoch were copied, that log does
    not contain them.
    """
    record, start = lane.record, lane.seen.divergence(epoch, end)
    if record is None or not record.holes or epoch < 0:
        return start
    first = max(record.holes[0].first - 1, record.source_runs.at(0).ordinal)
    edges = [first, *(each for each, _ in record.epochs if first < each < lane.acked), lane.acked]
    later = [pair for pair in pairwise(edges) if recorded_at(record.epochs, pair[0]) > epoch]
    return min([start, *(each.lowest for pair in later for each in ascending_parts(record, *pair))])


def divergence_of_copied(lane: Lane, epoch: int, end: int) -> int:
    """Return the source offset at which a source log diverges from the copied records. Unlike `divergence`, consider
    all epochs in the ledger."""
    record, start = lane.record, divergence(lane, epoch, end)
    if record is None or epoch < 0:
        return start
    later = [(each, record.source_runs.offset_of(each)) for each, known in record.epochs if known > epoch]
    starts = [
        at for each, at in later if at is not None and each < lane.next_ordinal and not is_truncated(record, each, at)
    ]
    return min([start, *starts])


def before(lane: Lane, offset: int) -> int:
    """Return the epoch of the source record directly before this offset, or -1 if it is not known. If the lane has
    holes and the ledger assigns an ordinal to that record, the epoch is the one that is known for this ordinal."""
    record = lane.record
    if record is None or not record.holes:
        return lane.seen.before(offset)
    first = max(record.holes[0].first - 1, record.source_runs.at(0).ordinal)
    ordinal = ordinal_of(record, first, lane.plan[-1].ordinal if lane.plan else lane.acked, offset - 1)
    return lane.seen.before(offset) if ordinal is None else epoch_at(known_epochs(lane, first), ordinal)
