"""The status document as Prometheus metrics.

Names carry their units. Few labels: the partition stands only where an alert needs it, on lag and state.
"""

from collections.abc import Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from mirrord.model.status import FlowStatus, Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Family(Protocol):
    """What all metric families can."""

    def add_metric(self, labels: list[str], value: float) -> None:
        """One sample."""
        ...


def metrics_text(status: Status) -> bytes:
    """The metrics of this moment in Prometheus's text form, with those of the process that asks."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StatusCollector(status))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _StatusCollector(Collector):
    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[InfoMetricFamily | GaugeMetricFamily | CounterMetricFamily]:
        info = InfoMetricFamily("mirrord", "The running mirrord.")
        info.add_metric([], {"version": self._status.version, "instance": self._status.instance})
        yield info
        yield from _flow_families(self._status.flows)
        yield from _latency_families(self._status.flows)
        yield from _counter_families(self._status.flows)
        yield from _lane_families(self._status.flows)


def _add(family: Family, labels: list[str], value: float | None) -> None:
    """Leaves out what is not known: a missing sample is honest, a zero is not."""
    if value is not None:
        family.add_metric(labels, value)


def _flow_families(flows: tuple[FlowStatus, ...]) -> Iterator[GaugeMetricFamily]:
    reachable = GaugeMetricFamily(
        "mirrord_cluster_reachable", "1 when the cluster answers.", labels=["flow", "cluster", "role"]
    )
    state = GaugeMetricFamily("mirrord_flow_state", "1 for the flow's present state.", labels=["flow", "state"])
    age = GaugeMetricFamily("mirrord_lease_age_seconds", "Since the flow's lease was renewed.", labels=["flow"])
    epoch = GaugeMetricFamily("mirrord_lease_epoch", "How often the flow's lease has been taken.", labels=["flow"])
    lanes = GaugeMetricFamily("mirrord_lanes", "Lanes in this state.", labels=["flow", "state"])
    halted = GaugeMetricFamily("mirrord_lanes_halted", "Lanes that stand still until someone decides.", labels=["flow"])
    unprotected = GaugeMetricFamily(
        "mirrord_lanes_unprotected", "Lanes whose producer the target broker does not remember.", labels=["flow"]
    )
    exactly_once = GaugeMetricFamily(
        "mirrord_flow_exactly_once", "0 when the target's brokers failed the probe, so that a record may be doubled.",
        labels=["flow"],
    )  # fmt: skip
    in_flight = GaugeMetricFamily(
        "mirrord_in_flight_bytes", "Fetched or produced, and not yet acknowledged.", labels=["flow"]
    )
    for flow in flows:
        for role, cluster in (("source", flow.source), ("target", flow.target)):
            reachable.add_metric([flow.name, cluster.alias, role], float(cluster.reachable))
        state.add_metric([flow.name, flow.state], 1)
        if flow.lease is not None:
            age.add_metric([flow.name], flow.lease.age_ms / 1000)
            epoch.add_metric([flow.name], flow.lease.epoch)
        for lane_state, number in flow.totals.lanes.items():
            lanes.add_metric([flow.name, lane_state], number)
        halted.add_metric([flow.name], flow.totals.lanes.get("halted", 0))
        unprotected.add_metric([flow.name], sum(lane.protected is False for lane in flow.lanes))
        if flow.guarantee is not None:
            exactly_once.add_metric([flow.name], float(flow.guarantee == "exactly-once"))
        in_flight.add_metric([flow.name], flow.totals.in_flight_bytes)
    yield from (reachable, state, age, epoch, lanes, halted, unprotected, exactly_once, in_flight)


def _latency_families(flows: tuple[FlowStatus, ...]) -> Iterator[GaugeMetricFamily]:
    latency = GaugeMetricFamily(
        "mirrord_latency_seconds", "From source to target, by the heartbeats that the flow carries.", labels=["flow"]
    )
    error = GaugeMetricFamily(
        "mirrord_latency_error_seconds", "How much more or less the latency may be.", labels=["flow"]
    )
    clocks = GaugeMetricFamily(
        "mirrord_clock_offset_seconds", "How far the source's clock is ahead of the target's.", labels=["flow"]
    )
    clocks_error = GaugeMetricFamily(
        "mirrord_clock_offset_error_seconds", "How much more or less that may be.", labels=["flow"]
    )
    for flow in flows:
        if flow.latency is None:
            continue
        _add(latency, [flow.name], _seconds(flow.latency.latency_ms))
        _add(error, [flow.name], _seconds(flow.latency.latency_error_ms))
        _add(clocks, [flow.name], _seconds(flow.latency.clock_offset_ms))
        _add(clocks_error, [flow.name], _seconds(flow.latency.clock_error_ms))
    yield from (latency, error, clocks, clocks_error)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _counter_families(flows: tuple[FlowStatus, ...]) -> Iterator[CounterMetricFamily]:
    records = CounterMetricFamily("mirrord_copied_records", "Records that the target acknowledged.", labels=["flow"])
    size = CounterMetricFamily("mirrord_copied_bytes", "Stored bytes that the target acknowledged.", labels=["flow"])
    batches = CounterMetricFamily(
        "mirrord_batches",
        "Batches by path: raw (bytes untouched) or rebuilt (record by record), and why not raw.",
        labels=["flow", "path", "reason"],
    )
    verdicts = CounterMetricFamily(
        "mirrord_verdict_offsets", "Source offsets that were not copied, by the reason.", labels=["flow", "reason"]
    )
    for flow in flows:
        totals = flow.totals
        records.add_metric([flow.name], totals.copied_records)
        size.add_metric([flow.name], totals.copied_bytes)
        batches.add_metric([flow.name, "raw", ""], totals.raw_batches)
        for reason, number in totals.rebuilt_batches.items():
            batches.add_metric([flow.name, "rebuilt", reason], number)
        for reason, number in totals.verdict_offsets.items():
            verdicts.add_metric([flow.name, reason], number)
    yield from (records, size, batches, verdicts)


def _lane_families(flows: tuple[FlowStatus, ...]) -> Iterator[GaugeMetricFamily]:
    labels = ["flow", "topic", "partition"]
    lag_records = GaugeMetricFamily("mirrord_lag_records", "Source offsets not yet copied.", labels=labels)
    lag_s = GaugeMetricFamily(
        "mirrord_lag_seconds", "Age of the newest copied record while there is lag, else 0.", labels=labels
    )
    state = GaugeMetricFamily("mirrord_lane_state", "1 for the lane's present state.", labels=[*labels, "state"])
    for flow in flows:
        for lane in flow.lanes:
            values = [flow.name, lane.topic, str(lane.partition)]
            _add(lag_records, values, lane.lag_records)
            _add(lag_s, values, lane.lag_s)
            state.add_metric([*values, lane.state], 1)
    yield from (lag_records, lag_s, state)
