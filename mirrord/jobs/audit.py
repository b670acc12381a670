"""The levels `digest` and `records` of an audit: ranges are spread over Spark's tasks, each reads both logs of its own.

What a task does is `mirrord.shell.auditing.RangeReader`: the same wire code and the same comparison as without Spark.
"""

import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import msgspec

from mirrord.audit.model import AuditRange, RangeResult
from mirrord.jobs.kafka_batches import blocking
from mirrord.jobs.session import open_session
from mirrord.model.config import ClusterConfig
from mirrord.model.names import Alias
from mirrord.shell.audit_plan import FlowPlan
from mirrord.shell.auditing import AuditedLane, RangeReader
from mirrord.shell.log_reader import open_logs
from mirrord.shell.pace import Pace

RANGES_A_TASK = 4
"""A task opens its connections once; small tasks spread better."""
TASKS_A_CORE = 8
"""Of one job; between jobs results are kept."""
TELL_S = 1.0

Tell = Callable[[int, int], None]
"""Is called from time to time, in a thread of its own, with the ranges that are done and the bytes that were read."""


class Work(msgspec.Struct, frozen=True):
    """One range, as a task is given it."""

    flow: str
    source: Alias
    target: Alias
    lane: AuditedLane
    wanted: AuditRange


class Found(msgspec.Struct, frozen=True):
    """One result, as a task gives it back."""

    flow: str
    result: RangeResult


def works(plan: FlowPlan) -> list[Work]:
    """All ranges of a flow."""
    return [
        Work(plan.flow, plan.source, plan.target, lane.audited, wanted) for lane in plan.lanes for wanted in lane.ranges
    ]


def audit(
    clusters: Mapping[Alias, ClusterConfig],
    wanted: Sequence[Work],
    settings: Mapping[str, str],
    *,
    by_records: bool,
    tell: Tell,
    rate_bytes_per_s: int | None = None,
) -> Iterator[Found]:
    """The results, in the order in which they come. All tasks together read no more than the rate.

    Raises EnvironmentFault.
    """
    if not wanted:
        return
    with open_session("mirrord audit", settings) as session:
        context = session.sparkContext
        done, read = context.accumulator(0), context.accumulator(0)
        rate = rate_bytes_per_s and max(1, rate_bytes_per_s // context.defaultParallelism)
        task = AuditTask(dict(clusters), by_records=by_records, rate_bytes_per_s=rate, done=done, read=read)
        at_once = RANGES_A_TASK * TASKS_A_CORE * context.defaultParallelism
        with _telling(lambda: tell(done.value, read.value)):
            for first in range(0, len(wanted), at_once):
                some = [msgspec.msgpack.encode(each) for each in wanted[first : first + at_once]]
                # Without Arrow on this way: Spark would ask for pandas.
                spread = context.parallelize(some, -(-len(some) // RANGES_A_TASK))
                for found in spread.mapPartitions(task).collect():
                    yield msgspec.msgpack.decode(found, type=Found)


@contextmanager
def _telling(tell: Callable[[], None]) -> Generator[None]:
    """Beside a job that is waited for."""
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(TELL_S):
            tell()

    thread = threading.Thread(target=follow, name="progress of the audit", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class AuditTask:
    """What Spark calls with the ranges of a task. Holds references to secrets, never secrets."""

    def __init__(
        self,
        clusters: dict[Alias, ClusterConfig],
        *,
        by_records: bool,
        done: Any,
        read: Any,
        rate_bytes_per_s: int | None = None,
    ) -> None:
        """`done` and `read` are Spark's accumulators; the rate is this task's share."""
        self._clusters = clusters
        self._by_records = by_records
        self._rate_bytes_per_s = rate_bytes_per_s
        self._done, self._read = done, read

    def __call__(self, given: Iterator[bytes]) -> Iterator[bytes]:
        """One result for each range."""
        wanted = [msgspec.msgpack.decode(work, type=Work) for work in given]
        return map(msgspec.msgpack.encode, blocking(lambda: self._audit(wanted)))

    async def _audit(self, wanted: Sequence[Work]) -> AsyncGenerator[Found, None]:
        pairs = dict.fromkeys((work.source, work.target) for work in wanted)
        for source, target in pairs:
            some = [work for work in wanted if (work.source, work.target) == (source, target)]
            async with AsyncExitStack() as stack:
                topics = {work.lane.source.topic for work in some}, {work.lane.target.topic for work in some}
                logs = [
                    await stack.enter_async_context(open_logs(alias, self._clusters[alias], names))
                    for alias, names in zip((source, target), topics, strict=True)
                ]
                pace = Pace(self._rate_bytes_per_s)
                reader = RangeReader(logs[0], logs[1], by_records=self._by_records, pace=pace)
                for work in some:
                    result = await reader.audit(work.lane, work.wanted)
                    self._done.add(1)
                    self._read.add(result.read_bytes)
                    yield Found(work.flow, result)
