"""Determines which ordinals of a lane are in doubt. Such ordinals were assigned to different records
(`SourceRun.regiven`). Both the former and the new record may have been sent under an ordinal, and it is not known which
of them the target holds."""

from mirrord.ledger.facts.core import TakeoverChecked, TargetRun
from mirrord.ledger.state import LaneState


def after_check(lane: LaneState, fact: TakeoverChecked) -> tuple[int, int]:
    """Return the lowest ordinal that is still in doubt after a comparison, or -1 if no ordinal is in doubt. Also return
    the end of the ordinals in doubt, or -1 if it is not known. `fact.more` says whether later ordinals still have to be
    compared."""
    if fact.outcome == "different" or not fact.first <= lane.regiven <= fact.last + fact.is_all:
        return lane.regiven, lane.regiven_until
    first = fact.last + 1 if fact.more else -1
    return first, lane.regiven_until if 0 <= first < lane.regiven_until else -1


def end_after_run(lane: LaneState, fact: TargetRun) -> int:
    """Return the end of the ordinals in doubt after a `TargetRun` fact, which may contain this end (`in_doubt_below`).
    The end is the ordinal after the last one in doubt, or -1 if it is not known."""
    return fact.in_doubt_below if 0 <= lane.regiven < fact.in_doubt_below else lane.regiven_until
