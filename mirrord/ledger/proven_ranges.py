"""What audits and repairs tell of a lane: up to where it is proven, and what of it lies in a topic of its own."""

import msgspec

from mirrord.ledger.facts.audit import AuditFact, RangeAudited, RangeRepaired
from mirrord.ledger.state import LaneState
from mirrord.model.intervals import uncovered

Repaired = tuple[RangeRepaired, ...]

REPAIRED_KEPT = 128
"""Ranges of a lane, those that are furthest ahead; together they have to fit into its snapshot."""


def take_audit_fact(lane: LaneState, fact: AuditFact, offset: int) -> bool:
    """Fold a fact at a ledger offset into its lane; whether it bound."""
    if offset < lane.folded_to:
        return False
    if isinstance(fact, RangeAudited):
        binds = _audit(lane, fact)
    else:
        known = with_repair(lane.repaired, fact)
        binds, lane.repaired = known is not None, lane.repaired if known is None else known
    lane.changed_at = offset if binds else lane.changed_at
    return binds


def with_repair(known: Repaired, fact: RangeRepaired) -> Repaired | None:
    """Ascending ranges that do not overlap, with another one; None: it says nothing new.

    The newer word counts: the topic may be another one, or may have been made anew. Who said it, and when, is nothing
    new.
    """
    same = [(each.start, each.end) for each in known if each.topic == fact.topic and each.at <= fact.at]
    if not list(uncovered((fact.start, fact.end), same)):
        return None
    kept = [
        msgspec.structs.replace(each, start=start, end=end)
        for each in known
        for start, end in uncovered((each.start, each.end), [(fact.start, fact.end)])
    ]
    joined: list[RangeRepaired] = []
    for each in sorted((*kept, fact), key=_start):
        last = joined[-1] if joined else None
        if last is not None and (last.end, last.difference, last.topic) == (each.start, each.difference, each.topic):
            newer = max(last, each, key=_moment)
            joined[-1] = msgspec.structs.replace(newer, start=last.start, end=each.end, at=min(last.at, each.at))
        else:
            joined.append(each)
    last_ones = tuple(joined[-REPAIRED_KEPT:])
    return last_ones if last_ones != known else None


def repaired_at(known: Repaired, start: int, end: int) -> RangeRepaired | None:
    """The source offsets [start, end) as they were repaired, if all of them were, into one topic."""
    met = [each for each in known if each.start < end and start < each.end]
    ranges = [(each.start, each.end) for each in met]
    if not met or list(uncovered((start, end), ranges)) or len({each.topic for each in met}) > 1:
        return None
    return msgspec.structs.replace(max(met, key=_moment), start=start, end=end, at=min(each.at for each in met))


def _start(fact: RangeRepaired) -> int:
    return fact.start


def _moment(fact: RangeRepaired) -> int:
    return fact.origin.at_ms


def _audit(lane: LaneState, fact: RangeAudited) -> bool:
    if fact.end <= fact.first:
        return False
    known = lane.audited
    if known is not None:
        is_closer = fact.level == "records" and known.level != "records"
        if fact.first > known.end or fact.end < known.end or (fact.end == known.end and not is_closer):
            return False
        if fact.first > known.first:
            # The whole is proven as closely as the less close part of it.
            level = fact.level if fact.level == known.level else "digest"
            newest_ms = max(fact.newest_ms, known.newest_ms)
            fact = msgspec.structs.replace(fact, first=known.first, level=level, newest_ms=newest_ms)
    lane.audited = fact
    clip_proof(lane)
    return True


def clip_proof(lane: LaneState) -> None:
    """What the source lost behind the ordinals that were audited is there again, as something that nobody has seen."""
    fact = lane.audited
    if fact is None:
        return
    lost = min((start for ordinal, start in lane.cuts if ordinal >= fact.end), default=fact.source_offset)
    if lost < fact.source_offset:
        lane.audited = msgspec.structs.replace(fact, source_offset=lost, newest_ms=-1)


def doubt(lane: LaneState, ordinal: int) -> None:
    """Something else is told of an ordinal: what was proven of it was another record, or another place."""
    if lane.audited is not None and ordinal < lane.audited.end:
        lane.audited = None
