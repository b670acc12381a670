"""Handles displaced ordinals: ordinals that the target log lacks because later ordinals now have their target offsets.

An election may remove records of the lane. A delayed batch with later ordinals may then be appended at the offsets of
these records. If the log holds newer records with the same keys, the lost records are not copied again. The lost
records leave no empty offsets, so the log does not show where and in which leader epoch it last had them. The
ledger therefore records both for the displaced ordinals (`Displaced`). If a later election removes the newer records,
the displaced ordinals are looked up again.

Ordinals of the kind `last` (`Missing.kind`) are recorded in the same way if a lookup indicates that they were appended.
It is not certain that the log ever had them, so their target offsets are not known either.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from mirrord.ledger.displaced import DISPLACED_KEPT, within
from mirrord.ledger.facts.core import Displaced, LaneFact, TargetRun
from mirrord.model import intervals
from mirrord.model.intervals import joined, uncovered
from mirrord.model.runs import Run
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target.scan_result import Log, Missing, Reading
from mirrord.replication.lane.target.target_scan import but_not_void, displaced_of


def known(lane: Lane) -> Sequence[Displaced]:
    """Return the displaced ordinals that the ledger records. While facts about the target log have not taken effect
    yet, return an empty sequence, because some of these ordinals may be in the log again."""
    return () if lane.notes else displaced_of(lane.record)


def recorded(lane: Lane, found: Reading, again: Sequence[tuple[int, int]], until: int = -1) -> tuple[LaneFact, ...]:
    """Return the facts that result from a scan of the target log. The displaced ordinals are added to the run that
    follows them. If the scan has found no new run after them, a fact that repeats the ledger's last run records them.

    An ordinal in `found.missing` is displaced if the log has no empty offset for it and its record is not copied again.
    `again` contains the ranges (first, last) of ordinals that are copied again. Ordinals after the lane's last record
    in the log (`Missing.kind` is `last`) count as displaced if they are below the ordinal `until`.

    A new run replaces what the ledger records about the ordinals before it. Displaced ordinals that the log still lacks
    are therefore added to it again.
    """
    absent = [each for each in found.missing if each.last < found.next_ordinal and not each.has_room]
    copied = set(again)
    left = [part for each in absent if (each.first, each.last) not in copied for part in _displaced(lane, each)]
    superseded = frozenset(_superseded(lane, found, again, until))
    left = sorted((*left, *superseded), key=_first)[-DISPLACED_KEPT:]
    facts: list[LaneFact] = []
    for fact in found.facts:
        if isinstance(fact, TargetRun):
            before = [each for each in left if each.last < fact.ordinal]
            left = left[len(before) :]
            facts.append(replace(fact, displaced=tuple(before)))
        else:
            facts.append(fact)
    left += [part for each in _looked_up(lane, found, until) for part in _displaced(lane, each)]
    rest = tuple(left)
    if all(_is_recorded(lane, each) and each not in superseded for each in rest):
        return tuple(facts)
    return (*facts, *_last_run_again(lane, facts, rest))


def _superseded(lane: Lane, found: Reading, again: Sequence[tuple[int, int]], until: int) -> Iterator[Displaced]:
    """Yield the displaced ordinals in the ledger that must be recorded again because the runs in `found.facts` would
    otherwise supersede them: the log still lacks these ordinals, and their records are not copied again. A run
    supersedes all displaced ordinals at or above its own ordinal.

    Ordinals for which the log has no empty offset are omitted, because the scan itself has found them displaced.
    """
    lowest = min((fact.ordinal for fact in found.facts if isinstance(fact, TargetRun)), default=NEVER)
    copied = [(first, last + 1) for first, last in again]
    for missing in found.missing:
        first = max(missing.first, lowest)
        last, recorded_ones = missing.last, displaced_of(lane.record)
        if missing.kind == "last":
            last, recorded_ones = min(last, until - 1), known(lane)  # `_looked_up` records all others
        for each in within(recorded_ones, first, last) if missing.has_room and first <= last else ():
            piece = (max(each.first, first), min(each.last, last) + 1)
            for start, end in uncovered(piece, intervals.within(piece, copied)):
                yield replace(each, first=start, last=end - 1)


def _looked_up(lane: Lane, found: Reading, until: int) -> Iterator[Missing]:
    """Yield the missing ordinals of the kind `last` (see `Missing.kind`) that are below `until` and that the ledger
    does not record as displaced yet."""
    others = [(each.first, each.last + 1) for each in known(lane)]
    for each in found.missing:
        if each.kind == "last" and each.first < until:
            for start, end in uncovered((each.first, min(each.last + 1, until)), others):
                yield replace(each, first=start, last=end - 1)


def _is_recorded(lane: Lane, displaced: Displaced) -> bool:
    """Return whether the ledger already records these ordinals as displaced, with limits (`above`, `leader_epoch`) that
    are not higher than the given ones. At least the same records of other clients then count as newer."""
    return any(
        each.first <= displaced.first
        and displaced.last <= each.last
        and each.above <= displaced.above
        and each.leader_epoch <= displaced.leader_epoch
        for each in within(known(lane), displaced.first, displaced.last)
    )


def _last_run_again(lane: Lane, facts: Sequence[LaneFact], displaced: tuple[Displaced, ...]) -> tuple[TargetRun, ...]:
    """Return a fact that records these displaced ordinals. It is a `TargetRun` that takes effect after `facts`. It only
    repeats the last target run from a higher ordinal, so it does not change the target offset of any ordinal, and does
    not supersede any other run. A run supersedes all displaced ordinals at or above its own ordinal, so the ordinal of
    this one is above all displaced ordinals. If the ledger has no target run yet, the run begins at the end of the log.
    """
    record = lane.record
    if record is None:
        return ()
    runs = record.target_runs.copy()
    for fact in facts:
        if isinstance(fact, TargetRun):
            runs.add_ascending(fact.ordinal, fact.offset)
    ordinal = max(each.last + 1 for each in (*record.displaced, *displaced))
    last = Run(ordinal, lane.log.end) if runs.last is None else runs.last
    ordinal = max(ordinal, last.ordinal)
    offset = last.offset + ordinal - last.ordinal
    return (TargetRun(lane.id, lane.grant, ordinal, offset, lane.log.end_epoch, displaced),)


def _displaced(lane: Lane, missing: Missing) -> Iterator[Displaced]:
    """Yield the facts that record these ordinals as displaced, one for each of the places where their records were."""
    # Records that were never acknowledged are older than everything that is appended from now on.
    is_known = missing.kind == "lost" and missing.leader_epoch >= 0
    epoch = missing.leader_epoch if is_known else lane.log.end_epoch
    begins = (run.ordinal for run in missing.recorded_at if missing.first < run.ordinal <= missing.last)
    for first, end in pairwise((missing.first, *begins, missing.last + 1)):
        yield Displaced(first, end - 1, missing.newer_from(first), epoch, missing.kind == "last")


def below(lane: Lane, ordinal: int) -> tuple[Missing, ...]:
    """Return the displaced ordinals below the given one. A scan that begins at the given ordinal does not find them.
    Two kinds are omitted: ordinals whose records would by now be below the target's log start offset, and ordinals in
    holes."""
    holes = lane.record.holes if lane.record is not None else ()
    return tuple(
        Missing("between", first, last, each.above, has_room=True)
        for each in known(lane)
        if each.above >= lane.log.log_start
        for first, last in but_not_void(holes, each.first, min(each.last, ordinal - 1))
    )


def appended_until(lane: Lane, found: Reading, log: Log) -> int:
    """Return the ordinal up to which the lane's records may have been appended after its last batch in the log, and
    then removed by the cleaner. There are at most as many of these records as there are empty offsets in that part of
    the log.

    If ordinals were assigned to other records (`Rewound`), the target log had none of these records yet. They can only
    be at later offsets, unless the log has since lost its end. If it is not known whether it has, the ledger's target
    runs may show a lower offset.
    """
    start, record = max(found.behind, log.start), lane.record
    until = reached(lane, found.next_ordinal, log.bare(start, log.end)[0])
    lowest = NEVER
    for _, rewound in reversed(record.rewinds if record is not None else ()):
        lowest = min(lowest, rewound.target_offset)
        if record is None or lowest <= start:
            break
        first, limit = max(rewound.first, found.next_ordinal), None
        if lane.log.unchanged is not None and rewound.leader_epoch == lane.log.unchanged[0]:
            limit = lane.log.unchanged[1]
        elif rewound.leader_epoch != lane.log.end_epoch:
            limit = record.target_runs.offset_of(first)
        begin = lowest if limit is None else max(min(lowest, limit), start)
        until = min(until, reached(lane, first, log.bare(begin, log.end)[0]))
    return until


def must_ask(lane: Lane) -> bool:
    """Return whether the lane must ask up to which offset the target log has remained unchanged since ordinals were
    last assigned to other records. The answer shows at which offsets the records of these ordinals cannot be (see
    `appended_until`). This matters only if the resume position is an earlier one."""
    rewinds = lane.record.rewinds if lane.record is not None else ()
    if not rewinds or lane.log.unchanged is not None or not lane.log.cleaned or lane.log.entry is not None:
        return False
    last = rewinds[-1][1]
    is_later = last.target_offset > lane.resume_position.target_offset
    return is_later and 0 <= last.leader_epoch != lane.log.end_epoch and not lane.takeover.knows_sent


def reached(lane: Lane, first: int, room: int) -> int:
    """Suppose that the target log held the ordinals from `first` onward at `room` offsets. Return the ordinal after the
    last one that it may have held. Displaced ordinals whose offsets belong to other records take up none of the `room`
    offsets, and neither do ordinals in holes. Both are therefore skipped."""
    until, record = first + room, lane.record
    if record is None:
        return until
    skipped = [(each.first, each.last + 1) for each in record.displaced if not each.by_look_up]
    skipped += [(hole.first, hole.last + 1) for hole in record.holes if not hole.is_open and hole.first <= hole.last]
    for start, end in joined(skipped):
        if start < until and end > first:
            until += end - max(start, first)
    return until


def as_recorded(lane: Lane, missing: Missing) -> Iterator[Missing]:
    """Split lost records into parts, because the ledger may already record some of them as displaced. For a part that
    the ledger records as displaced, both the ledger and the new scan state which other records are newer. Both
    statements are true, so a record counts as newer if it is newer according to at least one of them."""
    first = missing.first
    for each in within(known(lane), missing.first, missing.last):
        begin, last = max(each.first, first), min(each.last, missing.last)
        if first < begin:
            yield replace(missing, first=first, last=begin - 1)
        epoch = each.leader_epoch if missing.leader_epoch < 0 else min(each.leader_epoch, missing.leader_epoch)
        above = min(each.above, missing.above)
        yield replace(missing, first=begin, last=last, above=above, leader_epoch=epoch, recorded_at=())
        first = last + 1
    if first <= missing.last:
        yield replace(missing, first=first)


def unrecorded(lane: Lane, first: int) -> Iterator[tuple[int, int]]:
    """Yield pairs (end, leader epoch) for displaced ordinals at or above `first` that an older version of mirrord found
    but did not record. Each epoch applies to the ordinals below its `end`.

    The runs show that these ordinals were in the log for some time before the resume position was saved, but were no
    longer in it when the position was saved. The leader epoch in which they were last in the log is not known, but it
    was lower than the epoch of the resume position. If the resume position does not agree with the runs, it was saved
    before these ordinals were displaced, and nothing is yielded.
    """
    position, record = lane.resume_position, lane.record
    if record is None or lane.notes or position.leader_epoch < 1:
        return
    if record.target_runs.offset_of(position.ordinal) != position.target_offset:
        return
    others = [(hole.first, hole.last + 1) for hole in record.holes if not hole.is_open]
    others += [(each.first, each.last + 1) for each in record.displaced]
    for (ordinal, offset, _), (behind, place, _) in pairwise(record.target_runs.between(first, position.ordinal - 1)):
        expected = ordinal + place - offset
        for start, end in uncovered((expected, behind), others) if expected < behind else ():
            yield start, position.leader_epoch
            yield end, position.leader_epoch - 1


def _first(displaced: Displaced) -> int:
    return displaced.first
