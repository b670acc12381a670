"""Interprets the target log: the headers of the lane's own batches are compared with what the lane expects there."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from mirrord.kafka.protocol.sequence import SEQUENCES, nearest
from mirrord.ledger.displaced import kept_from, within
from mirrord.ledger.facts.core import Displaced, HoleFound, LaneFact, TargetRun
from mirrord.model.intervals import Interval
from mirrord.model.runs import Run, Runs
from mirrord.replication.lane.halt import halt
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.signals import Effects, LaneRecord, OwnBatch, ScanAnswer
from mirrord.replication.lane.state import Lane, ResumePosition
from mirrord.replication.lane.target.evidence import known_until, next_by_entry, offset_of_position, trusted_below
from mirrord.replication.lane.target.scan_result import Log, Missing, Reading


def walk(lane: Lane, own: Sequence[OwnBatch], expected: int, log: Log | None = None) -> Reading:
    """Compare the ordinals in the lane's own batches with the expected ones. The first batch should begin with the
    ordinal `expected`.

    There may be ordinals missing before a batch. If a log cleaner may have removed their records, they are reported as
    `missing`. Otherwise, they are reported as a hole.
    """
    record = lane.record
    mended = record.holes if record is not None else ()
    again = [hole for hole in mended if not hole.is_open and hole.first <= hole.last]
    runs = record.target_runs.copy() if record is not None else Runs()
    holes: list[tuple[int, int]] = []
    missing: list[Missing] = []
    facts: list[LaneFact] = []
    begins, void, trusted = NEVER, NEVER, trusted_below(lane)
    at = log.start if log is not None else 0
    for batch in own:
        ordinal = nearest(batch.base_sequence, expected)
        if ordinal < expected:
            doubled = (ordinal, min(expected, ordinal + batch.count), batch.base_offset)
            return Reading(expected, tuple(holes), tuple(facts), doubled)
        if ordinal > expected:
            bare, first_bare = log.bare(at, batch.base_offset) if log is not None else (0, NEVER)
            if log is not None and (bare or log.compacts is not False):
                above, pieces = min(first_bare, batch.base_offset), but_not_void(mended, expected, ordinal - 1)
                has_room = _has_room(lane, runs, log, (at, batch.base_offset), pieces)
                missing += [Missing("between", *piece, above, has_room) for piece in pieces]
            else:
                holes += but_not_void(mended, expected, ordinal - 1)
        facts += placed(lane, runs, ordinal, batch.base_offset, batch.count, is_first=batch is own[0])
        expected, at = ordinal + batch.count, batch.base_offset + batch.count
        begins = min(begins, batch.base_offset) if expected > trusted else begins
        void = min([void, *(hole.first for hole in again if hole.first < expected and ordinal <= hole.last)])
    return Reading(expected, tuple(holes), tuple(facts), None, begins, void, tuple(missing), at)


def never_appended(lane: Lane, behind: int, target_offset: int) -> tuple[Interval, ...]:
    """Return ranges (first, last) of ordinals from the resume position up to `behind`. Some of these ordinals were
    never appended, and retention on the target has deleted the records of the others. Return an empty tuple if
    retention may have deleted the records of all ordinals.

    Each record takes one target offset. If there are more ordinals than deleted offsets, the log has had a hole. The
    deleted offsets are those from the resume position up to `target_offset`. If the log may no longer be the one in
    which this position was saved, they may begin earlier (see `evidence.offset_of_position`). The ledger's target runs
    divide these ordinals and offsets into parts. Nothing shows any longer which ordinals the log contained in a part
    with a hole, so all records of such a part have to be copied again. A run may have an offset above the deleted ones
    although the log does not have the lane's records there: the log has lost them.
    """
    first, start, record = lane.resume_position.ordinal, offset_of_position(lane), lane.record
    runs = record.target_runs.beginning_in(first + 1, behind - 1) if record is not None else ()
    again: list[Interval] = []
    for run, following in pairwise([Run(first, start), *runs, Run(behind, target_offset)]):
        pieces = but_not_void(record.holes if record is not None else (), run.ordinal, following.ordinal - 1)
        if sum(last - each + 1 for each, last in pieces) > min(following.offset, target_offset) - run.offset:
            again += pieces
    return tuple(again)


def all_deleted(lane: Lane, behind: int, answer: ScanAnswer) -> Reading:
    """Return the result of reading the target log if retention has deleted all of the lane's records, up to the ordinal
    before `behind`. The result contains a target run that maps `behind` to the end of the log. The lane's next record
    may follow records of other clients. The run shows that no ordinals of the lane are missing between them.

    In at-least-once mode, the lane has assigned these ordinals before it requested the broker's producer state. The
    broker may remember other records under these ordinals, so the lane's records are copied again.
    """
    runs = lane.record.target_runs.copy() if lane.record is not None else Runs()
    facts = placed(lane, runs, behind, answer.end)
    if lane.mode == "sequence":
        return Reading(behind, never_appended(lane, behind, answer.start), facts, None)
    holes = lane.record.holes if lane.record is not None else ()
    return Reading(behind, tuple(but_not_void(holes, lane.resume_position.ordinal, behind - 1)), facts, None)


def end_of_deleted(lane: Lane, own: Sequence[OwnBatch], first: int) -> list[OwnBatch]:
    """If retention on the target has deleted all of the lane's records from the ordinal `first` onward, return an empty
    batch at the end of the log. The ordinal of this batch is the one after the last ordinal in the broker's producer
    state. Nothing shows which records had lower ordinals, so these ordinals must not be assigned to other records. If
    the records have not been deleted, return an empty list."""
    behind = next_by_entry(lane)
    is_deleted = not own and lane.log.log_start > 0 and behind > first
    return [OwnBatch(lane.log.end, 0, behind % SEQUENCES, 0)] if is_deleted else []


def _has_room(lane: Lane, runs: Runs, log: Log, gap: Interval, pieces: Sequence[tuple[int, int]]) -> bool:
    """Return whether a cleaner may have removed all records of the missing ordinals `pieces`, which are ranges (first,
    last). `gap` contains the target offsets [start, end) where these records would be. Three conditions must be met:
    the gap has enough empty offsets, the offsets that the ledger has for acknowledged records are empty, and the record
    after the acknowledged ones is at its recorded offset. Otherwise, the log has lost the records. Other clients may
    then have written records at the same offsets, and a cleaner may have removed those since."""
    start, end = gap
    if log.bare(start, end)[0] < sum(last - first + 1 for first, last in pieces):
        return False
    known = 0 if lane.notes else known_until(lane)
    for first, last in pieces:
        for ordinal, offset, length in runs.between(first, min(last, known - 1)):
            behind, offset_behind = ordinal + length, offset + length
            if offset < start or offset_behind > end or log.bare(offset, offset_behind)[0] < length:
                return False
            if last < behind < known and runs.offset_of(behind) == offset_behind < end:
                return False
    return True


def placed(
    lane: Lane, runs: Runs, ordinal: int, target_offset: int, count: int = 1, *, is_first: bool = True
) -> tuple[TargetRun, ...]:
    """Record in `runs` that `count` consecutive ordinals are at consecutive target offsets. The first of these ordinals
    is `ordinal`, and its target offset is `target_offset`.

    Return the fact that records this mapping, or an empty tuple if the ledger already contains the mapping. However, if
    `is_first` is true and other facts have not taken effect yet, always return the fact, because the other facts may
    still change the runs.
    """
    inside = runs.beginning_in(ordinal + 1, ordinal + count - 1)
    displaced = lane.record.displaced if lane.record is not None else ()
    if (
        not (lane.notes and is_first)
        and runs.offset_of(ordinal) == target_offset
        and all(run.offset - run.ordinal == target_offset - ordinal for run in inside)
        and not within(displaced, ordinal, ordinal + count - 1)
    ):
        return ()
    runs.add(ordinal, target_offset)
    return (TargetRun(lane.id, lane.grant, ordinal, target_offset, lane.log.end_epoch),)


def holds_position(lane: Lane, own: Sequence[OwnBatch]) -> bool:
    """Return whether the last record below the resume position is still in the target log, directly before the target
    offset of the resume position."""
    if not own or is_later(lane, own[0]):
        return False
    distance = lane.resume_position.target_offset - own[0].base_offset
    return (
        distance > 0
        and nearest(own[0].base_sequence, lane.resume_position.ordinal) + distance == lane.resume_position.ordinal
    )


def is_later(lane: Lane, batch: OwnBatch) -> bool:
    """Return whether the batch was appended by a later leader than the one recorded with the resume position.

    If so, records before the batch may have been lost, because a new leader may lack records that its predecessor
    appended. Even a batch below the resume position can show this. The lane did not notice the new leader when it
    received the acknowledgement, because an acknowledgement does not contain the leader epoch.
    """
    return batch.leader_epoch > lane.resume_position.leader_epoch >= 0


def after_position(lane: Lane, own: Sequence[OwnBatch]) -> tuple[Sequence[OwnBatch], int]:
    """Return the batches of `own` that are not entirely below the resume position, and the ordinal with which the first
    of them should begin.

    `own` contains the lane's own batches, in the order of the log. The first of them must contain the resume position
    or end directly before it.
    """
    first = own[0]
    if first.base_offset + first.count <= lane.resume_position.target_offset:
        return own[1:], lane.resume_position.ordinal
    return own, nearest(first.base_sequence, lane.resume_position.ordinal)


def first_offset_of(lane: Lane, position: ResumePosition) -> int:
    """Return the lowest target offset at which the lane's records above the given resume position may be stored.

    This offset may be lower than the target offset of the position, because the log may have lost its last records, and
    these records may have been appended again.
    """
    known = lane.record.target_runs.offset_of(position.ordinal) if lane.record is not None else None
    found = (
        lane.comparison.later_begins_at
        if lane.comparison.later_from is not None and lane.comparison.later_from.ordinal <= position.ordinal
        else None
    )
    return min(each for each in (known, found, position.target_offset) if each is not None)


def begins_at(lane: Lane, own: Sequence[OwnBatch]) -> None:
    """Note the lowest target offset at which a batch of the lane with records from `later_from` onward was found. The
    lane compares these records with the source later, when its former holder can no longer write. If a lower offset has
    already been noted, that offset is kept."""
    if lane.comparison.later_from is None:
        return
    first = lane.comparison.later_from.ordinal
    for batch in own:
        ordinal = nearest(batch.base_sequence, first)
        if ordinal + batch.count > first:
            lane.comparison.later_begins_at = min(lane.comparison.later_begins_at, batch.base_offset)
            return


def ordinal_at(lane: Lane, target_offset: int) -> int:
    """Return the ordinal of the lane's first record at or above a target offset, according to the ledger. The result is
    at most the ordinal of the resume position."""
    ordinal = _counted_up_to(lane, target_offset, in_run_of=target_offset)
    return min(after_hole(lane, ordinal), lane.resume_position.ordinal)


def ordinal_before(lane: Lane, target_offset: int) -> int:
    """Return the ordinal that follows the lane's last record below a target offset, according to the ledger. The result
    is at most the ordinal of the resume position."""
    ordinal = _counted_up_to(lane, target_offset, in_run_of=target_offset - 1)
    ordinal = min(ordinal, first_possible_from(lane, target_offset))
    return min(before_displaced(lane, after_hole(lane, ordinal)), lane.resume_position.ordinal)


def begin_above(lane: Lane, target_offset: int) -> int:
    """Return the target offset from which the log must be read to find all records with the ordinal
    `ordinal_before(lane, target_offset)` or a higher one.

    This is `target_offset`, unless displaced ordinals precede it, or records before the lane's first target run. The
    cleaner may have removed their records from the log in which a holder looked them up, but not from the logs of other
    replicas. The ledger does not show their target offsets. It is only known that they follow the lane's record before
    them.
    """
    record, first = lane.record, ordinal_before(lane, target_offset)
    counted = after_hole(lane, _counted_up_to(lane, target_offset, in_run_of=target_offset - 1))
    if record is None or first >= min(counted, lane.resume_position.ordinal):
        return target_offset
    before = but_not_void([hole for hole in record.holes if not hole.is_open], 0, first - 1)
    place = record.target_runs.offset_of(before[-1][1]) if before else None
    return 0 if place is None else min(place + 1, target_offset)


def from_ordinal(lane: Lane, own: Sequence[OwnBatch], log: Log, first: int) -> tuple[Sequence[OwnBatch], Log]:
    """Return what a scan that began with `begin_above` has read after the ordinal before `first`: the lane's own
    batches, and that part of the log. A batch that contains `first` is cut so that it begins with this ordinal."""
    for at, batch in enumerate(own):
        cut = first - nearest(batch.base_sequence, first)
        if cut <= 0 or batch.base_offset >= lane.log.shared:
            return own[at:], log
        log = log._replace(start=batch.base_offset + min(cut, batch.count))
        if cut < batch.count:
            sequence = (batch.base_sequence + cut) % SEQUENCES
            rest = replace(batch, base_offset=log.start, count=batch.count - cut, base_sequence=sequence)
            return (rest, *own[at + 1 :]), log
    return (), log


def _counted_up_to(lane: Lane, target_offset: int, *, in_run_of: int) -> int:
    """Return the ordinal at a target offset, assuming that the run that contains the offset `in_run_of` continues up to
    the target offset.

    The result is at most the first ordinal of the next run, because the offsets between the records of one run and the
    next run belong to other writers. The result is at least the first ordinal of the first run, because runs of records
    below the log start are pruned.
    """
    runs = lane.record.target_runs if lane.record is not None else Runs()
    at = runs.floor(in_run_of, 0, len(runs))
    if at < 0:
        return runs.at(0).ordinal if len(runs) else 0
    ordinal = runs.at(at).ordinal + target_offset - runs.at(at).offset
    return min(ordinal, runs.at(at + 1).ordinal) if at + 1 < len(runs) else ordinal


def first_possible_from(lane: Lane, target_offset: int) -> int:
    """Return the lowest ordinal before the lane's first target run whose record may have been stored at `target_offset`
    or higher. Return `NEVER` if there is no such ordinal, or if the run does not begin above `target_offset`.

    A lookup may have found that records before the first run were appended and then removed by the cleaner. The ledger
    does not show the target offsets of these records. It is only known that they were lower than those of the first
    run.
    """
    record = lane.record
    first, known = (record.target_runs.first, record.source_runs.first) if record is not None else (None, None)
    if record is None or first is None or known is None or first.offset <= target_offset:
        return NEVER
    lowest = max(known.ordinal, first.ordinal - (first.offset - target_offset))
    left = but_not_void([hole for hole in record.holes if not hole.is_open], lowest, first.ordinal - 1)
    return left[0][0] if left else NEVER


def split_at_first_run(record: LaneRecord | None, ordinals: Iterable[Interval]) -> Iterator[Interval]:
    """Split ranges (first, last) of ordinals at the first ordinal of the lane's first target run. The ledger does not
    contain the target offsets of the records before this run. For these records, it must therefore be determined in a
    different way which other records are newer."""
    run = record.target_runs.first if record is not None else None
    for first, last in ordinals:
        if run is None or not first < run.ordinal <= last:
            yield first, last
        else:
            yield first, run.ordinal - 1
            yield run.ordinal, last


def before_displaced(lane: Lane, ordinal: int) -> int:
    """Return `ordinal`. If the ordinals directly below it are displaced, return the first of these displaced ordinals
    instead.

    Displaced ordinals are missing from the target log, and their offsets belong to other records. The runs alone do not
    show this, because a run maps all of its ordinals to consecutive offsets.
    """
    displaced = displaced_of(lane.record)
    if lane.record is None or not displaced:
        return ordinal
    holes = [hole for hole in lane.record.holes if not hole.is_open]
    parts = [part for each in displaced for part in but_not_void(holes, each.first, each.last)]
    found = at = ordinal
    for first, last in sorted([*parts, *((hole.first, hole.last) for hole in holes)], reverse=True):
        if first < at <= last + 1:
            at = first
            found = first if (first, last) in parts else found
    return found


def displaced_of(record: LaneRecord | None) -> tuple[Displaced, ...]:
    """Return the displaced ordinals in the ledger whose source offsets the ledger still has.

    Ordinals below the first source run are omitted. The first target run cannot be used as the lower bound: displaced
    ordinals are recorded with a target run that begins above them, and this run may be the first one ever recorded.
    """
    if record is None or not record.displaced:
        return ()
    first = record.source_runs.first
    return kept_from(record.displaced, 0 if first is None else first.ordinal)


def after_hole(lane: Lane, ordinal: int) -> int:
    """Return `ordinal`, or, if a hole contains `ordinal`, the first ordinal after that hole.

    In this module, callers derive `ordinal` from a target offset, on the assumption that the run that begins before
    this offset continues up to it. If the derived ordinal is in a hole, the assumption is wrong, and the record at the
    offset belongs to another writer.
    """
    holes = lane.record.holes if lane.record is not None else ()
    return max([ordinal, *(hole.last + 1 for hole in holes if not hole.is_open and hole.first < ordinal <= hole.last)])


def but_not_void(holes: Sequence[HoleFound], first: int, last: int) -> list[tuple[int, int]]:
    """Return the parts of the ordinals [first, last] that are outside all `holes`. The records of a hole are copied
    under later ordinals."""
    left: list[tuple[int, int]] = []
    for hole in sorted(holes, key=lambda each: each.first):
        if hole.last < max(first, hole.first) or hole.first > last:
            continue
        if hole.first > first:
            left.append((first, hole.first - 1))
        first = hole.last + 1
    if first <= last:
        left.append((first, last))
    return left


def displaced_at(lane: Lane, others: Sequence[Interval]) -> int | None:
    """Return the first target offset at which the log has another writer's batch, although the ledger has a record
    of the lane there. Only records below the resume position are considered. Return None if there is no such offset.

    At such an offset, the log has lost the lane's record: the record was missing on a new leader, which then assigned
    the offset to another record.
    """
    runs = lane.record.target_runs if lane.record is not None else Runs()
    for start, end in others:
        first = max(runs.floor(start, 0, len(runs)), 0)
        for at in range(first, len(runs)):
            run, behind = runs.at(at), lane.resume_position.ordinal
            if run.ordinal >= behind or run.offset >= end:
                break
            if at + 1 < len(runs):
                behind = min(behind, runs.at(at + 1).ordinal)
            if start < run.offset + behind - run.ordinal:
                return max(start, run.offset)
    return None


def begins_late(lane: Lane, own: Sequence[OwnBatch], start: int) -> bool:
    """Return whether the first of the lane's own batches at or after the target offset `start` begins with a higher
    ordinal than the one that the ledger has for `start`. Return False if known holes contain all ordinals in
    between."""
    first, wanted = nearest(own[0].base_sequence, lane.resume_position.ordinal), ordinal_at(lane, start)
    holes = lane.record.holes if lane.record is not None else ()
    return bool(but_not_void(holes, wanted, first - 1))


def repeat_behind_position(lane: Lane, own: Sequence[OwnBatch]) -> tuple[int, int, int] | None:
    """Find records that were appended a second time: their ordinals are below the resume position, but the target log
    contains them at or after the target offset of this position. Return them in the form of `Reading.doubled`, or
    return None if there are none.

    Retention on the target may have deleted the first copies of these records, so that a comparison of ordinals does
    not show the repeat. As long as the leader has not changed, its log cannot have lost the first copies in any other
    way, so the records were appended once before and then again. This conclusion does not apply to ordinals that count
    as appended only because of a lookup.
    """
    position, behind = lane.resume_position, before_displaced(lane, lane.resume_position.ordinal)
    if position.leader_epoch < 0 or position.leader_epoch != lane.log.end_epoch:
        return None
    for batch in own:
        first = nearest(batch.base_sequence, position.ordinal)
        if batch.base_offset >= position.target_offset and first < behind:
            return first, min(first + batch.count, behind), batch.base_offset
    return None


def halt_on_repeat(lane: Lane, doubled: tuple[int, int, int]) -> Effects:
    """Halt, because the target log contains the records of some ordinals twice. The lane cannot correct this."""
    first, end, target_offset = doubled
    offset = lane.record.source_runs.offset_of(first) if lane.record is not None else None
    start = -1 if offset is None else offset
    line = (
        f"target offset {target_offset} holds the records of source offsets [{start}, {start + end - first}) a second "
        "time, written after the broker had forgotten the lane's producer"
    )
    return halt(lane, "doubled", line, start, start + end - first)
