"""What a lane tells the ledger about things that have already happened, and what hangs on the ledger knowing them."""

from collections.abc import Sequence

from mirrord.flow.asking import append
from mirrord.flow.signals import Effects
from mirrord.flow.state import Lane
from mirrord.model.facts import LaneFact


def note(lane: Lane, facts: Sequence[LaneFact]) -> Effects:
    """Append facts that nothing waits for but the progress mark: it must not lie above what the ledger explains."""
    if not facts:
        return []
    effect = append(lane, facts)
    lane.notes.add(effect.tag)
    return [effect]


def go_back_to_told(lane: Lane) -> None:
    """Facts were lost: what they told of has to be read from the target log once more."""
    lane.notes.clear()
    lane.mark = lane.told
    if lane.undone is not None:
        count, _, told, acknowledged = lane.undone
        lane.undone = (count, told, told, acknowledged)
    lane.suspicious = lane.suspicious or lane.unread is not None
    lane.unread = None
    lane.acked, lane.expected = lane.told.ordinal, lane.told.target_offset
