"""The state of the most recent job of each kind that ran for a flow."""

from collections.abc import Mapping

import msgspec

from mirrord.ledger.facts.jobs import JobBegan, JobFact, JobRenewed, Worker
from mirrord.model.drill import DrillReceipt
from mirrord.model.jobs import Job, JobOutcome

SUCCESSES: Mapping[Job, tuple[JobOutcome, ...]] = {
    "audit": ("done", "differences"),
    "compact": ("done", "differences"),
    "drill": ("done",),
}
"""The outcomes of successful jobs. An audit succeeds when it has completed its work, a drill when it also has no
findings."""


class JobState(msgspec.Struct, frozen=True, array_like=True):
    """The state of the most recent job of one kind."""

    job: Job
    number: int
    worker: Worker
    ttl_ms: int
    began_ms: int
    signs: int = 0
    """Number of `JobRenewed` facts since the job began. If another process sees this number increase, it knows that the
    job is still running."""
    done: int = 0
    every: int = 0
    outcome: JobOutcome | None = None
    """How the job ended. None if the ledger does not show that it has ended."""
    line: str = ""
    ended_ms: int | None = None
    succeeded_ms: int | None = None
    """When the most recent successful job of this kind ended. That job may be earlier than this one."""
    drill: DrillReceipt | None = None
    """What the most recent completed drill has found. That drill may be earlier than this job."""


def after(known: JobState | None, fact: JobFact) -> JobState | None:
    """Apply a fact about a job to `known`, the state of the most recent job of the same kind. Return the new state, or
    None if the fact has no effect."""
    if isinstance(fact, JobBegan):
        if fact.number != (known.number if known else 0) + 1:
            return None
        began = JobState(fact.job, fact.number, fact.worker, fact.ttl_ms, fact.at_ms)
        if known is None:
            return began
        return msgspec.structs.replace(began, succeeded_ms=known.succeeded_ms, drill=known.drill)
    if known is None or known.number != fact.number or known.outcome is not None:
        return None
    if isinstance(fact, JobRenewed):
        return msgspec.structs.replace(known, signs=known.signs + 1, done=fact.done, every=fact.every)
    succeeded_ms = fact.at_ms if fact.outcome in SUCCESSES[fact.job] else known.succeeded_ms
    return msgspec.structs.replace(
        known,
        outcome=fact.outcome,
        line=fact.line,
        ended_ms=fact.at_ms,
        succeeded_ms=succeeded_ms,
        drill=fact.drill or known.drill,
    )
