"""Numbers questions and appends, so that only one answer to each of them counts.

A network, a retry or a timer may deliver an answer twice, or an answer that the lane no longer waits for. An answer
whose number is not open changes nothing.
"""

from collections.abc import Sequence

from mirrord.ledger.facts.core import LaneFact
from mirrord.replication.lane.signals import Append
from mirrord.replication.lane.state import Lane


def ask(lane: Lane) -> int:
    """Return the number of a new question."""
    lane.asked += 1
    lane.questions.add(lane.asked)
    return lane.asked


def answers(lane: Lane, question: int) -> bool:
    """Return whether an answer is the first one to an open question; it closes the question."""
    if question not in lane.questions:
        return False
    lane.questions.remove(question)
    return True


def append(lane: Lane, facts: Sequence[LaneFact]) -> Append:
    """Return the effect that appends facts to the ledger."""
    lane.tag += 1
    lane.appends.add(lane.tag)
    return Append(lane.tag, tuple(facts))


def settles(lane: Lane, tag: int) -> bool:
    """Return whether this is the first result for an open append; it closes the append."""
    if tag not in lane.appends:
        return False
    lane.appends.remove(tag)
    return True


def new_round(lane: Lane) -> None:
    """Begin a new round and drop all open questions. Appends stay open, because their facts may still take effect."""
    lane.round += 1
    lane.questions.clear()
    lane.takeover.fast_handoff, lane.comparison.compared = None, -1
