"""The levels `digest` and `records` of an audit: ranges are spread over Spark's tasks, each reads both logs of its own.

What a task does is `mirrord.shell.auditing.RangeReader`: the same wire code and the same comparison as without Spark.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack

import msgspec

from mirrord.audit.model import AuditRange, RangeResult
from mirrord.jobs.kafka_batches import blocking
from mirrord.jobs.session import open_session
from mirrord.model.config import ClusterConfig
from mirrord.model.names import Alias
from mirrord.shell.audit_plan import FlowPlan
from mirrord.shell.auditing import AuditedLane, RangeReader
from mirrord.shell.log_reader import open_logs

RANGES_A_TASK = 4
"""A task opens its connections once; small tasks spread better."""
TASKS_A_CORE = 8
"""Of one job; between jobs results are kept."""


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
    clusters: Mapping[Alias, ClusterConfig], wanted: Sequence[Work], settings: Mapping[str, str], *, by_records: bool
) -> Iterator[Found]:
    """The results, in the order in which they come. Raises EnvironmentFault."""
    if not wanted:
        return
    with open_session("mirrord audit", settings) as session:
        context = session.sparkContext
        task = AuditTask(dict(clusters), by_records=by_records)
        at_once = RANGES_A_TASK * TASKS_A_CORE * context.defaultParallelism
        for first in range(0, len(wanted), at_once):
            some = [msgspec.msgpack.encode(each) for each in wanted[first : first + at_once]]
            # Without Arrow on this way: Spark would ask for pandas.
            spread = context.parallelize(some, -(-len(some) // RANGES_A_TASK))
            for found in spread.mapPartitions(task).collect():
                yield msgspec.msgpack.decode(found, type=Found)


class AuditTask:
    """What Spark calls with the ranges of a task. Holds references to secrets, never secrets."""

    def __init__(self, clusters: dict[Alias, ClusterConfig], *, by_records: bool) -> None:
        self._clusters = clusters
        self._by_records = by_records

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
                reader = RangeReader(logs[0], logs[1], by_records=self._by_records)
                for work in some:
                    yield Found(work.flow, await reader.audit(work.lane, work.wanted))
