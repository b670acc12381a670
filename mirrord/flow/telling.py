"""What a lane tells the ledger about things that have already happened, and what hangs on the ledger knowing them."""

from collections.abc import Sequence

from mirrord.flow.signals import Append, Effects
from mirrord.flow.state import Lane
from mirrord.model.facts import LaneFact


def note(lane: Lane, facts: Sequence[LaneFact]) -> Effects:
    """Append facts that nothing waits for but the progress mark: it must not lie above what the ledger explains."""
    if not facts:
        return []
    lane.tag += 1
    lane.notes.add(lane.tag)
    return [Append(lane.tag, tuple(facts))]


def go_back_to_told(lane: Lane) -> None:
    """Facts were lost: what they told of has to be read from the target log once more."""
    lane.notes.clear()
    lane.mark = lane.told
    lane.acked, lane.expected = lane.told.ordinal, lane.told.target_offset
