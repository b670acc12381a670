"""Finds out why ordinals are missing from a compacted target log: either the log cleaner removed their records, or the
log lost them.

The lane asks the leader where the leader epoch of the resume position ends in its log (KIP-101). If the epoch ends at
or after the resume position, the log has lost nothing below this position, and the cleaner removed all records that are
missing there. If the epoch ends earlier, the log has lost the lane's records that were stored at or after the end of
the epoch. If the leader does not know this epoch, an earlier epoch may be used instead (see `epoch_ends`). All other
missing records are looked up by their keys (see `mirrord.replication.lane.target.superseded_records`).
"""

from bisect import insort
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from mirrord.kafka.protocol.sequence import nearest
from mirrord.ledger.displaced import within
from mirrord.ledger.facts.core import Verdict
from mirrord.model import intervals
from mirrord.model.intervals import Interval, uncovered
from mirrord.replication.lane.correlation import ask
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.phases import Stage
from mirrord.replication.lane.signals import Effects, LaneRecord, OwnBatch, ScanAnswer
from mirrord.replication.lane.source import recorded_epochs
from mirrord.replication.lane.source.copied_epochs import of_copied
from mirrord.replication.lane.source.copied_pieces import mapped
from mirrord.replication.lane.source.declared_runs import rest
from mirrord.replication.lane.state import Lane, WentBack
from mirrord.replication.lane.target import (
    displaced_ordinals,
    epoch_ends,
    in_doubt,
    out_of_order,
    recorded_places,
    target_scan,
)
from mirrord.replication.lane.target.acknowledged_records import Forgotten, planned_apart
from mirrord.replication.lane.target.evidence import (
    is_plan_unrecorded,
    known_until,
    next_by_entry,
    note_earlier,
    note_saved,
)
from mirrord.replication.lane.target.missing_records import cleaned_below, has_lost_from
from mirrord.replication.lane.target.scan_result import Log, Missing, Reading
from mirrord.replication.lane.target.superseded_records import AskShared, AskSuperseded

NOT_ASKED, NOT_KNOWN = -2, -1


def read(lane: Lane, answer: ScanAnswer) -> Log:
    """Note whether the log cleaner may have removed records from the scanned part of the target log. Return that part.
    If mirrord has no permission to read the topic's policy, the topic may be compacted."""
    stretches = sorted([*answer.others, *((each.base_offset, each.base_offset + each.count) for each in answer.own)])
    is_bare = Log(answer.start, answer.end, tuple(stretches), None).bare(answer.start, answer.end)[0] > 0
    log = Log(answer.start, answer.end, answer.others, answer.compacts, is_bare)
    lane.log.cleaned = is_bare or answer.compacts is not False
    _note_appended_later(lane, answer.own)
    epoch_ends.note_batches(lane, answer.own)
    note_earlier(lane, answer.own)
    return log


def _note_appended_later(lane: Lane, own: Sequence[OwnBatch]) -> None:
    """Note which acknowledged ordinals were appended in a leader epoch later than any that the lane knew of.

    An acknowledgement does not contain the leader epoch, so the lane may not have noticed that the leader had changed.
    Batches that are still in the log do contain the epoch. The acknowledged records after such a batch were appended in
    the batch's epoch or a later one.
    """
    begun, acked = lane.resumed_at, lane.acked
    for batch in own:
        ordinal = nearest(batch.base_sequence, begun.ordinal)
        known = max(begun.leader_epoch, lane.log.appended_later[2])
        behind = ordinal + batch.count
        if begun.ordinal <= ordinal and behind <= acked and batch.leader_epoch > known and begun.leader_epoch >= 0:
            lane.log.appended_later = (behind, acked, batch.leader_epoch)


def must_ask(lane: Lane) -> bool:
    """Return whether the lane must ask for the offset up to which the target log has remained unchanged since the
    resume position was recorded. This is the case if the log cleaner may have removed records and the lane has not
    asked for that offset yet."""
    return (
        lane.log.cleaned
        and lane.log.shared == NOT_ASKED
        and lane.resume_position.ordinal > 0
        and lane.resume_position.leader_epoch >= 0
    )


def ask_shared(lane: Lane) -> Effects:
    """Ask for the offset up to which the target log has not changed since the resume position was recorded."""
    lane.stage = Stage.SHARED
    return [AskShared(ask(lane), lane.resume_position.leader_epoch)]


