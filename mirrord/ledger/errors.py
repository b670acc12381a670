"""The exceptions that concern the ledger of a flow."""

from mirrord.model.errors import EnvironmentFault

LOST = "facts have been lost; `mirrord rebuild` creates a new ledger from the records of both clusters"


class LedgerCorrupt(EnvironmentFault):
    """Raised when bytes of the ledger topic or the state topic are malformed or missing."""


class NotOurs(LedgerCorrupt):
    """Raised when a record of the ledger topic or the state topic does not have the form that all records of mirrord
    have. Another client wrote it, so readers skip it."""


class NotSigned(NotOurs):
    """Raised when a record has no signature although a key is configured. Readers skip it if the ledger is signed."""


class UnknownKey(LedgerCorrupt):
    """Raised when a record is signed with a key that is not configured. It may hold facts that matter."""


class SignedLedger(LedgerCorrupt):
    """Raised when the ledger is signed, but no key is configured for it."""


class TooNew(LedgerCorrupt):
    """Raised when a newer version of mirrord wrote a record. This version must not go on without understanding it."""


class LedgerWentBack(EnvironmentFault):
    """Raised when facts have been lost: the ledger lacks an entry that it once contained, or the ledger topic is now a
    different topic."""


class LedgerGone(LedgerWentBack):
    """Raised when the ledger topic has been deleted."""


class StateLost(EnvironmentFault):
    """Raised when the state topic has lost records that had already been read. The ledger itself is complete, so a
    store can be opened again with the remaining records."""


class LedgerMissing(EnvironmentFault):
    """Raised when the flow has no ledger on this cluster."""


class LedgerUnavailable(EnvironmentFault):
    """Raised when an append or a save was not confirmed before its deadline. It is unknown whether the records reached
    the log."""


class ForeignFlow(EnvironmentFault):
    """Raised when the ledger with this flow name belongs to a flow with a different source or target cluster."""


class AliasChanged(ForeignFlow):
    """Raised when the alias of the source differs from the alias in the names of the flow's existing target topics."""


def went_back(topic: str, what: str) -> LedgerWentBack:
    """Return the error for a ledger that has lost facts. Its message contains `what` (the sign of the loss) and says
    what an operator can do."""
    return LedgerWentBack(f"{topic} {what}: {LOST}")


def gone(topic: str) -> LedgerGone:
    """Return the error for a ledger topic that no longer exists."""
    return LedgerGone(f"the ledger topic {topic} was deleted: {LOST}")
