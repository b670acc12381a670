"""Says why the target lacks source records: the lane skips them because of a decision in the ledger, they were never
produced, or neither is certain. If the target topic is compacted, its cleaner may then have removed them."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from mirrord.kafka.protocol.sequence import nearest
from mirrord.ledger.facts.core import Verdict
from mirrord.model.intervals import Interval, joined, uncovered, within
from mirrord.replication.lane.lane_record import LaneRecord
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.signals import OwnBatch
from mirrord.replication.lane.source.copied_pieces import highest_copied, mapped
from mirrord.replication.lane.source.declared_runs import decided_below
from mirrord.replication.lane.source.left_out_ranges import LeftOut, left_out
from mirrord.replication.lane.source.record_search import SourceBatch
from mirrord.replication.lane.source.recorded_epochs import epoch_at
from mirrord.replication.lane.target.batch_relocation import LOOK_AROUND, replaced
from mirrord.replication.lane.target.relocation_result import Located
from mirrord.replication.lane.target.target_scan import but_not_void


def without_left_out(record: LaneRecord, located: Located) -> Located:
    """Return the result of a search without those missing records that the lane skips because of a decision in the
    ledger. The result contains them among the records that are not copied."""
    return _without(located, [*left_out(record, 0), *_filtered(record)])


def without_superseded(located: Located, superseded: Sequence[Interval]) -> Located:
    """Return the result of a search without those missing records for which a compacted target has copies of later
    records with the same keys. Its cleaner would remove them in any case, so their verdict is `compacted`."""
    return _without(located, [LeftOut(start, end, "compacted") for start, end in superseded])


def superseded_before(record: LaneRecord, offset: int, epoch: int) -> bool:
    """Return whether the target lost the record at this source offset earlier, and had a newer record with the same key
    at that time, so that the lost one was not copied again. The ledger contains the verdict `compacted` on such
    records, and their leader epochs. If the source has a record of a different `epoch` there now, it is a different
    record."""
    return any(start <= offset < end and epoch == known for start, end, known in record.left_out_epochs) and any(
        each.reason == "compacted" and each.start <= offset < each.end for each in record.newest_verdicts
    )


def epochs_of_superseded(located: Located) -> tuple[tuple[int, int, int], ...]:
    """Return the leader epochs of the records that `without_superseded` has removed, if they are known, as triples
    (start, end, epoch) of source offsets."""
    left_out = [(each.start, each.end) for each in located.left_out if each.reason == "compacted"]
    known = ((start, end, epoch) for start, end, epoch in _epochs(located) if epoch >= 0)
    return tuple((*part, epoch) for start, end, epoch in known for part in within((start, end), left_out))


def _without(located: Located, decided: Iterable[LeftOut]) -> Located:
    skipped: list[Verdict] = []
    gone: list[Interval] = []
    for each in decided:
        parts = [part for whole in _spans_of(each, located) for part in within(whole, located.missing)]
        found = [piece for part in parts for piece in uncovered(part, gone)]
        gone += found
        skipped += [Verdict(*piece, each.reason) for piece in found]
    if not skipped:
        return located
    missing = tuple(piece for part in located.missing for piece in uncovered(part, gone))
    reasons = tuple(sorted([*located.left_out, *skipped], key=lambda each: each.start))
    return msgspec.structs.replace(located, missing=missing, left_out=reasons)


def _spans_of(decision: LeftOut, located: Located) -> Iterator[Interval]:
    """Yield the parts of the range of a decision in which the source has the records that the decision is about."""
    for start, end, epoch in _epochs(located):
        if start < decision.end and decision.start < end and decision.is_about(epoch):
            yield max(start, decision.start), min(end, decision.end)


def _filtered(record: LaneRecord) -> Iterator[LeftOut]:
    """Yield the records that a filter has excluded. The flow may have no filter any more.

    The ledger does not contain their epochs, but it may contain those of the records before and after them. The epochs
    of a log ascend, and a new epoch is recorded even if its first record is excluded.
    """
    last = record.source_runs.last
    for each in record.newest_verdicts:
        if each.reason != "filtered":
            continue
        before = None if last is None else highest_copied(record, 0, last.ordinal + 1, each.start)
        ordinal = 0 if before is None else before[1] + 1
        behind = record.source_runs.offset_of(ordinal)
        is_next = behind is not None and behind >= each.end
        latest = epoch_at(record.epochs, ordinal) if is_next else -1
        earliest = -1 if before is None or latest < 0 else epoch_at(record.epochs, before[1])
        yield LeftOut(each.start, each.end, each.reason, earliest, latest)


def without_filtered(record: LaneRecord, first: int, until: int, located: Located) -> Located:
    """Return the result of a search in a lane with a filter, without those missing records that the filter has excluded
    according to the ledger. All ordinals below `until` were acknowledged, so the ledger explains all offsets between
    those of their records."""
    return _without(located, _between(record, first, until))


def without_undecided(
    record: LaneRecord, first: int, until: int, placed: Sequence[Interval], located: Located
) -> Located | None:
    """Return the result of a search in a lane with a filter.

    The result ends before the first missing record on which the ledger has no decision: the lane reads it again, and
    asks the filter. `placed` contains the source offsets of the target's records from the ordinal `first` onward. If
    some of them are after that record, the lane would copy them a second time. In this case, return None. `until` is
    that of `without_filtered`.
    """
    decided = without_filtered(record, first, until, located)
    kept = list(_kept(record, first, max(until, decided_below(record)), located))
    missing = decided.missing
    begin = min((start for whole in missing for start, _ in uncovered(whole, kept)), default=located.next_offset)
    if any(end > begin for _, end in placed):
        return None
    left = tuple((start, min(end, begin)) for start, end in missing if start < begin)
    return msgspec.structs.replace(decided, missing=left, next_offset=begin)


def _between(record: LaneRecord, first: int, until: int) -> Iterator[LeftOut]:
    """Yield the source offsets between consecutive records below the ordinal `until`, and the epochs that records at
    these offsets may have had. The ledger's state contains only the newest verdicts on such records. The result begins
    with the records that a search from the ordinal `first` onward includes (see `batch_relocation.search_range`).

    Other ordinals may have source offsets between these, because their records are copied out of order."""
    first = max(first - LOOK_AROUND, record.source_runs.at(0).ordinal)
    live = but_not_void(record.holes, first, sys.maxsize)
    copied = joined((at, at + length) for piece in live for _, at, length in mapped(record, *piece))
    pieces = list(record.source_runs.between(first, until - 1)) if first < until else []
    # The epochs of records that a rebuild could not determine are not known.
    known = [(ordinal, epoch) for ordinal, epoch in record.epochs if epoch >= 0]
    for (ordinal, offset, length), (following, behind, _) in pairwise(pieces):
        if offset + length < behind:
            earliest = epoch_at(record.epochs, ordinal + length - 1)
            latest = epoch_at(record.epochs, following)
            latest = latest if latest >= 0 else next((epoch for at, epoch in known if at > following), -1)
            whole = (offset + length, behind)
            for part in uncovered(whole, within(whole, copied)):
                yield LeftOut(*part, "filtered", earliest, latest)


def _kept(record: LaneRecord, first: int, end: int, located: Located) -> Iterator[Interval]:
    """Yield the source offsets of the records that are to be copied under the ordinals from `first` up to `end`,
    according to the ledger. Records that the source has replaced since are omitted. The last run in the ledger decides
    only on those of its records that were acknowledged (see `declared_runs.decided_below`)."""
    batches = [SourceBatch(*each[:2], {}, None, each[2]) for each in _epochs(located)]
    for piece in mapped(record, first, end - 1) if first < end else ():
        ordinal, offset, length = piece
        others = replaced(record.epochs, [piece], batches)
        gone = [(offset + start - ordinal, offset + behind - ordinal) for start, behind in others]
        yield from uncovered((offset, offset + length), gone)


def may_be_cleaned(record: LaneRecord, first: int, located: Located) -> Sequence[Interval]:
    """Return the missing records that may have been appended to a compacted target topic, whose cleaner then removed
    them.

    At the offsets of the other missing records, the source has records of a later leader epoch. These have not been
    produced yet, because a new epoch is recorded before its first record is produced. The former records were those of
    ordinals from `first` onward, a filter excluded them, or the target had lost them and newer ones superseded them.
    Records of an epoch that the ledger has for other ordinals may have been produced.
    """
    never = list(_of_later_epochs(record, first, located))
    return [part for whole in located.missing for part in uncovered(whole, never)]


class ReturnedBatches(NamedTuple):
    """Batches that an election has brought back. Their ordinals were assigned to other records later."""

    reassigned: Sequence[Interval]
    """These ordinals [start, end) (`TargetLog.reassigned`)."""
    own: Sequence[OwnBatch]
    """The lane's batches in the target log."""
    log_end: int


