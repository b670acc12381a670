"""Tracks the source's leader epochs while a lane copies, and records them in the ledger (see `recorded_epochs`).

When a lane resumes, it loads the epochs of the copied records. While it copies, it compares the epoch of each batch
with the recorded one. If they differ, the new epoch must be in the ledger before the batch is produced.
"""

from collections.abc import Container, Iterable

from mirrord.ledger.facts.core import Reason
from mirrord.model.runs import Run
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.second_path import NOT_YET
from mirrord.replication.lane.signals import CheckAnswer, LaneRecord
from mirrord.replication.lane.source.copied_pieces import (
    ascending_parts,
    highest_copied,
    highest_in,
    ordinal_of,
    with_unknown,
)
from mirrord.replication.lane.source.declared_runs import continues_at, mended_until, rest
from mirrord.replication.lane.source.last_copied import judged_from, last_below, last_copied
from mirrord.replication.lane.source.left_out_epochs import among, behind_earlier, passed_epochs
from mirrord.replication.lane.source.offsets_of_epochs import is_unknown_at, offsets_of_epochs, unknown_ordinals
from mirrord.replication.lane.source.recorded_epochs import (
    UNKNOWN,
    UNRECORDED,
    Epochs,
    carried,
    epoch_at,
    follows,
    is_truncated,
    known_epochs,
    recorded_at,
    recorded_before,
)
from mirrord.replication.lane.state import Lane

_READ: tuple[Reason, ...] = ("compacted", "control", "aborted")
"""The reasons for which source offsets are passed over that the lane has read, or whose records were removed."""


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
        _seed(lane, epochs, lane.resume_ordinal)
    elif is_saved:
        lane.seen.reach(lane.position)
        lane.history.recorded_epoch_since = 0  # a change would be in the ledger
    if record is not None and record.holes and _is_later_copied(lane, record):
        lane.seen.begin(lane.position, UNKNOWN)  # the source is asked
    lane.epoch = lane.seen.go_to(lane.position)
    if record is not None and is_unknown_at(record, epochs, lane.resume_ordinal - 1):
        _recall_rebuilt(lane, epochs)
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
    _expect(lane, epochs, lane.resume_ordinal)
    lane.history.new_epochs.clear()
    lane.history.epochs_again = ()
    lane.history.found_equal = False


def _recall_rebuilt(lane: Lane, epochs: Epochs) -> None:
    """Determine the source epoch before the position if the record before the resume ordinal is unknown (see
    `unknown_ordinals`).

    The ledger has the epoch of the source record before the position as the rebuild has read it. A fetch with this
    epoch does not show whether the source still has the records that were copied before the unknown ones, so the source
    is asked. If the epochs of these records are not known, there is nothing to ask about.
    """
    lane.epoch = -1
    if last_copied(lane) is None:
        lane.seen.begin(lane.position, epoch_at(epochs, lane.resume_ordinal))
        lane.epoch = lane.seen.before(lane.position)


def mended(lane: Lane, pieces: Iterable[tuple[int, int, int]]) -> Epochs:
    """Return the epochs of records that are copied again because of holes.

    A comparison may have found that all records after the holes are equal, although the last one has a different epoch
    in the source than in the ledger. If so, a batch was appended late: it was sent earlier, while its ordinals belonged
    to other records. In this case, only the epoch of the last record is known, as the comparison has read it. The
    epochs of the other ordinals from the first hole onward are not known.
    """
    record = lane.record
    if record is None or not record.epochs:
        return ()
    epochs, (position, found), last = record.epochs, lane.history.found_epoch, lane.resume_ordinal - 1
    known = recorded_at(epochs, last)
    counts = lane.history.found_equal and position == record.source_runs.offset_of(lane.resume_ordinal)
    if not counts or found in {known, UNKNOWN}:
        return carried(epochs, pieces)
    first = min(lane.log.holes[0][0], last) if lane.log.holes and known >= 0 else last
    unknown = ((first, UNKNOWN),) if first < last else ()
    epochs = (*(each for each in epochs if each[0] < first), *unknown, (last, found))
    return (*unknown, (last, found), *carried(epochs, pieces))


