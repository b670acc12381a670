"""The common base class of replicators and group followers. Both work under a lease that their daemon holds."""

import os
import socket
from collections.abc import Awaitable, Callable

from mirrord.config.schema import FlowConfig
from mirrord.ledger.facts.core import Holder
from mirrord.ledger.store.lease import LeaseKeeper
from mirrord.ledger.store.log_interface import LedgerLog
from mirrord.ledger.store.spill_file import run_memory
from mirrord.ledger.store.store import LedgerStore
from mirrord.runtime.clock import Clock, SystemClock
from mirrord.runtime.tasks import BackgroundTasks


class LeasedWorker:
    """A base class for workers of one flow. It reads the flow's ledger and observes the lease in the ledger.

    A worker never takes or renews the lease. Its life cycle is:

    - The method `open` of the subclass calls `_join`, which reads the ledger and joins the lease. Then `open` starts
      the work as `_tasks`.
    - Immediately before each write, the subclass checks `_may_write`.
    - When the lease is lost (`LeaseKeeper.lost`), `until_lost` returns. The worker can do no more work, so its owner
      closes it.
    - The method `close` of the subclass calls `_leave`, even if `open` has failed.

    All methods run on the event loop on which the worker was opened.
    """

    def __init__(
        self,
        name: str,
        flow: FlowConfig,
        lease_ttl_ms: int,
        topics: LedgerLog,
        tasks: BackgroundTasks,
        clock: Clock | None = None,
    ) -> None:
        """Create the worker without connecting. `name` must never be used again, because the ledger refers to it.
        `topics` is a new, unopened connection to the flow's ledger. `tasks` runs the background tasks of this worker
        and defines the event that is logged if one of them fails."""
        self.name = name
        self._clock = clock or SystemClock()
        self._store = LedgerStore(topics, self._clock, memory=run_memory(flow), trims=False)
        holder = Holder(socket.gethostname(), os.getpid(), name, "")
        self._lease = LeaseKeeper(self._store, holder, lease_ttl_ms, self._clock)
        self._tasks = tasks

    async def until_lost(self) -> None:
        """Wait until the lease is lost (`LeaseKeeper.lost`). After that, this worker can do no more work."""
        await self._lease.lost.wait()

    async def _join(self, lease_epoch: int) -> None:
        """Read the ledger to its end and join the lease with this epoch.

        The daemon has created the ledger, so a worker never creates one. Raises LedgerMissing, LedgerUnavailable,
        LedgerCorrupt and LedgerWentBack.
        """
        await self._store.open(create=False)
        await self._lease.join(lease_epoch)

    def _may_write(self) -> bool:
        """Return whether this worker may write now."""
        return self._lease.is_valid

    async def _leave(self, close_connections: Callable[[], Awaitable[None]]) -> None:
        """Stop the tasks, close the connections that the tasks use, and then leave the lease and close the ledger."""
        await self._tasks.end()
        await close_connections()
        await self._lease.close()
        await self._store.close()
