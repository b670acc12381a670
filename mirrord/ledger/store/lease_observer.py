"""Who holds a flow's lease, and how long ago that was seen. Clocks are not compared: only what was seen here counts."""

from mirrord.ledger.facts.core import LeaseRenewed
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_records import StateRecord
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.status import LeaseStatus
from mirrord.runtime.clock import Clock


def lease_status(state: FlowState, age_ms: int) -> LeaseStatus | None:
    """The lease as the ledger says, renewed so long ago; None when nobody has it."""
    holder = state.holder
    if holder is None or state.released:
        return None
    where = (holder.host, holder.pid, holder.instance, holder.http, state.lease_epoch)
    return LeaseStatus(*where, age_ms, holder.program)


class SeenLease:
    """When the lease of one flow was seen to be renewed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = 0.0

    def follow(self, store: LedgerStore) -> None:
        """By a ledger that was opened just now."""
        self._seen = self._clock.monotonic()
        store.on_record(self._take)

    @property
    def age_s(self) -> float:
        """How long ago."""
        return self._clock.monotonic() - self._seen

    def _take(self, record: StateRecord) -> None:
        if isinstance(record, LeaseRenewed):
            self._seen = self._clock.monotonic()
