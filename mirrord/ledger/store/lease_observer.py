"""Reports who holds the lease of a flow, and how long ago a renewal of the lease was last seen.

Clocks of different machines are not compared. Only renewals that this process itself has seen are considered.
"""

from mirrord.ledger.facts.core import LeaseRenewed
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import StateRecord
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.status import LeaseStatus
from mirrord.runtime.clock import Clock


def lease_status(state: FlowState, age_ms: int) -> LeaseStatus | None:
    """Return the lease according to the ledger. Return None if no daemon holds it. `age_ms` is the time since a renewal
    of the lease was last seen."""
    holder = state.holder
    if holder is None or state.released:
        return None
    where = (holder.host, holder.pid, holder.instance, holder.http, state.lease_epoch)
    return LeaseStatus(*where, age_ms, holder.program)


class SeenLease:
    """Remembers when this process last saw a renewal of one flow's lease."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = 0.0

    def follow(self, store: LedgerStore) -> None:
        """Begin to watch the lease renewals in a ledger that has just been opened. Until the first renewal is seen,
        `age_s` is the time since this call."""
        self._seen = self._clock.monotonic()
        store.on_record(self._take)

    @property
    def age_s(self) -> float:
        """The number of seconds since this process last saw a renewal."""
        return self._clock.monotonic() - self._seen

    def _take(self, record: StateRecord) -> None:
        if isinstance(record, LeaseRenewed):
            self._seen = self._clock.monotonic()
