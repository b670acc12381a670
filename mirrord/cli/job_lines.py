"""Formats the audits and compactions of a flow as lines for `mirrord status`."""

from collections.abc import Iterator, Sequence

from rich.markup import escape

from mirrord.ledger.standing_orders import moment
from mirrord.model.jobs import Job, JobStatus

_NAMES: dict[Job, str] = {"audit": "audit", "compact": "compaction", "drill": "drill"}
_STYLES = {"differences": "bold red", "failed": "red", "stopped": "yellow"}


def job_lines(jobs: Sequence[JobStatus]) -> Iterator[str]:
    """Yield one line for each kind of jobs. Each line describes the latest run and says when the next run
    is due."""
    for job in jobs:
        parts = [_last(job)]
        if job.next_ms is not None:
            parts.append(f"next {moment(job.next_ms)}")
        if job.note:
            parts.append(f"[red]{escape(job.note)}[/]")
        yield f"{_NAMES[job.job]}: {', '.join(parts)}"


def _last(job: JobStatus) -> str:
    if job.began_ms is None:
        return "none yet"
    if job.runs:
        share = f", {100 * job.done // job.every}%" if job.every else ""
        return f"running since {moment(job.began_ms)} on {escape(job.host)} (pid {job.pid}){share}"
    if job.outcome is None:
        return f"the last one began {moment(job.began_ms)} and has not reported how it ended"
    style = _STYLES.get(job.outcome)
    outcome = f"[{style}]{job.outcome}[/]" if style else job.outcome
    return f"the last one ended {moment(job.ended_ms or 0)}: {outcome}, {escape(job.line)}"
