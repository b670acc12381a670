"""How facts in the ledger affect the lane that they are about, on the replicator that hosts it."""

from mirrord.ledger.facts.core import AnyFact, LaneTaken
from mirrord.ledger.facts.quarantine import Quarantined, QuarantineOrder
from mirrord.ledger.facts.seeks import LaneSought
from mirrord.model.names import LaneId
from mirrord.replication.lane.signals import Fenced, Released

NOBODY = LaneId("")


def concerned(fact: AnyFact) -> LaneId:
    """Return the lane that may have to be notified; for most facts there is none."""
    return fact.lane if isinstance(fact, LaneTaken | Quarantined | QuarantineOrder | LaneSought) else NOBODY


def news(fact: AnyFact, replicator: str) -> Fenced | Released | None:
    """Return the signal that the lane gets when a fact takes effect; None if it gets none. `replicator` is the name of
    the replicator that hosts the lane."""
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
