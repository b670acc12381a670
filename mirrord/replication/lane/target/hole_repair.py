"""Plans how missing records are copied again under new ordinals. The missing records are the records of holes and the
records that the target log has lost."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from mirrord.ledger.facts.core import HoleFound, LaneFact, SourceRun, Verdict
from mirrord.model.intervals import joined, uncovered, within
from mirrord.model.runs import Run
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.source import recorded_epochs, source_epochs
from mirrord.replication.lane.source.copied_pieces import HeldOffsets, mapped
from mirrord.replication.lane.source.declared_runs import RestOfPlan, continues_at, mended_until, rest
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target import missing_ordinals, position_rewind, target_scan


def repair(lane: Lane, record: LaneRecord) -> list[LaneFact]:
    """Return the facts that record the plan: which records are copied again, and under which ordinals. These facts must
    take effect before the first of these records is produced."""
    begin_at = ordinal = lane.resume_ordinal
    runs: list[Run] = []
    pieces: list[tuple[int, int, int]] = []
    begins: list[tuple[int, int, int]] = []
    for first, last in lane.log.holes:
        begins.append((first, last, ordinal))
        for start, end in target_scan.but_not_void(record.holes, first, last):
            for former, offset, length in mapped(record, start, end):
                runs.append(Run(ordinal, offset))
                pieces.append((ordinal, former, length))
                ordinal += length
    goes_on = begin_at if lane.log.copied_again is None else lane.log.copied_again_until
    # An older hole may be only partly mended. In that case, the rest of its plan is part of this plan, or follows it.
    looked_up = () if lane.log.copied_again is None else lane.log.lost_ordinals
    older = rest(record, goes_on, looked_up)
    if lane.log.copied_again is not None:
        for former, offset, length in sorted(_to_copy(record, lane.log.copied_again, older), key=_source_offset):
            runs.append(Run(ordinal, offset))
            pieces.append((ordinal, former, length))
            ordinal += length
    if older is not None and lane.log.copied_again is not None:
        ends_at, former, _ = older.pieces[-1]
        runs.append(Run(ordinal, older.runs[-1].offset + ends_at - older.runs[-1].ordinal))
        pieces.append((ordinal, former, 1))
    elif older is not None:
        moved = ordinal - goes_on
        runs += [Run(run.ordinal + moved, run.offset) for run in older.runs]
        pieces += [(at + moved, former, length) for at, former, length in older.pieces]
    else:
        after = continues_at(record, goes_on, looked_up)
        runs.append(Run(ordinal, lane.position if after is None else after))
        pieces.append((ordinal, _epoch_source(record, goes_on), 1))
    holes = [HoleFound(lane.id, lane.grant, *each, runs[-1].ordinal) for each in begins]
    if lane.log.copied_again is not None or _may_leave_out(record, runs):
        holes.append(_without_ordinals(lane, begin_at, runs[-1].ordinal))
    elif (until := _acknowledged_until(lane, pieces[:-1])) > begin_at:
        holes.append(_without_ordinals(lane, begin_at, until))
    epochs = source_epochs.mended(lane, pieces)
    rewound = position_rewind.rewound_by(lane, runs, lane.resume_position)
    return [*holes, SourceRun(lane.id, lane.grant, tuple(runs), _unknown(record, runs), epochs, rewound=rewound)]


def _unknown(record: LaneRecord, runs: Sequence[Run]) -> tuple[Verdict, ...]:
    """Return verdicts on the source offsets of records that a rebuild could not determine (`HoleFound.is_open`), if the
    target log has lost these records and the plan does not contain their offsets. The runs of the plan supersede the
    holes, and with them the verdicts that the ledger has on these offsets. "compacted" is recorded again as far as the
    ledger's state still has the range; it is "unexplained" otherwise."""
    first = runs[0].ordinal
    holes = [hole for hole in record.holes if hole.is_open and hole.last >= first]
    if not holes:
        return ()
    taken = [(run.offset, run.offset + behind.ordinal - run.ordinal) for run, behind in pairwise(runs)]
    taken += [(runs[-1].offset, NEVER), *HeldOffsets(record, first).within(0, NEVER)]
    pieces = (piece for hole in holes for piece in mapped(record, max(hole.first, first), hole.last))
    lacking = [
        each for part in joined((at, at + length) for _, at, length in pieces) for each in uncovered(part, taken)
    ]
    cleaned = joined((each.start, each.end) for each in record.newest_verdicts if each.reason == "compacted")
    found = [Verdict(*each, "compacted") for part in lacking for each in within(part, cleaned)]
    found += [Verdict(*each, "unexplained") for part in lacking for each in uncovered(part, cleaned)]
    return tuple(sorted(found, key=lambda each: each.start))


def are_in_order(lane: Lane, record: LaneRecord, again: Sequence[tuple[int, int]]) -> bool:
    """Return whether lost records and the rest of an older plan would be copied again in source order if the records
    kept their former ordinals. `again` contains the ordinals (first, last) of the lost records.

    The order of the ordinals may differ from source order. Some records of holes may have been copied again, under
    later ordinals, before they were lost, whereas other records of holes had not been copied again yet and would keep
    their former ordinals. The rest of an older plan has higher ordinals than the lost records, but its source offsets
    may be lower. If records were copied in the order of their ordinals, an older record could therefore follow a newer
    one.
    """
    older = rest(record, missing_ordinals.planned_until(lane), lane.log.lost_ordinals)
    offsets = [offset for _, offset, _ in _to_copy(record, again, older)]
    return offsets == sorted(offsets)


