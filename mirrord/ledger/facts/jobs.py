"""Facts about jobs that run for a flow alongside its daemon: which process is running a job, and how the job ended.

At most one job of each kind runs at a time. These facts ensure this in the same way as a lease does: a process may
start a job only if the ledger shows that no other process is running a job of the same kind. A job does not hold the
lease of the flow. Its facts therefore take effect if their entry has the epoch of the current lease, even if this lease
has been released. They have no influence on copying.
"""

import msgspec

from mirrord.ledger.facts.base import Fact
from mirrord.model.drill import DrillReceipt
from mirrord.model.jobs import Job, JobOutcome

JOBS: tuple[Job, ...] = ("audit", "compact", "drill")


class Worker(msgspec.Struct, frozen=True, array_like=True):
    """The process that runs a job. As in `Holder`, the fields let other processes on the same machine detect that this
    process is dead."""

    host: str
    """Host name of the machine on which the process is running."""
    pid: int
    """Process id."""
    boot_id: str = ""
    """Boot id of the machine's kernel."""
    started_ticks: int = 0
    """Start time of the process in clock ticks since boot."""


class JobBegan(Fact, frozen=True, tag="job_began"):
    """A process has started a job.

    The fact takes effect if `number` is one more than that of the most recent job of this kind. A process may append
    the fact only in one of three cases: that job has ended, the process of that job is dead, or that job has not been
    renewed (`JobRenewed`) within its `ttl_ms`.
    """

    job: Job
    number: int
    worker: Worker
    """The process that runs the job."""
    ttl_ms: int
    """How long, in milliseconds, the job may remain silent before another job of its kind may begin."""
    at_ms: int
    """Wall-clock time, for information only."""


class JobRenewed(Fact, frozen=True, tag="job_renewed"):
    """A job has reported that it is still running.

    The fact takes effect only if the job is the most recent one of its kind and has not ended. The same applies to
    `JobEnded`.
    """

    job: Job
    number: int
    done: int = 0
    """Number of completed units of work. Each kind of job counts its own unit."""
    every: int = 0
    """Total number of units of work. `done` and `every` are both 0 while the total is unknown."""


class JobEnded(Fact, frozen=True, tag="job_ended"):
    """A job has ended."""

    job: Job
    number: int
    outcome: JobOutcome
    """How the job ended."""
    line: str
    """The result of the job in one line, for operators."""
    at_ms: int
    """Wall-clock time, for information only."""
    drill: DrillReceipt | None = None
    """What the drill has found, if the job is a drill that completed."""


JobFact = JobBegan | JobRenewed | JobEnded
