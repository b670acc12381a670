"""Jobs that work for a flow beside its daemon, and what they tell the ledger: who is at it, and how the last one went.

Of each kind one at a time: the ledger is the lease. Whoever works holds no lease on the flow, so these bind under the
present one, also when that was given back, and decide nothing about copying.
"""

import msgspec

from mirrord.ledger.facts.base import Fact
from mirrord.model.jobs import Job, Outcome

JOBS: tuple[Job, ...] = ("audit", "compact")

SUCCESSES: tuple[Outcome, ...] = ("done", "differences")
"""Those by which the work was done."""


class Worker(msgspec.Struct, frozen=True, array_like=True):
    """The process of a job; as `Holder`, as far as others on its machine see by it that it is dead."""

    host: str
    pid: int
    boot_id: str = ""
    started_ticks: int = 0


class JobBegan(Fact, frozen=True, tag="job_began"):
    """This process works from here on.

    Binds when `number` is one more than the last of its kind: whoever appends it has seen the former one end, or be
    silent for as long as that one's `ttl_ms`, or be dead.
    """

    job: Job
    number: int
    worker: Worker
    ttl_ms: int
    at_ms: int
    """Wall clock, for people and for `[audit] every`."""


class JobRenewed(Fact, frozen=True, tag="job_renewed"):
    """It is still at it. Binds while it is the last of its kind and has not ended, as `JobEnded` does."""

    job: Job
    number: int
    done: int = 0
    every: int = 0
    """So much of all is done, in whatever the job counts; 0 while that is not known."""


class JobEnded(Fact, frozen=True, tag="job_ended"):
    """It is not at it any more."""

    job: Job
    number: int
    outcome: Outcome
    line: str
    """What came of it, for people."""
    at_ms: int
    """Wall clock, for people only."""


JobFact = JobBegan | JobRenewed | JobEnded


class JobState(msgspec.Struct, frozen=True, array_like=True):
    """The last job of its kind that has begun."""

    job: Job
    number: int
    worker: Worker
    ttl_ms: int
    began_ms: int
    signs: int = 0
    """Signs of life: whoever waits for its end sees by them that it lives."""
    done: int = 0
    every: int = 0
    outcome: Outcome | None = None
    """None: it has not ended, as far as the ledger knows."""
    line: str = ""
    ended_ms: int | None = None
    succeeded_ms: int | None = None
    """When the last one ended by which the work was done, this one or one before."""


def after(known: JobState | None, fact: JobFact) -> JobState | None:
    """What a fact makes of the last job of its kind; None: it does not bind."""
    if isinstance(fact, JobBegan):
        if fact.number != (known.number if known else 0) + 1:
            return None
        succeeded_ms = known.succeeded_ms if known else None
        return JobState(fact.job, fact.number, fact.worker, fact.ttl_ms, fact.at_ms, succeeded_ms=succeeded_ms)
    if known is None or known.number != fact.number or known.outcome is not None:
        return None
    if isinstance(fact, JobRenewed):
        return msgspec.structs.replace(known, signs=known.signs + 1, done=fact.done, every=fact.every)
    succeeded_ms = fact.at_ms if fact.outcome in SUCCESSES else known.succeeded_ms
    return msgspec.structs.replace(
        known, outcome=fact.outcome, line=fact.line, ended_ms=fact.at_ms, succeeded_ms=succeeded_ms
    )
