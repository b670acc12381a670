"""Runs a complete audit: plans the comparison, compares the ranges, stores the results while it is running, and records
the proven ranges in the ledger."""

import asyncio
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec

from mirrord.audit.plan import FlowPlan, LaneAuditPlan, audit_by_ledger, plan_flow
from mirrord.audit.recorded_proofs import record_proof
from mirrord.audit.result_files import LaneSummary, RangeKey, ResultRow, Results, proven, range_key, summary
from mirrord.audit.rules.audit_range import AuditRange
from mirrord.audit.rules.html_report import AuditPage, ProvenPoint
from mirrord.audit.rules.repaired import with_repairs
from mirrord.audit.rules.results import Difference, LaneDifference, LaneRepaired, RangeResult
from mirrord.audit.rules.summary import whole_result
from mirrord.config.jobs import SparkSettings
from mirrord.config.schema import Config
from mirrord.model.errors import EnvironmentFault
from mirrord.model.jobs import AuditLevel, JobOutcome
from mirrord.model.names import LaneId
from mirrord.runtime.build_info import program
from mirrord.runtime.clock import SystemClock

KEPT_AT_ONCE = 32


class AuditOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an audit: how closely it compares, which data it covers, how fast it reads, and the properties of
    its Spark session."""

    level: AuditLevel = "digest"
    topics: tuple[str, ...] = ()
    """The source topics to audit, as regexes that match the whole name. If there are none, all topics are audited."""
    since_ms: int | None = None
    again: bool = False
    """Whether to audit again the ranges that earlier audits have proven."""
    sample: float = 1.0
    """The share of the ranges to audit, from 0 to 1. The ranges are chosen at random."""
    spark: SparkSettings = {}
    rate_bytes_per_s: int | None = None
    """Maximum number of bytes per second to read from the source and the target together."""


class AuditProgress(msgspec.Struct, frozen=True):
    """The progress of an audit: how many ranges it has compared, and how many bytes it has read."""

    ranges: int
    every: int
    """The number of ranges that the audit has to compare in total."""
    read_bytes: int


OnAuditProgress = Callable[[AuditProgress], None]


class Audit:
    """One audit of one or more flows."""

    def __init__(self, config: Config, order: AuditOrder) -> None:
        self._config = config
        self._order = order
        self._plans: list[FlowPlan] = []
        self._found: dict[tuple[str, str], list[RangeResult]] = {}
        """The results of the ranges, by flow and lane."""
        self.cpu_s = 0.0
        """CPU seconds used by the Python processes that read and compare."""

    def run(
        self, results: Results | None, known: Mapping[RangeKey, RangeResult], report: OnAuditProgress = lambda _: None
    ) -> None:
        """Compare all ranges, and write the results to `results` while the audit is running. `known` contains the
        results of an interrupted audit; their ranges are not compared again, unless some of their records are
        undecided. `report` is called from time to time, possibly from another thread.

        Raises EnvironmentFault.
        """
        self._plans = [self._plan(flow.name) for flow in self._config.flows]
        known = {key: result for key, result in known.items() if not result.compared.undecided}
        for plan in self._plans:
            for lane in plan.lanes:
                done = [known.get(range_key(plan.flow, wanted)) for wanted in lane.ranges]
                self._found[plan.flow, lane.lane] = [
                    with_repairs(each, lane.repaired) for each in done if each is not None
                ]
        lanes = {(plan.flow, lane.lane): lane for plan in self._plans for lane in plan.lanes}
        ranges = {(key, wanted.first): wanted for key, lane in lanes.items() for wanted in lane.ranges}
        rows: list[ResultRow] = []
        try:
            for flow, result in self._compared([_left(plan, known) for plan in self._plans], report):
                lane = lanes[flow, result.lane]
                # The result is stored as if nothing had been repaired, because `mirrord repair` may need it again.
                self._found[flow, result.lane].append(with_repairs(result, lane.repaired))
                audited = lane.audited
                rows.append(
                    ResultRow(
                        flow=flow,
                        source=audited.source,
                        target_topic=audited.target.topic,
                        level=self._order.level,
                        audited_at_ms=SystemClock().wall_ms(),
                        wanted=ranges[(flow, result.lane), result.first],
                        result=result,
                    )
                )
                if results is not None and len(rows) >= KEPT_AT_ONCE:
                    results.write(rows)
                    rows = []
        finally:
            # If the audit is interrupted, the results that exist by then are stored, so that --resume does not compare
            # these ranges again.
            if results is not None:
                results.write(rows)

    def sums(self) -> list[LaneSummary]:
        """Return one summary for each lane, with the totals of the results for its ranges."""
        return [
            summary(plan, lane, self._found.get((plan.flow, lane.lane), []), level=self._order.level)
            for plan in self._plans
            for lane in plan.lanes
        ]

    def differences(self) -> Iterator[LaneDifference]:
        """Yield the differences lane by lane, in the order of the ranges."""
        for plan in self._plans:
            for lane in plan.lanes:
                source, target = lane.audited.source, lane.audited.target
                start, end = lane.uncopied
                if start < end:
                    difference = Difference("not-copied", start, None, end - start)
                    yield LaneDifference(plan.flow, source.topic, source.partition, target.topic, difference)
                for result in sorted(self._found.get((plan.flow, lane.lane), []), key=_first):
                    for difference in result.compared.differences:
                        yield LaneDifference(plan.flow, source.topic, source.partition, target.topic, difference)

    def repaired(self) -> Iterator[LaneRepaired]:
        """Yield the repaired differences lane by lane. Each one names the topic that now holds the repaired records."""
        for plan in self._plans:
            for lane in plan.lanes:
                source = lane.audited.source
                found = {
                    (each.start, each.end)
                    for result in self._found.get((plan.flow, lane.lane), [])
                    for each in result.compared.explained
                    if each.cause == "repaired"
                }
                for repair in lane.repaired:
                    if any(start < repair.end and repair.start < end for start, end in found):
                        place = (plan.flow, source.topic, source.partition, repair.difference, repair.start, repair.end)
                        yield LaneRepaired(*place, repair.topic, repair.at, repair.origin.by, repair.origin.at_ms)

    def troubles(self) -> list[str]:
        """Return one line for each flow that could not be audited, with the reason."""
        return [f"flow {plan.flow}: {plan.trouble}" for plan in self._plans if plan.trouble]

    def outcome(self, flow: str) -> tuple[JobOutcome, str]:
        """Return the outcome for a flow, and one line that describes it."""
        trouble = next((plan.trouble for plan in self._plans if plan.flow == flow and plan.trouble), "")
        if trouble:
            return "differences", trouble
        sums = [each for each in self.sums() if each.flow == flow]
        result = whole_result(sums)
        records, read = sum(each.records for each in sums), sum(each.read_bytes for each in sums)
        looked = f"{sum(not each.skipped for each in sums):,} partitions, {records:,} records, {read:,} bytes read"
        return "differences" if result.is_bad else "done", f"{result.words} ({looked})"

    def report(self, results: Results | None) -> AuditPage:
        """Return the content of the HTML report. It also covers the earlier audits that are recorded in `results` and
        in the ledgers."""
        now_ms = SystemClock().wall_ms()
        return AuditPage(
            at_ms=now_ms,
            program=program(),
            level=self._order.level,
            lanes=self.sums(),
            differences=list(self.differences()),
            proven=[point for plan in self._plans for point in self._proven(plan, now_ms)],
            found=results.found() if results is not None else (),
        )

    def _proven(self, plan: FlowPlan, now_ms: int) -> Iterator[ProvenPoint]:
        lanes = {lane.lane: lane for lane in plan.lanes}
        now = [(lane, self._found.get((plan.flow, lane.lane), [])) for lane in plan.lanes]
        is_ledger = self._order.level == "ledger"
        facts = [] if is_ledger else [fact for each in now if (fact := proven(*each, self._order.level, now_ms))]
        for fact in (*plan.history, *facts):
            if fact.lane in lanes:
                where = str(lanes[fact.lane].audited.source)
                yield ProvenPoint(plan.flow, where, fact.at_ms, fact.source_offset, fact.newest_ms)

    def record_proofs(self) -> list[str]:
        """Record in the ledgers the ranges that the audit has proven. Return one line for each flow whose ledger cannot
        be written to. Even in that case, the result of the audit remains valid."""
        if self._order.level == "ledger":
            return []
        lines: list[str] = []
        for plan in self._plans:
            found = [(lane, self._found.get((plan.flow, lane.lane), [])) for lane in plan.lanes]
            now_ms = SystemClock().wall_ms()
            proofs = [fact for each in found if (fact := proven(*each, self._order.level, now_ms)) is not None]
            if not proofs:
                continue
            try:
                asyncio.run(record_proof(self._config, self._config.flow(plan.flow), plan, proofs))
            except EnvironmentFault as fault:
                lines.append(f"the proof for {plan.flow} is not recorded, so the next audit reads it again: {fault}")
        return lines

    def _plan(self, flow: str) -> FlowPlan:
        order = self._order
        wanted = (self._config, self._config.flow(flow), order.level, order.topics, order.since_ms)
        return asyncio.run(plan_flow(*wanted, again=order.again))

    def _compared(self, plans: Sequence[FlowPlan], report: OnAuditProgress) -> Iterator[tuple[str, RangeResult]]:
        order = self._order
        if order.level == "ledger":
            for plan in plans:
                for lane in plan.lanes:
                    for result in audit_by_ledger(lane):
                        yield plan.flow, result
            return
        # Spark is imported only if an audit needs it.
        from mirrord.jobs.audit_keys import key_works  # noqa: PLC0415
        from mirrord.jobs.audit_on_spark import TaskProgress, audit, works  # noqa: PLC0415

        wanted = [work for plan in plans for work in works(plan)]
        if order.sample < 1:
            some = max(1, round(len(wanted) * order.sample))
            wanted = random.sample(wanted, min(some, len(wanted)))
        every = len(wanted)
        report(AuditProgress(0, every, 0))

        def report_task(read: TaskProgress) -> None:
            self.cpu_s = read.cpu_s
            report(AuditProgress(min(read.ranges, every), every, read.read_bytes))

        found = audit(
            self._config.clusters,
            wanted,
            order.spark,
            by_records=order.level == "records",
            report=report_task,
            keyed=key_works(self._plans, {(each.flow, *_name(each.wanted)) for each in wanted}),
            rate_bytes_per_s=order.rate_bytes_per_s,
        )
        for each in found:
            yield each.flow, each.result


def _name(wanted: AuditRange) -> tuple[LaneId, int, int]:
    return wanted.lane, wanted.first, wanted.end


def _first(result: RangeResult) -> int:
    return result.first


def _left(plan: FlowPlan, known: Collection[RangeKey]) -> FlowPlan:
    """Return the plan without the ranges that already have a result in `known`."""

    def left(lane: LaneAuditPlan) -> LaneAuditPlan:
        ranges = tuple(wanted for wanted in lane.ranges if range_key(plan.flow, wanted) not in known)
        return msgspec.structs.replace(lane, ranges=ranges)

    return msgspec.structs.replace(plan, lanes=tuple(map(left, plan.lanes)))
