"""Going on further ahead in the source, because somebody ordered it: what is not copied by then is left out.

That gives the next ordinal another meaning, so nothing may be on its way then, of the lane itself or of a former
holder (`mirrord.flow.limbo`). The ledger learns of the range as a verdict, in one entry with the run behind it and the
word that the order is carried out. Until that stands there, whoever takes the lane carries it out anew.
"""

import msgspec

from mirrord.flow import intake, limbo, lineage, parking, resume, settling
from mirrord.flow.report import source_offset
from mirrord.flow.signals import Append, Effects, LaneRecord, Lost
from mirrord.flow.state import Lane, Phase
from mirrord.flow.telling import note
from mirrord.model.facts import Verdict
from mirrord.model.orders import origin_words
from mirrord.model.quarantine import skipped_ranges
from mirrord.model.seeking import SeekDone, Seeks, passed_ranges, pending


def left_out(record: LaneRecord, lowest: int) -> list[Verdict]:
    """What somebody decided to leave out at a source offset or behind it, ascending."""
    found = [Verdict(*each, "rejected") for each in skipped_ranges(record.quarantine)]
    found += [Verdict(*each, "skipped") for each in passed_ranges(record.seeks)]
    return sorted((each for each in found if each.end > lowest), key=lambda each: (each.start, each.end))


def told(lane: Lane, now: float) -> Effects:
    """The ledger holds an order. A lane that stands still goes on by it; one that copies stops first."""
    match lane.phase:
        case Phase.HALTED:
            return parking.released(lane, now)
        case Phase.RESUMING:
            return resume.begin(lane, now)  # what it is about to do was decided without that order
        case Phase.COPYING:
            lane.sought = pending(lane.record.seeks) if lane.record is not None else ()
            return settling.wait(lane, now) if is_due(lane) else []
        case _:
            return []  # it comes to the order when it resumes


def is_due(lane: Lane) -> bool:
    """All in front of what is to be left out is copied, or on its way. What is being copied again comes first."""
    record = lane.record
    if record is None or not _due(lane):
        return False
    return not lane.plan and lane.acked >= lineage.mended_until(record, lane.acked)


def _due(lane: Lane) -> Seeks:
    """What the source has not written yet cannot be left out."""
    at = source_offset(lane)
    end = max(lane.source_end, at)
    return tuple(each for each in lane.sought if each.start <= at and each.end <= end)


def must_wait(lane: Lane) -> bool:
    """Something of the next ordinal may still arrive, so it must not get another meaning yet."""
    return bool(lane.sought) and limbo.holds(lane, lane.resume_ordinal)


def obey(lane: Lane) -> Effects:
    """Nothing is on its way, and the lane is about to copy: leave out what is ordered to be."""
    if not lane.sought or not is_due(lane):
        return []
    start = lane.position
    order = _due(lane)[-1]
    lane.sought = tuple(each for each in lane.sought if each.end > order.end)
    end = order.end
    if start >= end:
        return note(lane, (SeekDone(lane.id, lane.grant, end, end),))
    done = SeekDone(lane.id, lane.grant, start, end)
    line = f"source offsets [{start}, {end}) are left out {origin_words(order.origin)}"
    effects = intake.leap(lane, end, "skipped", expired_below=order.log_start)
    told = [
        msgspec.structs.replace(each, facts=(done, *each.facts)) if isinstance(each, Append) else each
        for each in effects
    ]
    return [Lost(f"{lane.source_topic}-{lane.partition}: {line}"), *told]