def are_in_another_log(
    record: LaneRecord, first: int, returned: ReturnedBatches, located: Located, missing: Sequence[Interval]
) -> bool:
    """Return whether the missing records at these source offsets were certainly never appended to the present target
    log, and this log has no newer records.

    If their ordinals are those of batches that an election has brought back, the records could only follow these
    batches. Suppose that the lane's own batches take all offsets from there to the end of the log. Then the log has
    never had the records, and no other client has written anything since. The lane itself must not have copied later
    source records.
    """
    reassigned, own, log_end = returned
    ordinals: list[Interval] = []
    for ordinal, offset, length in record.source_runs.between(first, sys.maxsize) if reassigned else ():
        parts = within((offset, offset + length), missing)
        ordinals += [(ordinal + start - offset, ordinal + end - offset) for start, end in parts]
    known = sum(end - start for each in joined(ordinals) for start, end in within(each, reassigned))
    if not reassigned or known < sum(end - start for start, end in missing):
        return False
    behind = [each for each in own if nearest(each.base_sequence, first) + each.count > reassigned[0][0]]
    taken = joined((each.base_offset, each.base_offset + each.count) for each in behind)
    highest = highest_copied(record, 0, first, NEVER)
    lowest = missing[0][0]
    is_last = (highest is None or highest[0] < lowest) and all(run.offset < lowest for run in located.runs)
    return is_last and len(taken) == 1 and taken[0][1] == log_end


