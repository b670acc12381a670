"""The lease of a flow: who may write, until when, and when a former holder can no longer write.

Clocks of different processes are never compared. The holder measures the length of the lease from the moment just
before it sent a renewal. All other processes measure it from the later moment at which they saw the renewal. The lease
therefore ends for its holder before it ends for the others.

A renewal may be acknowledged even if another daemon has taken the lease in the meantime. After each renewal, the holder
therefore reads the ledger to its end. The renewal takes effect only if no other lease has been taken.

Each new lease begins with the fact `LeaseTaken` and has a higher epoch than the previous lease. A former holder may
have renewed its lease just before this fact. It then considers its lease valid until this renewal expires. The new
holder therefore stores in `settled_from` the time after which no writer under an older lease can write. After this
time, `LeaseRenewed.settled` is true in its renewals.

If a lane's previous replicator has not left the lane cleanly, the lane waits until that replicator can no longer write.
`FlowSetup.barrier_s` computes the length of this barrier from the previous replicator's lease length and request
timeout. The fact `LaneTaken` contains both times.

On Ray, a daemon continues when its supervisor's process dies, because Ray starts another process for it. The new
process appends `LeaseContinued` and works under the same lease epoch, so the writers under the lease are not affected.
Ray may also replace a process that it wrongly considers dead. That process is then superseded: it must exit.

The lease depends only on the renewals of its holder, not on whether the replicators are alive. If the holder dies,
another daemon takes the lease even if the holder's replicators are still running. These replicators read the new lease
in the ledger and can no longer write.
"""

import asyncio
from contextlib import suppress

import structlog

from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.facts.core import Entry, Holder, LeaseContinued, LeaseReleased, LeaseRenewed, LeaseTaken
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import LedgerEnd, StateRecord
from mirrord.ledger.store.append_queue import FactBindings
from mirrord.ledger.store.process_identity import is_dead
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import MirrordError, internal_error
from mirrord.runtime.clock import Clock
from mirrord.runtime.tasks import keep_running

RENEWALS_PER_TTL = 3
NEVER = float("-inf")
LOOK_SECONDS = 1.0
"""Interval in seconds at which a standby checks whether a holder on the same machine is still alive."""

log = structlog.get_logger()


class Superseded(MirrordError):
    """Raised when another process of this daemon has taken over, because Ray considered this process dead. This process
    must exit."""