def _expect(lane: Lane, epochs: Epochs, ordinal: int) -> None:
    """Prepare for comparing the epochs of the next batches with those in `epochs`, from this ordinal onward.

    Batches that were sent under these ordinals earlier may still be appended, and they have these epochs. The ledger
    therefore keeps the epochs for as long as the batches that the lane reads agree with them.
    """
    known, later = recorded_at(epochs, ordinal), tuple(each for each in epochs if each[0] > ordinal)
    is_expected = known >= 0 and (bool(later) or known != lane.epoch)
    lane.history.expected_epochs = ((ordinal, known), *later) if is_expected else ()
    if is_expected:
        lane.history.recorded_epoch = UNKNOWN  # each batch is compared


def recall_copied(lane: Lane, offset: int) -> None:
    """Load the recorded source epochs when the lane moves to the next run of its plan, which begins at the source
    offset `offset`. Also load the epoch of the record before this offset, because this record may have been copied
    earlier, and the source may have lost it in the meantime."""
    record = lane.record
    known = recorded_at(recorded_ahead(lane), lane.next_ordinal)
    if known != UNRECORDED:
        _settle(lane, lane.next_ordinal, known)
    if record is None or offset <= lane.position or not record.holes:
        return
    ordinal = ordinal_of(record, record.holes[0].first, lane.next_ordinal, offset - 1)
    epoch = UNKNOWN if ordinal is None else epoch_at(known_epochs(lane, ordinal), ordinal)
    if epoch >= 0:
        lane.seen.note(lane.position, UNKNOWN)  # the records in between may have other epochs
        lane.seen.note(offset - 1, epoch)
        lane.seen.reach(offset)


def end_plan(lane: Lane) -> None:
    """Load the recorded epochs of the records that follow those that were copied again."""
    _expect(lane, recorded_ahead(lane), lane.next_ordinal)


def _seed(lane: Lane, epochs: Epochs, ordinal: int) -> None:
    """Load the epochs before the lane's position from the ledger into `lane.seen`. `ordinal` is the lane's next
    ordinal."""
    record = lane.record
    if record is None:
        return
    if record.holes:
        end = max(ordinal, mended_until(record, ordinal))
        known = [each for each in _by_offset(record, epochs, end) if each[0] <= lane.position]
        lane.seen.take_over(among(record, known, lane.position), lane.position)
        return
    found: list[tuple[int, int]] = []
    below = lane.position
    for first, epoch in reversed(epochs):
        offset = record.source_runs.offset_of(first)
        former = None if offset is None else _former(record, first, offset)
        if first > ordinal or offset is None or is_truncated(record, first, offset):
            continue
        # The records in between were not copied and may belong to the later epoch.
        begin = judged_from(record, offset, _READ) if former is None else former + 1
        start = min(offset, max(begin, behind_earlier(record, offset, epoch)))
        if former is not None and lane.position == offset == former + 1:
            continue  # no record of this epoch was copied, and the source may by now have a different epoch there
        if start <= below:
            found.append((start, epoch))
            below = start - 1
    lane.seen.take_over(among(record, found[::-1], lane.position), lane.position)


def _is_later_copied(lane: Lane, record: LaneRecord) -> bool:
    """Return whether, according to the ledger, a record that was copied from a source offset below the lane's position,
    or skipped there, has a later epoch than the record before the position.

    This happens if the epoch of the record before the position was read when the map was rebuilt. The epochs in a log
    are in ascending order, so the source has since lost the copied record, and the ledger does not say so yet. A fetch
    request with the earlier epoch would not reveal the loss.
    """
    before = lane.seen.before(lane.position)
    copied = offsets_of_epochs(record, record.epochs, record.source_runs.at(0).ordinal, lane.resume_ordinal)
    passed = ((offset, epoch) for offset, _, epoch in passed_epochs(record))
    return before >= 0 and any(offset < lane.position and epoch > before for offset, epoch in (*copied, *passed))


def _by_offset(record: LaneRecord, epochs: Epochs, end: int) -> list[tuple[int, int]]:
    """Return the source's leader epochs of the records below the ordinal `end`, as pairs (source offset, epoch) in
    ascending order. The records have been copied or will be copied again. After a hole, records that were copied again
    have higher ordinals than some records with higher source offsets. The offset of a record that a rebuild could not
    determine (`HoleFound.is_open`) may also be that of a known record, whose epoch then applies.

    The epoch of the ordinal `end` is also returned if there is a gap directly before its source offset.
    """
    begin = record.source_runs.at(0).ordinal
    lowest = with_unknown(
        record, sorted(offsets_of_epochs(record, epochs, begin, end)), unknown_ordinals(record, epochs, begin, end), end
    )
    following = record.source_runs.offset_of(end)
    if following is not None and not is_truncated(record, end, following):
        lowest += [(following, epoch) for first, epoch in epochs if first == end]
    found: list[tuple[int, int]] = []
    parts = ascending_parts(record, begin, end)
    for offset, epoch in lowest:
        # The records in between were not copied and may belong to the later epoch.
        former = highest_in(record.source_runs, parts, offset)
        start = offset if former is None else max(former[0] + 1, behind_earlier(record, offset, epoch))
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


