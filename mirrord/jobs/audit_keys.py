"""Compares the copies of compacted topics by key. Spark tasks read ranges of the source log and the target log, and
Spark groups the records by key.

Each range is read once, and no process holds more keys than the ranges of its task contain. Spark's shuffle spills to
disk when memory is full. Only differences reach the driver.
"""

from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from mirrord.audit.plan import FlowPlan
from mirrord.audit.range_audit import AuditedLane, RangeReader
from mirrord.audit.rules.audit_range import AuditRange
from mirrord.audit.rules.key_compare import KeyedCopy, Newest, Undecided, judge, merged
from mirrord.audit.rules.record_compare import together
from mirrord.audit.rules.results import Compared, Difference, Explained, RangeResult
from mirrord.config.schema import ClusterConfig
from mirrord.jobs.blocking import blocking
from mirrord.kafka.client.bulk_log_reader import open_logs
from mirrord.model.intervals import uncovered
from mirrord.model.names import Alias, LaneId
from mirrord.runtime.rate_limit import Pace

RANGES_A_TASK = 4
_NEVER = 1 << 62
LaneNumber = int
Keyed = tuple[LaneNumber, bytes]
"""A record key within a lane: the number of the lane, and a digest of the record key."""
RangeName = tuple[str, LaneId, int, int]
"""Identifies a range: flow, lane, first ordinal, and the ordinal after the last one."""
KeyOutcome = Difference | Undecided
"""What the comparison by key has found for a key."""


class KeyWork(msgspec.Struct, frozen=True):
    """A range whose keys have to be compared, in the form in which a Spark task receives it."""

    number: LaneNumber
    flow: str
    source: Alias
    target: Alias
    lane: AuditedLane
    wanted: AuditRange
    with_source: bool = True
    """Whether the source is read in addition to the target. Otherwise, the task reads only the target, to find newer
    records."""


def key_works(plans: Sequence[FlowPlan], chosen: Collection[RangeName]) -> list[KeyWork]:
    """Return the ranges that must be read to compare the chosen ranges by key. Lanes without a compacted topic do not
    need this comparison.

    The chosen ranges are read from both the source and the target. All other ranges after the first chosen range of a
    lane are read only from the target, because they may hold newer records with the same keys.
    """
    found: list[KeyWork] = []
    lanes = [(plan, lane) for plan in plans for lane in plan.lanes]
    for number, (plan, lane) in enumerate(lanes):
        if not (lane.audited.source_compacted or lane.audited.target_compacted):
            continue
        is_begun = False
        for wanted in lane.ranges:
            is_chosen = (plan.flow, lane.lane, wanted.first, wanted.end) in chosen
            is_begun = is_begun or is_chosen
            if is_begun:
                found.append(KeyWork(number, plan.flow, plan.source, plan.target, lane.audited, wanted, is_chosen))
    return found


class KeyTask:
    """The callable that Spark runs with the ranges of one task. For each range, it yields each key with the newest
    source record and the newest target record."""

    def __init__(self, clusters: dict[Alias, ClusterConfig], read: Any, rate_bytes_per_s: int | None) -> None:
        self._clusters = clusters
        self._read = read
        self._rate_bytes_per_s = rate_bytes_per_s

    def __call__(self, given: Iterator[bytes]) -> Iterator[tuple[Keyed, tuple[Newest, KeyedCopy]]]:
        works = [msgspec.msgpack.decode(work, type=KeyWork) for work in given]
        return blocking(lambda: self._rows(works))

    async def _rows(self, works: Sequence[KeyWork]) -> AsyncGenerator[tuple[Keyed, tuple[Newest, KeyedCopy]], None]:
        for work in works:
            source, target = work.lane.source.topic, work.lane.target.topic
            async with (
                open_logs(work.source, self._clusters[work.source], {source}) as source_log,
                open_logs(work.target, self._clusters[work.target], {target}) as target_log,
            ):
                reader = RangeReader(source_log, target_log, by_records=True, pace=Pace(self._rate_bytes_per_s))
                found, copy, read_bytes = await reader.keys(work.lane, work.wanted, with_source=work.with_source)
            self._read.add(read_bytes)
            for key, newest in found.items():
                yield (work.number, key), (newest, copy)


