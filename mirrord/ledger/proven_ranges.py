"""Folds the facts of audits and repairs: how far a lane is proven, and which of its records a repair has stored in a
separate topic."""

import msgspec

from mirrord.ledger.facts.audit import AuditFact, RangeAudited, RangeRepaired
from mirrord.ledger.state import LaneState
from mirrord.model.intervals import uncovered

Repaired = tuple[RangeRepaired, ...]

REPAIRED_KEPT = 128
"""Maximum number of repaired ranges that are kept for a lane. Those with the highest offsets are kept. All kept ranges
together must fit in the snapshot of the lane."""


def take_audit_fact(lane: LaneState, fact: AuditFact, offset: int) -> bool:
    """Fold a fact of an audit or a repair into the state of its lane. `offset` is the ledger offset of the entry that
    contains the fact. Return whether the fact took effect."""
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
    """Add the range of a repair to the repaired ranges of a lane and return all of them. Return None if the repair adds
    nothing new. The ranges are in the order of their offsets and do not overlap.

    Where ranges overlap, the newer fact replaces the older ones, because it may name a different topic, or the same
    topic may have been rebuilt. A fact that differs from a known one only in its author or its time adds nothing.
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
    """Return one `RangeRepaired` fact that covers exactly the source offsets [start, end). Return None unless all these
    offsets were repaired and their records are stored in the same topic."""
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
            # The whole range gets the weaker of the two audit levels.
            level = fact.level if fact.level == known.level else "digest"
            newest_ms = max(fact.newest_ms, known.newest_ms)
            fact = msgspec.structs.replace(fact, first=known.first, level=level, newest_ms=newest_ms)
    lane.audited = fact
    clip_proof(lane)
    return True


def clip_proof(lane: LaneState) -> None:
    """Limit the lane's proven range to source offsets that have not been truncated since the proven records were
    copied. The source stores different records at truncated offsets, and no audit has compared these records."""
    fact = lane.audited
    if fact is None:
        return
    lost = min((start for ordinal, start in lane.truncations if ordinal >= fact.end), default=fact.source_offset)
    if lost < fact.source_offset:
        lane.audited = msgspec.structs.replace(fact, source_offset=lost, newest_ms=-1)


def doubt(lane: LaneState, ordinal: int) -> None:
    """Drop the proven range of the lane (`LaneState.audited`) if it contains this ordinal. The ledger now assigns a
    different record or a different offset to the ordinal, so the result of the audit no longer applies."""
    if lane.audited is not None and ordinal < lane.audited.end:
        lane.audited = None
