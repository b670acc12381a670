"""Determines the source's leader epochs, and the epoch of the source record that was copied under each ordinal.

An unclean election may remove records. The source then assigns their offsets to other records, in a higher leader
epoch. An offset therefore identifies a record only together with its epoch. The ledger contains both. Before the first
record of a new epoch is produced, a `SourceRun` must record the ordinal at which this epoch begins. The ledger also
contains the truncations, which show for which ordinals the source has lost the records.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from mirrord.model.intervals import joined, uncovered, within
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.signals import CheckAnswer, LaneRecord
from mirrord.replication.lane.source import copied_pieces
from mirrord.replication.lane.source.copied_pieces import HeldOffsets, ascending_parts, highest_copied, ordinal_of
from mirrord.replication.lane.source.declared_runs import rest
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


def mended_until(record: LaneRecord, ordinal: int) -> int:
    """Return the end of the records that the lane still has to copy again from `ordinal` onward: the ordinal after the
    last of them. If there are none, return `ordinal` if the record before it was the last record to be copied again,
    and -1 otherwise."""
    found = rest(record, ordinal)
    if found is not None and found.until > ordinal:
        return found.until
    before = rest(record, ordinal - 1)
    return ordinal if before is not None and before.until == ordinal else -1


def is_truncated(record: LaneRecord, ordinal: int, offset: int) -> bool:
    """Return whether the source has lost the record that was copied from this offset under this ordinal."""
    return any(ordinal < first and offset >= start for first, start in record.truncations)


def is_of_later_epoch(epochs: Epochs, ordinal: int, epoch: int) -> bool:
    """Return whether a source record has a later leader epoch than was recorded for its ordinal. If so, this record has
    not been produced yet, because the ledger records a new epoch before the first record of that epoch is produced."""
    return epoch > recorded_at(epochs, ordinal) > UNKNOWN


def copied_from(record: LaneRecord, offset: int, last: int) -> int | None:
    """Return the lowest source offset at or above `offset` to which an ordinal up to `last` maps. Ordinals in holes are
    ignored. Return None if there is no such offset."""
    return min((start for start, _ in HeldOffsets(record, last + 1).within(offset, NEVER)), default=None)


def furthest(lane: Lane) -> tuple[int, int] | None:
    """Return the source offset after the copied record with the highest source offset, and the leader epoch of that
    record. Records that are known to be lost are ignored. Return None if the ledger has no holes, if the epoch is not
    known, or if that record is below the lane's position."""
    record = lane.record
    if record is None or not record.holes:
        return None
    offset, ordinal = highest_copied(record, record.holes[0].first - 1, lane.acked) or (-1, -1)
    epoch = epoch_at(known_epochs(lane, ordinal), ordinal)
    return (offset + 1, epoch) if offset >= lane.position and epoch >= 0 else None


def continues_at(record: LaneRecord, ordinal: int, looked_up: Sequence[tuple[int, int]] = ()) -> int | None:
    """Return the source offset at which a lane continues if it resumes at this ordinal. `looked_up` contains ranges of
    ordinals (first, last) that have already been looked up. Their records are left out, as in `rest`.

    If both source and target have lost the record of this ordinal, the result is the offset at which the source's log
    diverges from the copied records.
    """
    offset = record.source_runs.offset_of(ordinal)
    if offset is None:
        return None
    if (found := rest(record, ordinal, looked_up)) is not None:
        return found.runs[0].offset
    return min((start for first, start in record.truncations if ordinal < first and start < offset), default=offset)


