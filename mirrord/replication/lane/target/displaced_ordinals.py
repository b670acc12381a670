"""Ordinals that the target log lacks, and whose places later ordinals have taken.

An election may remove records of the lane, and a late batch with later ordinals may be appended at their places. If the
log then holds newer records of the same keys, the lost records are not copied again. The cleaner did not remove them,
so the log itself does not show when they were last in it. The ledger keeps that (`Displaced`): a later election may
remove the newer records, and then these ordinals are looked up once more.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from mirrord.ledger.facts.core import Displaced, LaneFact, TargetRun
from mirrord.model.intervals import uncovered
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target.scan_result import Missing, Reading
from mirrord.replication.lane.target.target_scan import but_not_void


def known(lane: Lane) -> Sequence[Displaced]:
    """Return the displaced ordinals that the ledger records. Nothing is known while facts about the target log are
    still to take effect: some of these ordinals may be in the log again."""
    return () if lane.record is None or lane.notes else lane.record.displaced


def recorded(lane: Lane, found: Reading, again: Sequence[tuple[int, int]]) -> tuple[LaneFact, ...]:
    """Return the facts of a reading, together with the displaced ordinals before each run. `found.missing` was looked
    up, and the ordinals (first, last) in `again` are copied again."""
    left = [each for each in found.missing if each.last < found.next_ordinal and not each.has_room]
    left = [each for each in left if (each.first, each.last) not in again]
    facts: list[LaneFact] = []
    for fact in found.facts:
        if isinstance(fact, TargetRun):
            before = [each for each in left if each.last < fact.ordinal]
            left = left[len(before) :]
            facts.append(replace(fact, displaced=tuple(_displaced(lane, each) for each in before)))
        else:
            facts.append(fact)
    return tuple(facts)


def _displaced(lane: Lane, missing: Missing) -> Displaced:
    # Records that were never acknowledged are older than everything that is appended from now on.
    is_known = missing.kind == "lost" and missing.leader_epoch >= 0
    return Displaced(
        missing.first, missing.last, missing.above, missing.leader_epoch if is_known else lane.log.end_epoch
    )


def below(lane: Lane, ordinal: int) -> tuple[Missing, ...]:
    """Return the displaced ordinals below a given one, which a scan from there on does not show. Those that the target
    or the source would have deleted since are not missing."""
    holes = lane.record.holes if lane.record is not None else ()
    return tuple(
        Missing("between", first, last, each.above, has_room=True)
        for each in known(lane)
        if each.above >= lane.log.log_start
        for first, last in but_not_void(holes, each.first, min(each.last, ordinal - 1))
    )


def as_recorded(lane: Lane, missing: Missing) -> Iterator[Missing]:
    """Split lost records by what the ledger has about displaced ones among them. All that it has is still true, so the
    condition that more records fulfil applies."""
    first = missing.first
    for each in known(lane):
        begin, last = max(each.first, first), min(each.last, missing.last)
        if begin > last:
            continue
        if first < begin:
            yield replace(missing, first=first, last=begin - 1)
        epoch = each.leader_epoch if missing.leader_epoch < 0 else min(each.leader_epoch, missing.leader_epoch)
        yield replace(missing, first=begin, last=last, above=min(each.above, missing.above), leader_epoch=epoch)
        first = last + 1
    if first <= missing.last:
        yield replace(missing, first=first)


def unrecorded(lane: Lane, first: int) -> Iterator[tuple[int, int]]:
    """Yield the epochs (end, leader epoch) of displaced ordinals from this one on that an older version found, and did
    not record.

    The runs show that they were in the log before the resume position was taken, but no longer then. Their last leader
    epoch is not known, but it was an earlier one. A resume position that does not agree with the runs was taken before
    these ordinals were displaced, and shows nothing.
    """
    position, record = lane.resume_position, lane.record
    if record is None or lane.notes or position.leader_epoch < 1:
        return
    if record.target_runs.offset_of(position.ordinal) != position.target_offset:
        return
    others = [(hole.first, hole.last + 1) for hole in record.holes if not hole.is_open]
    others += [(each.first, each.last + 1) for each in record.displaced]
    for (ordinal, offset, _), (behind, place, _) in pairwise(record.target_runs.between(first, position.ordinal - 1)):
        for start, end in uncovered((ordinal + place - offset, behind), others):
            yield start, position.leader_epoch
            yield end, position.leader_epoch - 1
