"""The list of all mirrord metrics.

`/metrics`, Ray's metrics and docs/reference/metrics.md are all derived from this list. Tests check that the alert rules
and the dashboard use only metrics in this list.

The name of a metric contains its unit (https://prometheus.io/docs/practices/naming/). Most metrics have few labels. A
metric has the labels `topic` and `partition` only if an alert must name the lane.
"""

from typing import Literal

import msgspec

MetricKind = Literal["gauge", "counter", "histogram", "info"]

FLOW = ("flow",)
LANE = ("flow", "topic", "partition")

LATENCY_BOUNDS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 8.0)
"""Upper bounds of the buckets for request latencies, in seconds. An additional bucket counts the latencies above the
last bound."""

_MM2_SOURCE = "`MirrorSourceConnector`: "


class Metric(msgspec.Struct, frozen=True):
    """The declaration of one metric."""

    name: str
    """The name under which a Prometheus client declares the metric. In queries, a counter's name ends in `_total`, and
    the name of an info metric ends in `_info`."""
    kind: MetricKind
    unit: str
    labels: tuple[str, ...]
    meaning: str
    mm2: str = ""
    """The corresponding JMX metric of MirrorMaker 2 (`kafka.connect.mirror`). Empty if there is none."""

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of the metric's samples, as they appear in queries."""
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
    Metric(
        "mirrord", "info", "", ("version", "instance"),
        "Always 1. The labels are the version and the instance name of the daemon.",
    ),
    Metric(
        "mirrord_refused_requests", "counter", "", ("status",),
        "HTTP requests that the daemon has refused, by HTTP status. 401: without a valid token. 403: without the role.",
    ),
    # Clusters, flow and lease
    Metric(
        "mirrord_cluster_reachable", "gauge", "", ("flow", "cluster", "role"),
        "1 if the cluster responds, 0 if it does not.",
    ),
    Metric(
        "mirrord_flow_state", "gauge", "", ("flow", "state"),
        "Always 1. The label `state` is the flow's current state. `standby`: another daemon holds the lease.",
    ),
    Metric(
        "mirrord_failover", "gauge", "", ("flow", "mode", "outcome"),
        "Always 1, for the newest failover of the flow. `outcome` is `in progress`, `complete` or `cancelled`.",
    ),
    Metric(
        "mirrord_failover_lost_offsets", "gauge", "offsets", FLOW,
        "Number of source offsets that the newest failover has lost. No sample if this is not known.",
    ),
    Metric(
        "mirrord_flow_exactly_once", "gauge", "", FLOW,
        "1 if the flow copies exactly once. 0 if the target's brokers failed the broker probe. Records may then be "
        "duplicated.",
    ),
    Metric("mirrord_lease_age_seconds", "gauge", "seconds", FLOW, "Time since the flow's lease was last renewed."),
    Metric("mirrord_lease_epoch", "gauge", "", FLOW, "Number of times that the flow's lease has been taken."),
    Metric(
        "mirrord_ledger_end_offset", "gauge", "offsets", FLOW,
        "Offset up to which the daemon has read the flow's ledger.",
    ),
    Metric(
        "mirrord_ledger_skipped_records", "gauge", "records", FLOW,
        "Number of records in the topics of the flow's ledger that the daemon has skipped since it opened the ledger. "
        "Other clients wrote them, or an operator ordered to skip them.",
    ),
    Metric(
        "mirrord_replicators", "gauge", "", FLOW,
        "Number of replicators that are running and report their state.",
        "none (number of tasks in Connect)",
    ),
    Metric(
        "mirrord_replicator_deaths", "counter", "", FLOW,
        "Number of replicators that died, or that were stopped because they did not respond. Each of them was "
        "replaced.",
    ),
    # Recovery point objective
    Metric("mirrord_rpo_seconds", "gauge", "seconds", FLOW, "The flow's `rpo`. No sample if it has none."),
    Metric(
        "mirrord_within_rpo", "gauge", "", FLOW,
        "1 if every selected topic is copied and no lane lags by more than `rpo`, otherwise 0. It is also 0 if "
        "mirrord cannot determine this. No sample without `rpo`, or on a standby.",
    ),
    # Readiness
    Metric(
        "mirrord_ready", "gauge", "", FLOW,
        "1 if the flow is ready for the loss of its source cluster, 0 if it is not (`mirrord ready`). The daemon that "
        "runs the flow assesses this about once a minute, and every ten seconds while the flow is not ready. No sample "
        "before the first assessment, or on a standby; the same applies to the following metrics.",
    ),
    Metric("mirrord_ready_age_seconds", "gauge", "seconds", FLOW, "Time since the assessment."),
    Metric(
        "mirrord_ready_lost_offsets", "gauge", "offsets", FLOW,
        "Number of source offsets that would have been lost if the source had failed at the assessment. No sample if "
        "it is not known of every partition.",
    ),
    Metric(
        "mirrord_ready_lost_seconds", "gauge", "seconds", FLOW,
        "How old the oldest of these records may have been. No sample if this is not known of every partition.",
    ),
    Metric(
        "mirrord_ready_inexact_positions", "gauge", "", FLOW,
        "Number of positions of consumer groups for which it is not known exactly which record comes next on the "
        "target. No sample if nothing is known about positions, or if they are not synced.",
    ),
    Metric(
        "mirrord_ready_retention_seconds", "gauge", "seconds", ("flow", "role"),
        "For at least this long, `retention.ms` keeps what is still needed. `role` is `source` (what has not been "
        "copied, if nothing more is copied) or `target` (what groups have not read; this is a lower bound, at least a "
        "64th of `retention.ms`, or 0). No sample if this is not known of any partition, or without a limit.",
    ),
    # Lanes
    Metric("mirrord_lanes", "gauge", "lanes", ("flow", "state"), "Number of lanes in the state `state`."),
    Metric(
        "mirrord_lanes_halted", "gauge", "lanes", FLOW,
        "Number of halted lanes. They continue when the cause is removed or an operator decides.",
    ),
    Metric(
        "mirrord_lanes_unprotected", "gauge", "lanes", FLOW,
        "Number of unprotected lanes. The target broker may have forgotten their producer, and may then append "
        "repeated batches.",
    ),
    Metric(
        "mirrord_lag_records", "gauge", "offsets", LANE,
        "Number of source offsets that have not been copied yet. Transaction markers are included, so the number of "
        "records may be smaller.",
        "none (`records-lag` of the consumer)",
    ),
    Metric(
        "mirrord_lag_seconds", "gauge", "seconds", LANE,
        "Time lag of the lane: all records that the source partition contained this long ago have been copied. 0 if "
        "no record is missing.",
        _MM2_SOURCE + "`record-age-ms`, which covers only copied records",
    ),
    Metric(
        "mirrord_retention_headroom_records", "gauge", "offsets", LANE,
        "Number of source offsets between the log start offset of the source partition and the lane's position. "
        "Retention can delete this many offsets before it deletes records that have not been copied. No sample while "
        "the lane has no lag.",
    ),
    Metric(
        "mirrord_retention_headroom_seconds", "gauge", "seconds", LANE,
        "Estimated time until the source deletes records that have not been copied. The estimate is the shortest of up "
        "to three forecasts: from the advance of the log start offset, from `retention.ms` and from `retention.bytes`. "
        "They assume that the source partition and the lane's position advance as in the last hour. No sample if no "
        "forecast predicts such a deletion.",
    ),
    Metric(
        "mirrord_open_transaction_seconds", "gauge", "seconds", LANE,
        "How long the lane has been waiting for an open transaction on the source. No sample until the wait exceeds "
        "`transaction_alarm`. `mirrord status` names the producer.",
    ),
    Metric(
        "mirrord_lane_state", "gauge", "", (*LANE, "state"),
        "Always 1. The label `state` is the lane's current state.",
    ),
    # Copied records
    Metric(
        "mirrord_copied_records", "counter", "records", FLOW,
        "Number of records that the target acknowledged.",
        _MM2_SOURCE + "`record-count`, `record-rate`",
    ),
    Metric(
        "mirrord_copied_bytes", "counter", "bytes", FLOW,
        "Size in bytes of the batches that the target acknowledged, compressed as they were sent.",
        _MM2_SOURCE + "`byte-count`, `byte-rate`, which count only values, uncompressed",
    ),
    Metric(
        "mirrord_batches", "counter", "batches", ("flow", "path", "reason"),
        "Number of copied batches. The label `path` is `raw` (the bytes of the records are unchanged) or `rebuilt` "
        "(record by record). The label `reason` says why a batch was rebuilt.",
    ),
    Metric(
        "mirrord_raw_share_ratio", "gauge", "", FLOW,
        "Share of raw batches among all batches that the current replicators of the lanes have copied.",
    ),
    Metric(
        "mirrord_in_flight_bytes", "gauge", "bytes", FLOW,
        "Number of bytes that have been fetched from the source but not yet acknowledged by the target.",
    ),
    # Records that were not copied
    Metric(
        "mirrord_verdict_offsets", "gauge", "offsets", ("flow", "reason"),
        "Number of source offsets that were not copied one to one. The label `reason` is the reason in their verdict "
        "in the ledger.",
    ),
    Metric(
        "mirrord_lost_offsets", "gauge", "offsets", ("flow", "reason"),
        "Number of source offsets whose verdict is a loss: `expired`, `truncated`, `recreated`, `rejected`, `skipped` "
        "or `unexplained`. They are included in `mirrord_verdict_offsets`.",
    ),
    Metric(
        "mirrord_foreign_offsets", "gauge", "offsets", FLOW,
        "Number of target offsets that another client wrote between the records of a lane. Only offsets within the "
        "range of the offset map are counted.",
    ),
    # Requests
    Metric(
        "mirrord_request_seconds", "histogram", "seconds", ("flow", "api"),
        "Time from a request to its response, for `produce` requests and for `fetch` requests that returned records.",
        _MM2_SOURCE + "`replication-latency-ms` is the closest",
    ),
    Metric(
        "mirrord_request_errors", "counter", "", ("flow", "api", "error"),
        "Number of errors in broker responses, one for each partition with an error. The label `error` is Kafka's name "
        "for the error. NETWORK_EXCEPTION means that the connection was lost.",
        "none (`errors-total` of Connect tasks)",
    ),
    Metric(
        "mirrord_throttled_seconds", "counter", "seconds", ("flow", "api"),
        "Time for which brokers throttled connections because of a quota, summed over all connections: those to the "
        "source for `fetch`, those to the target for `produce`.",
        "none (`fetch-throttle-time-avg`, `produce-throttle-time-avg` of the clients)",
    ),
    Metric(
        "mirrord_latency_seconds", "gauge", "seconds", FLOW,
        "Time that a record takes from the source to the target, measured with the flow's heartbeats.",
        _MM2_SOURCE + "`replication-latency-ms`",
    ),
    Metric(
        "mirrord_latency_error_seconds", "gauge", "seconds", FLOW,
        "Maximum error of `mirrord_latency_seconds`. The true latency may be higher or lower by this much.",
    ),
    Metric(
        "mirrord_clock_offset_seconds", "gauge", "seconds", FLOW,
        "How far the source's clock is ahead of the target's clock.",
    ),
    Metric(
        "mirrord_clock_offset_error_seconds", "gauge", "seconds", FLOW,
        "Maximum error of `mirrord_clock_offset_seconds`. The true value may be higher or lower by this much.",
    ),
    # Consumer groups and audits
    Metric(
        "mirrord_group_positions", "gauge", "", ("flow", "state"),
        "Number of committed positions of consumer groups that are in the state `state`. A group has one position for "
        "each partition. `refused`, `unknown`, `unsure` and `behind` need attention if they persist.",
        "none (`MirrorCheckpointConnector`: `checkpoint-latency-ms`)",
    ),
    Metric(
        "mirrord_groups_followed", "gauge", "", FLOW,
        "1 while the flow's group follower is running, 0 if it is not. The group follower syncs the positions of "
        "consumer groups. No sample if the configuration requires no group follower.",
    ),
    Metric(
        "mirrord_audited_timestamp_seconds", "gauge", "seconds", FLOW,
        "End time of the latest audit that proved more of the flow than earlier audits, in seconds since the epoch. 0 "
        "if there is no such audit.",
    ),
    Metric(
        "mirrord_unproven_records", "gauge", "records", FLOW,
        "Number of copied records that no audit has proven yet.",
    ),
    Metric(
        "mirrord_proven_offset", "gauge", "", LANE,
        "Source offset up to which the copy is proven: audits have shown that every source offset below it has been "
        "copied or is explained. No sample before the first audit.",
    ),
    Metric(
        "mirrord_proven_timestamp_seconds", "gauge", "seconds", LANE,
        "Highest timestamp of the records below the proven offset, in seconds since the epoch.",
    ),
    Metric(
        "mirrord_job_runs", "gauge", "", ("flow", "job"),
        "1 while one of the flow's jobs (audits, compactions or drills) is running on any machine, 0 otherwise. No "
        "sample if no job of this kind has ever run and none is scheduled.",
    ),
    Metric(
        "mirrord_job_interval_seconds", "gauge", "seconds", ("flow", "job"),
        "Interval of the schedule. No sample if this kind of job is not scheduled.",
    ),
    Metric(
        "mirrord_job_succeeded_timestamp_seconds", "gauge", "seconds", ("flow", "job"),
        "End time of the latest successful job, in seconds since the epoch. An audit that completed is successful, "
        "even if it found differences. A drill is successful if it has no findings.",
    ),
    Metric(
        "mirrord_job_outcome", "gauge", "", ("flow", "job", "outcome"),
        "1 for the outcome of the latest job (`done`, `differences`, `failed` or `stopped`), 0 for the other "
        "outcomes. `differences` is the outcome of an audit that found differences, and of a drill with findings. No "
        "sample while a job is running.",
    ),
)  # fmt: skip