def last_copied(lane: Lane) -> tuple[int, int] | None:
    """Return the source offset after the last copied record below the lane's position, and the leader epoch of that
    record. Records that are known to be lost are ignored. If the ledger does not contain the epochs from some ordinal
    onward, the record before this ordinal counts as the last one. Return None if the epoch is not known.

    Only facts that have taken effect are considered. Within a round, use `read_until` instead.
    """
    record, ordinal = lane.record, lane.next_ordinal - 1
    offset = record.source_runs.offset_of(ordinal) if record is not None and ordinal >= 0 else None
    if record is None or offset is None:
        return None
    if offset >= lane.position or is_truncated(record, ordinal, offset) or record.holes:
        offset, ordinal = highest_copied(record, 0, lane.next_ordinal, lane.position) or (-1, -1)
    epochs = known_epochs(lane, ordinal)
    epoch = epoch_at(epochs, ordinal)
    if epoch < 0 <= offset and not record.holes:
        last_known = max((first for first, each in epochs if first <= ordinal and each >= 0), default=-1)
        ordinal = min((first for first, _ in epochs if first > last_known), default=0) - 1
        former, epoch = record.source_runs.offset_of(ordinal), epoch_at(epochs, ordinal)
        offset = -1 if former is None or former >= offset or is_truncated(record, ordinal, former) else former
    return (offset + 1, epoch) if offset >= 0 <= epoch else None


def read_until(lane: Lane) -> tuple[int, int] | None:
    """Return the position that the lane had before it skipped ahead in this round, and the epoch of the last batch
    before that position.

    If the lane has not skipped ahead in this round, or did not know that epoch, return the result of `last_copied`.
    """
    return lane.history.left_position or last_copied(lane)


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


def before(lane: Lane, offset: int) -> int:
    """Return the epoch of the source record directly before this offset, or -1 if it is not known. If the lane has
    holes and the ledger assigns an ordinal to that record, the epoch is the one that is known for this ordinal."""
    record = lane.record
    if record is None or not record.holes:
        return lane.seen.before(offset)
    first = max(record.holes[0].first - 1, record.source_runs.at(0).ordinal)
    ordinal = ordinal_of(record, first, lane.plan[-1].ordinal if lane.plan else lane.acked, offset - 1)
    return lane.seen.before(offset) if ordinal is None else epoch_at(known_epochs(lane, first), ordinal)


def recorded_ahead(lane: Lane) -> Epochs:
    """Return the epochs of the records that are to be copied again. If epochs have been recorded for them in this
    round, return those, even if the facts have not taken effect yet. Otherwise, return the epochs in the ledger."""
    return lane.history.epochs_again or (lane.record.epochs if lane.record is not None else ())


def is_another(lane: Lane, epoch: int) -> bool:
    """Return whether a source record of this epoch is certainly not the record to which the next ordinal belongs. This
    is certain if the epochs of both records are known and differ."""
    known = epoch_at(recorded_ahead(lane), lane.next_ordinal)
    return epoch >= 0 and known >= 0 and known != epoch


def recall(lane: Lane) -> None:
    """Determine the source epoch before `lane.position`, where the lane resumes with the ordinal `lane.resume_ordinal`.

    The first known epoch in this list is used:

    - The epoch that a comparison read from the source, if it found all records equal.
    - The epoch in the ledger.
    - The epoch of the resume position, if the holder that saved this position recorded every later change of epoch in
      the ledger. If the ledger contains no change, the epoch is still the same.
    - The epoch of the last record that a lookup found to be superseded, if this is the record before the position. The
      source may have replaced that record with a different one since then.
    - The epoch that any other comparison read from the source. This epoch comes last, because the source may have
      replaced the copied records with different ones.

    If only a comparison or a lookup has read an epoch, that epoch is neither in the ledger nor in a progress record. It
    is therefore recorded with the next record, even if that record has the same epoch.
    """
    record = lane.record
    epochs = record.epochs if record is not None else ()
    known = recorded_before(record, epochs, lane.resume_ordinal) if record is not None else UNRECORDED
    lane.history.recorded_epoch_since = lane.resume_ordinal
    if known == UNRECORDED and lane.resume_ordinal == 0:
        lane.seen.begin(0, UNKNOWN)  # earlier fetched records were not copied, and the fact about their epoch was lost
    is_saved = known == UNRECORDED and lane.history.epochs_recorded and lane.seen.last >= 0
    if known >= 0:
        _seed(lane, epochs)
    elif is_saved:
        lane.seen.reach(lane.position)
        lane.history.recorded_epoch_since = 0  # a change would be in the ledger
    lane.epoch = lane.seen.go_to(lane.position)
    is_unknown = (
        lane.epoch < 0 and last_copied(lane) is None
    )  # otherwise the source is asked (see `truncation.confirm_source`)
    found = lane.history.found_epoch
    if lane.log.last_by_look_up is not None and lane.log.look_up_epoch >= 0 and record is not None:
        found = (lane.position, lane.log.look_up_epoch) if follows(record, lane.resume_ordinal) else found
    counts = is_unknown or (lane.history.found_equal and found[1] >= 0)
    if counts and found[0] == lane.position and lane.epoch != found[1]:
        lane.epoch = found[1]
        lane.seen.begin(*found)
        is_saved = False
    known = recorded_at(epochs, lane.resume_ordinal)
    lane.history.recorded_epoch = lane.epoch if known == UNRECORDED and is_saved else known
    lane.history.epochs_recorded = lane.history.recorded_epoch != UNRECORDED
    lane.history.new_epochs.clear()
    lane.history.epochs_again = ()
    lane.history.found_equal = False


