"""Turns a daemon's status into metrics, in the Prometheus text format. The catalog `mirrord.model.metrics` lists all
metrics."""

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple, get_args

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from mirrord.ledger.facts.core import LOSSES
from mirrord.model.group_status import GroupState
from mirrord.model.jobs import JobOutcome, JobStatus
from mirrord.model.metrics import CATALOGUE, LATENCY_BOUNDS_S, Metric
from mirrord.model.status import CountsStatus, FlowStatus, LaneStatus, RequestsStatus, Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    """One value of one metric."""

    metric: str
    """The name of the metric in the catalog `mirrord.model.metrics`."""
    labels: tuple[str, ...]
    """The values of the labels, in the order in which the catalog `mirrord.model.metrics` lists the labels."""
    value: float
    requests: RequestsStatus | None = None
    """For a histogram of request latencies, the number of requests in each bucket and their total time. `value` is then
    the total number of requests. None for all other metrics."""


def metrics_text(status: Status) -> bytes:
    """Return, in the Prometheus text format, the metrics for a status and metrics about the calling process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StatusCollector(status))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _StatusCollector(Collector):
    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Family]:
        by_metric: dict[str, list[Sample]] = {metric.name: [] for metric in CATALOGUE}
        for sample in samples(self._status):
            by_metric[sample.metric].append(sample)
        for metric in CATALOGUE:
            yield _family(metric, by_metric[metric.name])


def _family(metric: Metric, found: list[Sample]) -> Family:
    match metric.kind:
        case "counter":
            family = CounterMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        case "gauge":
            family = GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        case "info":
            family = InfoMetricFamily(metric.name, metric.meaning, labels=())
            for sample in found:
                family.add_metric([], dict(zip(metric.labels, sample.labels, strict=True)))
            return family
        case "histogram":
            histogram = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
            for sample in found:
                if sample.requests is not None:
                    histogram.add_metric(list(sample.labels), _buckets(sample.requests), sample.requests.seconds)
            return histogram
    for sample in found:
        family.add_metric(list(sample.labels), sample.value)
    return family


def _buckets(requests: RequestsStatus) -> list[tuple[str, float]]:
    bounds = [*(f"{bound:g}" for bound in LATENCY_BOUNDS_S), "+Inf"]
    return [(bound, float(count)) for bound, count in zip(bounds, accumulate(requests.buckets), strict=True)]


def samples(status: Status) -> Iterator[Sample]:
    """Yield the values of all metrics. If the value of a metric is unknown, the metric is omitted, because the value 0
    would be incorrect."""
    yield Sample("mirrord", (status.version, status.instance), 1)
    for refused in ("401", "403"):
        # The value 0 is exported as well, because an alert on an increase needs the value from before the first one.
        yield Sample("mirrord_refused_requests", (refused,), status.refused_requests.get(refused, 0))
    for refused, number in status.refused_requests.items():
        if refused not in {"401", "403"}:
            yield Sample("mirrord_refused_requests", (refused,), number)
    for flow in status.flows:
        name = (flow.name,)
        for metric, value in _of_flow(flow):
            if value is not None:
                yield Sample(metric, name, float(value))
        for metric, label, value in _by_label(flow):
            yield Sample(metric, (*name, *label), float(value))
        if flow.counts is not None:
            yield from _counts(flow.name, flow.counts)
        yield from _readiness(flow, status.at_ms)
        for lane in flow.lanes:
            at = (*name, lane.topic, str(lane.partition))
            for metric, value in _of_lane(lane, status.at_ms):
                if value is not None:
                    yield Sample(metric, at, float(value))
            yield Sample("mirrord_lane_state", (*at, lane.state), 1)


def _of_flow(flow: FlowStatus) -> Iterator[tuple[str, float | None]]:
    holds = flow.counts is not None
    yield "mirrord_flow_exactly_once", None if flow.guarantee is None else flow.guarantee == "exactly-once"
    yield "mirrord_lease_age_seconds", _seconds(flow.lease.age_ms if flow.lease else None)
    yield "mirrord_lease_epoch", flow.lease.epoch if flow.lease else None
    yield "mirrord_ledger_end_offset", flow.ledger_end
    yield "mirrord_ledger_skipped_records", flow.ledger_skipped
    yield "mirrord_replicators", sum(each.state != "unknown" for each in flow.replicators) if holds else None
    yield "mirrord_lanes_halted", flow.totals.lanes.get("halted", 0)
    yield "mirrord_lanes_unprotected", sum(lane.protected is False for lane in flow.lanes)
    yield "mirrord_raw_share_ratio", flow.totals.raw_share if holds else None
    yield "mirrord_in_flight_bytes", flow.totals.in_flight_bytes if holds else None
    yield "mirrord_foreign_offsets", flow.totals.foreign_offsets
    yield "mirrord_groups_followed", flow.groups_followed
    yield "mirrord_audited_timestamp_seconds", _seconds(flow.totals.audited_ms or 0)
    yield "mirrord_unproven_records", flow.totals.unproven_records
    if flow.rpo is not None:
        yield "mirrord_rpo_seconds", flow.rpo.rpo_s
        yield "mirrord_within_rpo", flow.rpo.within
    if flow.latency is not None:
        yield "mirrord_latency_seconds", _seconds(flow.latency.latency_ms)
        yield "mirrord_latency_error_seconds", _seconds(flow.latency.latency_error_ms)
        yield "mirrord_clock_offset_seconds", _seconds(flow.latency.clock_offset_ms)
        yield "mirrord_clock_offset_error_seconds", _seconds(flow.latency.clock_error_ms)


def _by_label(flow: FlowStatus) -> Iterator[tuple[str, tuple[str, ...], float]]:
    for role, cluster in (("source", flow.source), ("target", flow.target)):
        yield "mirrord_cluster_reachable", (cluster.alias, role), cluster.reachable
    yield "mirrord_flow_state", (flow.state,), 1
    if flow.failover is not None:
        yield "mirrord_failover", (flow.failover.mode, flow.failover.outcome), 1
        if flow.failover.lost_records is not None:
            yield "mirrord_failover_lost_offsets", (), flow.failover.lost_records
    for state, number in flow.totals.lanes.items():
        yield "mirrord_lanes", (state,), number
    offsets = flow.verdict_offsets()
    for reason, number in offsets.items():
        yield "mirrord_verdict_offsets", (reason,), number
    for reason in LOSSES:
        # The value 0 is exported as well, because an alert on an increase needs the value from before the first loss.
        yield "mirrord_lost_offsets", (reason,), offsets[reason]
    for job in flow.jobs:
        yield from _of_job(job)
    if flow.groups is not None:
        for state in get_args(GroupState):
            yield "mirrord_group_positions", (state,), flow.groups.get(state, 0)


def _of_job(job: JobStatus) -> Iterator[tuple[str, tuple[str, ...], float]]:
    yield "mirrord_job_runs", (job.job,), job.runs
    if job.every_s is not None:
        yield "mirrord_job_interval_seconds", (job.job,), job.every_s
    if job.succeeded_ms is not None:
        yield "mirrord_job_succeeded_timestamp_seconds", (job.job,), job.succeeded_ms / 1000
    for outcome in get_args(JobOutcome) if job.outcome is not None else ():
        yield "mirrord_job_outcome", (job.job, outcome), job.outcome == outcome


def _readiness(flow: FlowStatus, at_ms: int) -> Iterator[Sample]:
    if (found := flow.readiness) is None:
        return
    name = (flow.name,)
    values: dict[tuple[str, tuple[str, ...]], float | None] = {
        ("mirrord_ready", name): found.ready,
        ("mirrord_ready_age_seconds", name): max(0, at_ms - found.at_ms) / 1000,
        ("mirrord_ready_lost_offsets", name): found.lag_records,
        ("mirrord_ready_lost_seconds", name): found.lag_s,
        ("mirrord_ready_inexact_positions", name): found.inexact_positions,
        ("mirrord_ready_retention_seconds", (*name, "source")): found.source_left_s,
        ("mirrord_ready_retention_seconds", (*name, "target")): found.target_left_s,
    }
    for (metric, labels), value in values.items():
        if value is not None:
            yield Sample(metric, labels, float(value))


def _counts(flow: str, counts: CountsStatus) -> Iterator[Sample]:
    yield Sample("mirrord_copied_records", (flow,), counts.copied_records)
    yield Sample("mirrord_copied_bytes", (flow,), counts.copied_bytes)
    yield Sample("mirrord_replicator_deaths", (flow,), counts.replicator_deaths)
    yield Sample("mirrord_batches", (flow, "raw", ""), counts.raw_batches)
    for reason, number in counts.rebuilt_batches.items():
        yield Sample("mirrord_batches", (flow, "rebuilt", reason), number)
    for requests in counts.requests:
        yield Sample("mirrord_request_seconds", (flow, requests.api), sum(requests.buckets), requests)
        yield Sample("mirrord_throttled_seconds", (flow, requests.api), requests.throttled_s)
        for error, number in requests.errors.items():
            yield Sample("mirrord_request_errors", (flow, requests.api, error), number)


def _of_lane(lane: LaneStatus, at_ms: int) -> Iterator[tuple[str, float | None]]:
    yield "mirrord_lag_records", lane.lag_records
    yield "mirrord_lag_seconds", lane.lag_s
    if lane.lag_records and lane.source_offset is not None and lane.source_start is not None:
        yield "mirrord_retention_headroom_records", max(0, lane.source_offset - lane.source_start)
    yield "mirrord_retention_headroom_seconds", lane.retention_left_s
    if lane.proof is not None:
        yield "mirrord_proven_offset", lane.proof.source_offset
        yield "mirrord_proven_timestamp_seconds", _seconds(lane.proof.newest_ms)
    if lane.open_transaction is not None:
        yield "mirrord_open_transaction_seconds", max(0, at_ms - lane.open_transaction.since_ms) / 1000


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
