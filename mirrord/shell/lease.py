"""The lease on a flow: who may write, until when, and when a former holder can have written for the last time.

Clocks are never compared. The holder counts its time from before it sent a renewal, everyone else from when they saw
it, so a lease ends for its holder before it ends for others. A renewal may be confirmed although another one has taken
the flow meanwhile: it counts when the ledger was then read to its end and the lease was still there.

A renewal that was sent before a `LeaseTaken` may count until its time is over, so whoever takes the flow knows by
`former_until` when the last writer under an older lease is through.

Only the holder's renewals are written down. The replicators under a lease have no say in whether its holder is alive:
one that died is replaced although they go on, and they learn of it from the ledger.
"""

import asyncio
from contextlib import suppress

import structlog

from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.records import LedgerMark, StateRecord
from mirrord.ledger.state import FlowState
from mirrord.model.errors import MirrordError
from mirrord.model.facts import Entry, Holder, LeaseReleased, LeaseRenewed, LeaseTaken
from mirrord.shell.clock import Clock
from mirrord.shell.lease_holder import is_dead
from mirrord.shell.ledger_outbox import Bound
from mirrord.shell.ledger_store import LedgerStore

RENEWALS_PER_TTL = 3
NEVER = float("-inf")
LOOK_SECONDS = 1.0
"""How often a standby looks whether a holder on the same machine is still a living process."""

log = structlog.get_logger()