def mended(lane: Lane, pieces: Iterable[tuple[int, int, int]]) -> Epochs:
    """Return the epochs of records that are copied again because of holes.

    A comparison may have found that all records after the holes are equal, although the last one has a different epoch
    in the source than in the ledger. If so, a batch was appended late: it was sent earlier, while its ordinals belonged
    to other records. In this case, the epochs of the ordinals from the first hole onward are not known.
    """
    record = lane.record
    if record is None or not record.epochs:
        return ()
    epochs, (position, found) = record.epochs, lane.history.found_epoch
    known = recorded_before(record, epochs, lane.resume_ordinal)
    counts = lane.history.found_equal and position == record.source_runs.offset_of(lane.resume_ordinal)
    if not counts or known < 0 or found in {known, UNKNOWN}:
        return carried(epochs, pieces)
    first = lane.log.holes[0][0] if lane.log.holes else lane.resume_ordinal
    epochs = (*(each for each in epochs if each[0] < first), (first, UNKNOWN))
    return ((first, UNKNOWN), *carried(epochs, pieces))


def recall_copied(lane: Lane, offset: int) -> None:
    """Load the recorded source epochs when the lane moves to the next run of its plan, which begins at the source
    offset `offset`. Also load the epoch of the record before this offset, because this record may have been copied
    earlier, and the source may have lost it in the meantime."""
    record = lane.record
    known = recorded_at(recorded_ahead(lane), lane.next_ordinal)
    if known != UNRECORDED:
        lane.history.recorded_epoch, lane.history.recorded_epoch_since = known, lane.next_ordinal
    if record is None or offset <= lane.position or not record.holes:
        return
    ordinal = ordinal_of(record, record.holes[0].first, lane.next_ordinal, offset - 1)
    epoch = UNKNOWN if ordinal is None else epoch_at(known_epochs(lane, ordinal), ordinal)
    if epoch >= 0:
        lane.seen.note(offset - 1, epoch)
        lane.seen.reach(offset)


def _seed(lane: Lane, epochs: Epochs) -> None:
    """Load the epochs before the lane's position from the ledger into `lane.seen`."""
    record = lane.record
    if record is None:
        return
    if record.holes:
        end = max(lane.resume_ordinal, mended_until(record, lane.resume_ordinal))
        known = [each for each in _by_offset(record, epochs, end) if each[0] <= lane.position]
        lane.seen.take_over(known, lane.position)
        return
    found: list[tuple[int, int]] = []
    below = lane.position
    for ordinal, epoch in reversed(epochs):
        offset = record.source_runs.offset_of(ordinal)
        former = None if offset is None else _former(record, ordinal, offset)
        if ordinal > lane.resume_ordinal or offset is None or is_truncated(record, ordinal, offset):
            continue
        # The records in between were not copied and may belong to the later epoch.
        start = offset if former is None else min(offset, former + 1)
        if former is not None and lane.position == offset == former + 1:
            continue  # no record of this epoch was copied, and the source may by now have a different epoch there
        if start <= below:
            found.append((start, epoch))
            below = start - 1
    lane.seen.take_over(found[::-1], lane.position)