def _of_later_epochs(record: LaneRecord, first: int, located: Located) -> Iterator[Interval]:
    left_out_epochs = record.left_out_epochs if record.epochs else ()
    latest = max([*(epoch for _, epoch in record.epochs), *(each[2] for each in left_out_epochs)], default=NEVER)
    batches = [SourceBatch(start, end, {}, None, epoch) for start, end, epoch in _epochs(located) if epoch > latest]
    for ordinal, offset, length in record.source_runs.between(first, sys.maxsize):
        for start, end in within((offset, offset + length), located.missing):
            piece = (ordinal + start - offset, start, end - start)
            for begin, behind in replaced(record.epochs, [piece], batches):
                yield offset + begin - ordinal, offset + behind - ordinal
    wholes = [(batch.start, batch.end) for batch in batches]
    for each in _filtered(record):
        for part in within((each.start, each.end), wholes) if each.latest_epoch >= 0 else ():
            yield from within(part, located.missing)
    for start, end, _ in left_out_epochs:
        for part in within((start, end), wholes):
            yield from within(part, located.missing)


def _epochs(located: Located) -> Iterator[tuple[int, int, int]]:
    """Yield the ranges of source offsets [start, end) with their leader epochs. An epoch is -1 if it is not known."""
    known = located.epochs if located.epochs and located.epochs[0][0] <= 0 else ((0, -1), *located.epochs)
    return ((start, end, epoch) for (start, epoch), (end, _) in pairwise((*known, (NEVER, -1))))
