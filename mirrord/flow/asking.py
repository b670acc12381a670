"""Every question and every append has a number, and is answered once.

A network, a retry or a timer may bring an answer twice, or bring one that nobody waits for any more. What no open
number stands for changes nothing.
"""

from collections.abc import Sequence

from mirrord.flow.signals import Append
from mirrord.flow.state import Lane
from mirrord.model.facts import LaneFact


def ask(lane: Lane) -> int:
    """The number of a new question."""
    lane.asked += 1
    lane.questions.add(lane.asked)
    return lane.asked


def answers(lane: Lane, question: int) -> bool:
    """Whether an answer is the first one to an open question; it closes the question."""
    if question not in lane.questions:
        return False
    lane.questions.remove(question)
    return True


def append(lane: Lane, facts: Sequence[LaneFact]) -> Append:
    """The effect that appends facts to the ledger."""
    lane.tag += 1
    lane.appends.add(lane.tag)
    return Append(lane.tag, tuple(facts))


def settles(lane: Lane, tag: int) -> bool:
    """Whether this is the first word on an open append; it closes the append."""
    if tag not in lane.appends:
        return False
    lane.appends.remove(tag)
    return True


def new_round(lane: Lane) -> None:
    """Whatever was asked before no longer counts. Appends stay open: what they told may still come to bind."""
    lane.round += 1
    lane.questions.clear()
    lane.handed, lane.compared = None, -1