def look_up(lane: Lane, found: Reading, log: Log, lost: Sequence[tuple[int, int]] = ()) -> Effects:
    """Request that the missing ordinals be looked up. Return no effect if no ordinals are missing. `lost` contains
    ranges (first, last) of acknowledged ordinals that follow the last of the lane's own batches in the log."""
    missing = [part for each in found.missing for part in _parted(each, known_until(lane))]
    behind = found.next_ordinal if lane.log.entry is None or not lane.log.cleaned else next_by_entry(lane)
    room, above = log.bare(max(found.behind, log.start), log.end)
    has_forgotten = lane.log.cleaned and lane.log.entry is None and not out_of_order.is_refused(lane)
    reached = displaced_ordinals.appended_until(lane, found, log)
    if not lane.takeover.knows_sent:
        # The cleaner may have removed all of the lane's last records from the log, and an election may have removed the
        # newer records with the same keys. If so, the lane copies its records again, unaware that they had already been
        # copied.
        note_unproven(lane, reached if has_forgotten and room > 0 else -1)
    if behind > found.next_ordinal and not (lost and lost[0][0] < behind):
        # The broker still remembered these records, but they had been removed by the time the log was read.
        missing.append(Missing("between", found.next_ordinal, behind - 1, above, room >= behind - found.next_ordinal))
        found = replace(found, next_ordinal=behind)
    parts = [part for each in lost for part in planned_apart(*each, known_until(lane))]
    missing += [Missing("lost", *each, _newer_from(lane, found, each[0]), has_room=False) for each in parts]
    if has_forgotten:
        # Lost records may have been copied again, and later ones copied, before the cleaner removed all of them.
        missing += _last(lane, max([found.next_ordinal, *(last + 1 for _, last in lost)]), reached, above)
    return _ask(lane, found, log, missing, lost)


def look_up_between(lane: Lane, found: Reading, log: Log) -> Effects:
    """Look up the ordinals that are missing between the lane's own batches. Return no effect if no ordinals are
    missing. The lookup shows whether the log has lost their records or the log cleaner has removed them. Only a loss
    makes target and source differ."""
    limit = _first_different(lane)  # missing ordinals from there onward belong to the difference anyway
    between = [replace(each, last=min(each.last, limit - 1)) for each in found.missing if each.first < limit]
    missing = [part for each in between for part in _parted(each, known_until(lane))]
    return _ask(lane, found, log, missing, ())


def _ask(lane: Lane, found: Reading, log: Log, missing: Sequence[Missing], lost: Sequence[tuple[int, int]]) -> Effects:
    asked = tuple(part for each in missing for part in _by_epoch(lane, each))
    # The log may also have lost records and then got later ones in their places.
    displaced = (each.first for each in asked if each.kind == "lost" and not each.has_room)
    first = min([lost[0][0] if lost else found.next_ordinal, *displaced])
    reads_below = has_lost_from(lane, log, first)
    if not asked and not reads_below:
        return []
    lane.log.scan, lane.log.lost_ordinals, lane.stage = replace(found, missing=asked), tuple(lost), Stage.MISSING
    went_back = 0 <= lane.log.shared < lane.resume_position.target_offset
    if lane.log.shared == NOT_KNOWN:
        # A cleaner may have caused the gaps between the lane's batches while the topic was still compacted. It did not
        # cause displaced ordinals.
        gaps = [each for each in asked if not within(displaced_ordinals.known(lane), each.first, each.last)]
        went_back = bool(lost) and all(each.first >= lost[0][0] for each in gaps)
    keeps_all = log.compacts is False and went_back
    in_doubt = log.is_policy_unknown or (log.compacts is None and went_back)
    appended, epochs = _appended(lane, found, missing), epochs_when_copied(lane)
    below = cleaned_below(lane, log, first, asked) if lost or reads_below else ()
    return [AskSuperseded(ask(lane), asked, log.end, appended, keeps_all, epochs, below, reads_below, in_doubt)]


def epochs_when_copied(lane: Lane) -> recorded_epochs.Epochs | None:
    """Return the leader epochs with which the missing records were copied, or None if these are the epochs in the
    ledger."""
    if (epochs := epochs_lost_earlier(lane)) is not None or lane.record is None:
        return epochs
    copied = of_copied(lane, lane.record)
    return None if copied == lane.record.epochs else copied


