"""The kinds of jobs, and how a job ends. A job is an audit of a flow, a compaction of its ledger, or a drill. It runs
in a separate process, while the flow continues to copy."""

from typing import Literal

import msgspec

from mirrord.model.drill import DrillReceipt

AuditLevel = Literal["ledger", "digest", "records"]
"""What an audit compares:

- "ledger": the contents of the ledger against the start and end offsets of the source log and the target log. No
  records are read.
- "digest": the batches on both clusters, by a digest of each batch.
- "records": every record on both clusters.
"""
ProvingLevel = Literal["digest", "records"]
"""The levels at which an audit can prove that records were copied. An audit at the level "ledger" cannot prove this,
because it reads no records."""


Job = Literal["audit", "compact", "drill"]


JobOutcome = Literal["done", "differences", "failed", "stopped"]
"""The outcome of a job:

- "done": the job completed.
- "differences": the job was an audit that completed and found differences, or a drill that completed and has
  findings.
- "failed": the job ended with an error.
- "stopped": the job ended early, because it was asked to stop, or because there was nothing to do.
"""


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of jobs of a flow: the most recent job on any machine, and the next scheduled job."""

    job: Job
    every_s: float | None = None
    """Interval of the schedule, or None if this kind of job is not scheduled."""
    runs: bool = False
    """Whether the most recent job is still running, according to the ledger."""
    host: str = ""
    pid: int = 0
    done: int = 0
    every: int = 0
    """Number of steps of the most recent job. `done` is the number of completed steps. A step is one range of offsets
    that an audit compares, one run that a compaction moves to the archive, or one position of a group that a drill
    examines. Both numbers are 0 while they are unknown."""
    began_ms: int | None = None
    """Start time of the most recent job, or None if no job of this kind has run."""
    ended_ms: int | None = None
    succeeded_ms: int | None = None
    """End time of the latest job that completed its work. An audit that found differences has also completed its
    work. A drill counts only if it has no findings."""
    outcome: JobOutcome | None = None
    """The outcome of the most recent job. None if the job is still running, or if its process has died."""
    line: str = ""
    """One line for operators with the result of the most recent job."""
    next_ms: int | None = None
    """Start time of the next scheduled job. Only the daemon that holds the flow's lease knows this time."""
    note: str = ""
    """One line for operators about a failure that `line` does not contain. For example, it says why a scheduled job did
    not start."""
    drill: DrillReceipt | None = None
    """What the latest completed drill has found."""
