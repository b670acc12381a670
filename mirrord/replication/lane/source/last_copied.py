"""Determines the last copied records, about which the source is asked whether its log still has them, and the offset at
which a source log diverges from the copied records.

A request contains the source offset after a copied record and the leader epoch of that record. According to KIP-595,
the broker's answer shows whether its log has this record.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from mirrord.ledger.decided_verdicts import NOT_COPIED
from mirrord.ledger.facts.core import Reason
from mirrord.model.intervals import Interval, uncovered
from mirrord.model.runs import Run
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.source.copied_pieces import HeldOffsets, highest_copied, ordinal_of
from mirrord.replication.lane.source.declared_runs import mended_until
from mirrord.replication.lane.source.left_out_epochs import passed_epochs
from mirrord.replication.lane.source.offsets_of_epochs import offsets_of_epochs, replaced_from
from mirrord.replication.lane.source.recorded_epochs import (
    UNKNOWN,
    epoch_at,
    follows,
    is_truncated,
    known_epochs,
    recorded_at,
)
from mirrord.replication.lane.state import Lane

_NOT_READ: tuple[Reason, ...] = ("expired", "rejected", "skipped")
"""The reasons for which a lane leaps over source offsets."""


def furthest(lane: Lane) -> tuple[int, int] | None:
    """Return the source offset after the copied record with the highest source offset, and the leader epoch of that
    record. Records that are known to be lost are ignored, as are records whose epoch is not known. Return None if the
    ledger has no holes, or if that record is below the lane's position."""
    record = lane.record
    if record is None or not record.holes:
        return None
    known = _highest(lane, record, record.holes[0].first - 1, lane.acked)
    return known if known is not None and known[0] > lane.position else None


def besides_plan(lane: Lane) -> tuple[int, int] | None:
    """Return the record about which the source is asked while records are being copied again: the source offset after
    it, and its leader epoch. Return None if there is no such record.

    It is the record with the highest source offset after the lane's position that was copied or that is in a hole and
    is to be copied again. If there is none, a fetch without an epoch does not show whether the source has lost records
    before the position, so the last one of these is returned. If the source seems to lack the record at the position
    (`SourceHistory.suspected_position`), any record that is to be copied again counts.
    """
    known, planned = furthest(lane), _planned(lane)
    if planned is not None and _is_of_hole(lane, planned[0] - 1):
        return max(known or planned, planned)
    known = known or (last_copied(lane) if lane.epoch < 0 else None)
    return planned if known is None and lane.history.suspected_position == lane.position else known


def _planned(lane: Lane) -> tuple[int, int] | None:
    """Return the record with the highest source offset after the lane's position that is to be copied again."""
    if lane.record is None or not lane.plan:
        return None
    found = _highest(lane, lane.record, lane.next_ordinal, lane.plan[-1].ordinal)
    return found if found is not None and found[0] > lane.position else None


def _is_of_hole(lane: Lane, offset: int) -> bool:
    """Return whether the record at this source offset had an ordinal that is in a hole now. Holes whose records could
    not be determined do not count: their offsets may be those of other records."""
    record = lane.record
    ordinal = None if record is None else ordinal_of(record, 0, lane.next_ordinal, offset)
    if record is None or ordinal is None:
        return False
    return any(hole.first <= ordinal <= hole.last and not hole.is_open for hole in record.holes)


def last_copied(lane: Lane) -> tuple[int, int] | None:
    """Return the source offset after the last copied record below the lane's position, and the leader epoch of that
    record. Records that are known to be lost are ignored, as are records whose epoch is not known. Return None if there
    is no other record.

    Only facts that have taken effect are considered. Within a round, use `read_until` instead.
    """
    return last_below(lane, lane.next_ordinal, lane.position)


def last_below(lane: Lane, end: int, position: int) -> tuple[int, int] | None:
    """Return what `last_copied` would return if the next ordinal were `end` and the lane were at `position`."""
    record, ordinal = lane.record, end - 1
    if record is None:
        return None
    offset = record.source_runs.offset_of(ordinal) if ordinal >= 0 else None
    if offset is None:
        return _with_left_out(record, None, position)  # nothing was copied
    if not record.holes and offset < position and not is_truncated(record, ordinal, offset):
        epoch = epoch_at(known_epochs(lane, ordinal), ordinal)
        if epoch >= 0:
            return _with_left_out(record, (offset + 1, epoch), position)
    return _with_left_out(record, _highest(lane, record, 0, end, position), position)


