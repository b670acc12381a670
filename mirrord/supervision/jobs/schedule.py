"""Runs the scheduled jobs of one flow while this daemon holds the flow's lease. The configuration keys are
`[audit] every`, `[compact] every` and `[drill] every`.

Each job runs in a separate process (`mirrord.supervision.jobs.job_process`), so that it does not block the supervisor's
event loop. A person, a cron job or another daemon may already have started the same job. In that case, the ledger shows
that the job is running or done (see `mirrord.ledger.store.job_lease`), and the job's process does no work and reports
that the job was not needed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import structlog

from mirrord.config.schema import Config
from mirrord.ledger.facts.jobs import JOBS
from mirrord.ledger.job_state import JobState
from mirrord.ledger.store.process_identity import is_dead_worker
from mirrord.model.errors import internal_error
from mirrord.model.jobs import Job, JobStatus
from mirrord.runtime.clock import Clock
from mirrord.runtime.tasks import run_together
from mirrord.runtime.wait import wait_for
from mirrord.supervision.jobs.job_process import JobOrder, JobProcess, JobReport
from mirrord.supervision.rules.job_times import next_ms

LOOK_S = 60.0
"""Maximum interval between two readings of the wall clock while a job is not due yet. The clock is read repeatedly
because it may be adjusted."""
AGAIN_S = 30.0
"""Pause in seconds between an internal error and the next attempt."""

log = structlog.get_logger()


class _Scheduled(Protocol):
    @property
    def every_ms(self) -> int | None: ...


class Schedule:
    """Starts the scheduled jobs of one flow when they are due, and reports the status of the jobs."""

    def __init__(
        self,
        flow: str,
        config: Config,
        clock: Clock,
        run: Callable[[JobOrder], Awaitable[JobReport]] | None = None,
    ) -> None:
        self._flow = flow
        self._config = config
        self._clock = clock
        self._run = run or JobProcess().run
        self._changed: dict[Job, asyncio.Event] = {job: asyncio.Event() for job in JOBS}
        self._asked: set[Job] = set()
        """Jobs that begin at once, whether or not they are due."""
        self._due_ms: dict[Job, int] = {}
        self._notes: dict[Job, str] = {}

    def use(self, config: Config) -> None:
        """Use this configuration from now on. Running jobs are not affected."""
        self._config = config
        for changed in self._changed.values():
            changed.set()

    def begin(self, job: Job) -> None:
        """Begin this job at once, or after the running one of the same kind."""
        self._asked.add(job)
        self._changed[job].set()

    async def keep(self) -> None:
        """Run each job whenever it is due. When this call is cancelled, end the running jobs."""
        try:
            await run_together(*(self._keep(job) for job in JOBS))
        finally:
            self._due_ms.clear()

    def status(self, states: Mapping[Job, JobState] | None) -> tuple[JobStatus, ...]:
        """Return the current status of the jobs. `states` is the state of each kind of job according to the ledger."""
        return job_statuses(self._config, states or {}, self._due_ms, self._notes)

    async def _keep(self, job: Job) -> None:
        while True:
            try:
                await self._wait(job)
                await self._once(job)
            except Exception as error:
                log.error("job_failed", flow=self._flow, job=job, exc_info=error)
                self._notes[job] = internal_error(error)
                await self._clock.sleep(AGAIN_S)

    async def _wait(self, job: Job) -> None:
        """Wait until the job is due, or until it has to begin at once."""
        due_ms: int | None = None
        every_ms: int | None = None
        while due_ms is None or self._clock.wall_ms() < due_ms:
            self._changed[job].clear()
            if job in self._asked:
                self._asked.discard(job)
                return
            now_ms, former_ms, every_ms = self._clock.wall_ms(), every_ms, _of(self._config, job).every_ms
            if every_ms is None:
                self._due_ms.pop(job, None)
                due_ms = None
                await self._changed[job].wait()
                continue
            if due_ms is None or every_ms != former_ms:
                due_ms = self._due_ms[job] = next_ms(self._flow, job, every_ms, now_ms)
            await wait_for(self._changed[job], min((due_ms - now_ms) / 1000, LOOK_S))

    async def _once(self, job: Job) -> None:
        self._due_ms.pop(job, None)
        began = self._clock.monotonic()
        log.info("job_begins", flow=self._flow, job=job)
        config = self._config.only([self._config.flow(self._flow)])
        report = await self._run(JobOrder(job, config))
        self._notes[job] = report.line if report.outcome == "failed" else ""
        write = log.info if report.outcome == "done" else log.warning
        took_s = round(self._clock.monotonic() - began, 1)
        write("job_ended", flow=self._flow, job=job, outcome=report.outcome, result=report.line, took_s=took_s)


def job_statuses(
    config: Config, states: Mapping[Job, JobState], due_ms: Mapping[Job, int], notes: Mapping[Job, str]
) -> tuple[JobStatus, ...]:
    """Return the status of each kind of job that is scheduled or has ever run.

    `due_ms` holds the start time of the next job of each kind. `notes` holds one line for each failure that may be
    missing from the ledger.
    """
    return tuple(
        _status(job, every_ms, states.get(job), due_ms.get(job), notes.get(job, ""))
        for job in JOBS
        if (every_ms := _of(config, job).every_ms) is not None or job in states
    )


def _of(config: Config, job: Job) -> _Scheduled:
    return {"audit": config.audit, "compact": config.compact, "drill": config.drill}[job]


def _status(job: Job, every_ms: int | None, last: JobState | None, due_ms: int | None, note: str) -> JobStatus:
    every_s = None if every_ms is None else every_ms / 1000
    if last is None:
        return JobStatus(job=job, every_s=every_s, next_ms=due_ms, note=note)
    runs = last.outcome is None
    if runs and is_dead_worker(last.worker):
        runs, note = False, note or "its process ended without a result"
    return JobStatus(
        job=job,
        every_s=every_s,
        runs=runs,
        host=last.worker.host,
        pid=last.worker.pid,
        done=last.done,
        every=last.every,
        began_ms=last.began_ms,
        ended_ms=last.ended_ms,
        succeeded_ms=last.succeeded_ms,
        outcome=last.outcome,
        line=last.line,
        next_ms=due_ms,
        note=note if note != last.line else "",
        drill=last.drill,
    )
