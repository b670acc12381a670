"""Determines the source's leader epochs, and from which epoch each ordinal was copied.

An unclean election removes records and reuses their offsets for others, under a higher leader epoch. So an offset
identifies a record only together with its epoch. The ledger has both: before the first record of another epoch is
produced, a `SourceRun` records the ordinal from which the epoch applies. The ledger also has the truncations: they show
which ordinals have records that the source has lost.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from mirrord.model.intervals import uncovered
from mirrord.replication.lane.signals import CheckAnswer, LaneRecord
from mirrord.replication.lane.source.copied_pieces import ascending_parts, highest_copied, mapped, ordinal_of
from mirrord.replication.lane.source.declared_runs import rest
from mirrord.replication.lane.state import Lane

Epochs = tuple[tuple[int, int], ...]
"""Pairs (ordinal, leader epoch of the source) in ascending order. Each epoch applies from its ordinal on."""


UNKNOWN = -1
"""The ledger says that the epoch is not known from this ordinal on, because the lane skipped records without seeing
them."""
UNRECORDED = -2
"""The ledger says nothing about the epoch."""


def recorded_at(epochs: Epochs, ordinal: int) -> int:
    """Return the source's leader epoch of an ordinal according to the ledger: `UNRECORDED`, `UNKNOWN` or the epoch."""
    return next((epoch for first, epoch in reversed(epochs) if first <= ordinal), UNRECORDED)


def epoch_at(epochs: Epochs, ordinal: int) -> int:
    """Return the source's leader epoch of an ordinal, or -1 if it is not known."""
    return max(recorded_at(epochs, ordinal), UNKNOWN)


def follows(record: LaneRecord, ordinal: int) -> bool:
    """Return whether an ordinal maps to the source offset right after that of the previous ordinal."""
    offset, former = record.source_runs.offset_of(ordinal), record.source_runs.offset_of(ordinal - 1)
    return offset is not None and former is not None and offset == former + 1


def recorded_before(record: LaneRecord, epochs: Epochs, ordinal: int) -> int:
    """Return what is recorded about the epoch of the source record right before the record of an ordinal. If the epochs
    that were recorded from this ordinal on were revoked (`epochs_again`), the epoch of the previous ordinal applies."""
    is_anew = (ordinal, UNKNOWN) in epochs and follows(record, ordinal)
    return recorded_at(epochs, ordinal - 1 if is_anew else ordinal)


def carried(recorded: Epochs, pieces: Iterable[tuple[int, int, int]]) -> Epochs:
    """Return the recorded epochs, moved to other ordinals. `pieces` are triples (ordinal, former ordinal or source
    offset, length)."""
    found: list[tuple[int, int]] = []
    for ordinal, former, length in pieces:
        begun = (former, max(recorded_at(recorded, former), UNKNOWN))
        for at, epoch in (begun, *(each for each in recorded if former < each[0] < former + length)):
            if not found or found[-1][1] != epoch:
                found.append((ordinal + at - former, epoch))
    return tuple(found)


def mended_until(record: LaneRecord, ordinal: int) -> int:
    """Return the ordinal after the records that are still to be copied again from `ordinal` on. If there are none,
    return `ordinal` itself directly after such records, and otherwise -1."""
    found = rest(record, ordinal)
    if found is not None and found.until > ordinal:
        return found.until
    before = rest(record, ordinal - 1)
    return ordinal if before is not None and before.until == ordinal else -1


def epoch_source(record: LaneRecord, ordinal: int) -> int:
    """Return an ordinal that has the epoch of the source record right before the record of this ordinal. This ordinal
    itself may have a recorded epoch although it was never copied, from a history that is lost."""
    is_explicit = any(ordinal == first for first, _ in record.truncations) or ordinal <= mended_until(record, ordinal)
    return ordinal if is_explicit else ordinal - 1


def is_truncated(record: LaneRecord, ordinal: int, offset: int) -> bool:
    """Return whether the source has lost the record that was copied from this offset under this ordinal."""
    return any(ordinal < first and offset >= start for first, start in record.truncations)


def is_of_later_epoch(record: LaneRecord, ordinal: int, epoch: int) -> bool:
    """Return whether a source record has a later leader epoch than the ledger has for its ordinal. No such record was
    produced, because the ledger records a new epoch before the first record of that epoch is produced."""
    return epoch > recorded_at(record.epochs, ordinal) > UNKNOWN


def truncations_within(record: LaneRecord, first: int, last: int) -> Iterator[int]:
    """Yield the ordinals of first..last whose records the source has lost. Their source offsets now belong to other
    records."""
    kept = ((ordinal, ordinal + length) for ordinal, _, length in mapped(record, first, last))
    for start, end in uncovered((first, last + 1), kept):
        yield from range(start, end)