def _to_copy(
    record: LaneRecord, again: Sequence[tuple[int, int]], older: RestOfPlan | None
) -> Iterator[tuple[int, int, int]]:
    """Yield the lost records that are copied again, and then the rest of an older plan, as pieces (former ordinal,
    source offset, length). `again` contains the ordinals (first, last) of the lost records."""
    for each in again:
        yield from mapped(record, *each)
    # The last piece is the record at which the lane continues in source order.
    for _, former, length in older.pieces[:-1] if older is not None else ():
        yield from mapped(record, former, former + length - 1)


def _source_offset(piece: tuple[int, int, int]) -> int:
    return piece[1]


def _epoch_source(record: LaneRecord, ordinal: int) -> int:
    """Return the ordinal at which to look up the epoch of the source record that directly precedes this ordinal's
    record. The result is either this ordinal or the previous one. The epoch that is recorded for this ordinal cannot
    always be used: it may be the epoch of a record that was never copied and that the source has lost.

    If there is a gap between the source offsets of the two ordinals, the epoch of this ordinal applies to the offsets
    in the gap (see `epoch_cache`). The epoch of the previous ordinal may end inside the gap.
    """
    is_explicit = any(ordinal == first for first, _ in record.truncations)
    is_explicit = is_explicit or ordinal <= mended_until(record, ordinal)
    return ordinal if is_explicit or _is_after_gap(record, ordinal) else ordinal - 1


def _is_after_gap(record: LaneRecord, ordinal: int) -> bool:
    """Return whether there is a gap between the source offsets of the previous ordinal and of this ordinal. Return
    False if the source is known to have lost the record of this ordinal."""
    offset, former = record.source_runs.offset_of(ordinal), record.source_runs.offset_of(ordinal - 1)
    if offset is None or former is None or recorded_epochs.is_truncated(record, ordinal, offset):
        return False
    return offset > former + 1


def kept_plan(lane: Lane, runs: Sequence[Run]) -> list[HoleFound]:
    """Return the fact that shows where a plan ends, if the plan is recorded again with these runs and needs this fact.
    It is a `HoleFound` with an empty range of ordinals. Return an empty list if the plan does not need it.

    If a plan omits records on purpose, its runs alone do not show where it ends. Recording the plan again revokes every
    hole that the ledger has at or above the first ordinal of `runs`. If a `HoleFound` with an empty range is among
    them, it has to be recorded again as well, unless nothing is left to copy again.
    """
    begin_at, holes = runs[0].ordinal, lane.record.holes if lane.record is not None else ()
    if len(runs) == 1 or not any(hole.first > hole.last and hole.first >= begin_at for hole in holes):
        return []
    return [_without_ordinals(lane, begin_at, runs[-1].ordinal)]


def with_end_of_plan(lane: Lane, fact: SourceRun) -> tuple[SourceRun, ...]:
    """Return the facts that record these runs. If the runs belong to other records than those of a plan, the plan has
    to end before the first of them.

    A fact with several runs ends a plan only where its last run begins (`hole_plans.after_runs`). The records of the
    runs before that would then count as lost records of the plan, although they were never copied. A fact with only the
    first of the runs is therefore recorded before it.
    """
    runs, record = fact.runs, lane.record
    if len(runs) == 1 or runs[0].ordinal >= lane.log.plans_end or record is None:
        return (fact,)
    first = position_rewind.first_changed(record.source_runs, runs)
    kept = tuple(run for run in runs if run.ordinal <= first)
    return (fact,) if len(kept) == len(runs) else (SourceRun(lane.id, lane.grant, kept), fact)


def _without_ordinals(lane: Lane, begin_at: int, until: int) -> HoleFound:
    """Return a `HoleFound` with an empty range of ordinals. Its field `until` shows where a plan ends, even if the plan
    omits records on purpose. From this fact, `missing_ordinals.lost_ordinals` also determines which planned records had
    been acknowledged before the target log lost them."""
    return HoleFound(lane.id, lane.grant, begin_at - 1, begin_at - 2, begin_at, until)


def _acknowledged_until(lane: Lane, pieces: Sequence[tuple[int, int, int]]) -> int:
    """Return the new ordinal after the last planned record that was acknowledged before the target log lost it. Return
    -1 if the plan has no such record.

    If the lane resumes again before these records are appended, it looks them up again, because other clients may have
    written newer records with the same keys in the meantime.
    """
    known = missing_ordinals.planned_until(lane) if lane.log.cleaned else 0
    return max((at + min(length, known - former) for at, former, length in pieces if former < known), default=-1)


def _may_leave_out(record: LaneRecord, runs: Sequence[Run]) -> bool:
    """Return whether a plan skips source offsets whose records an older plan may have omitted on purpose.

    The end of such a plan must be recorded separately (see `_without_ordinals`). If it were not, and the source then
    lost the records that follow the omitted ones, the runs of the plan would no longer show that the plan extends
    beyond the omitted records.
    """
    if not any(hole.first > hole.last for hole in record.holes):
        return False
    held = HeldOffsets(record, runs[0].ordinal)
    taken = [(run.offset, run.offset + behind.ordinal - run.ordinal) for run, behind in pairwise(runs)]
    for (_, end), behind in zip(taken, runs[1:], strict=True):
        copied = held.within(end, behind.offset) if end < behind.offset else ()
        if any(uncovered((end, behind.offset), [*copied, *taken])):
            return True
    return False