def epochs_lost_earlier(lane: Lane) -> recorded_epochs.Epochs | None:
    """Return the leader epochs of the source by ordinal. The result includes the epochs of acknowledged records that
    the target log lost earlier and that have not been copied again yet. The ledger no longer has these epochs, because
    it revoked them when the lane resumed at a lower ordinal. Return None if there are no such records."""
    begin, end, former = max(lane.resume_position.ordinal, lane.acked), known_until(lane), lane.history
    if begin >= end or not former.acknowledged_epochs or lane.record is None:
        return None
    recorded, copied = lane.record.epochs, former.acknowledged_epochs
    below = [each for each in recorded if each[0] < begin]
    lost = [each for each in copied if begin < each[0] < end]
    above = [each for each in recorded if each[0] > end]
    at_begin = (begin, recorded_epochs.recorded_at(copied, begin))
    at_end = (end, recorded_epochs.recorded_at(recorded, end))
    return (*below, at_begin, *lost, at_end, *above)


def _first_different(lane: Lane) -> int:
    differs = lane.comparison.differs
    return NEVER if differs is None else differs.first


def _appended(lane: Lane, found: Reading, missing: Sequence[Missing]) -> tuple[tuple[int, int], ...]:
    """Return those ordinals after the first missing one whose records were appended, as ranges (first, last). These are
    all ordinals up to the last one in the log that are neither missing nor in a hole. Ordinals at which target and
    source differ are omitted."""
    holes = lane.record.holes if lane.record is not None else ()
    lacking = [(each.first, each.last + 1) for each in (*missing, *found.missing, *displaced_ordinals.known(lane))]
    lacking += [(first, last + 1) for first, last in found.holes]
    lacking += [(hole.first, hole.last + 1) for hole in holes if hole.first <= hole.last]
    first = min((each.first for each in missing), default=found.next_ordinal)
    whole = first, min(found.next_ordinal, _first_different(lane))
    return tuple((start, end - 1) for start, end in uncovered(whole, lacking))


def _newer_from(lane: Lane, found: Reading, ordinal: int) -> int:
    """Return the lowest target offset at which a record with the same key counts as newer than a lost record. `ordinal`
    is the ordinal of the first of the lost records."""
    shared, looked_up_to = lane.log.shared, lane.log.looked_up_to
    if lane.resume_position.leader_epoch < 0 or ordinal < known_until(lane):
        known = lane.record.target_runs.offset_of(ordinal) if lane.record is not None else None
        # The resume position may be held back. Records of the same epoch below the lost record's offset are older.
        above = max(shared, known or 0) if shared >= 0 else found.behind if known is None else known
    elif looked_up_to < 0:
        # The log lost the record, which was then to be appended again at the resume position.
        above = shared if shared >= 0 else lane.resume_position.target_offset
    else:
        # Everything that was written after the last lookup is newer, even if other planned records follow it.
        return min(looked_up_to, shared) if shared >= 0 else looked_up_to
    # The lost records were after the last own batch. If another client has since written a record at an offset before
    # that batch, the record has a later epoch.
    return max(above, found.behind) if lane.resume_position.leader_epoch >= 0 else above


def _parted(missing: Missing, known: int) -> list[Missing]:
    """Split a range of missing ordinals at `known`. Ordinals below `known` were acknowledged, so the part with these
    ordinals gets the kind `lost`. For this kind, another record with the same key counts as newer if it was appended
    under a later leader."""
    if missing.first >= known:
        return [missing]
    acknowledged = replace(missing, kind="lost", last=min(missing.last, known - 1))
    return [acknowledged] if missing.last < known else [acknowledged, replace(missing, first=known)]


def _by_epoch(lane: Lane, missing: Missing) -> list[Missing]:
    """Split lost ordinals by the leader epoch in which their records were last known to be in the target log."""
    if missing.kind != "lost":
        return [missing]
    first, known = missing.first, lane.resume_position.leader_epoch
    parts: list[Missing] = []
    below = (*displaced_ordinals.unrecorded(lane, first), (lane.resume_position.ordinal, known))
    for until, epoch in (*below, *lane.acknowledged, (missing.last + 1, known)):
        last = min(until - 1, missing.last)
        if last < first:
            continue
        if parts and parts[-1].leader_epoch == epoch:
            parts[-1] = replace(parts[-1], last=last)
        else:
            parts.append(replace(missing, first=first, last=last, leader_epoch=epoch))
        first = last + 1
    parts = [piece for each in parts for piece in _as_appended(lane, each)]
    parts = [recorded_places.added(lane, each) for each in parts]
    return [piece for each in parts for piece in displaced_ordinals.as_recorded(lane, each)]