def copied_from(record: LaneRecord, offset: int, last: int) -> int | None:
    """Return the lowest source offset, at `offset` or above, to which an ordinal up to `last` maps. Return None if
    there is none."""
    runs = record.source_runs
    found: list[int] = []
    for begin in (*reversed(runs.turns), runs.at(0).ordinal):
        at = max(runs.floor(offset, runs.position(begin), runs.position(last + 1)), runs.position(begin))
        pieces = mapped(record, runs.at(at).ordinal, last)
        found += [max(start, offset) for _, start, length in pieces if start + length > offset]
        if runs.at(at).offset <= offset:
            break  # records that were copied before, and are not lost, have lower offsets
        last = begin - 1
    return min(found, default=None)


def furthest(lane: Lane) -> tuple[int, int] | None:
    """Return the source offset after all copied records that are not known to be lost, and the epoch before that
    offset. Return None if that epoch is not known, or if the lane's position is already above these records."""
    record = lane.record
    if record is None or not record.holes:
        return None
    offset, ordinal = highest_copied(record, record.holes[0].first - 1, lane.acked) or (-1, -1)
    epoch = epoch_at(known_epochs(lane, ordinal), ordinal)
    return (offset + 1, epoch) if offset >= lane.position and epoch >= 0 else None


def continues_at(record: LaneRecord, ordinal: int) -> int | None:
    """Return the source offset at which a lane resumes with an ordinal.

    If both source and target have lost the record of this ordinal, the lane resumes where the source's log diverges.
    """
    offset = record.source_runs.offset_of(ordinal)
    if offset is None:
        return None
    if (found := rest(record, ordinal)) is not None:
        return found.runs[0].offset
    return min((start for first, start in record.truncations if ordinal < first and start < offset), default=offset)


def last_copied(lane: Lane) -> tuple[int, int] | None:
    """Return the source offset after the last copied record below the lane's position, and the record's epoch. Records
    that are known to be lost are ignored. Return None if the epoch is not known.

    Facts that have not taken effect yet are not considered. Within a round, use `read_until`.
    """
    record, ordinal = lane.record, lane.next_ordinal - 1
    offset = record.source_runs.offset_of(ordinal) if record is not None and ordinal >= 0 else None
    if record is None or offset is None:
        return None
    if offset >= lane.position or is_truncated(record, ordinal, offset) or record.holes:
        offset, ordinal = highest_copied(record, 0, lane.next_ordinal, lane.position) or (-1, -1)
    epoch = epoch_at(known_epochs(lane, ordinal), ordinal)
    return (offset + 1, epoch) if offset >= 0 <= epoch else None


def read_until(lane: Lane) -> tuple[int, int] | None:
    """Return the position from which the lane skipped ahead, and the epoch before that position.

    If the lane skipped ahead in an earlier round, or did not know the epoch, return the result of `last_copied`.
    """
    return lane.history.left_position or last_copied(lane)


def divergence_of_copied(lane: Lane, epoch: int, end: int) -> int:
    """Return the same divergence point as `divergence`, but consider all epochs in the ledger."""
    record, start = lane.record, divergence(lane, epoch, end)
    if record is None or epoch < 0:
        return start
    later = [(each, record.source_runs.offset_of(each)) for each, known in record.epochs if known > epoch]
    starts = [
        at for each, at in later if at is not None and each < lane.next_ordinal and not is_truncated(record, each, at)
    ]
    return min([start, *starts])


def divergence(lane: Lane, epoch: int, end: int) -> int:
    """Return the source offset at which a source log diverges from the copied records. In that log, the epochs up to
    `epoch` end at `end`. The log contains no copied record of a higher epoch."""
    record, start = lane.record, lane.seen.divergence(epoch, end)
    if record is None or not record.holes or epoch < 0:
        return start
    first = max(record.holes[0].first - 1, record.source_runs.at(0).ordinal)
    edges = [first, *(each for each, _ in record.epochs if first < each < lane.acked), lane.acked]
    later = [pair for pair in pairwise(edges) if recorded_at(record.epochs, pair[0]) > epoch]
    return min([start, *(each.lowest for pair in later for each in ascending_parts(record, *pair))])


def before(lane: Lane, offset: int) -> int:
    """Return the epoch of the record before a source offset, if that record was copied or was to be copied."""
    record = lane.record
    if record is None or not record.holes:
        return lane.seen.before(offset)
    first = max(record.holes[0].first - 1, record.source_runs.at(0).ordinal)
    ordinal = ordinal_of(record, first, lane.plan[-1].ordinal if lane.plan else lane.acked, offset - 1)
    return lane.seen.before(offset) if ordinal is None else epoch_at(known_epochs(lane, first), ordinal)