class LeaseKeeper:
    """Takes, renews and releases the lease of one flow for this process.

    The daemon calls `acquire`. From then on, the keeper renews the lease in the background. Every other process that
    works under the lease calls `join`. Its keeper regularly checks in the ledger that no other lease has been taken.
    Immediately before each write, a writer checks `is_valid`.
    """

    def __init__(
        self, store: LedgerStore, holder: Holder, ttl_ms: int, clock: Clock, *, held_before: bool = False
    ) -> None:
        """Begin without a lease. `held_before` means that an earlier keeper of this process has held the lease. If the
        lease now belongs to another process of the same daemon, that process has superseded this one."""
        self.epoch = 0
        """The epoch of the lease under which this process works; 0 before `acquire` and `join`."""
        self.valid_until = NEVER
        """Monotonic time in seconds until which no other daemon can hold the lease."""
        self.settled_from = NEVER
        """Monotonic time in seconds until which a writer under an older lease may still believe that it may write."""
        self.former_ended = False
        """True if all writers under older leases are known to have stopped. In this case, only requests that were
        already in flight can still arrive."""
        self.lost = asyncio.Event()
        """Set when another daemon has taken the lease, or when the ledger can no longer be read. Also set when entries
        were trimmed before they were read, because one of them may have given a lane of this process to another
        replicator."""
        self.trouble = ""
        """Why the latest renewal failed; empty while renewals succeed."""
        self.turn = 0
        """The number of this process among the processes of its daemon that have held this lease; 0 before
        `acquire`."""
        self.superseded = asyncio.Event()
        """Set when another process of the same daemon has continued the lease. From then on, this process must not stop
        any replicators, because they belong to the other process."""
        self._store = store
        self._holder = holder
        self._ttl_ms = ttl_ms
        self._held_before = held_before
        self._clock = clock
        self._seen = clock.monotonic()
        self._sign = asyncio.Event()
        self._beat = 0
        self._took = False
        self._saved_end: LedgerEnd | None = None
        self._task: asyncio.Task[None] | None = None
        self._trimming: asyncio.Task[None] | None = None
        self._subscriptions = (
            store.on_entry(self._take_entry),
            store.on_record(self._take_record),
            store.on_leap(self._lose),
            store.on_end(self._lose),
        )

    @property
    def is_valid(self) -> bool:
        """Whether this process may write now."""
        return self._clock.monotonic() < self.valid_until

    async def acquire(self) -> int:
        """Take the lease, or continue the lease that this daemon already holds, and return its epoch. While another
        daemon holds the lease, wait as a standby.

        Raises Superseded, and the errors that end the ledger's store. If the ledger is temporarily unavailable, this
        method waits.
        """
        while True:
            try:
                if await self._continue():
                    self._start()
                    return self.epoch
                await self._until_free()
                if not self._is_own and await self._take():
                    self._start()
                    return self.epoch
            except LedgerUnavailable as error:
                if self._store.failure is not None:
                    raise
                log.warning("lease_unavailable", error=str(error))
                await self._clock.sleep(self._ttl_ms / 1000 / RENEWALS_PER_TTL)

    async def join(self, epoch: int) -> None:
        """Work under the lease with this epoch, which the daemon holds. This process may write once it has read the
        ledger to its end and found no later lease."""
        self.epoch = epoch
        with suppress(LedgerUnavailable):
            await self._renew()
        self._start()

    async def release(self) -> None:
        """Release the lease after all lanes have been drained.

        If this method raises LedgerUnavailable, the lease remains in force until it expires.
        """
        await self._stop()
        if self.epoch and not self.lost.is_set():
            await self._store.append(self.epoch, [LeaseReleased(self.epoch)])

    async def close(self) -> None:
        """Stop renewing the lease, without releasing it."""
        await self._stop()

    async def _until_free(self) -> None:
        """Wait until the current lease is released, its holder is dead, or its holder has not renewed it for the
        length of the lease."""
        while not self._is_free() and not self._is_own:
            state = self._store.state
            self._sign.clear()
            silence = self._seen + state.ttl_ms / 1000 - self._clock.monotonic()
            if silence > 0:
                await self._wait(min(silence, LOOK_SECONDS))
                continue
            # Renewals may have arrived while this process was suspended. The ledger must be read before the lease
            # counts as expired.
            epoch, seen = state.lease_epoch, self._seen
            await self._store.read_to_end()
            if (self._store.state.lease_epoch, self._seen) == (epoch, seen):
                return

    @property
    def _is_own(self) -> bool:
        """Whether this daemon holds a lease of the configured length. The process that took the lease may have died."""
        state = self._store.state
        return self._is_of_daemon(state.holder) and not state.released and state.ttl_ms == self._ttl_ms

    async def _continue(self) -> bool:
        """Continue the lease of this daemon if it holds one. Return whether this succeeded. Raises Superseded."""
        state = self._store.state
        if self._held_before and self._is_of_daemon(state.holder) and state.holder != self._holder:
            self.superseded.set()
        self._check()
        if not self._is_own:
            return False
        epoch, turn = state.lease_epoch, state.turn + 1
        sent = self._clock.monotonic()
        self.turn = turn
        (bound,) = await self._store.append(epoch, [LeaseContinued(epoch, turn, self._holder)])
        if not bound:
            self.turn = 0
            return False
        self.epoch, self._took = epoch, True
        self.valid_until = sent + self._ttl_ms / 1000
        # Nothing is known about earlier leases, so the longest time for which a writer may still write is assumed.
        self.settled_from = self._clock.monotonic() + self._ttl_ms / 1000
        log.info("lease_continued", epoch=epoch, turn=turn)
        return True

    def _is_of_daemon(self, holder: Holder | None) -> bool:
        return holder is not None and bool(holder.daemon) and holder.daemon == self._holder.daemon

    def _check(self) -> None:
        if self.superseded.is_set():
            raise Superseded("another process of this daemon continues")

    def _is_free(self) -> bool:
        state = self._store.state
        return not state.lease_epoch or state.released or (state.holder is not None and is_dead(state.holder))

    async def _wait(self, seconds: float) -> None:
        """Wait until the lease changes or its holder renews it, but for at most this number of seconds."""
        waits = [asyncio.ensure_future(self._sign.wait()), asyncio.ensure_future(self._clock.sleep(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._check()
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
        self.epoch, self.turn, self._took = epoch, 1, True
        self.valid_until = sent + self._ttl_ms / 1000
        # A renewal that was sent before the lease was taken remains valid for its sender until the renewal expires.
        over = self._clock.monotonic() + former_ttl_ms / 1000
        self.former_ended = ended
        self.settled_from = NEVER if first or ended else over
        log.info("lease_taken", epoch=epoch, clean=was_clean, former_ended=ended)
        return True

    def _all_ended(self) -> bool:
        """Return whether all writers under the current lease and under earlier leases have stopped.

        The result is False if this is not certain.
        """
        state, renewal = self._store.state, self._store.renewal
        holder = state.holder
        if holder is None or not holder.hosts_all:
            return False
        if renewal is None or renewal.epoch != state.lease_epoch or not renewal.settled:
            return False
        return state.released or is_dead(holder)

    def _start(self) -> None:
        self._check_lost(self._store.state)
        if not self.lost.is_set():
            self._task = asyncio.create_task(keep_running(self._keep, "lease_not_renewed"))

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
            began = self._clock.monotonic()
            try:
                await self._renew()
                self.trouble = self._too_slow(began)
            except MirrordError as error:
                self.trouble = str(error)
                log.warning("lease_not_renewed", epoch=self.epoch, error=str(error))
            except Exception as error:
                # This task must not end: without it, the flow would stand still, and no other daemon would be told why.
                self.trouble = internal_error(error)
                log.error("lease_not_renewed", epoch=self.epoch, exc_info=error)
            self._trim()

    async def _renew(self) -> None:
        if self._took and not self.is_valid:
            # The lease of this process has expired, so another daemon may have taken the flow or rebuilt its ledger.
            await self._store.read_to_end()
            if self.lost.is_set():
                return
        sent = self._clock.monotonic()
        if self._took:
            await self._write_renewal()
        await self._store.read_to_end()
        state = self._store.state
        if state.lease_epoch == self.epoch and not state.released and not self.lost.is_set():
            self.valid_until = max(self.valid_until, sent + state.ttl_ms / 1000)

    def _too_slow(self, began: float) -> str:
        """Return a message if a renewal succeeded too late to take effect. Otherwise return an empty string."""
        took, ttl_s = self._clock.monotonic() - began, self._ttl_ms / 1000
        if self.lost.is_set() or took < ttl_s:
            return ""
        log.warning("lease_renewed_late", epoch=self.epoch, seconds=round(took, 3))
        return f"a renewal of the lease took {took:.1f} s, longer than runtime.lease_ttl ({ttl_s:g} s)"

    async def _write_renewal(self) -> None:
        """Write a renewal, which shows the standbys that the holder is alive. Also record how far the ledger
        extends."""
        self._beat += 1
        settled = self._clock.monotonic() >= self.settled_from
        records: list[StateRecord] = [LeaseRenewed(self.epoch, self._beat, self._clock.wall_ms(), settled)]
        end = self._store.end_to_save
        if end is not None and end != self._saved_end:
            records.append(end)
        await self._store.save(*records)
        self._saved_end = end

    def _trim(self) -> None:
        """Start trimming the ledger if this process has taken the lease. The trim may take a long time, so it runs
        concurrently with the renewals."""
        if self._took and self._store.is_long and (self._trimming is None or self._trimming.done()):
            self._trimming = asyncio.create_task(self._trim_once())

    async def _trim_once(self) -> None:
        try:
            await self._store.trim()
        except MirrordError as error:
            log.warning("ledger_not_trimmed", error=str(error))
        except Exception as error:
            log.error("ledger_not_trimmed", exc_info=error)

    def _lose(self) -> None:
        if self.epoch:
            self.valid_until = NEVER
            self.lost.set()

    def _take_entry(self, _offset: int, entry: Entry, bound: FactBindings) -> None:
        for fact, binds in zip(entry.facts, bound, strict=True):
            if binds and isinstance(fact, LeaseTaken | LeaseContinued | LeaseReleased):
                self._see(self._store.state)
            if binds and isinstance(fact, LeaseContinued) and self._is_rival(fact):
                log.warning("lease_superseded", epoch=fact.epoch, turn=fact.turn)
                self.superseded.set()
                self._lose()

    def _take_record(self, record: StateRecord) -> None:
        state = self._store.state
        if isinstance(record, LeaseRenewed) and record.epoch == state.lease_epoch:
            self._see(state)

    def _is_rival(self, fact: LeaseContinued) -> bool:
        """Return whether this fact shows that another process of this daemon has continued the lease, although this
        process is still running."""
        return self._is_of_daemon(fact.holder) and fact.holder != self._holder

    def _see(self, state: FlowState) -> None:
        self._seen = self._clock.monotonic()
        self._sign.set()
        self._check_lost(state)

    def _check_lost(self, state: FlowState) -> None:
        is_over = state.lease_epoch > self.epoch or (state.lease_epoch == self.epoch and state.released)
        if self.epoch and is_over and not self.lost.is_set():
            log.warning("lease_lost", epoch=self.epoch, present=state.lease_epoch, released=state.released)
            self._lose()