def _with_left_out(record: LaneRecord, known: tuple[int, int] | None, below: int) -> tuple[int, int] | None:
    """Return the last record whose epoch is known: either `known`, or a record below the source offset `below` that was
    copied and is omitted now, that the target has refused, or that was skipped on an operator command. The result is
    the source offset after the record, and its epoch. Of skipped records, only the highest possible epoch may be known.
    In most cases, the broker's answer about this epoch nevertheless shows whether its log still has them.

    The epochs in a log are in ascending order, so the source has replaced a refused or skipped record that has a lower
    epoch than `known`.
    """
    lowest = 0 if known is None else known[1]
    left_out = [(min(end, below), epoch) for start, end, epoch in record.left_out_epochs if start < below]
    left_out += [
        (min(each.end, below), each.epoch)
        for each in record.quarantine
        if each.skipped is not None and each.start < below and each.epoch >= lowest
    ]
    sought = ((min(each.end, below), each) for each in record.seeks if each.done and each.start < below)
    left_out += [(end, epoch) for end, each in sought if (epoch := each.epoch_before(end)) >= lowest]
    return max([*left_out, *([known] if known is not None else [])], default=None)


def left_at(lane: Lane, known: tuple[int, int] | None, end: int, position: int) -> tuple[int, int] | None:
    """Return the source offset after the last copied record below `position`, and the epoch of this record. `known` is
    the last one whose epoch is known, as in `last_below`, and `end` is the next ordinal.

    If no record below `position` has been copied, return the offset from which all records up to `position` have
    verdicts instead, and `UNKNOWN`. Return None if this offset is not known because the state has too few of the
    verdicts, or if the epoch is not known.
    """
    record = lane.record
    if record is None:
        return None
    highest = max((offset for offset, _ in _highest_of_epochs(record, 0, end, position)), default=-1)
    if highest >= 0 and (known is None or known[0] <= highest):
        return None
    if known is not None:
        return known
    start = judged_from(record, position, NOT_COPIED)
    return (start, UNKNOWN) if start < position else None


def judged_from(record: LaneRecord, position: int, reasons: Collection[Reason]) -> int:
    """Return the source offset from which all records up to `position` have verdicts with these reasons. Only the
    newest verdicts are known."""
    begins = {each.end: each.start for each in record.newest_verdicts if each.reason in reasons}
    while begins.get(position, position) < position:
        position = begins[position]
    return position


def unread_from(lane: Lane, last: int) -> int | None:
    """Return the first of the ordinals up to `last` to which the ledger assigns source records that no holder has sent.
    Return None if there are none.

    A lane that leaps over source records records that the epoch is not known from the next ordinal onward. Before it
    produces the first record that it reads after the leap, it records the epoch of this record. As long as the epoch is
    not known, the lane has therefore produced none of the records after the leap. If the target has records with these
    ordinals, they were sent before the leap.

    This is not certain if the ledger has no epoch at all: the source may have records of message formats 0 and 1, which
    have no epochs. However, if the lane itself has leapt since this replicator began to host it, it knows what it has
    sent since then.
    """
    record = lane.record
    run = record.source_runs.run_at(last) if record is not None else None
    if record is None or run is None or last < 0 or follows(record, run.ordinal):
        return None
    begins = recorded_at(record.epochs, run.ordinal) == recorded_at(record.epochs, last) == UNKNOWN
    is_known = any(epoch >= 0 for _, epoch in record.epochs)
    is_known = is_known or max(lane.comparison.assigned_from, lane.sent_below) <= run.ordinal
    is_leap = any(each.end == run.offset and each.reason in _NOT_READ for each in record.newest_verdicts)
    return run.ordinal if is_known and is_leap and begins and not _is_explained(record, run.ordinal, last) else None


def _is_explained(record: LaneRecord, first: int, last: int) -> bool:
    """Return whether there is another reason why the epochs of the ordinals [first, last] are not known: their records
    are copied again, or a rebuild could not determine them.

    A plan for copying records again may have become shorter, because some of them were omitted. `HoleFound.until` does
    not show this.
    """
    if any(hole.is_open and hole.first <= last <= hole.last for hole in record.holes):
        return True
    is_possible = any(hole.again <= first < hole.until for hole in record.holes)
    return is_possible and mended_until(record, first) > first