def _by_offset(record: LaneRecord, epochs: Epochs, end: int) -> list[tuple[int, int]]:
    """Return the source's leader epochs of the records below the ordinal `end`, as pairs (source offset, epoch) in
    ascending order. The records have been copied or will be copied again. After a hole, records that were copied again
    have higher ordinals than some records with higher source offsets. The offset of a record that a rebuild could not
    determine (`HoleFound.is_open`) may also be that of a known record, whose epoch then applies.

    The epoch of the ordinal `end` is also returned if there is a gap directly before its source offset.
    """
    begin = record.source_runs.at(0).ordinal
    edges = [begin, *(first for first, _ in epochs if begin < first < end), end]
    void = joined((hole.first, hole.last + 1) for hole in record.holes if hole.is_open)
    unknown = [part for each in pairwise(edges) if epoch_at(epochs, each[0]) < 0 for part in within(each, void)]
    lowest = sorted(
        (part.lowest, epoch_at(epochs, start))
        for piece in pairwise(edges)
        for start, behind in uncovered(piece, unknown)
        for part in ascending_parts(record, start, behind)
    )
    lowest = copied_pieces.with_unknown(record, lowest, unknown, end)
    following = record.source_runs.offset_of(end)
    if following is not None and not is_truncated(record, end, following):
        lowest += [(following, epoch) for first, epoch in epochs if first == end]
    found: list[tuple[int, int]] = []
    for offset, epoch in lowest:
        # The records in between were not copied and may belong to the later epoch.
        former = highest_copied(record, begin, end, offset)
        start = offset if former is None else former[0] + 1
        # No record of this epoch was copied. If no other record was copied either, the epoch is used nevertheless.
        is_at_end = former is not None and start == offset == following
        if not is_at_end and (not found or found[-1][1] != epoch):
            found.append((start, epoch))
    return found


def _former(record: LaneRecord, ordinal: int, offset: int) -> int | None:
    """Return the source offset of the record with the ordinal `ordinal - 1`. If the source has lost this record, return
    the highest offset below `offset` whose record was copied and is still on the source."""
    former = record.source_runs.offset_of(ordinal - 1)
    if former is None or not is_truncated(record, ordinal - 1, former):
        return former
    return (highest_copied(record, 0, ordinal, offset) or (former, 0))[0]


def is_news(lane: Lane, epoch: int) -> bool:
    """Return whether the epoch of the next batch must be recorded in the ledger before the batch is produced.

    Records that are copied again keep their recorded epoch. The epoch of the records after them is recorded when those
    records are read.
    """
    return epoch >= 0 and epoch != lane.history.recorded_epoch and not lane.plan


def note_epoch(lane: Lane, epoch: int) -> bool:
    """Store the epoch of the next batch. Return whether this epoch must be recorded in the ledger together with the
    next run."""
    if not is_news(lane, epoch):
        return False
    former, lane.history.recorded_epoch = lane.history.recorded_epoch, epoch
    if former >= 0 and not lane.history.new_epochs and lane.history.recorded_epoch_since < lane.next_ordinal:
        lane.history.new_epochs.append((lane.history.recorded_epoch_since, former))
    lane.history.new_epochs.append((lane.next_ordinal, epoch))
    lane.history.recorded_epoch_since = lane.next_ordinal
    return True


def is_truncation_unrecorded(lane: Lane) -> bool:
    """Return whether the lane has appended a `truncated` verdict that has not taken effect yet. A progress record that
    was saved at this point would hide the fact that the source has lost copied records."""
    ordinal, verdicts = lane.unbound
    waits = bool(lane.intents) and lane.intents[-1][1] == ordinal
    return waits and any(verdict.reason == "truncated" for verdict in verdicts)