BY_NAME = {metric.name: metric for metric in CATALOGUE}


_HEAD = """\
# Metrics

Generated from `mirrord/model/metrics.py` (`python -m mirrord.model.metrics`). Do not edit this page.

A daemon serves its metrics at `/metrics` in Prometheus's text format. On a Ray cluster that collects metrics, the
daemon also reports the same values as Ray metrics every ten seconds. On a Ray cluster that mirrord starts, this is off
by default ([Memory of Ray](../how-to/deploy.md#memory-of-ray)). In Ray, the names of the metrics begin with `ray_`, and
a histogram becomes two counters: its sum and its count. Ray never forgets a series, so short-lived topics would use
more and more memory there. A lane that is opened more than ten minutes after the start of the daemon is therefore
reported to Ray only once it has existed for ten minutes, and at most 1,900 series of each metric are reported.
`/metrics` contains all lanes.

A metric whose value is unknown has no sample, because a zero would be misleading. Counters start at zero in each new
daemon and never decrease, even if lanes move or replicators die. Records that a replicator copied in the last second
before it died may be missing from the counters.

The last column contains the corresponding JMX metric of MirrorMaker 2. mirrord does not use MirrorMaker 2's names. If
MirrorMaker 2 has no such metric, the column may contain a similar metric of Kafka Connect or of a Kafka client, in
parentheses.

The alert rules are in [conf/prometheus](../../conf/prometheus/mirrord.rules.yml). [Operate
mirrord](../how-to/operate.md) explains how to respond to each alert. A Grafana dashboard is in
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
    lines += ["", f"Upper bounds of the buckets of `mirrord_request_seconds`, in seconds: {bounds}."]
    return _HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - prints the page, so that a shell can redirect it to the file
