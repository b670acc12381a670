"""What can be wrong with a ledger."""

from mirrord.model.errors import EnvironmentFault

LOST = "facts are lost; `mirrord rebuild` makes a new ledger from the records of both clusters"


class LedgerCorrupt(EnvironmentFault):
    """Bytes of the ledger or of the state topic are not what they should be, or are missing."""


class LedgerWentBack(EnvironmentFault):
    """The ledger lacks something that was known to be in it, or is another topic: facts are lost."""


class LedgerGone(LedgerWentBack):
    """The ledger topic was deleted."""


class StateLost(EnvironmentFault):
    """The state topic lost rows that were read from it. The ledger is whole: a store that is opened again finds what
    is left."""


class LedgerMissing(EnvironmentFault):
    """The flow has no ledger on this cluster."""


class LedgerUnavailable(EnvironmentFault):
    """An append or a save was not confirmed within its deadline. Whether it is in the log is not known."""


class ForeignFlow(EnvironmentFault):
    """The ledger of this flow name belongs to other clusters."""


class AliasChanged(ForeignFlow):
    """The flow's source has another alias than when it was copied."""


def went_back(topic: str, what: str) -> LedgerWentBack:
    """The error that says what happened to the ledger and what to do."""
    return LedgerWentBack(f"{topic} {what}: {LOST}")


def gone(topic: str) -> LedgerGone:
    """The same for a topic that is no longer there."""
    return LedgerGone(f"the ledger topic {topic} was deleted: {LOST}")
