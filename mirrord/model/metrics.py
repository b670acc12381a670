"""The list of all metrics of mirrord.

It is the single source for `/metrics`, Ray's metrics, docs/reference/metrics.md, and the tests of the alert rules and
the dashboard.

The names contain the units (https://prometheus.io/docs/practices/naming/). There are few labels. Only metrics for which
an alert must name the lane have the labels `topic` and `partition`.
"""

from typing import Literal

import msgspec

MetricKind = Literal["gauge", "counter", "histogram", "info"]

FLOW = ("flow",)
LANE = ("flow", "topic", "partition")

LATENCY_BOUNDS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 8.0)
"""Upper bounds of the buckets for request latencies, in seconds. One more bucket counts the latencies above the last
bound."""

_MM2_SOURCE = "`MirrorSourceConnector`: "


class Metric(msgspec.Struct, frozen=True):
    """The declaration of one metric."""

    name: str
    """The name as Prometheus clients declare it. The names of a counter's samples end in `_total`, and those of an info
    in `_info`."""
    kind: MetricKind
    unit: str
    labels: tuple[str, ...]
    meaning: str
    mm2: str = ""
    """The corresponding JMX metric of MirrorMaker 2 (`kafka.connect.mirror`). Empty if there is none."""

    @property
    def samples(self) -> tuple[str, ...]:
        """Return the names of the metric's samples, as used in queries."""
        match self.kind:
            case "counter":
                return (f"{self.name}_total",)
            case "info":
                return (f"{self.name}_info",)
            case "histogram":
                return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")
            case "gauge":
                return (self.name,)