def _as_appended(lane: Lane, missing: Missing) -> Iterator[Missing]:
    """Split a range of lost ordinals where `appended_later` begins and ends. Ordinals inside `appended_later` are known
    to have been appended in a later leader epoch. Another record is certainly newer than the records of these ordinals
    only if it has a higher epoch. Its offset does not show this, because it may be from the same epoch and have been
    appended before them."""
    begin, end, epoch = lane.log.appended_later
    edges = sorted(
        {missing.first, missing.last + 1, *(at for at in (begin, end) if missing.first < at <= missing.last)}
    )
    for first, behind in pairwise(edges):
        part = replace(missing, first=first, last=behind - 1)
        is_later = begin <= first < end and epoch > missing.leader_epoch
        yield replace(part, leader_epoch=epoch, above=lane.log.end) if is_later else part


def _last(lane: Lane, first: int, reached: int, above: int) -> list[Missing]:
    """Return the ordinals of records that may have been appended after all of the lane's own batches and then removed
    by the cleaner. They begin with `first`, and are below `reached` (see `displaced_ordinals.appended_until`).

    If the broker remembers the producer, these ordinals need not be looked up: the broker knows the producer's last
    ordinal, and the cleaner keeps the producer's last batch.
    """
    last = min(reached, in_doubt.sent_until(lane) if lane.takeover.knows_sent else NEVER) - 1
    return [Missing("last", first, last, above, has_room=True)] if last >= first else []


def is_look_up_outdated(lane: Lane, source_end: int) -> bool:
    """Return whether the result of a lookup is out of date because the source has since lost the last record that the
    lookup found to be superseded (see `_last`). A new lookup would not include this record, so it would end at a lower
    ordinal. `source_end` is the end of the source log, or -1 if it is not known."""
    record = lane.record
    offset = record.source_runs.offset_of(lane.resume_ordinal - 1) if record is not None else None
    return lane.log.last_by_look_up is not None and offset is not None and 0 <= source_end <= offset


def note_unproven(lane: Lane, until: int) -> None:
    """Remember that a resume position up to the ordinal `until` may have been saved, although the target log may lack
    records below that position. If the lane resumes below `until`, it revokes such positions in the ledger (see
    `position_rewind.unproven`)."""
    lane.log.unproven = (until, len(lane.record.rewinds) if lane.record is not None else 0)
    note_saved(lane, until)


def leave_out(lane: Lane, record: LaneRecord, again: Sequence[tuple[int, int]]) -> list[Verdict]:
    """Return `compacted` verdicts on the source offsets of lost records that are not copied again, because the target
    has newer records with the same keys. `again` contains the ordinals (first, last) that are copied again."""
    kept = [(first, last + 1) for first, last in again]
    verdicts: list[Verdict] = []
    for first, last in lane.log.lost_ordinals:
        for ordinal, offset, length in mapped(record, first, last):
            piece = (ordinal, ordinal + length)
            for begin, behind in uncovered(piece, intervals.within(piece, kept)):
                start, end = offset + begin - ordinal, offset + behind - ordinal
                if verdicts and verdicts[-1].end == start:
                    verdicts[-1] = replace(verdicts[-1], end=end)
                else:
                    verdicts.append(Verdict(start, end, "compacted"))
    return verdicts


def go_back(lane: Lane, kept: tuple[tuple[int, int], ...]) -> None:
    """Remember that, of the lost records, only those with ordinals in `kept` are copied again.

    The lane keeps its former position until the ledger contains this plan. The fact with the plan also revokes saved
    resume positions that are too high (see `position_rewind`). If the fact does not take effect, the lane looks up the
    missing ordinals again.
    """
    remember_position(lane)
    lane.log.copied_again, lane.log.copied_again_until = kept, planned_until(lane)


def remember_position(lane: Lane) -> None:
    """Keep the resume position from before the target log lost records. It is kept until the ledger records which
    records are copied again, or until the lane copies. If the lane has to retry, it begins at the kept position. A scan
    from the new one would not find a hole below it, or batches that an election has brought back."""
    count = len(lane.record.rewinds) if lane.record is not None else 0
    lane.log.went_back = WentBack(lane.resume_position, lane.recorded_position, lane.acknowledged, count)


