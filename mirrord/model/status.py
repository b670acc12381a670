"""The status document. `/status` and `mirrord status --json` return it.

Tables, metrics and the status page are derived from this document. The names of fields show their units: `_s` means
seconds, `_ms` means milliseconds, and `_bytes` and `_records` are counts. A point in time in `_ms` is counted from the
Unix epoch. None means that the value is unknown, for example because the daemon or the source does not answer. None
never means zero.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from mirrord.model.failover import FailoverStatus
from mirrord.model.jobs import JobStatus, ProvingLevel
from mirrord.model.names import Alias, ClusterId
from mirrord.model.open_transaction import OpenTransaction
from mirrord.model.readiness import ReadinessStatus

LanePhase = Literal[
    "opening",
    "waiting",
    "resuming",
    "rebuilding",
    "copying",
    "settling",
    "draining",
    "drained",
    "paused",
    "halted",
    "gone",
    "unknown",
]
"""The phase of a lane. "paused": an operator has paused the lane, and the lane is drained. "unknown": no replicator
reports the lane. The other phases are those of `mirrord.replication.lane.state.Phase`."""

WAITING: frozenset[LanePhase] = frozenset({"opening", "waiting", "resuming", "settling", "rebuilding"})
"""Phases in which a lane does not copy records. The lane is either trying to continue on its own, or waiting for an
operator."""

FlowPhase = Literal["starting", "running", "standby", "draining", "stopped", "down", "ended"]
"""State of a flow. "standby": another daemon holds the lease. "stopped": the last holder has drained the flow and
released the lease. "down": the last holder exited without releasing it. "ended": a failover has ended the copying."""

HostState = Literal["starting", "healthy", "unsure", "quarantined", "unknown", "leaving"]
"""State of a replicator. The following states need an explanation:

- "unsure": the replicator has not answered for a while, or its event loop makes no progress.
- "quarantined": the supervisor is killing the replicator. Its lanes are assigned to other replicators once the
  replicator is known to have ended, or is no longer allowed to write.
- "unknown": the replicator cannot be reached. It may continue to copy until the ledger shows that other replicators
  have its lanes.
- "leaving": the replicator is draining its lanes, and will then shut down.
"""

Guarantee = Literal["exactly-once", "at-least-once"]
"""What a flow guarantees for each record. "at-least-once" means that the target's brokers failed the broker probe: they
do not handle repeated batches as exactly-once delivery requires. In this case, a record may be duplicated. With either
guarantee, no record is lost."""


class ClusterStatus(msgspec.Struct, frozen=True):
    """Whether the process that reports the status can reach a cluster. `since_ms` is the time at which the cluster last
    became reachable or unreachable."""

    alias: Alias
    cluster_id: ClusterId | None
    reachable: bool
    since_ms: int | None = None
    error: str | None = None


class LeaseStatus(msgspec.Struct, frozen=True):
    """The daemon that holds the flow's lease, according to the ledger.

    `age_ms` is the time since the lease was last renewed.
    """

    host: str
    pid: int
    instance: str
    http: str
    epoch: int
    age_ms: int
    program: str = ""
    """The version and the Git commit of mirrord that the daemon is running."""


class ProofStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a lane that audits have proven. Each record below `source_offset` is on the target, or the reason for
    its absence is known."""

    level: ProvingLevel
    source_offset: int
    newest_ms: int | None = None
    """Highest timestamp of the records below `source_offset`, or None if it is unknown."""
    at_ms: int
    """End time of the latest audit that extended the proven part of the lane."""


class LaneStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one lane: a source partition that is copied into a target partition."""

    topic: str
    partition: int
    target_topic: str
    state: LanePhase
    host: str = ""
    """Name of the replicator that hosts the lane."""
    ordinal: int | None = None
    """The ordinal of the lane's resume position. Ordinals start at 0 and count copied records, so this is also the
    number of records that the lane has copied since it was created."""
    source_offset: int | None = None
    """The next source offset to be copied."""
    source_end: int | None = None
    target_offset: int | None = None
    lag_records: int | None = None
    """Number of source offsets that have not been processed yet. The number includes transaction markers and compacted
    offsets, so the number of records may be smaller."""
    lag_s: float | None = None
    """Time since the target last held all records of the source. Each record that is missing on the target is at most
    this old. 0 if no record is missing."""
    source_start: int | None = None
    """Log start offset of the source partition."""
    retention_left_s: float | None = None
    """Estimated time until the source deletes records that have not been copied yet. The estimate is the shortest of up
    to three forecasts, which are based on the advance of the log start offset, on `retention.ms` and on
    `retention.bytes`. None if no forecast predicts such a deletion."""
    open_transaction: OpenTransaction | None = None
    """The open transaction that blocks the lane. None unless the lane has been waiting for longer than the flow's
    `transaction_alarm`."""
    protected: bool | None = None
    """Whether it is certain that the target broker still stores the state of the lane's producer. With this state, the
    broker recognizes a repeated batch and does not append it again."""
    records_per_s: float | None = None
    bytes_per_s: float | None = None
    in_flight_bytes: int = 0
    copied_records: int = 0
    copied_bytes: int = 0
    raw_batches: int = 0
    rebuilt_batches: dict[str, int] = {}
    """Number of batches that were rebuilt record by record, for each reason why they could not be copied raw."""
    verdict_offsets: dict[str, int] = {}
    """Number of source offsets that were not copied, for each reason in the verdicts."""
    foreign_offsets: int = 0
    """Number of target offsets at which other clients have written records between the lane's records. Only offsets
    within the range of the lane's offset map are counted."""
    proof: ProofStatus | None = None
    """How far audits have proven the lane. None if no audit has proven any part of the lane."""
    unproven_records: int | None = None
    """Number of copied records that no audit has proven yet."""
    seek_to: int | None = None
    """The source offset to which an operator command seeks the lane. None if no such command is pending."""
    unconfirmed_records: int = 0
    """Number of acknowledged records above the resume position. The lane must still read or compare a part of the
    target log before it can confirm that the target has them exactly once. This happens for some seconds after the
    previous replicator of the lane was killed."""
    note: str = ""
    """One line for operators that says why the lane is halted, or what the lane is waiting for."""


RequestKind = Literal["fetch", "produce"]


class RequestsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics for one kind of request, since the start of the process that reports them."""

    api: RequestKind
    buckets: tuple[int, ...]
    """Number of responses by latency, one number per bucket. `mirrord.model.metrics.LATENCY_BOUNDS_S` contains the
    bounds of the buckets. The last bucket counts all latencies above the last bound. A fetch is counted only if it
    returned records, because a broker deliberately delays an empty response."""
    seconds: float
    """Total duration of the requests that are counted in `buckets`."""
    errors: dict[str, int]
    """Number of errors in the responses to requests of this kind, by Kafka's name for the error. Each partition with an
    error counts once."""
    throttled_s: float = 0.0
    """Total time for which brokers throttled connections because of a quota."""


class CountsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one daemon's work for a flow. They start at zero when the daemon's process starts.

    The counters never decrease, even when lanes move and replicators end.
    """

    copied_records: int = 0
    copied_bytes: int = 0
    raw_batches: int = 0
    rebuilt_batches: dict[str, int] = {}
    replicator_deaths: int = 0
    """Number of replicators that ended unexpectedly, or that the supervisor killed because they did not answer."""
    requests: tuple[RequestsStatus, ...] = ()


class ReplicatorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one replicator, according to its latest report."""

    name: str
    host: str
    pid: int
    lanes: int
    cpu_seconds: float
    """CPU time (user and system) that the replicator's process has used since it started."""
    rss_bytes: int
    loop_age_ms: float
    """Time between the last completed iteration of the replicator's event loop and the report."""
    state: HostState = "healthy"
    node: str = ""
    """Id of the Ray node on which the replicator is running. Empty if the daemon does not use Ray."""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the lanes of a flow. The counters of a lane restart at zero when the lane moves to another
    replicator."""

    lanes: dict[str, int]
    """Number of lanes in each state."""
    records_per_s: float | None
    bytes_per_s: float | None
    lag_records: int | None
    """Sum of the lags of all lanes. None if the lag of any lane is unknown, because a partial sum would look like a
    smaller lag."""
    lag_s: float | None
    """The largest lag of any lane. None if the lag of any lane is unknown."""
    in_flight_bytes: int
    copied_records: int
    copied_bytes: int
    raw_batches: int
    rebuilt_batches: dict[str, int]
    raw_share: float | None
    """Share of all batches that were copied raw, from 0 to 1. None if there are no batches yet."""
    verdict_offsets: dict[str, int]
    foreign_offsets: int = 0
    unproven_records: int | None = None
    """Number of copied records that no audit has proven yet. None if the number is unknown for any lane."""
    audited_ms: int | None = None
    """End time of the latest audit that extended the proven part of any lane."""

    @staticmethod
    def of(lanes: Sequence[LaneStatus]) -> "Totals":
        """Return the sums over these lanes.

        A rate is None if it is unknown for every lane. A lag is None if it is unknown for any lane.
        """
        rebuilt = _add(lane.rebuilt_batches for lane in lanes)
        raw = sum(lane.raw_batches for lane in lanes)
        batches = raw + sum(rebuilt.values())
        lags_s = [lane.lag_s for lane in lanes if lane.lag_s is not None]
        return Totals(
            lanes=dict(sorted(Counter(lane.state for lane in lanes).items())),
            records_per_s=_sum(lane.records_per_s for lane in lanes),
            bytes_per_s=_sum(lane.bytes_per_s for lane in lanes),
            lag_records=_sum_of_all([lane.lag_records for lane in lanes]),
            lag_s=max(lags_s) if lanes and len(lags_s) == len(lanes) else None,
            in_flight_bytes=sum(lane.in_flight_bytes for lane in lanes),
            copied_records=sum(lane.copied_records for lane in lanes),
            copied_bytes=sum(lane.copied_bytes for lane in lanes),
            raw_batches=raw,
            rebuilt_batches=rebuilt,
            raw_share=raw / batches if batches else None,
            verdict_offsets=_add(lane.verdict_offsets for lane in lanes),
            foreign_offsets=sum(lane.foreign_offsets for lane in lanes),
            unproven_records=_sum_of_all([lane.unproven_records for lane in lanes]),
            audited_ms=max((lane.proof.at_ms for lane in lanes if lane.proof is not None), default=None),
        )


class LossStatus(msgspec.Struct, frozen=True):
    """The number of source offsets of one partition that were lost for the reason `reason`. The partition's lane is no
    longer in the status, because the source topic or the target topic was deleted. `LaneStatus.verdict_offsets` does
    not include these offsets."""

    topic: str
    partition: int
    reason: str
    offsets: int


class TopicStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that needs an operator's attention. Each string in `faults`, `remarks` and `drift` is one line for
    operators."""

    topic: str
    target_topic: str
    faults: tuple[str, ...] = ()
    """Why the topic is not copied, or why its configs are not synced."""
    remarks: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()
    """Configs of the target topic that have a wrong value and could not be altered. Each text contains the config's
    name, its current value and its required value."""


class LatencyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The flow's latency, measured with its heartbeats. Only the daemon that runs the flow knows the latency."""

    latency_ms: float | None = None
    """Time from when a heartbeat is written on the source until it can be read on the target. If a newer heartbeat has
    already been in transit for longer than that, the age of the newer heartbeat is reported instead."""
    latency_error_ms: float | None = None
    """Maximum error of `latency_ms` in either direction. The error is 0 if the daemon itself wrote the heartbeat,
    because in that case the same clock measured both times."""
    clock_offset_ms: float | None = None
    """How far the clock of the source's active controller is ahead of the clock of the target's active controller."""
    clock_error_ms: float | None = None
    """Maximum error of `clock_offset_ms` in either direction."""
    note: str = ""
    """One line for operators that says why the clock of the source or of the target could not be read. Empty if both
    could be read."""


class RpoStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a flow meets its recovery point objective."""

    rpo_s: float
    within: bool | None
    """True if every selected topic is copied and no lane lags by more than `rpo_s`. False if this is not the case, or
    if it is unknown for a topic or lane. None on a standby, because a standby does not know the lags."""
    why: str = ""
    """One line for operators that says why the objective is not met, or why it is unknown whether it is met."""


class FlowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one flow. `totals` always equals `Totals.of(lanes)`, so readers need not compute the sums
    themselves."""

    name: str
    source: ClusterStatus
    target: ClusterStatus
    state: FlowPhase
    lease: LeaseStatus | None
    totals: Totals
    lanes: tuple[LaneStatus, ...]
    replicators: tuple[ReplicatorStatus, ...] = ()
    """The replicators that host lanes of the flow, or that could host lanes. Only the daemon that runs the flow knows
    them."""
    guarantee: Guarantee | None = None
    """What the flow guarantees for each record. None if it is unknown, because the flow has never run or its ledger
    cannot be read."""
    guarantee_note: str = ""
    """One line for operators about the broker probe. It says which requirements the target's brokers do not meet, why
    the brokers were not probed, or what else the probe found."""
    note: str = ""
    """One line for operators. For example, it says why the flow is not running, or which topic could not be created."""
    topics: tuple[TopicStatus, ...] = ()
    """The topics that need attention. Only the daemon that runs the flow knows them."""
    remarks: tuple[str, ...] = ()
    """Further remarks for operators, one line each."""
    latency: LatencyStatus | None = None
    """The latency of the flow. None if the flow does not copy heartbeats."""
    rpo: RpoStatus | None = None
    """Whether the flow meets its `rpo`. None if no `rpo` is configured."""
    counts: CountsStatus | None = None
    """Counters of the flow. Only the daemon that runs the flow knows them."""
    ledger_end: int | None = None
    """The offset of the ledger topic up to which the reporting process has read the ledger."""
    ledger_skipped: int | None = None
    """Number of records in the ledger's topics that the daemon has skipped since it opened the ledger, because mirrord
    did not write them or an operator ordered so."""
    groups: dict[str, int] | None = None
    """Number of positions of consumer groups in each state (`mirrord.model.group_status.GroupState`).

    None if positions are not synced.
    """
    groups_followed: bool | None = None
    """Whether the flow's group follower is running. The group follower syncs the positions of consumer groups. None if
    the configuration does not require a group follower."""
    jobs: tuple[JobStatus, ...] = ()
    """Audits and compactions of the flow, if they are scheduled or have ever run."""
    losses: tuple[LossStatus, ...] = ()
    """Lost source offsets whose lanes are no longer in the status, because the source topic or the target topic was
    deleted. Topics that were re-created afterwards are included."""
    failover: FailoverStatus | None = None
    """The newest failover, or None if there was none."""
    readiness: ReadinessStatus | None = None
    """How ready the flow is for the loss of its source. Only the daemon that runs the flow assesses this."""
    forgotten_losses: dict[str, int] = {}
    """Number of lost source offsets, by reason, in topics that were deleted on both clusters long ago. If there are
    many, `losses` contains only the newest ones, and all others are counted here."""

    def verdict_offsets(self) -> Counter[str]:
        """Return the number of source offsets with each verdict, including those whose topics were deleted."""
        offsets: Counter[str] = Counter(self.totals.verdict_offsets)
        offsets.update(self.forgotten_losses)
        for loss in self.losses:
            offsets[loss.reason] += loss.offsets
        return offsets


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The status of all flows in one configuration, as known to one process at the time `at_ms`."""

    version: str
    """Version of mirrord in the process that created the document."""
    instance: str
    at_ms: int
    gathered: Literal["daemon", "target"]
    """Who created the document. "daemon": the running daemon. "target": another process, which derived it from the
    ledger on the target cluster because no daemon answered."""
    flows: tuple[FlowStatus, ...]
    commit: str | None = None
    """Git commit of mirrord, or None if it is unknown."""
    refused_requests: dict[str, int] = {}
    """Number of HTTP requests that this daemon has refused since it was started, by HTTP status."""

    def encode(self) -> bytes:
        """Return the document as JSON."""
        return msgspec.json.encode(self)

    @staticmethod
    def decode(document: bytes) -> "Status":
        """Decode a status document, which may come from a different version of mirrord. Raises ValueError if `document`
        is not a status document."""
        try:
            return msgspec.json.decode(document, type=Status)
        except RecursionError as error:
            raise ValueError(str(error)) from None


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _sum_of_all(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if values and len(known) == len(values) else None


def _add(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))
