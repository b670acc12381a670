"""Ensures that only one job of each kind runs for a flow at a time, across all machines. The lease of a job consists of
facts in the ledger (see `mirrord.ledger.facts.jobs`).

The thread that runs a job is busy for minutes while Spark works. The lease is therefore kept by a separate thread. This
thread takes the lease when no other process is running the job. It periodically records that the job is alive and how
much of it is done. Finally, it records how the job ended.

If the ledger shows that another process is running the job, the thread waits until that process has been silent for the
length of its lease. It does not wait for a process that is known to be dead. Clocks of different machines are never
compared.
"""

import asyncio
import os
import threading
from types import TracebackType
from typing import Self

import msgspec
import structlog

from mirrord.config.schema import Config
from mirrord.ledger.codec import LAYOUT_WITHOUT_MARK, layout_of
from mirrord.ledger.errors import LedgerMissing
from mirrord.ledger.facts.core import AnyFact
from mirrord.ledger.facts.jobs import JobBegan, JobEnded, JobFact, JobRenewed
from mirrord.ledger.job_state import JobState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.process_identity import is_dead, is_dead_worker, this_worker
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.drill import DrillReceipt
from mirrord.model.errors import EnvironmentFault, MirrordError
from mirrord.model.jobs import Job, JobOutcome
from mirrord.runtime.clock import SystemClock

TTL_MS = 60_000
RENEW_S = 15.0
LOOK_S = 1.0
END_S = 5.0
PATIENCE_S = 10.0
APPEND_TRIES = 5

log = structlog.get_logger()


class JobBusy(EnvironmentFault):
    """Raised when another process is running the job."""


class JobNotRecorded(EnvironmentFault):
    """Raised when no other process is running the job, but this process cannot record in the ledger that it is running
    the job.

    For example, the process may be permitted to read the ledger but not to write to it.
    """


class _Held(msgspec.Struct):
    """The lease of a job for one flow, and the outcome of the job that will be recorded in the flow's ledger."""

    flow: str
    store: LedgerStore
    number: int = 0
    outcome: JobOutcome = "failed"
    line: str = ""
    drill: DrillReceipt | None = None
    is_decided: bool = False
    """Whether `JobLease.set_outcome` has set the outcome."""


