"""Records facts about what a lane has already done. No progress record of the lane is written until these facts take
effect."""

from collections.abc import Sequence

from mirrord.ledger.facts.core import LaneFact
from mirrord.replication.lane.correlation import append
from mirrord.replication.lane.signals import Effects
from mirrord.replication.lane.state import Lane


def note(lane: Lane, facts: Sequence[LaneFact]) -> Effects:
    """Append facts to the ledger, and go on without waiting for them to take effect. Only the lane's progress record
    has to wait for them, because it must not be ahead of the runs and verdicts in the ledger."""
    if not facts:
        return []
    effect = append(lane, facts)
    lane.notes.add(effect.tag)
    return [effect]


def return_to_recorded(lane: Lane) -> None:
    """Return to the newest resume position for which the ledger has all facts about the records below it. The lane will
    read the target log again from there."""
    lane.notes.clear()
    lane.resume_position = lane.recorded_position
    if lane.log.went_back is not None:
        lane.log.went_back.resume_position = lane.log.went_back.recorded_position
    lane.log.must_read_log = lane.log.must_read_log or lane.log.unread_from is not None
    lane.log.unread_from = None
    lane.acked, lane.expected = lane.recorded_position.ordinal, lane.recorded_position.target_offset


def plan_bound(lane: Lane, tag: int) -> None:
    """Handle an append whose facts have taken effect. When the target log lost records, the lane kept its earlier state
    (`WentBack`), to restore it if the plan for copying these records again did not take effect. If this append has
    recorded that plan, the kept state is dropped."""
    if lane.log.went_back is not None and lane.log.went_back.tag == tag:
        lane.log.went_back = None