def _merged(one: tuple[Newest, KeyedCopy], other: tuple[Newest, KeyedCopy]) -> tuple[Newest, KeyedCopy]:
    # Retention may have raised the log start offset of the target between the two reads.
    return merged(one[0], other[0]), max(one[1], other[1], key=lambda copy: copy.target_log_start)


def _judged(
    rows: Iterator[tuple[Keyed, tuple[Newest, KeyedCopy]]],
) -> Iterator[tuple[Keyed, KeyOutcome]]:
    for keyed, (newest, copy) in rows:
        finding = judge(newest, copy)
        if finding is not None:
            yield keyed, finding


def settled(finding: KeyOutcome, later: Newest) -> KeyOutcome | None:
    """Return what is found for a key if the target also holds the record `later`, after the offsets that the audit
    covers. Compaction may have removed the copy because of this record. If its transaction is open, this is not
    decided yet."""
    if later.target >= 0:
        return None
    return Undecided(finding.source or 0) if later.last_open >= 0 else finding


def stale_keys(
    context: Any,
    clusters: Mapping[Alias, ClusterConfig],
    works: Sequence[KeyWork],
    read: Any,
    rate_bytes_per_s: int | None,
) -> dict[tuple[str, LaneId], list[KeyOutcome]]:
    """Return what the comparison by key has found, by flow and lane. `read` is the Spark accumulator for the number of
    bytes read. Raises Spark's exceptions."""
    if not works:
        return {}
    task = KeyTask(dict(clusters), read, rate_bytes_per_s)

    def rows(some: Sequence[KeyWork]) -> Any:
        packed = [msgspec.msgpack.encode(each) for each in some]
        return context.parallelize(packed, -(-len(packed) // RANGES_A_TASK)).mapPartitions(task)

    partitions = max(context.defaultParallelism, -(-len(works) // RANGES_A_TASK))
    suspects: dict[Keyed, KeyOutcome] = dict(
        rows(works).reduceByKey(_merged, partitions).mapPartitions(_judged).collect()
    )
    if suspects:
        doubted = {number for number, _ in suspects}
        wanted = frozenset(suspects)
        newer = rows(_tails([each for each in works if each.number in doubted]))

        def is_wanted(row: tuple[Keyed, Any]) -> bool:
            return row[0] in wanted

        later = newer.filter(is_wanted).reduceByKey(_merged, partitions).collect()
        for keyed, (newest, _) in later:
            finding = settled(suspects.pop(keyed), newest)
            if finding is not None:
                suspects[keyed] = finding
    names = {work.number: (work.flow, work.wanted.lane) for work in works}
    found: dict[tuple[str, LaneId], list[KeyOutcome]] = {}
    for (number, _), finding in suspects.items():
        found.setdefault(names[number], []).append(finding)
    return found


def _tails(works: Sequence[KeyWork]) -> list[KeyWork]:
    """Return, for each lane, the part of the target log that follows all of the lane's ranges in `works`."""
    last = {work.number: work for work in works}
    return [
        msgspec.structs.replace(
            work,
            with_source=False,
            wanted=msgspec.structs.replace(
                work.wanted,
                target_start=max(each.wanted.target_end for each in works if each.number == number),
                target_end=_NEVER,
                pieces=(),
            ),
        )
        for number, work in last.items()
    ]


def with_keys(result: RangeResult, wanted: AuditRange, findings: Sequence[KeyOutcome]) -> RangeResult:
    """Return the result of a range, extended by those `findings` that are in the range. The findings come from the
    comparison by key."""
    here = [each for each in findings if wanted.source_start <= (each.source or 0) < wanted.source_end]
    if not here:
        return result
    compared = result.compared
    differences = [each for each in here if isinstance(each, Difference)]
    undecided = sorted(each.source for each in here if isinstance(each, Undecided))
    # Compaction does not explain why these records are missing, because no newer record has replaced them, or none that
    # is known to be committed.
    missing = [each.source for each in differences if each.kind == "missing" and each.source is not None]
    unexplained = [(offset, offset + 1) for offset in sorted((*missing, *undecided))]
    explained = tuple(
        Explained(each.cause, each.side, *part)
        for each in compared.explained
        for part in uncovered((each.start, each.end), unexplained if each.cause == "target-compaction" else ())
    )
    found = Compared(compared.equal, together([*compared.differences, *differences]), explained, tuple(undecided))
    return msgspec.structs.replace(result, compared=found)
