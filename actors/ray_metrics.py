"""Publishes the daemon's metrics as Ray metrics. The values then appear in Ray's dashboard and in any tool that reads
Ray's metrics.

Ray keeps the values in this process and passes them to its agent. Only the first error from Ray is logged. Later errors
are ignored, because the same values remain available from the daemon's `/metrics`.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import structlog
from ray.util import metrics as ray_metrics

from mirrord.daemon.prometheus import Sample, samples
from mirrord.model.metrics import BY_NAME, Metric
from mirrord.model.status import Status

EVERY_S = 10.0
"""Interval, in seconds, at which values are passed to Ray. Ray's agent forwards values at about the same interval
(metrics_report_interval_ms)."""
ONE_HOT = frozenset({"mirrord_flow_state", "mirrord_lane_state", "mirrord_lanes"})
"""Gauges with one series for each state. When a state no longer applies, its series gets the value 0. A series of any
other gauge may disappear from the daemon's metrics. In that case, Ray receives the value NaN for the series and no
longer shows it."""

log = structlog.get_logger()


class RayMetrics:
    """Passes the metrics of one daemon to Ray."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}
        self._published: dict[tuple[str, tuple[str, ...]], float] = {}

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
        published: dict[tuple[str, tuple[str, ...]], float] = {}
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

    def _record(self, metric: Metric, name: str, labels: tuple[str, ...], value: float, before: float | None) -> None:
        made = self._made.get(name)
        if made is None:
            kind: Any = ray_metrics.Counter if metric.kind in {"counter", "histogram"} else ray_metrics.Gauge
            made = self._made[name] = kind(name, metric.meaning, metric.labels)
        tags = dict(zip(metric.labels, labels, strict=True))
        if metric.kind not in {"counter", "histogram"}:
            made.set(value, tags)
        elif (more := value - (before or 0.0) if before is None or value >= before else value) > 0:
            made.inc(more, tags)


def _values(metric: Metric, sample: Sample) -> list[tuple[str, float]]:
    if sample.requests is None:
        return [(metric.name, sample.value)]
    return [(f"{metric.name}_sum", sample.requests.seconds), (f"{metric.name}_count", sample.value)]