class JobLease:
    """The lease of one job for several flows. It is a context manager, and the work is done in its `with` block.

    Entering the block raises JobBusy if another process is running the job, and JobNotRecorded if the ledger cannot be
    written to. If a ledger cannot be read, it raises another EnvironmentFault. A flow that has never run is skipped.

    If another process has taken the lease, this process exits. This happens if this process was suspended for longer
    than the length of the lease.
    """

    def __init__(self, config: Config, job: Job) -> None:
        self._config = config
        self._job: Job = job
        self._held: list[_Held] = []
        self._progress = (0, 0)
        self._began = threading.Event()
        self._fault: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name=f"lease of {job}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._began.wait()
        if self._fault is not None:
            self._thread.join()
            raise self._fault
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self.set_every_outcome("failed", str(error).splitlines()[0] if str(error) else repr(error))
        elif error is not None:
            self.set_every_outcome("stopped", "it was asked to stop")
        self.end()

    def progress(self, done: int, every: int) -> None:
        """Set how many units of the work are done, and how many there are in total (`every`). The next renewal of the
        lease records these numbers."""
        self._progress = (done, every)

    def set_outcome(self, flow: str, outcome: JobOutcome, line: str, drill: DrillReceipt | None = None) -> None:
        """Set the outcome of the job for one flow. It is recorded when the job ends."""
        for held in self._held:
            if held.flow == flow:
                held.outcome, held.line, held.drill, held.is_decided = outcome, line, drill, True

    def set_every_outcome(self, outcome: JobOutcome, line: str) -> None:
        """Set one outcome of the job for all flows without an outcome. It is recorded when the job ends."""
        for held in self._held:
            if not held.is_decided:
                held.outcome, held.line = outcome, line

    def end(self) -> None:
        """Record how the job ended. Wait at most a few seconds for this to be recorded. Further calls have no
        effect."""
        if self._loop is not None and self._ending is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(END_S + 1)

    # The thread that keeps the lease.

    def _run(self) -> None:
        try:
            asyncio.run(self._keep())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that does the work
            self._fault = error
        finally:
            self._began.set()

    async def _keep(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        try:
            ledgers = ClusterAccess(self._config, PATIENCE_S)
            free = await asyncio.gather(*(self._until_free(ledgers.ledger(flow)) for flow in self._config.flows))
            try:
                try:
                    for flow in (flow for flow, is_free in zip(self._config.flows, free, strict=True) if is_free):
                        store = ledgers.ledger(flow)
                        await store.open()
                        self._held.append(_Held(flow.name, store))
                    for held in self._held:
                        await self._begin(held)
                except EnvironmentFault as fault:
                    raise fault if isinstance(fault, JobBusy) else JobNotRecorded(str(fault)) from fault
                self._began.set()
                await self._renew()
            finally:
                async with asyncio.timeout(END_S):
                    await asyncio.gather(*(self._end(held) for held in self._held if held.number))
        finally:
            await asyncio.gather(*(held.store.close() for held in self._held))

    async def _until_free(self, store: LedgerStore) -> bool:
        """Wait until no other process is running the job.

        Return False if the flow has never run. Raises JobBusy if the ledger shows that another process is running the
        job and is still alive.
        """
        try:
            await store.open(read_only=True)
        except LedgerMissing:
            return False
        try:
            clock, seen = SystemClock(), store.state.jobs.get(self._job)
            began = clock.monotonic()
            while (other := store.state.jobs.get(self._job)) is not None and other.outcome is None:
                if is_dead_worker(other.worker) or clock.monotonic() >= began + other.ttl_ms / 1000:
                    break
                if seen is None or (other.number, other.signs) != (seen.number, seen.signs):
                    raise JobBusy(busy_line(store.state.flow, other))
                await clock.sleep(LOOK_S)
                await store.read_to_end()
            return True
        finally:
            await store.close()

    async def _begin(self, held: _Held) -> None:
        last = held.store.state.jobs.get(self._job)
        number = 1 + (last.number if last else 0)
        began = JobBegan(self._job, number, this_worker(), TTL_MS, SystemClock().wall_ms())
        _check_readable(held, began)
        if not await append_under_current_lease(held.store, began):
            other = held.store.state.jobs.get(self._job)
            raise JobBusy(busy_line(held.flow, other) if other else f"the lease of {held.flow} is being taken over")
        held.number = number

    async def _renew(self) -> None:
        assert self._ending is not None  # noqa: S101
        while not self._ending.is_set():
            try:
                async with asyncio.timeout(RENEW_S):
                    await self._ending.wait()
            except TimeoutError:
                await asyncio.gather(*(self._renew_one(held) for held in self._held))

    async def _renew_one(self, held: _Held) -> None:
        try:
            if await append_under_current_lease(held.store, JobRenewed(self._job, held.number, *self._progress)):
                return
        except MirrordError as error:
            log.warning("job_lease_not_renewed", flow=held.flow, job=self._job, error=str(error))
            return
        job = held.store.state.jobs.get(self._job)
        if job is None or job.number != held.number:
            log.error("job_lease_lost", flow=held.flow, job=self._job)
            os._exit(1)

    async def _end(self, held: _Held) -> None:
        try:
            await append_under_current_lease(
                held.store,
                JobEnded(self._job, held.number, held.outcome, held.line, SystemClock().wall_ms(), held.drill),
            )
        except MirrordError as error:
            log.warning("job_end_not_told", flow=held.flow, job=self._job, error=str(error))


def _check_readable(held: _Held, fact: JobFact) -> None:
    """Raise JobNotRecorded if the daemon that runs the flow could not read the fact: it would stop."""
    state = held.store.state
    holder = None if state.released else state.holder
    if holder is not None and not is_dead(holder) and max(holder.layout, LAYOUT_WITHOUT_MARK) < layout_of(fact):
        raise JobNotRecorded(f"the daemon of {held.flow} ({holder.program or 'an older version'}) could not read it")


def busy_line(flow: str, other: JobState) -> str:
    """Return that another process is running the job, as one line for operators."""
    where = f"pid {other.worker.pid} on {other.worker.host}"
    what = {"audit": "an audit", "compact": "a compaction", "drill": "a drill"}[other.job]
    return f"{what} of {flow} is already running ({where}): each flow has one at a time"


async def append_under_current_lease(store: LedgerStore, fact: AnyFact) -> bool:
    """Append a fact under the current lease, whichever daemon holds it. Return whether the fact took effect.

    If another lease is taken in the meantime, the append is retried a few times. Raises LedgerUnavailable.
    """
    for _ in range(APPEND_TRIES):
        epoch = store.state.lease_epoch
        (bound,) = await store.append(epoch, [fact])
        if bound or store.state.lease_epoch == epoch:
            return bound
    return False
