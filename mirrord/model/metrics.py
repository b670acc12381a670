"""The catalogue of metrics.

`/metrics`, Ray's metrics, docs/reference/metrics.md, and the tests of alert rules and board are made from this table.

Names carry their units (https://prometheus.io/docs/practices/naming/). Labels are few: `topic` and `partition` stand
only on lag, headroom and state, where an alert has to name the lane.
"""

from typing import Literal

import msgspec

Kind = Literal["gauge", "counter", "histogram", "info"]

FLOW = ("flow",)
LANE = ("flow", "topic", "partition")

LATENCY_BOUNDS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 8.0)
"""Upper bounds of the buckets of request latencies; one more bucket has all above."""

_MM2_SOURCE = "`MirrorSourceConnector`: "


class Metric(msgspec.Struct, frozen=True):
    """One metric."""

    name: str
    """As Prometheus clients declare it: samples of a counter end in `_total`, those of an info in `_info`."""
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    meaning: str
    mm2: str = ""
    """What MirrorMaker 2 has instead (JMX, `kafka.connect.mirror`); empty: nothing."""

    @property
    def samples(self) -> tuple[str, ...]:
        """The names that a query can ask for."""
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
    Metric("mirrord", "info", "", ("version", "instance"), "The running mirrord; 1."),
    # clusters, flow and lease
    Metric("mirrord_cluster_reachable", "gauge", "", ("flow", "cluster", "role"), "1 when the cluster answers."),
    Metric(
        "mirrord_flow_state", "gauge", "", ("flow", "state"),
        "1 for the flow's present state; `standby`: another daemon holds the lease.",
    ),
    Metric(
        "mirrord_flow_exactly_once", "gauge", "", FLOW,
        "0 when the target's brokers failed the probe, so that a record may be doubled.",
    ),
    Metric("mirrord_lease_age_seconds", "gauge", "seconds", FLOW, "Since the flow's lease was renewed."),
    Metric("mirrord_lease_epoch", "gauge", "", FLOW, "How often the flow's lease has been taken."),
    Metric("mirrord_ledger_end_offset", "gauge", "offsets", FLOW, "Up to where the flow's ledger has been read."),
    Metric(
        "mirrord_replicators", "gauge", "", FLOW, "Replicators that serve.", "tasks (Connect's metrics)"
    ),
    Metric(
        "mirrord_replicator_deaths", "counter", "", FLOW,
        "Replicators that ended by themselves, or were ended because they did not answer; each was replaced.",
    ),
    # recovery point objective
    Metric("mirrord_rpo_seconds", "gauge", "seconds", FLOW, "The flow's `rpo`; missing when it has none."),
    Metric(
        "mirrord_within_rpo", "gauge", "", FLOW,
        "1 when each selected topic is copied and no lane is further behind than `rpo`; 0 also when that is not known. "
        "Missing without `rpo`, and on a standby.",
    ),
    # lanes
    Metric("mirrord_lanes", "gauge", "lanes", ("flow", "state"), "Lanes in this state."),
    Metric("mirrord_lanes_halted", "gauge", "lanes", FLOW, "Lanes that stand still until someone decides."),
    Metric(
        "mirrord_lanes_unprotected", "gauge", "lanes", FLOW,
        "Lanes whose producer the target broker does not remember: the lease protects them.",
    ),
    Metric(
        "mirrord_lag_records", "gauge", "offsets", LANE,
        "Source offsets not yet copied; markers count, so the true number may be smaller.",
        "none (`records-lag` of the consumer)",
    ),
    Metric(
        "mirrord_lag_seconds", "gauge", "seconds", LANE,
        "How long ago the target had all that the source had: no record that is missing is older. 0 without lag.",
        _MM2_SOURCE + "`record-age-ms`, of copied records only",
    ),
    Metric(
        "mirrord_retention_headroom_records", "gauge", "offsets", LANE,
        "Source offsets between the start of the source's log and the lane's position, while the lane has lag: what "
        "retention may still delete before it takes records that are not copied.",
    ),
    Metric(
        "mirrord_retention_headroom_seconds", "gauge", "seconds", LANE,
        "How long until the source deletes records that are not copied, as the log's start, the lane, and what "
        "retention.ms and retention.bytes leave have moved in the last hour; no sample where nothing comes nearer.",
    ),
    Metric(
        "mirrord_open_transaction_seconds", "gauge", "seconds", LANE,
        "How long the source has been held by one open transaction that the lane waits for; no sample until that is "
        "longer than `transaction_alarm`. `mirrord status` names its producer.",
    ),
    Metric("mirrord_lane_state", "gauge", "", (*LANE, "state"), "1 for the lane's present state."),
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
        "Batches by path: raw (bytes untouched) or rebuilt (record by record), and why not raw.",
    ),
    Metric(
        "mirrord_raw_share_ratio", "gauge", "", FLOW,
        "Batches that went raw, of all that the present hosts of the lanes have copied.",
    ),
    Metric("mirrord_in_flight_bytes", "gauge", "bytes", FLOW, "Fetched or produced, and not yet acknowledged."),
    # what was not copied
    Metric(
        "mirrord_verdict_offsets", "gauge", "offsets", ("flow", "reason"),
        "Source offsets that were not copied one to one, by the reason, as the ledger counts them.",
    ),
    Metric(
        "mirrord_lost_offsets", "gauge", "offsets", ("flow", "reason"),
        "Those of them that are lost to the target: expired or truncated before they were copied, of a topic that was "
        "deleted, refused by the target, left out by order, or without an explanation.",
    ),
    Metric(
        "mirrord_foreign_offsets", "gauge", "offsets", FLOW,
        "Target offsets between a lane's records that somebody else wrote, as far back as the map reaches.",
    ),
    # requests
    Metric(
        "mirrord_request_seconds", "histogram", "seconds", ("flow", "api"),
        "From a request to its answer: `produce`, and `fetch` where it brought records.",
        _MM2_SOURCE + "`replication-latency-ms` comes nearest",
    ),
    Metric(
        "mirrord_request_errors", "counter", "", ("flow", "api", "error"),
        "Partitions in answers of brokers with an error, by Kafka's name of it; NETWORK_EXCEPTION: a lost connection.",
        "none (`errors-total` of Connect tasks)",
    ),
    Metric(
        "mirrord_throttled_seconds", "counter", "seconds", ("flow", "api"),
        "For how long brokers let connections wait because a quota was used up, all connections together: those of the "
        "source for `fetch`, of the target for `produce`.",
        "none (`fetch-throttle-time-avg`, `produce-throttle-time-avg` of the clients)",
    ),
    Metric(
        "mirrord_latency_seconds", "gauge", "seconds", FLOW,
        "From source to target, by the heartbeats that the flow carries.", _MM2_SOURCE + "`replication-latency-ms`",
    ),
    Metric("mirrord_latency_error_seconds", "gauge", "seconds", FLOW, "How much more or less the latency may be."),
    Metric(
        "mirrord_clock_offset_seconds", "gauge", "seconds", FLOW,
        "How far the source's clock is ahead of the target's.",
    ),
    Metric("mirrord_clock_offset_error_seconds", "gauge", "seconds", FLOW, "How much more or less that may be."),
    # groups and proof
    Metric(
        "mirrord_group_positions", "gauge", "", ("flow", "state"),
        "Positions of consumer groups, one for each group and partition, by what became of them. `refused`, `unknown`, "
        "`unsure` and `behind` need somebody when they stay.",
        "none (`MirrorCheckpointConnector`: `checkpoint-latency-ms`)",
    ),
    Metric(
        "mirrord_groups_followed", "gauge", "", FLOW,
        "1 while groups are followed, 0 when that fails. Missing where nobody wants it.",
    ),
    Metric(
        "mirrord_audited_timestamp_seconds", "gauge", "seconds", FLOW,
        "When the last audit that proved more of the flow ended, seconds since the epoch; 0: none did.",
    ),
    Metric(
        "mirrord_unproven_records", "gauge", "records", FLOW,
        "Records that were copied and that no audit has proven yet.",
    ),
    Metric(
        "mirrord_proven_offset", "gauge", "", LANE,
        "Each source offset below it is at the target or explained, by the audits. Missing before the first.",
    ),
    Metric(
        "mirrord_proven_timestamp_seconds", "gauge", "seconds", LANE,
        "The highest record time below that offset, seconds since the epoch.",
    ),
    Metric(
        "mirrord_job_runs", "gauge", "", ("flow", "job"),
        "1 while an audit, or a compaction, of the flow runs, wherever that is. Missing where none ever has, nor is "
        "scheduled.",
    ),
    Metric(
        "mirrord_job_succeeded_timestamp_seconds", "gauge", "seconds", ("flow", "job"),
        "When the last one ended that did its work, also if it found differences, seconds since the epoch.",
    ),
    Metric(
        "mirrord_job_outcome", "gauge", "", ("flow", "job", "outcome"),
        "1 for how the last one ended: `done`, `differences` (an audit that found some), `failed` or `stopped`. "
        "Missing while one runs.",
    ),
)  # fmt: skip

BY_NAME = {metric.name: metric for metric in CATALOGUE}


_HEAD = """\
# Metrics

Made from `mirrord/model/metrics.py` (`python -m mirrord.model.metrics`); do not edit.

A daemon answers at `/metrics` in Prometheus's text form. On Ray the same values go to Ray's metrics every ten seconds,
as `ray_` and the name; there a histogram is two counters, its sum and its count. What is not known has no sample: a
missing sample is honest, a zero is not. Counters begin at zero with each daemon and never go back, whatever becomes of
lanes and replicators; what a replicator copied in the second before it died is not in them. The last column tells what
MirrorMaker 2's JMX has in that place; mirrord does not use those names.

Alert rules are in [conf/prometheus](../../conf/prometheus/mirrord.rules.yml), and a Grafana dashboard is in
[conf/grafana](../../conf/grafana/mirrord.json). The [runbook](../how-to/operate.md) says what to do about each alert.

| metric | kind | unit | labels | meaning | MirrorMaker 2 |
|---|---|---|---|---|---|
"""


def page() -> str:
    """docs/reference/metrics.md."""
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
    print(page(), end="")  # noqa: T201 - the page, for a shell's redirection