CATALOGUE: tuple[Metric, ...] = (
    Metric("mirrord", "info", "", ("version", "instance"), "Always 1; the labels describe the running mirrord."),
    # clusters, flow and lease
    Metric("mirrord_cluster_reachable", "gauge", "", ("flow", "cluster", "role"), "1 if the cluster answers."),
    Metric(
        "mirrord_flow_state", "gauge", "", ("flow", "state"),
        "1 for the flow's current state. `standby`: another daemon holds the lease.",
    ),
    Metric(
        "mirrord_flow_exactly_once", "gauge", "", FLOW,
        "0 if the target's brokers failed the probe, so a record may be duplicated.",
    ),
    Metric("mirrord_lease_age_seconds", "gauge", "seconds", FLOW, "Time since the flow's lease was last renewed."),
    Metric("mirrord_lease_epoch", "gauge", "", FLOW, "Number of times that the flow's lease has been taken."),
    Metric("mirrord_ledger_end_offset", "gauge", "offsets", FLOW, "Offset up to which the flow's ledger is read."),
    Metric(
        "mirrord_replicators", "gauge", "", FLOW, "Replicators that are serving.", "tasks (Connect's metrics)"
    ),
    Metric(
        "mirrord_replicator_deaths", "counter", "", FLOW,
        "Replicators that died, or were stopped because they did not answer. Each was replaced.",
    ),
    # recovery point objective
    Metric("mirrord_rpo_seconds", "gauge", "seconds", FLOW, "The flow's `rpo`. No sample if it has none."),
    Metric(
        "mirrord_within_rpo", "gauge", "", FLOW,
        "1 if every selected topic is copied and no lane lags by more than `rpo`. 0 also if that is unknown. No sample "
        "without `rpo`, or on a standby.",
    ),
    # lanes
    Metric("mirrord_lanes", "gauge", "lanes", ("flow", "state"), "Lanes in this state."),
    Metric("mirrord_lanes_halted", "gauge", "lanes", FLOW, "Lanes that are halted until an operator decides."),
    Metric(
        "mirrord_lanes_unprotected", "gauge", "lanes", FLOW,
        "Lanes whose producer the target broker no longer remembers. Only the lease protects them.",
    ),
    Metric(
        "mirrord_lag_records", "gauge", "offsets", LANE,
        "Source offsets that are not copied yet. Markers count, so the number of records may be smaller.",
        "none (`records-lag` of the consumer)",
    ),
    Metric(
        "mirrord_lag_seconds", "gauge", "seconds", LANE,
        "Time since the target was last fully caught up. No uncopied record is older than this. 0 without lag.",
        _MM2_SOURCE + "`record-age-ms`, of copied records only",
    ),
    Metric(
        "mirrord_retention_headroom_records", "gauge", "offsets", LANE,
        "Source offsets between the start of the source's log and the lane's position, while the lane has lag. "
        "Retention can delete this many before it deletes records that are not copied.",
    ),
    Metric(
        "mirrord_retention_headroom_seconds", "gauge", "seconds", LANE,
        "Time until the source deletes records that are not copied. It is extrapolated from the last hour: the log "
        "start, the lane's position, and the time and bytes left under retention.ms and retention.bytes. No sample if "
        "none of these limits is approaching.",
    ),
    Metric(
        "mirrord_open_transaction_seconds", "gauge", "seconds", LANE,
        "How long the lane has been waiting for an open transaction at the source. No sample until this exceeds "
        "`transaction_alarm`. `mirrord status` names the producer.",
    ),
    Metric("mirrord_lane_state", "gauge", "", (*LANE, "state"), "1 for the lane's current state."),
    # what was copied
    Metric(
        "mirrord_copied_records", "counter", "records", FLOW, "Records that the target acknowledged.",
        _MM2_SOURCE + "`record-count`, `record-rate`",
    ),
    Metric(
        "mirrord_copied_bytes", "counter", "bytes", FLOW, "Stored bytes that the target acknowledged.",
        _MM2_SOURCE + "`byte-count`, `byte-rate`, of values alone, uncompressed",
    ),
    Metric(
        "mirrord_batches", "counter", "batches", ("flow", "path", "reason"),
        "Batches by path: raw (bytes unchanged) or rebuilt (record by record). `reason` says why a batch was not raw.",
    ),
    Metric(
        "mirrord_raw_share_ratio", "gauge", "", FLOW,
        "Share of raw batches among all batches that the current replicators of the lanes have copied.",
    ),
    Metric("mirrord_in_flight_bytes", "gauge", "bytes", FLOW, "Bytes fetched or produced, not yet acknowledged."),
    # what was not copied
    Metric(
        "mirrord_verdict_offsets", "gauge", "offsets", ("flow", "reason"),
        "Source offsets that were not copied one to one, by reason, as counted in the ledger.",
    ),
    Metric(
        "mirrord_lost_offsets", "gauge", "offsets", ("flow", "reason"),
        "The part of `mirrord_verdict_offsets` that is lost to the target: expired or truncated before they were "
        "copied, in a topic that was deleted, refused by the target, skipped by an operator, or unexplained.",
    ),
    Metric(
        "mirrord_foreign_offsets", "gauge", "offsets", FLOW,
        "Target offsets between a lane's records that another client wrote, as far back as the map reaches.",
    ),
    # requests
    Metric(
        "mirrord_request_seconds", "histogram", "seconds", ("flow", "api"),
        "Time from a request to its response: `produce`, and `fetch` if it returned records.",
        _MM2_SOURCE + "`replication-latency-ms` is the closest",
    ),
    Metric(
        "mirrord_request_errors", "counter", "", ("flow", "api", "error"),
        "Partitions with an error in broker responses, by Kafka's error name. NETWORK_EXCEPTION: a lost connection.",
        "none (`errors-total` of Connect tasks)",
    ),
    Metric(
        "mirrord_throttled_seconds", "counter", "seconds", ("flow", "api"),
        "Total time that brokers throttled connections because of a quota, over all connections: to the source for "
        "`fetch`, to the target for `produce`.",
        "none (`fetch-throttle-time-avg`, `produce-throttle-time-avg` of the clients)",
    ),
    Metric(
        "mirrord_latency_seconds", "gauge", "seconds", FLOW,
        "Latency from source to target, measured with the flow's heartbeats.", _MM2_SOURCE + "`replication-latency-ms`",
    ),
    Metric("mirrord_latency_error_seconds", "gauge", "seconds", FLOW, "Maximum error of the latency, either way."),
    Metric(
        "mirrord_clock_offset_seconds", "gauge", "seconds", FLOW,
        "How far the source's clock is ahead of the target's clock.",
    ),
    Metric("mirrord_clock_offset_error_seconds", "gauge", "seconds", FLOW, "Maximum error of the offset, either way."),
    # groups and proof
    Metric(
        "mirrord_group_positions", "gauge", "", ("flow", "state"),
        "Positions of consumer groups by state, one for each group and partition. `refused`, `unknown`, `unsure` and "
        "`behind` need attention if they persist.",
        "none (`MirrorCheckpointConnector`: `checkpoint-latency-ms`)",
    ),
    Metric(
        "mirrord_groups_followed", "gauge", "", FLOW,
        "1 while group sync works, 0 if it fails. No sample if it is turned off.",
    ),
    Metric(
        "mirrord_audited_timestamp_seconds", "gauge", "seconds", FLOW,
        "When the last audit that proved more of the flow ended, in seconds since the epoch. 0: no audit has.",
    ),
    Metric(
        "mirrord_unproven_records", "gauge", "records", FLOW,
        "Copied records that no audit has proven yet.",
    ),
    Metric(
        "mirrord_proven_offset", "gauge", "", LANE,
        "Audits have shown that each source offset below this one is at the target or explained. No sample before the "
        "first audit.",
    ),
    Metric(
        "mirrord_proven_timestamp_seconds", "gauge", "seconds", LANE,
        "The highest record time below the proven offset, in seconds since the epoch.",
    ),
    Metric(
        "mirrord_job_runs", "gauge", "", ("flow", "job"),
        "1 while an audit or a compaction of the flow runs, on any machine. No sample if none has ever run and none is "
        "scheduled.",
    ),
    Metric(
        "mirrord_job_succeeded_timestamp_seconds", "gauge", "seconds", ("flow", "job"),
        "When the last successful one ended, in seconds since the epoch. One that found differences is successful.",
    ),
    Metric(
        "mirrord_job_outcome", "gauge", "", ("flow", "job", "outcome"),
        "1 for the outcome of the last one: `done`, `differences` (an audit that found some), `failed` or `stopped`. "
        "No sample while one runs.",
    ),
)  # fmt: skip

