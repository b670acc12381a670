"""Facts that a lane records about what has already happened, and the progress record that waits for them."""

from collections.abc import Sequence

from mirrord.ledger.facts.core import LaneFact
from mirrord.replication.lane.correlation import append
from mirrord.replication.lane.signals import Effects
from mirrord.replication.lane.state import Lane


def note(lane: Lane, facts: Sequence[LaneFact]) -> Effects:
    """Append facts without waiting for them. Only the progress record waits: it must not be ahead of the runs and
    verdicts in the ledger."""
    if not facts:
        return []
    effect = append(lane, facts)
    lane.notes.add(effect.tag)
    return [effect]


def return_to_recorded(lane: Lane) -> None:
    """Return to the last resume position whose facts are in the ledger; what follows is read from the target log
    again."""
    lane.notes.clear()
    lane.resume_position = lane.recorded_position
    if lane.log.went_back is not None:
        lane.log.went_back.resume_position = lane.log.went_back.recorded_position
    lane.log.must_read_log = lane.log.must_read_log or lane.log.unread_from is not None
    lane.log.unread_from = None
    lane.acked, lane.expected = lane.recorded_position.ordinal, lane.recorded_position.target_offset


def plan_bound(lane: Lane, tag: int) -> None:
    """Forget what was known before the log went back, if this append records what is copied again."""
    if lane.log.went_back is not None and lane.log.went_back.tag == tag:
        lane.log.went_back = None