def unrecorded(lane: Lane) -> Epochs:
    """Return the epochs of copied records that the ledger does not contain yet. So far, only progress records have
    contained these epochs, and the next progress records will contain later epochs instead."""
    if lane.history.new_epochs:
        return tuple(each for each in lane.history.new_epochs if each[0] < lane.next_ordinal)
    recorded = (
        recorded_at(lane.record.epochs, lane.history.recorded_epoch_since) if lane.record is not None else UNRECORDED
    )
    if (
        recorded == UNRECORDED
        and lane.history.recorded_epoch >= 0
        and lane.history.recorded_epoch_since < lane.next_ordinal
    ):
        return ((lane.history.recorded_epoch_since, lane.history.recorded_epoch),)
    return ()


def is_recorded_from(record: LaneRecord, ordinal: int) -> bool:
    """Return whether the ledger has any of the following at this ordinal or later: a hole, a change of epoch after the
    records that are still to be copied again, or wrong runs for these records (`RestOfPlan.differs`)."""
    limit = max(mended_until(record, ordinal), ordinal - 1)
    if any(hole.first >= ordinal for hole in record.holes) or any(first > limit for first, _ in record.epochs):
        return True
    found = rest(record, ordinal)
    return found is not None and found.differs


def is_recorded_ahead(lane: Lane, record: LaneRecord) -> bool:
    """Return whether the ledger records that an epoch begins at the next ordinal or a later one. Such a record may be
    wrong, because the epoch may begin at a different ordinal when the lane continues."""
    ordinal, epoch, limit = lane.resume_ordinal, lane.epoch, mended_until(record, lane.resume_ordinal)
    if limit > ordinal:
        return any(first > limit for first, _ in record.epochs)  # records that are copied again keep their epochs
    if continues_at(record, ordinal) != record.source_runs.offset_of(ordinal):
        return True
    nothing = {epoch, UNKNOWN} if follows(record, ordinal) else {epoch}
    return any(first > ordinal or (first == ordinal and known not in nothing) for first, known in record.epochs)


def epochs_again(lane: Lane, pieces: Iterable[tuple[int, int, int]] = ()) -> Epochs:
    """Return the epochs that must be recorded for the resume ordinal and later ordinals. They replace all epochs that
    the ledger has for these ordinals. Records that are copied again keep their epochs (see `carried`)."""
    record, ahead = lane.record, recorded_ahead(lane)
    epochs = lane.history.epochs_again = carried(ahead, pieces) if ahead else ()
    if not epochs:
        # Further records of this run may still arrive. Their epoch is recorded as unknown until one arrives.
        is_open = record is not None and follows(record, lane.resume_ordinal)
        epochs = ((lane.resume_ordinal, UNKNOWN if is_open else max(lane.epoch, UNKNOWN)),)
    lane.history.recorded_epoch = epochs[0][1]
    return epochs


def leap(lane: Lane, to: int) -> None:
    """Continue at the source offset `to`, skipping records that the lane has not seen. After this, the epoch of the
    records that follow is not known."""
    if lane.epoch >= 0:
        lane.history.left_position = (lane.position, lane.epoch)
    lane.position, lane.epoch = to, lane.seen.go_to(to)
    lane.history.source_confirmed = False
    lane.history.recorded_epoch = UNKNOWN
    lane.history.new_epochs.append((lane.next_ordinal, UNKNOWN))


def take_new(lane: Lane, ordinal: int) -> Epochs:
    """Return the epochs that must be recorded together with the runs that begin at this ordinal."""
    epochs = tuple(lane.history.new_epochs)
    lane.history.new_epochs.clear()
    if not epochs and lane.history.recorded_epoch_since == ordinal and lane.history.recorded_epoch >= 0:
        # The epoch was recorded with other runs that begin at the same ordinal. The new runs supersede them.
        return ((ordinal, lane.history.recorded_epoch),)
    return epochs


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


def ends_short(lane: Lane, answer: CheckAnswer, position: int) -> bool:
    """Return whether the source log ends before `position` while the epoch of the copied records before the resume
    ordinal is not known. Without this epoch, the lane cannot tell which source records replaced copied ones."""
    if lane.record is None or not 0 <= answer.source_end < position:
        return False
    return recorded_before(lane.record, known_epochs(lane, lane.resume_position.ordinal), lane.resume_ordinal) < 0
