"""Numbers requests and appends, so that only one answer to each of them counts.

Because of a retry or a timer, an answer may arrive twice, or after the lane has stopped waiting for it. An answer has
no effect unless the request or append with the same number is still open. In code, the number of a request is called
`question`.
"""

from collections.abc import Sequence

from mirrord.ledger.facts.core import LaneFact
from mirrord.replication.lane.signals import Append
from mirrord.replication.lane.state import Lane


def ask(lane: Lane) -> int:
    """Open a new request, and return its number."""
    lane.asked += 1
    lane.questions.add(lane.asked)
    return lane.asked


def answers(lane: Lane, question: int) -> bool:
    """Close a request when an answer arrives. Return whether the request was open, so that only the first answer
    counts."""
    if question not in lane.questions:
        return False
    lane.questions.remove(question)
    return True


def append(lane: Lane, facts: Sequence[LaneFact]) -> Append:
    """Assign a new tag to an append, and register the append as open. Return the effect that appends the facts to the
    ledger."""
    lane.tag += 1
    lane.appends.add(lane.tag)
    return Append(lane.tag, tuple(facts))


def settles(lane: Lane, tag: int) -> bool:
    """Close an append when a result arrives. Return whether the append was open, so that only the first result
    counts."""
    if tag not in lane.appends:
        return False
    lane.appends.remove(tag)
    return True


def new_round(lane: Lane) -> None:
    """Begin a new round and drop all open requests. Appends to the ledger stay open, because their facts may still take
    effect."""
    lane.round += 1
    lane.source_epoch = -1
    lane.questions.clear()
    lane.takeover.fast_handoff, lane.comparison.compared = None, -1
