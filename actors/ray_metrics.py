"""Publishes the daemon's metrics as Ray metrics. The values then appear in Ray's dashboard and in any tool that reads
Ray's metrics.

Ray keeps the values in this process and passes them to its agent. Only the first error from Ray is logged. Later errors
are ignored, because the same values remain available from the daemon's `/metrics`. On a Ray cluster that mirrord
starts, Ray drops the values, unless `RAY_enable_metrics_collection` is set to 1 (`ray_connection.METRICS`).

Ray never forgets a series: in this process and in its agent, each takes a few kilobytes until the process exits, even
if it gets no more values. A flow with short-lived topics would therefore use more and more memory. This is prevented in
two ways. A lane that appears while the daemon is running gets its series only after `SETTLED_S`. A metric gets at most
`SERIES_KEPT` series.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from ray.util import metrics as ray_metrics

from mirrord.daemon.prometheus import Sample, samples
from mirrord.model.metrics import BY_NAME, LANE, Metric
from mirrord.model.status import Status

EVERY_S = 10.0
"""Interval, in seconds, at which values are passed to Ray. Ray's agent forwards values at about the same interval
(metrics_report_interval_ms)."""
ONE_HOT = frozenset({"mirrord_flow_state", "mirrord_lane_state", "mirrord_lanes"})
"""Gauges with one series for each state. When a state no longer applies, its series gets the value 0. A series of any
other gauge may disappear from the daemon's metrics. In that case, Ray receives the value NaN for the series and no
longer shows it."""

SETTLED_S = 600.0
"""A lane must have been in the status for this long, in seconds, before its values are published. This does not apply
during the same time after the start of the daemon."""
SERIES_KEPT = 1_900
"""Maximum number of series of a metric. The values of all further series are not published. Ray itself has a similar
limit: with 2,000 or more series, it merges the values of the others into one series (`kAggregationCardinalityLimit` in
OpenTelemetry)."""

Labels = tuple[str, ...]

log = structlog.get_logger()


class RayMetrics:
    """Passes the metrics of one daemon to Ray."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()
        self._made: dict[str, Any] = {}
        self._published: dict[tuple[str, Labels], float] = {}
        self._series: dict[str, set[Labels]] = {}
        """The labels of all series that Ray knows, by the name of the metric."""
        self._lanes: Mapping[Labels, float] = {}
        """The lanes in the latest status, each with the time since which it has been in the status."""
        self._full = False

    async def run(self, status: Callable[[], Status]) -> None:
        """Publish the metrics of the current status periodically until cancelled."""
        failed = False
        while True:
            try:
                self.publish(status())
            except Exception as error:  # noqa: BLE001 - no error in Ray may harm the daemon
                if not failed:
                    log.warning("ray_metrics_failed", reason=repr(error))
                failed = True
            await asyncio.sleep(EVERY_S)

    def publish(self, status: Status) -> None:
        """Pass the values of all metrics in this status to Ray."""
        published: dict[tuple[str, Labels], float] = {}
        now = self._now()
        lanes = ((flow.name, lane.topic, str(lane.partition)) for flow in status.flows for lane in flow.lanes)
        self._lanes = {lane: self._lanes.get(lane, now) for lane in lanes}
        for sample in samples(status):
            metric = BY_NAME[sample.metric]
            for name, value in _values(metric, sample):
                key = (name, sample.labels)
                published[key] = value
                self._record(metric, name, sample.labels, value, self._published.get(key))
        for (name, labels), value in self._published.items():
            if (name, labels) not in published and name in BY_NAME and BY_NAME[name].kind == "gauge":
                gone = 0.0 if name in ONE_HOT else math.nan
                if value != gone:
                    self._record(BY_NAME[name], name, labels, gone, None)
        self._published = published

    def _record(self, metric: Metric, name: str, labels: Labels, value: float, before: float | None) -> None:
        if not self._has_series(metric, name, labels):
            return
        made = self._made.get(name)
        if made is None:
            kind: Any = ray_metrics.Counter if metric.kind in {"counter", "histogram"} else ray_metrics.Gauge
            made = self._made[name] = kind(name, metric.meaning, metric.labels)
        tags = dict(zip(metric.labels, labels, strict=True))
        if metric.kind not in {"counter", "histogram"}:
            made.set(value, tags)
        elif (more := value - (before or 0.0) if before is None or value >= before else value) > 0:
            made.inc(more, tags)

    def _has_series(self, metric: Metric, name: str, labels: Labels) -> bool:
        """Return whether Ray knows this series, or may get to know it now."""
        known = self._series.setdefault(name, set())
        if labels in known:
            return True
        now = self._now()
        if metric.labels[: len(LANE)] == LANE and now - self._began >= SETTLED_S:
            since = self._lanes.get(labels[: len(LANE)])
            if since is None or now - since < SETTLED_S:
                return False
        if len(known) >= SERIES_KEPT:
            if not self._full:
                log.warning("ray_metrics_full", metric=name, series=SERIES_KEPT)
            self._full = True
            return False
        known.add(labels)
        return True


def _values(metric: Metric, sample: Sample) -> list[tuple[str, float]]:
    if sample.requests is None:
        return [(metric.name, sample.value)]
    return [(f"{metric.name}_sum", sample.requests.seconds), (f"{metric.name}_count", sample.value)]
