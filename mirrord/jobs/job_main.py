"""`python -m mirrord.jobs.job_main PARENT`: runs one job for a daemon, as the `JobOrder` that it reads from
stdin specifies.

The process exits when its parent exits. It runs with low CPU priority (`nice`), so that it does not slow down copying.
It writes one `JobReport` to stdout. Its log files are in the same directory as those of the daemon.
"""

import os
import signal
import sys
from itertools import islice
from pathlib import Path

import msgspec
import structlog

from mirrord.audit.atomic_file import write_whole
from mirrord.audit.result_files import Results
from mirrord.audit.rules.html_report import page
from mirrord.config.schema import Config
from mirrord.jobs.audit_run import Audit, AuditOrder
from mirrord.jobs.flow_compaction import compact_flows, moved_line
from mirrord.ledger.compaction_plan import PART_RUNS
from mirrord.ledger.store.compaction import RunSelection
from mirrord.ledger.store.job_lease import JobLease
from mirrord.model.errors import MirrordError, internal_error
from mirrord.model.jobs import JobOutcome
from mirrord.operations.drill_run import NothingToRehearse, drill, outcome_of
from mirrord.recovery.drill.flow_drill import DrillOptions
from mirrord.runtime import logs
from mirrord.runtime.clock import SystemClock
from mirrord.runtime.leash import tie_to
from mirrord.runtime.priority import lower_priority
from mirrord.supervision.jobs.job_process import JobOrder, JobReport

MOST_LINES = 100
"""Maximum number of differences that are logged, one line each. `mirrord audit --json` prints all of them."""

log = structlog.get_logger()


def main() -> int:
    """Run the requested job. Return 0 even if the job fails, because the report contains the result."""
    tie_to(int(sys.argv[1]))
    lower_priority()
    # Spark's Java process inherits stdout. It must neither write to the report nor keep the stream open.
    answer = os.dup(1)
    os.dup2(2, 1)
    report = _work(msgspec.msgpack.decode(sys.stdin.buffer.read(), type=JobOrder))
    os.write(answer, msgspec.msgpack.encode(report))
    return 0


def _work(order: JobOrder) -> JobReport:
    config, (flow,) = order.config, order.config.flows
    try:
        logs.set_up(config.logs.directory, f"{config.instance}-{order.job}-{flow.name}", on_stderr=False)
        with JobLease(config, order.job) as lease:
            _end_on_signal(lease)
            work = {"audit": _audit, "compact": _compact, "drill": _drill}[order.job]
            outcome, line = work(config, flow.name, lease)
    except MirrordError as error:
        log.error("job_failed", flow=flow.name, job=order.job, reason=str(error))
        return JobReport("failed", str(error).splitlines()[0])
    except Exception as error:
        log.error("job_failed", flow=flow.name, job=order.job, exc_info=error)
        return JobReport("failed", internal_error(error))
    return JobReport(outcome, line)


def _end_on_signal(lease: JobLease) -> None:
    def end(number: int, _: object) -> None:
        lease.set_every_outcome("stopped", "it was asked to stop")
        lease.end()
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)


def _audit(config: Config, flow: str, lease: JobLease) -> tuple[JobOutcome, str]:
    wanted = config.audit
    audit = Audit(
        config,
        AuditOrder(
            level=wanted.level,
            topics=wanted.topics,
            since_ms=None if wanted.since_ms is None else SystemClock().wall_ms() - wanted.since_ms,
            again=wanted.again,
            sample=wanted.sample,
            spark=wanted.spark,
            rate_bytes_per_s=wanted.rate_bytes_per_s,
        ),
    )
    results = Results(Path(wanted.out) / flow) if wanted.out else None
    audit.run(results, {}, lambda progress: lease.progress(progress.ranges, progress.every))
    if wanted.out:
        write_whole(Path(wanted.out) / f"{flow}.html", page(audit.report(results)))
    for line in audit.record_proofs():
        log.warning("proof_not_kept", flow=flow, reason=line)
    for each in islice(audit.differences(), MOST_LINES):
        found = each.difference
        where = f"{each.topic}-{each.partition}"
        log.error(
            "audit_difference", flow=flow, partition=where, kind=found.kind, records=found.length,
            source=found.source, target=found.target,
        )  # fmt: skip
    outcome, line = audit.outcome(flow)
    lease.set_outcome(flow, outcome, line)
    return outcome, line


def _compact(config: Config, flow: str, lease: JobLease) -> tuple[JobOutcome, str]:
    wanted = RunSelection(topics=config.compact.topics, least=config.compact.least or PART_RUNS)
    folder = Path(config.compact.path or "")
    settings = config.compact.spark
    done = compact_flows(config, folder, wanted, settings, lambda _, moved, every: lease.progress(moved, every))
    lease.set_outcome(flow, "done", moved_line(done))
    return "done", moved_line(done)


def _drill(config: Config, flow: str, lease: JobLease) -> tuple[JobOutcome, str]:
    wanted = config.drill
    options = DrillOptions(wanted.sample, wanted.principals, wanted.canary)
    try:
        receipt = drill(config, config.flow(flow), options, lease.progress)
    except NothingToRehearse as fault:
        lease.set_outcome(flow, "stopped", str(fault))
        return "stopped", str(fault)
    for line in receipt.findings:
        log.error("drill_finding", flow=flow, finding=line)
    outcome, line = outcome_of(receipt)
    lease.set_outcome(flow, outcome, line, receipt)
    return outcome, line


if __name__ == "__main__":
    sys.exit(main())
