"""The facts of jobs that run for a flow alongside its daemon: which process is working, and how the last job ended.

At most one job of each kind runs at a time, and the ledger serves as its lease. A job does not hold the lease of the
flow. So these facts take effect under the current lease, even after that was released, and decide nothing about
copying.
"""

import msgspec

from mirrord.ledger.facts.base import Fact
from mirrord.model.jobs import Job, JobOutcome

JOBS: tuple[Job, ...] = ("audit", "compact")


class Worker(msgspec.Struct, frozen=True, array_like=True):
    """The process of a job. As in `Holder`, the fields let other processes on its machine detect that it is dead."""

    host: str
    """Machine of the process."""
    pid: int
    """Its process id."""
    boot_id: str = ""
    """The kernel's boot id."""
    started_ticks: int = 0
    """Start time of the process in clock ticks since boot."""


class JobBegan(Fact, frozen=True, tag="job_began"):
    """A process has started a job.

    The fact takes effect if `number` is one more than the last of its kind. The process that appends it has seen the
    previous job end, stay silent for that job's `ttl_ms`, or die.
    """

    job: Job
    number: int
    worker: Worker
    """The process."""
    ttl_ms: int
    """How long the job may be silent before another one may begin."""
    at_ms: int
    """Wall-clock time, for people and for `[audit] every`."""


class JobRenewed(Fact, frozen=True, tag="job_renewed"):
    """The job is still running.

    The fact takes effect while the job is the last of its kind and has not ended. The same applies to `JobEnded`.
    """

    job: Job
    number: int
    done: int = 0
    """Number of completed units."""
    every: int = 0
    """`done` of `every` units are complete, in whatever unit the job counts. Both are 0 while that is not known."""


class JobEnded(Fact, frozen=True, tag="job_ended"):
    """The job has ended."""

    job: Job
    number: int
    outcome: JobOutcome
    """How it ended."""
    line: str
    """The result, for people."""
    at_ms: int
    """Wall-clock time, for information only."""


JobFact = JobBegan | JobRenewed | JobEnded