def recorded_ahead(lane: Lane) -> Epochs:
    """Return the epochs of the records that are to be copied again, as recorded in this round. The facts about these
    epochs need not have taken effect yet."""
    return lane.history.epochs_again or (lane.record.epochs if lane.record is not None else ())


def is_another(lane: Lane, epoch: int) -> bool:
    """Return whether a record of this epoch cannot be the record that was to be copied under the next ordinal."""
    known = epoch_at(recorded_ahead(lane), lane.next_ordinal)
    return epoch >= 0 and known >= 0 and known != epoch


def recall(lane: Lane) -> None:
    """Determine the source epoch before `lane.position`, where the lane resumes with the ordinal `lane.resume_ordinal`.

    The ledger takes precedence. If it contains no epoch, the epoch has not changed since the resume position, provided
    that the holder that saved this position recorded every change. The last choice is the epoch that a comparison read
    from the source, because it may belong to another history than the copied records. But if that comparison found all
    records equal, the epoch that it read takes precedence over the others.
    """
    record = lane.record
    epochs = record.epochs if record is not None else ()
    known = recorded_before(record, epochs, lane.resume_ordinal) if record is not None else UNRECORDED
    lane.history.recorded_epoch_since = lane.resume_ordinal
    if known == UNRECORDED and lane.resume_ordinal == 0:
        lane.seen.begin(0, UNKNOWN)  # what was fetched earlier was not copied, and the fact about its epoch was lost
    if known >= 0:
        _seed(lane, epochs)
    elif known == UNRECORDED and lane.history.epochs_recorded and lane.seen.last >= 0:
        lane.seen.reach(lane.position)
        lane.history.recorded_epoch_since = 0  # a change would be in the ledger
    lane.epoch = lane.seen.go_to(lane.position)
    is_unknown = (
        lane.epoch < 0 and last_copied(lane) is None
    )  # otherwise the source is asked (`truncation.confirm_source`)
    counts = is_unknown or (lane.history.found_equal and lane.history.found_epoch[1] >= 0)
    if counts and lane.history.found_epoch[0] == lane.position and lane.epoch != lane.history.found_epoch[1]:
        lane.epoch = lane.history.found_epoch[1]
        lane.seen.begin(*lane.history.found_epoch)
    known = recorded_at(epochs, lane.resume_ordinal)
    lane.history.recorded_epoch = known if known != UNRECORDED else lane.epoch if lane.epoch >= 0 else UNRECORDED
    lane.history.epochs_recorded = True
    lane.history.new_epochs.clear()
    lane.history.epochs_again = ()
    lane.history.found_equal = False


def mended(lane: Lane, pieces: Iterable[tuple[int, int, int]]) -> Epochs:
    """Return the epochs of records that are copied again because of holes.

    A comparison may have found all records after the holes equal, but the last one with another epoch than in the
    ledger. Then a batch that was sent for other records was appended late, and no epoch is known from the first hole
    on.
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
    """Determine the source epoch when the lane continues after records that were copied earlier. The source may have
    lost these records since."""
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
    """Take over the epochs before the lane's position from the ledger."""
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
        # The records in between were not copied and may be of the later epoch.
        start = offset if former is None else min(offset, former + 1)
        if former is not None and lane.position == offset == former + 1:
            continue  # nothing of it was copied, and the source may have another epoch there by now
        if start <= below:
            found.append((start, epoch))
            below = start - 1
    lane.seen.take_over(found[::-1], lane.position)


def _by_offset(record: LaneRecord, epochs: Epochs, end: int) -> list[tuple[int, int]]:
    """Return the source's leader epochs of the records below the ordinal `end`, as pairs (source offset, epoch) in
    ascending order. The records are copied or are to be copied again. After a hole, records that were copied again have
    higher ordinals than records with higher source offsets."""
    begin = record.source_runs.at(0).ordinal
    edges = [begin, *(first for first, _ in epochs if begin < first < end), end]
    lowest = sorted(
        (part.lowest, epoch_at(epochs, first))
        for first, behind in pairwise(edges)
        for part in ascending_parts(record, first, behind)
    )
    found: list[tuple[int, int]] = []
    for offset, epoch in lowest:
        if not found or found[-1][1] != epoch:
            # The records in between were not copied and may be of the later epoch.
            former = highest_copied(record, begin, end, offset)
            found.append((offset if former is None else former[0] + 1, epoch))
    return found


