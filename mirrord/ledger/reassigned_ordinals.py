"""Which ordinals are in doubt because they were assigned to other records (`SourceRun.regiven`)."""

from mirrord.ledger.facts.core import TakeoverChecked, TargetRun
from mirrord.ledger.state import LaneState


def after_check(lane: LaneState, fact: TakeoverChecked) -> tuple[int, int]:
    """Return the lowest ordinal that is still in doubt after a comparison, and the end of the ordinals in doubt. -1
    means that there is none. The fact itself shows whether there are more ordinals to check."""
    if fact.outcome == "different" or not fact.first <= lane.regiven <= fact.last + fact.is_all:
        return lane.regiven, lane.regiven_until
    first = fact.last + 1 if fact.more else -1
    return first, lane.regiven_until if 0 <= first < lane.regiven_until else -1


def end_after_run(lane: LaneState, fact: TargetRun) -> int:
    """Return the end of the ordinals in doubt after a run on the target has been recorded, or -1 if it is not known."""
    return fact.in_doubt_below if 0 <= lane.regiven < fact.in_doubt_below else lane.regiven_until
