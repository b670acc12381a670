"""Reports the holder of a flow's lease, and the time since its last renewal was seen.

Clocks of different machines are not compared: only renewals that this process has seen count.
"""

from mirrord.ledger.facts.core import LeaseRenewed
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import StateRecord
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.status import LeaseStatus
from mirrord.runtime.clock import Clock


def lease_status(state: FlowState, age_ms: int) -> LeaseStatus | None:
    """Return the lease according to the ledger, renewed `age_ms` ago; None when no daemon holds it."""
    holder = state.holder
    if holder is None or state.released:
        return None
    where = (holder.host, holder.pid, holder.instance, holder.http, state.lease_epoch)
    return LeaseStatus(*where, age_ms, holder.program)


class SeenLease:
    """The time when the lease of one flow was last seen to be renewed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = 0.0

    def follow(self, store: LedgerStore) -> None:
        """Follow the renewals in a ledger that has just been opened."""
        self._seen = self._clock.monotonic()
        store.on_record(self._take)

    @property
    def age_s(self) -> float:
        """Time since the last renewal was seen, in seconds."""
        return self._clock.monotonic() - self._seen

    def _take(self, record: StateRecord) -> None:
        if isinstance(record, LeaseRenewed):
            self._seen = self._clock.monotonic()
