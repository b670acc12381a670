"""Turns facts in the ledger into signals for the lanes of a replicator."""

from mirrord.ledger.facts.core import AnyFact, LaneTaken
from mirrord.ledger.facts.quarantine import Quarantined, QuarantineOrder
from mirrord.ledger.facts.recovery import CopyingEnded
from mirrord.ledger.facts.seeks import LaneSought
from mirrord.ledger.folding.failovers import Recoveries, has_ended
from mirrord.model.names import LaneId
from mirrord.replication.lane.signals import Fenced, Released

NOBODY = LaneId("")


def concerned(fact: AnyFact) -> LaneId:
    """Return the lane that may have to be notified of a fact, or `NOBODY` if no lane needs to be notified, as is the
    case for most facts."""
    return fact.lane if isinstance(fact, LaneTaken | Quarantined | QuarantineOrder | LaneSought) else NOBODY


def ends_copying(fact: AnyFact) -> bool:
    """Return whether a fact may end the copying of any lane (`over`)."""
    return isinstance(fact, CopyingEnded)


def over(recoveries: Recoveries, topic: str) -> Fenced | None:
    """Return the signal to send to a lane of a source topic if a failover has ended the copying of the topic."""
    return Fenced() if has_ended(recoveries, topic) else None


def news(fact: AnyFact, replicator: str) -> Fenced | Released | None:
    """Return the signal to send to the lane when a fact takes effect, or None if the lane need not be notified.
    `replicator` is the name of the replicator that hosts the lane."""
    match fact:
        case LaneTaken():
            return Fenced() if fact.replicator != replicator else None
        case LaneSought():
            return Released(ahead=True)
        case Quarantined():
            return Released() if fact.skip else None
        case _ if isinstance(fact, QuarantineOrder):
            return Released()
        case _:
            return None
