"""Runs an audit at the level `digest` or `records` on Spark. Ranges are distributed over Spark tasks, and each task
reads its ranges from the source log and the target log.

`mirrord.jobs.audit_task` implements the task.
"""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from mirrord.audit.plan import FlowPlan
from mirrord.audit.rules.audit_range import AuditRange
from mirrord.config.jobs import SparkSettings
from mirrord.config.schema import ClusterConfig
from mirrord.jobs.audit_keys import KeyOutcome, KeyWork, stale_keys, with_keys
from mirrord.jobs.audit_task import AuditTask, TaskResult, Work
from mirrord.jobs.session import open_session
from mirrord.model.names import Alias, LaneId

RANGES_A_TASK = 4
"""Number of ranges in one task. Larger tasks open fewer connections, and smaller tasks are distributed more evenly."""
TASKS_A_CORE = 8
"""Number of tasks for each core in one Spark job. Results are stored after each job."""
REPORT_S = 1.0


class TaskProgress(msgspec.Struct, frozen=True):
    """The combined progress of all tasks of an audit."""

    ranges: int
    read_bytes: int
    cpu_s: float
    """CPU seconds used by the Python processes that read and compare, counted from the start of each process. The Java
    processes of Spark are not included."""


OnTaskProgress = Callable[[TaskProgress], None]
"""The callback that receives the progress. A separate thread calls it about once a second, and once at the end."""


def works(plan: FlowPlan) -> list[Work]:
    """Return all ranges of a flow, in the form in which Spark tasks receive them."""
    return [
        Work(plan.flow, plan.source, plan.target, lane.audited, wanted) for lane in plan.lanes for wanted in lane.ranges
    ]


def audit(
    clusters: Mapping[Alias, ClusterConfig],
    wanted: Sequence[Work],
    settings: SparkSettings,
    *,
    by_records: bool,
    report: OnTaskProgress,
    keyed: Sequence[KeyWork] = (),
    rate_bytes_per_s: int | None = None,
) -> Iterator[TaskResult]:
    """Yield the results of the ranges in the order in which they arrive. `keyed` holds the ranges to read for the
    comparison by key, and is empty if no range needs this comparison. All tasks together read at most
    `rate_bytes_per_s` bytes per second.

    Raises EnvironmentFault.
    """
    if not wanted:
        return
    with open_session("mirrord audit", settings) as session:
        context = session.sparkContext
        done, read, cpu = context.accumulator(0), context.accumulator(0), context.accumulator(0.0)
        rate = rate_bytes_per_s and max(1, rate_bytes_per_s // context.defaultParallelism)
        task = AuditTask(dict(clusters), by_records=by_records, rate_bytes_per_s=rate, counters=(done, read, cpu))
        at_once = RANGES_A_TASK * TASKS_A_CORE * context.defaultParallelism
        ranges = {(each.flow, each.wanted.lane, each.wanted.first, each.wanted.end): each.wanted for each in wanted}
        with _reporting(lambda: report(TaskProgress(done.value, read.value, cpu.value))):
            stale = stale_keys(context, clusters, keyed, read, rate)
            for first in range(0, len(wanted), at_once):
                some = [msgspec.msgpack.encode(each) for each in wanted[first : first + at_once]]
                # This path avoids Arrow, for which Spark would require pandas.
                spread = context.parallelize(some, -(-len(some) // RANGES_A_TASK))
                for found in spread.mapPartitions(task).collect():
                    yield _with_keys(msgspec.msgpack.decode(found, type=TaskResult), ranges, stale)


def _with_keys(
    found: TaskResult,
    ranges: Mapping[tuple[str, LaneId, int, int], AuditRange],
    stale: Mapping[tuple[str, LaneId], Sequence[KeyOutcome]],
) -> TaskResult:
    result = found.result
    wanted = ranges[found.flow, result.lane, result.first, result.end]
    return TaskResult(found.flow, with_keys(result, wanted, stale.get((found.flow, result.lane), ())))


@contextmanager
def _reporting(report: Callable[[], None]) -> Generator[None]:
    """Call `report` about once a second from a background thread while the context is open, and once at the end."""
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(REPORT_S):
            report()

    thread = threading.Thread(target=follow, name="progress of the audit", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        report()
