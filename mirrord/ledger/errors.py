"""Exceptions about a flow's ledger."""

from mirrord.model.errors import EnvironmentFault

LOST = "facts are lost; `mirrord rebuild` makes a new ledger from the records of both clusters"


class LedgerCorrupt(EnvironmentFault):
    """Bytes of the ledger or of the state topic are malformed or missing."""


class LedgerWentBack(EnvironmentFault):
    """The ledger lacks an entry that is known to have been in it, or it is another topic: facts are lost."""


class LedgerGone(LedgerWentBack):
    """The ledger topic was deleted."""


class StateLost(EnvironmentFault):
    """The state topic lost records that were read from it earlier. The ledger itself is complete. A store that is
    opened again finds the records that are left."""


class LedgerMissing(EnvironmentFault):
    """The flow has no ledger on this cluster."""


class LedgerUnavailable(EnvironmentFault):
    """An append or a save was not confirmed within its deadline. It is not known whether it reached the log."""


class ForeignFlow(EnvironmentFault):
    """The ledger with this flow's name belongs to a flow between other clusters."""


class AliasChanged(ForeignFlow):
    """The alias of the flow's source differs from the alias under which the flow has copied so far."""


def went_back(topic: str, what: str) -> LedgerWentBack:
    """Return the error for a ledger that has lost facts. It says what was noticed and what to do about it."""
    return LedgerWentBack(f"{topic} {what}: {LOST}")


def gone(topic: str) -> LedgerGone:
    """Return the error for a ledger topic that no longer exists."""
    return LedgerGone(f"the ledger topic {topic} was deleted: {LOST}")