def forget(lane: Lane) -> None:
    """Discard the results of looking up missing ordinals, because a new round begins. If the lane has gone back because
    of lost records, but the ledger does not yet record which of them are copied again, restore the lane's previous
    resume position."""
    if (known := lane.log.went_back) is not None and is_plan_unrecorded(lane):
        lane.resume_position, lane.recorded_position = known.resume_position, known.recorded_position
        lane.acknowledged = known.acknowledged
    lane.log.went_back = None
    lane.log.forgotten = lane.log.forgotten if lane.intents else None
    lane.log.shared, lane.log.scan, lane.log.lost_ordinals, lane.log.copied_again = NOT_ASKED, None, (), None
    lane.log.epoch_end, lane.log.is_shared_proven = -1, False
    lane.log.held_scan, lane.log.unchanged = None, None
    lane.log.last_by_look_up, lane.log.earlier, lane.log.reassigned = None, (), ()
    note_acknowledged(lane)


def note_acknowledged(lane: Lane) -> None:
    """Note which ordinals have been acknowledged since the lane last resumed, and in which leader epoch of the target.
    The resume position does not show this while a comparison is pending: during this time it does not advance, and its
    leader epoch may be an older one."""
    acked, resumed = lane.acked, lane.resumed_at
    later = [each for each in lane.acknowledged if each[0] > acked]
    # The leader epoch of the resume position applies to all ordinals below that position.
    known = min(lane.resume_position.ordinal, lane.recorded_position.ordinal)
    kept = [each for each in lane.acknowledged if known < each[0] <= min(acked, resumed.ordinal)]
    if max(known, resumed.ordinal - 1) < acked and resumed.leader_epoch >= 0 and (not kept or kept[-1][0] < acked):
        kept.append((acked, resumed.leader_epoch))
    lane.acknowledged = (*kept, *later)


def note_lost(lane: Lane, ordinal: int) -> None:
    """Remember that the target log has lost the acknowledged records at or above this ordinal, and in which leader
    epochs of the target and of the source these records were copied. Until these records are acknowledged again,
    records with the same keys that other clients write count as newer."""
    known, record = lane.resume_position, lane.record
    if ordinal >= known.ordinal or known.leader_epoch < 0 or record is None:
        return
    later = [each for each in lane.acknowledged if each[0] > known.ordinal]
    begin, end, epoch = lane.log.appended_later
    epoch = max(epoch, known.leader_epoch) if begin <= ordinal and known.ordinal <= end else known.leader_epoch
    lane.acknowledged = ((known.ordinal, epoch), *later)
    # The ledger has revoked the source epochs of records that were lost earlier.
    former = lane.history.acknowledged_epochs if later else ()
    above = ((known.ordinal, recorded_epochs.recorded_at(former, known.ordinal)),) if former else ()
    below = [each for each in of_copied(lane, record) if each[0] < known.ordinal or not former]
    after = [each for each in former if each[0] > known.ordinal]
    lane.history.acknowledged_epochs = (*below, *above, *after)


def other_records_from(lane: Lane, ordinal: int) -> None:
    """Remember that this ordinal and higher ordinals are now assigned to records other than the acknowledged ones. The
    former acknowledgements are kept, because the fact with the new assignment may not take effect. In that case,
    `return_to_acknowledged` restores them."""
    if (known := lane.log.forgotten) is None:
        rewinds = len(lane.record.rewinds) if lane.record is not None else 0
        epochs = lane.history.acknowledged_epochs
        lane.log.forgotten = Forgotten(ordinal, lane.round, lane.acknowledged, epochs, rewinds)
    elif ordinal < known.first:
        lane.log.forgotten = replace(known, first=ordinal)
    lower(lane, ordinal)


def return_to_acknowledged(lane: Lane) -> None:
    """Restore the acknowledgements that `other_records_from` removed, except for ordinals that the ledger has since
    assigned to other records. When this function is called, the outcome of all earlier appends is known.

    Acknowledgements are not restored if the ledger does not record in which leader epoch of the source the records were
    copied. Without this epoch, the lane could not determine whether the source now has other records at the same
    offsets, so it could not look up the records.
    """
    known, record = lane.log.forgotten, lane.record
    lane.log.forgotten = None
    if known is None or record is None:
        return
    lower(lane, known.first)
    lane.history.acknowledged_epochs = known.epochs
    reached = lane.acknowledged[-1][0] if lane.acknowledged else 0
    if recorded_epochs.recorded_at(record.epochs, reached) > recorded_epochs.UNKNOWN:
        lane.acknowledged += tuple(each for each in known.acknowledged if each[0] > reached)
    for _, rewound in record.rewinds[known.rewinds :]:
        lower(lane, rewound.first)