def _former(record: LaneRecord, ordinal: int, offset: int) -> int | None:
    """Return the source offset of the record that was copied before this ordinal. If the source has lost that record,
    return the highest offset below `offset` that was copied and that the source still has."""
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
    """Note the epoch of the next batch. Return whether the epoch must be recorded in the ledger, with the next run."""
    if not is_news(lane, epoch):
        return False
    former, lane.history.recorded_epoch = lane.history.recorded_epoch, epoch
    if former >= 0 and not lane.history.new_epochs and lane.history.recorded_epoch_since < lane.next_ordinal:
        lane.history.new_epochs.append((lane.history.recorded_epoch_since, former))
    lane.history.new_epochs.append((lane.next_ordinal, epoch))
    lane.history.recorded_epoch_since = lane.next_ordinal
    return True


def is_truncation_unrecorded(lane: Lane) -> bool:
    """Return whether the fact that the source has lost copied records has not taken effect yet. A progress record that
    is saved now would hide the loss."""
    ordinal, verdicts = lane.unbound
    waits = bool(lane.intents) and lane.intents[-1][1] == ordinal
    return waits and any(verdict.reason == "truncated" for verdict in verdicts)


def unrecorded(lane: Lane) -> Epochs:
    """Return the epochs of copied records that only progress records contain. Later progress records will contain later
    epochs."""
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
    """Return whether the ledger records a hole or a change of epoch at this ordinal or later, or runs that must not be
    followed."""
    limit = max(mended_until(record, ordinal), ordinal - 1)
    if any(hole.first >= ordinal for hole in record.holes) or any(first > limit for first, _ in record.epochs):
        return True
    found = rest(record, ordinal)
    return found is not None and found.differs


def is_recorded_ahead(lane: Lane, record: LaneRecord) -> bool:
    """Return whether the ledger records an epoch from the next ordinal or a later one on. That epoch may now begin at
    another ordinal."""
    ordinal, epoch, limit = lane.resume_ordinal, lane.epoch, mended_until(record, lane.resume_ordinal)
    if limit > ordinal:
        return any(first > limit for first, _ in record.epochs)  # records that are copied again keep their epochs
    if continues_at(record, ordinal) != record.source_runs.offset_of(ordinal):
        return True
    nothing = {epoch, UNKNOWN} if follows(record, ordinal) else {epoch}
    return any(first > ordinal or (first == ordinal and known not in nothing) for first, known in record.epochs)


def epochs_again(lane: Lane, pieces: Iterable[tuple[int, int, int]] = ()) -> Epochs:
    """Return the epochs to record in order to revoke all epochs that were recorded after the current ordinal. Records
    that are copied again keep their epochs (`carried`)."""
    record, ahead = lane.record, recorded_ahead(lane)
    epochs = lane.history.epochs_again = carried(ahead, pieces) if ahead else ()
    if not epochs:
        # Records that were announced may arrive yet, so nothing is recorded about their epoch before a record follows.
        is_open = record is not None and follows(record, lane.resume_ordinal)
        epochs = ((lane.resume_ordinal, UNKNOWN if is_open else max(lane.epoch, UNKNOWN)),)
    lane.history.recorded_epoch = epochs[0][1]
    return epochs


def leap(lane: Lane, to: int) -> None:
    """Continue at the source offset `to`, after records that the lane has not seen. The epoch of the following records
    is then not known."""
    if lane.epoch >= 0:
        lane.history.left_position = (lane.position, lane.epoch)
    lane.position, lane.epoch = to, lane.seen.go_to(to)
    lane.history.source_confirmed = False
    lane.history.recorded_epoch = UNKNOWN
    lane.history.new_epochs.append((lane.next_ordinal, UNKNOWN))


def take_new(lane: Lane, ordinal: int) -> Epochs:
    """Return the epochs that must be recorded together with runs from this ordinal on."""
    epochs = tuple(lane.history.new_epochs)
    lane.history.new_epochs.clear()
    if not epochs and lane.history.recorded_epoch_since == ordinal and lane.history.recorded_epoch >= 0:
        # It was recorded with other runs from the same ordinal on, which these runs supersede.
        return ((ordinal, lane.history.recorded_epoch),)
    return epochs


def known_epochs(lane: Lane, first: int) -> Epochs:
    """Return the epochs of the ordinals from `first` on, according to the ledger and the progress record."""
    record = lane.record
    epochs = record.epochs if record is not None else ()
    if recorded_at(epochs, first) != UNRECORDED or not lane.history.epochs_recorded or record is None:
        return tuple(epochs)
    offset = record.source_runs.offset_of(first)
    seen = lane.seen.before(offset + 1) if offset is not None else -1
    return ((first, seen if seen >= 0 else lane.seen.last), *(each for each in epochs if each[0] > first))


def ends_short(lane: Lane, answer: CheckAnswer, position: int) -> bool:
    """Return whether the source log ends before `position`, and no known epoch shows which of its records are new."""
    if lane.record is None or not 0 <= answer.source_end < position:
        return False
    return recorded_before(lane.record, known_epochs(lane, lane.resume_position.ordinal), lane.resume_ordinal) < 0