def is_news(lane: Lane, epoch: int, count: int) -> bool:
    """Return whether the epoch of the next batch must be recorded in the ledger before the batch is produced. The batch
    has at most `count` records.

    Records that are copied again keep their recorded epoch. The epoch of the records after them is recorded when those
    records are read.
    """
    if epoch < 0 or epoch == lane.history.recorded_epoch or lane.plan:
        return False
    expected, first = lane.history.expected_epochs, lane.next_ordinal
    known = (recorded_at(expected, first), *(each for at, each in expected if first < at < first + count))
    return any(each != epoch for each in known)


def note_epoch(lane: Lane, epoch: int, count: int) -> bool:
    """Store the epoch of the next batch, which has at most `count` records. Return whether this epoch must be recorded
    in the ledger together with the next run."""
    history = lane.history
    if not is_news(lane, epoch, count):
        if history.expected_epochs and epoch >= 0 and not lane.plan:
            _pass_expected(lane)
        return False
    former = history.recorded_epoch
    if former >= 0 or history.expected_epochs:
        lane.decided = NOT_YET  # the source has other records than those on which the ledger has decisions
    if former >= 0 and not history.new_epochs and history.recorded_epoch_since < lane.next_ordinal:
        history.new_epochs.append((history.recorded_epoch_since, former))
    history.new_epochs.append((lane.next_ordinal, epoch))
    _settle(lane, lane.next_ordinal, epoch)
    return True


def _pass_expected(lane: Lane) -> None:
    """Forget the expected epochs that no longer apply at the next ordinal."""
    expected = lane.history.expected_epochs
    passed = sum(at <= lane.next_ordinal for at, _ in expected)
    if passed == len(expected):
        _settle(lane, *expected[-1])
    else:
        lane.history.expected_epochs = expected[passed - 1 :]


def _settle(lane: Lane, since: int, epoch: int) -> None:
    """Note that the ledger contains this epoch from the ordinal `since` onward, or will do so with the next run."""
    lane.history.recorded_epoch, lane.history.recorded_epoch_since = epoch, since
    lane.history.expected_epochs = ()


def begin_run(lane: Lane) -> None:
    """Handle a run that begins at the next ordinal. In the ledger, it supersedes the epochs of all later ordinals, so
    the current epoch has to be recorded together with the run."""
    if lane.history.expected_epochs:
        lane.history.new_epochs.append((lane.next_ordinal, lane.epoch))
        _settle(lane, lane.next_ordinal, lane.epoch)


def is_truncation_unrecorded(lane: Lane) -> bool:
    """Return whether the lane has appended a `truncated` verdict that has not taken effect yet. A progress record that
    was saved at this point would hide the fact that the source has lost copied records: it would contain the epoch of
    the records that the lane has read at their offsets since."""
    return any(tag <= lane.history.loss_tag for tag, _ in lane.intents)


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


def is_revoked_ahead(lane: Lane, record: LaneRecord) -> bool:
    """Return whether what the ledger has for the epochs of the resume ordinal or later ordinals must be recorded again
    before the lane copies.

    The epochs in the ledger apply to the batches that were sent under these ordinals, and such a batch may still be
    appended. They are therefore kept as long as the ordinals map to the same records. If the lane then reads a batch of
    a different epoch, it records this epoch before it produces the batch.
    """
    ordinal, epoch = lane.resume_ordinal, lane.epoch
    if mended_until(record, ordinal) > ordinal:
        return False
    if continues_at(record, ordinal) != record.source_runs.offset_of(ordinal):
        return True
    if recorded_at(record.epochs, ordinal) >= 0:
        return False
    nothing = {epoch, UNKNOWN} if follows(record, ordinal) else {epoch}
    return any(first > ordinal or (first == ordinal and known not in nothing) for first, known in record.epochs)