def lower(lane: Lane, ordinal: int) -> None:
    """Remember that only the acknowledgements below this ordinal still apply."""
    until = known_until(lane)
    kept = [each for each in lane.acknowledged if each[0] < ordinal]
    epoch = next(
        (epoch for reached, epoch in lane.acknowledged if reached >= ordinal), lane.resume_position.leader_epoch
    )
    lane.acknowledged = (*kept, (min(until, ordinal), epoch)) if until > 0 and ordinal > 0 else ()


def lost_ordinals(lane: Lane, first: int) -> tuple[tuple[int, int], ...]:
    """Return the acknowledged ordinals at or above `first`, as ranges (first, last). Ordinals of a hole are omitted,
    except for those whose records are still to be copied again: the log lacks these records as well."""
    end, record = planned_until(lane), lane.record
    holes = record.holes if record is not None else ()
    lacking = _still_to_copy(record, first, end) if record is not None and holes else []
    void = [part for hole in holes for part in uncovered((hole.first, hole.last + 1), lacking)]
    left = ((start, behind - 1) for start, behind in uncovered((first, end), void))
    return tuple(target_scan.split_at_first_run(record, left))


def planned_until(lane: Lane) -> int:
    """Return the ordinal after the last acknowledged one. If records of an earlier loss are still to be copied again,
    return the ordinal after the last of these records instead.

    These records are included because newer records with the same keys may have been written since the loss. They must
    be looked up in the same way as the records that have just been lost.
    """
    known, record = known_until(lane), lane.record
    if record is None or not _copies_lost_records(record, known):
        return known
    left = rest(record, known)
    return known if left is None else min(left.until, _lost_until(record, known))


def _copies_lost_records(record: LaneRecord, ordinal: int) -> bool:
    return _lost_until(record, ordinal) > ordinal


def _lost_until(record: LaneRecord, ordinal: int) -> int:
    """Return the ordinal after the plan that contains `ordinal`. Only plans for copying lost records again are
    considered. If another such plan directly follows or overlaps this plan, return the ordinal after that plan. If no
    such plan contains `ordinal`, return `ordinal` itself."""
    plans = [hole for hole in record.holes if hole.first > hole.last]
    until = ordinal
    while further := [hole.until for hole in plans if hole.again <= until < hole.until]:
        until = max(further)
    return until


def _still_to_copy(record: LaneRecord, first: int, end: int) -> list[Interval]:
    """Return the ordinals in [first, end) that belong to holes and whose records the lane will copy again under
    ordinals at or above `end`. The result consists of ranges [start, end). If the same record has several of these
    ordinals, only the first of them is returned."""
    void = list(_void(record, first, end))
    if not void:
        return []
    planned = sorted(_planned_from(record, end, max(offset + length for _, offset, length in void)))
    found: list[Interval] = []
    had: list[Interval] = []
    for ordinal, offset, length in void:
        parts = intervals.within((offset, offset + length), planned)
        for start, behind in [part for each in parts for part in uncovered(each, intervals.within(each, had))]:
            insort(had, (start, behind))
            found.append((ordinal + start - offset, ordinal + behind - offset))
    return found


def _planned_from(record: LaneRecord, ordinal: int, limit: int) -> Iterator[Interval]:
    """Yield ranges [start, end) of source offsets: the records that the lane will copy under this ordinal and later
    ones. Records that are copied in source order are omitted if their source offsets are at or above `limit`."""
    left = rest(record, ordinal)
    for _, former, length in left.pieces[:-1] if left is not None else ():
        yield from ((offset, offset + count) for _, offset, count in mapped(record, former, former + length - 1))
    position = ordinal if left is None else left.until
    for _, offset, count in mapped(record, position, position + limit):
        if offset >= limit:
            return
        yield offset, min(offset + count, limit)


def _void(record: LaneRecord, first: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield those of the ordinals [first, end) that are in holes, as pieces (ordinal, source offset, length) in
    ascending order."""
    for hole in sorted(record.holes, key=lambda each: each.first):
        if not hole.is_open:
            yield from mapped(record, max(hole.first, first), min(hole.last, end - 1))