class LeaseKeeper:
    """Takes, renews and gives back the lease of one flow for this process.

    The daemon calls `acquire`; every other process that works under the lease calls `join`. Each keeps up by itself.
    Right before each write, a writer looks whether `clock.monotonic() < valid_until`, on the clock of this keeper.
    """

    def __init__(self, store: LedgerStore, holder: Holder, ttl_ms: int, clock: Clock) -> None:
        self.epoch = 0
        """The lease epoch that this process works under; 0 before `acquire` and `join`."""
        self.valid_until = NEVER
        """Monotonic seconds: until then no one else holds the lease."""
        self.former_until = NEVER
        """Monotonic seconds: until then a writer under an older lease may still believe that it may write."""
        self.former_ended = False
        """Whoever wrote under an older lease is known to have ended: only what was on its way can still arrive."""
        self.lost = asyncio.Event()
        """Set when someone else took the lease, when the ledger cannot be read any more, and when entries of it were
        trimmed before they were read: a lane of this process may have been taken by one of them."""
        self._store = store
        self._holder = holder
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._seen = clock.monotonic()
        self._sign = asyncio.Event()
        self._beat = 0
        self._settled_from = NEVER
        self._took = False
        self._marked: LedgerMark | None = None
        self._task: asyncio.Task[None] | None = None
        self._trimming: asyncio.Task[None] | None = None
        self._subscriptions = (
            store.on_entry(self._take_entry),
            store.on_record(self._take_record),
            store.on_leap(self._lose),
        )

    @property
    def is_valid(self) -> bool:
        """Whether this process may write now."""
        return self._clock.monotonic() < self.valid_until

    async def acquire(self) -> int:
        """Take the lease, waiting as a standby while another one holds it; the new epoch.

        Raises what ends the ledger's store; that the ledger is unavailable for a while is waited out.
        """
        while True:
            try:
                await self._until_free()
                if await self._take():
                    self._start()
                    return self.epoch
            except LedgerUnavailable as error:
                if self._store.failure is not None:
                    raise
                log.warning("lease_unavailable", error=str(error))
                await self._clock.sleep(self._ttl_ms / 1000 / RENEWALS_PER_TTL)

    async def join(self, epoch: int) -> None:
        """Work under a lease that this process was told of; it is valid once the ledger was seen to say the same."""
        self.epoch = epoch
        with suppress(LedgerUnavailable):
            await self._renew()
        self._start()

    async def release(self) -> None:
        """Give the lease back; the lanes are drained. Raises LedgerUnavailable, and the lease ends by its time then."""
        await self._stop()
        if self.epoch and not self.lost.is_set():
            await self._store.append(self.epoch, [LeaseReleased(self.epoch)])

    async def close(self) -> None:
        """Stop renewing without giving the lease back."""
        await self._stop()

    async def _until_free(self) -> None:
        """Wait until the present lease was released, or its holder is dead or silent for as long as the lease lasts."""
        while not self._is_free():
            state = self._store.state
            self._sign.clear()
            silence = self._seen + state.ttl_ms / 1000 - self._clock.monotonic()
            if silence > 0:
                await self._wait(min(silence, LOOK_SECONDS))
                continue
            # Signs of life may have come in while this process was not running: look before saying that there are none.
            epoch, seen = state.lease_epoch, self._seen
            await self._store.read_to_end()
            if (self._store.state.lease_epoch, self._seen) == (epoch, seen):
                return

    def _is_free(self) -> bool:
        state = self._store.state
        return not state.lease_epoch or state.released or (state.holder is not None and is_dead(state.holder))

    async def _wait(self, seconds: float) -> None:
        """Until something happens to the lease, or so long."""
        waits = [asyncio.ensure_future(self._sign.wait()), asyncio.ensure_future(self._clock.sleep(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._store.failure is not None:
            raise self._store.failure

    async def _take(self) -> bool:
        former = self._store.state
        epoch, was_clean = former.lease_epoch + 1, not former.lease_epoch or former.released
        former_ttl_ms, first, ended = former.ttl_ms, not former.lease_epoch, self._all_ended()
        sent = self._clock.monotonic()
        (bound,) = await self._store.append(epoch, [LeaseTaken(epoch, self._holder, self._ttl_ms)])
        if not bound:
            return False
        self.epoch, self._took = epoch, True
        self.valid_until = sent + self._ttl_ms / 1000
        # A renewal that was sent before the lease was taken counts for its holder until its time is over.
        over = self._clock.monotonic() + former_ttl_ms / 1000
        self.former_ended = ended
        self.former_until = NEVER if was_clean or ended else over
        self._settled_from = NEVER if first or ended else over
        log.info("lease_taken", epoch=epoch, clean=was_clean, former_ended=ended)
        return True

    def _all_ended(self) -> bool:
        """Whether all have ended that wrote under the present lease, and under those before it. False if not sure."""
        state, renewal = self._store.state, self._store.renewal
        holder = state.holder
        if holder is None or not holder.hosts_all:
            return False
        if renewal is None or renewal.epoch != state.lease_epoch or not renewal.settled:
            return False
        return state.released or is_dead(holder)

    def _start(self) -> None:
        self._look(self._store.state)
        if not self.lost.is_set():
            self._task = asyncio.create_task(self._keep())

    async def _stop(self) -> None:
        self.valid_until = NEVER
        tasks = [task for task in (self._task, self._trimming) if task is not None]
        self._task = self._trimming = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.valid_until = NEVER
        for end in self._subscriptions:
            end()

    async def _keep(self) -> None:
        while not self.lost.is_set():
            await self._clock.sleep(self._ttl_ms / 1000 / RENEWALS_PER_TTL)
            try:
                await self._renew()
            except MirrordError as error:
                log.warning("lease_not_renewed", epoch=self.epoch, error=str(error))
                if self._store.failure is not None:
                    self._lose()
            self._trim()

    async def _renew(self) -> None:
        sent = self._clock.monotonic()
        if self._took:
            await self._tell()
        await self._store.read_to_end()
        state = self._store.state
        if state.lease_epoch == self.epoch and not state.released and not self.lost.is_set():
            self.valid_until = max(self.valid_until, sent + state.ttl_ms / 1000)

    async def _tell(self) -> None:
        """Let the standbys see that the holder lives, and note how far the ledger reaches."""
        self._beat += 1
        settled = self._clock.monotonic() >= self._settled_from
        records: list[StateRecord] = [LeaseRenewed(self.epoch, self._beat, self._clock.wall_ms(), settled)]
        mark = self._store.mark
        if mark != self._marked:
            records.append(mark)
        await self._store.save(*records)
        self._marked = mark

    def _trim(self) -> None:
        """The process that took the lease keeps the ledger short. Beside renewing: it may take long."""
        if self._took and self._store.is_long and (self._trimming is None or self._trimming.done()):
            self._trimming = asyncio.create_task(self._trim_once())

    async def _trim_once(self) -> None:
        try:
            await self._store.trim()
        except MirrordError as error:
            log.warning("ledger_not_trimmed", error=str(error))

    def _lose(self) -> None:
        if self.epoch:
            self.valid_until = NEVER
            self.lost.set()

    def _take_entry(self, _offset: int, entry: Entry, bound: Bound) -> None:
        for fact, binds in zip(entry.facts, bound, strict=True):
            if binds and isinstance(fact, LeaseTaken | LeaseReleased):
                self._see(self._store.state)

    def _take_record(self, record: StateRecord) -> None:
        state = self._store.state
        if isinstance(record, LeaseRenewed) and record.epoch == state.lease_epoch:
            self._see(state)

    def _see(self, state: FlowState) -> None:
        self._seen = self._clock.monotonic()
        self._sign.set()
        self._look(state)

    def _look(self, state: FlowState) -> None:
        is_over = state.lease_epoch > self.epoch or (state.lease_epoch == self.epoch and state.released)
        if self.epoch and is_over and not self.lost.is_set():
            log.warning("lease_lost", epoch=self.epoch, present=state.lease_epoch, released=state.released)
            self._lose()
