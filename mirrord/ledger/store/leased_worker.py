"""The common base of replicators and followers of consumer groups, which work under a lease that their daemon holds."""

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
    """A base class for workers of one flow. It reads the flow's ledger and follows the lease that the ledger shows.

    A worker never takes or renews the lease. Its life cycle is:

    - The subclass's `open` calls `_join`, which reads the ledger and joins the lease, and starts the work as `_tasks`.
    - Right before each write, the subclass checks `_may_write`.
    - When another daemon takes the lease, `until_lost` returns. The worker never has work again, so its owner ends it.
    - The subclass's `close` calls `_leave`, also after an `open` that failed.

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
        """`name` must never be used again, because it is recorded in the ledger. `topics` is a new connection to
        the flow's ledger that has not been opened yet. `tasks` keeps this worker's background tasks, and defines the
        event that is logged when one of them fails."""
        self.name = name
        self._clock = clock or SystemClock()
        self._store = LedgerStore(topics, self._clock, memory=run_memory(flow))
        holder = Holder(socket.gethostname(), os.getpid(), name, "")
        self._lease = LeaseKeeper(self._store, holder, lease_ttl_ms, self._clock)
        self._tasks = tasks

    async def until_lost(self) -> None:
        """Wait until another holder has the lease. This worker then has nothing to do any more."""
        await self._lease.lost.wait()

    async def _join(self, lease_epoch: int) -> None:
        """Read the ledger to its end and join the lease of this epoch.

        The daemon has created the ledger: a worker that does not find it must not make an empty one. Raises
        LedgerMissing, LedgerUnavailable, LedgerCorrupt, LedgerWentBack.
        """
        await self._store.open(create=False)
        await self._lease.join(lease_epoch)

    def _may_write(self) -> bool:
        """Return whether this worker may write now."""
        return self._lease.is_valid

    async def _leave(self, close_connections: Callable[[], Awaitable[None]]) -> None:
        """End the tasks, close the connections that they use, and then leave the lease and close the ledger."""
        await self._tasks.end()
        await close_connections()
        await self._lease.close()
        await self._store.close()
