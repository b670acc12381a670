"""What can be wrong with a ledger."""

from mirrord.model.errors import EnvironmentFault


class LedgerCorrupt(EnvironmentFault):
    """Bytes of the ledger or of the state topic are not what they should be, or are missing."""


class LedgerWentBack(EnvironmentFault):
    """The ledger ends below what was known to be in it, or is another topic: facts are lost."""


class LedgerMissing(EnvironmentFault):
    """The flow has no ledger on this cluster."""


class LedgerUnavailable(EnvironmentFault):
    """An append or a save was not confirmed within its deadline. Whether it is in the log is not known."""


class ForeignFlow(EnvironmentFault):
    """The ledger of this flow name belongs to other clusters."""