BY_NAME = {metric.name: metric for metric in CATALOGUE}


_HEAD = """\
# Metrics

Generated from `mirrord/model/metrics.py` (`python -m mirrord.model.metrics`). Do not edit this page.

A daemon serves the metrics at `/metrics` in Prometheus's text format. On Ray the same values are also reported to Ray's
metrics every ten seconds, under the name with the prefix `ray_`. There a histogram becomes two counters, its sum and
its count.

A value that is unknown has no sample: a missing sample is honest, a zero is not. Counters start at zero with each
daemon and never decrease, whatever happens to lanes and replicators. They do not include what a replicator copied in
the second before it died. The last column names MirrorMaker 2's counterpart in JMX; mirrord does not use those names.

Alert rules are in [conf/prometheus](../../conf/prometheus/mirrord.rules.yml), and
[Operate mirrord](../how-to/operate.md) says what to do about each alert. A Grafana dashboard is in
[conf/grafana](../../conf/grafana/mirrord.json).

| metric | kind | unit | labels | meaning | MirrorMaker 2 |
|---|---|---|---|---|---|
"""


def page() -> str:
    """Return the text of docs/reference/metrics.md."""
    lines: list[str] = []
    for metric in CATALOGUE:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        shown = "`, `".join(metric.samples) if metric.kind != "histogram" else f"{metric.name}_bucket`, `_sum`, `_count"
        lines.append(
            f"| `{shown}` | {metric.kind} | {metric.unit or '-'} | {labels or '-'} | {metric.meaning} "
            f"| {metric.mm2 or 'none'} |"
        )
    bounds = ", ".join(f"{bound:g}" for bound in LATENCY_BOUNDS_S)
    lines += ["", f"Bounds of the histogram's buckets, in seconds: {bounds}."]
    return _HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - the page, for redirection in a shell