def _highest(lane: Lane, record: LaneRecord, first: int, end: int, below: int = NEVER) -> tuple[int, int] | None:
    """Of the records of the ordinals [first, end) that have source offsets below `below` and known epochs, return the
    one with the highest source offset: the source offset after it, and its epoch. Ordinals in holes are ignored: the
    lane may have read other records at the offsets of theirs since."""
    first = max(first, record.source_runs.at(0).ordinal)
    holes = [(hole.first, hole.last + 1) for hole in record.holes]
    held = list(uncovered((first, end), holes))
    highest = max((at for part in held if (at := highest_copied(record, *part, below)) is not None), default=None)
    if highest is None:
        return None
    offset, ordinal = highest
    *_, (_, epoch, limit) = replaced_from(record, known_epochs(lane, ordinal), ordinal, end)
    if epoch >= 0 and offset < limit:
        return offset + 1, epoch
    found = (each for each in _highest_of_epochs(record, first, end, below, holes) if each[1] >= 0)
    return max(((at + 1, known) for at, known in found), default=None)


def _highest_of_epochs(
    record: LaneRecord, first: int, end: int, below: int, holes: Sequence[Interval] = ()
) -> Iterator[tuple[int, int]]:
    """Yield the highest source offset below `below` of the ordinals [first, end) for each recorded epoch, and this
    epoch. Records that the source has replaced and ordinals in `holes` are ignored."""
    first = max(first, record.source_runs.at(0).ordinal)
    for piece, epoch, limit in replaced_from(record, record.epochs, first, end):
        for part in uncovered(piece, holes):
            if (found := highest_copied(record, *part, min(below, limit))) is not None:
                yield found[0], epoch


def read_until(lane: Lane) -> tuple[int, int] | None:
    """Return the position that the lane had before it skipped ahead in this round, and the epoch of the last batch
    before that position.

    If the lane has not skipped ahead in this round, or did not know that epoch, return the result of `last_copied`.
    """
    return lane.history.left_position or last_copied(lane)


def copied_from(record: LaneRecord, offset: int, last: int) -> int | None:
    """Return the lowest source offset at or above `offset` to which an ordinal up to `last` maps. Ordinals in holes are
    ignored. Return None if there is no such offset."""
    return min((start for start, _ in HeldOffsets(record, last + 1).within(offset, NEVER)), default=None)


def first_lost(lane: Lane, start: int, end: int) -> int:
    """Return the source offset of the first record that a diverging source log lacks and that was copied, or was to be
    copied again. `start` is the result of `divergence`, and `end` is the end of the epoch in the broker's answer.

    The first lost record may be above `start`. If a higher epoch began between two copied records, the exact offset is
    not known, and the lane goes back to the lowest possible offset. Records that the source's log still has do not
    count as lost.
    """
    record = lane.record
    if record is None or end <= start:
        return start
    copied = copied_from(record, start, lane.next_ordinal - 1)
    found = [end] if copied is None else [end, copied]
    for run, following in pairwise((Run(lane.next_ordinal, lane.position), *lane.plan)):
        if run.offset + following.ordinal - run.ordinal > start:
            found.append(max(run.offset, start))
    return min(found)


def divergence(lane: Lane, epoch: int, end: int) -> int:
    """Return the source offset at which a source log diverges from the copied records. Omitted and skipped records
    count as well.

    `epoch` and `end` are the source broker's answer: the highest epoch in its log that is not above the requested
    epoch, and the offset at which that epoch ends. Therefore, if records of a higher epoch were copied, that log does
    not contain them. All epochs in the ledger are considered: the lane may have loaded none of them.
    """
    record, start = lane.record, lane.seen.divergence(epoch, end)
    if record is None or epoch < 0:
        return start
    runs = record.source_runs
    ordinals = (runs.at(0).ordinal, lane.next_ordinal) if runs else (0, 0)
    copied = offsets_of_epochs(record, record.epochs, *ordinals)
    left_out = ((at, known) for at, _, known in passed(lane))
    return min([start, *(at for at, known in (*copied, *left_out) if known > epoch)])


def passed(lane: Lane) -> list[tuple[int, int, int]]:
    """Return the `passed_epochs`. They include those of a seek that has not taken effect in the ledger yet."""
    known = passed_epochs(lane.record) if lane.record is not None else ()
    return [*known, *lane.history.skipped_epochs]


def before(lane: Lane, offset: int) -> int:
    """Return the epoch of the source record directly before this offset, or -1 if it is not known. If the lane has
    holes and the ledger assigns an ordinal to that record, the epoch is the one that is known for this ordinal."""
    record = lane.record
    if record is None or not record.holes:
        return lane.seen.before(offset)
    first = max(record.holes[0].first - 1, record.source_runs.at(0).ordinal)
    ordinal = ordinal_of(record, first, lane.plan[-1].ordinal if lane.plan else lane.acked, offset - 1)
    return lane.seen.before(offset) if ordinal is None else epoch_at(known_epochs(lane, first), ordinal)
