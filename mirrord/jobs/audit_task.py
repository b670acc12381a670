"""The Spark task of an audit: it reads some ranges from the source log and the target log and compares them. It uses
`mirrord.audit.range_audit.RangeReader`.

Every Python process of Spark imports this module, and the CPU time that an audit reports includes these imports. The
module therefore imports only what a task needs: no pyspark, no ledger, and no daemon configuration.
"""

import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from mirrord.audit.range_audit import AuditedLane, RangeReader
from mirrord.audit.rules.audit_range import AuditRange
from mirrord.audit.rules.results import RangeResult
from mirrord.config.schema import ClusterConfig
from mirrord.jobs.blocking import blocking
from mirrord.kafka.client.bulk_log_reader import open_logs
from mirrord.model.names import Alias
from mirrord.runtime.rate_limit import Pace


class Work(msgspec.Struct, frozen=True):
    """A range to audit, in the form in which a Spark task receives it."""

    flow: str
    source: Alias
    target: Alias
    lane: AuditedLane
    wanted: AuditRange


class TaskResult(msgspec.Struct, frozen=True):
    """The result for one range, in the form in which a Spark task returns it."""

    flow: str
    result: RangeResult


_counted = [0.0]
"""CPU seconds of this process that have already been reported. Spark runs several tasks in one process, one after
another."""


def _uncounted_cpu_s() -> float:
    now, before = time.process_time(), _counted[0]
    _counted[0] = now
    return now - before


class AuditTask:
    """The callable that Spark runs with the ranges of one task. It contains references to secrets, but not the secrets
    themselves."""

    def __init__(
        self,
        clusters: dict[Alias, ClusterConfig],
        *,
        by_records: bool,
        counters: tuple[Any, Any, Any],
        rate_bytes_per_s: int | None = None,
    ) -> None:
        """Create the task. `counters` are the Spark accumulators for the fields of `TaskProgress`. `rate_bytes_per_s`
        limits the rate at which one task reads."""
        self._clusters = clusters
        self._by_records = by_records
        self._rate_bytes_per_s = rate_bytes_per_s
        self._done, self._read, self._cpu = counters

    def __call__(self, given: Iterator[bytes]) -> Iterator[bytes]:
        """Yield one result for each range, in the order of the ranges."""
        wanted = [msgspec.msgpack.decode(work, type=Work) for work in given]
        return map(msgspec.msgpack.encode, blocking(lambda: self._audit(wanted)))

    async def _audit(self, wanted: Sequence[Work]) -> AsyncGenerator[TaskResult, None]:
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
                    self._cpu.add(_uncounted_cpu_s())
                    yield TaskResult(work.flow, result)