def epochs_again(lane: Lane, pieces: Iterable[tuple[int, int, int]] = (), kept: Iterable[Run] = ()) -> Epochs:
    """Return the epochs that must be recorded for the resume ordinal and later ordinals. They replace all epochs that
    the ledger has for these ordinals. Records that are copied again keep their epochs (see `carried`). Runs that are
    recorded again (`kept`) keep them as well."""
    ahead = recorded_ahead(lane)
    epochs = lane.history.epochs_again = carried(ahead, pieces) if ahead else ()
    epochs = epochs or _still_recorded(lane, {run.ordinal for run in kept})
    lane.history.recorded_epoch = epochs[0][1]
    _expect(lane, epochs, epochs[0][0])
    return epochs


def _still_recorded(lane: Lane, kept: Container[int]) -> Epochs:
    """Return the epochs of the resume ordinal and of the ordinals after it up to the next run in the ledger that does
    not begin at one of the ordinals in `kept`. This run is revoked, so nothing is known from there onward: batches with
    its records may still be appended."""
    record, ordinal = lane.record, lane.resume_ordinal
    if record is None:
        return ((ordinal, max(lane.epoch, UNKNOWN)),)
    runs = record.source_runs.beginning_in(ordinal + 1, NEVER)
    revoked = next((run.ordinal for run in runs if run.ordinal not in kept), NEVER)
    known = recorded_at(record.epochs, ordinal)
    if known < 0 or lane.position != record.source_runs.offset_of(ordinal):
        # Further records of this run may still arrive. Their epoch is recorded as unknown until one arrives.
        known = UNKNOWN if follows(record, ordinal) else max(lane.epoch, UNKNOWN)
        revoked = min([revoked, *(first for first, _ in record.epochs if first > ordinal)])
    epochs = ((ordinal, known), *(each for each in record.epochs if ordinal < each[0] < revoked))
    return (*epochs, (revoked, UNKNOWN)) if known >= 0 and revoked < NEVER else epochs


def leap(lane: Lane, to: int, epoch: int) -> None:
    """Continue at the source offset `to`. `epoch` is the epoch of the record before this offset. It is `UNKNOWN` if the
    lane has not seen this record. The epoch of the records that follow is then not known."""
    if epoch >= 0:
        lane.seen.note(lane.position, epoch)
        lane.seen.reach(to)
    elif lane.epoch >= 0:
        lane.history.left_position = (lane.position, lane.epoch)
    lane.position, lane.epoch = to, lane.seen.go_to(to)
    lane.history.source_confirmed = False
    lane.history.new_epochs.append((lane.next_ordinal, epoch))
    _settle(lane, lane.next_ordinal, epoch)


def go_back(lane: Lane, to: int) -> None:
    """Continue at the lower source offset `to`, because the source has lost the records from there on, or may have lost
    them.

    If the last copied or skipped record before `to` has another epoch than the one that is known for this offset, a
    rebuild has read that epoch, or it is that of an earlier record. A fetch with it would not show whether the source
    still has the last record, so the source is asked."""
    record = lane.record
    lane.seen.truncate(to)
    lane.position = to
    if record is not None and lane.seen.before(to) < 0:
        _seed(lane, record.epochs, lane.next_ordinal)
        lane.seen.truncate(to)  # the ledger does not say yet that the source has lost the record at this offset
    last, before = last_below(lane, lane.next_ordinal, to), lane.seen.before(to)
    lane.epoch = before if last is None or last[1] == before else UNKNOWN
    lane.history.recorded_epoch = lane.epoch
    lane.history.recorded_epoch_since, lane.history.expected_epochs = lane.next_ordinal, ()


def take_new(lane: Lane, ordinal: int) -> Epochs:
    """Return the epochs that must be recorded together with the runs that begin at this ordinal."""
    epochs = tuple(lane.history.new_epochs)
    lane.history.new_epochs.clear()
    if not epochs and lane.history.recorded_epoch_since == ordinal and lane.history.recorded_epoch >= 0:
        # The epoch was recorded with other runs that begin at the same ordinal. The new runs supersede them.
        return ((ordinal, lane.history.recorded_epoch),)
    return epochs


def ends_short(lane: Lane, answer: CheckAnswer, position: int) -> bool:
    """Return whether the source log ends before `position` while the epoch of the copied records before the resume
    ordinal is not known. Without this epoch, the lane cannot tell which source records replaced copied ones."""
    if lane.record is None or not 0 <= answer.source_end < position:
        return False
    return recorded_before(lane.record, known_epochs(lane, lane.resume_position.ordinal), lane.resume_ordinal) < 0
