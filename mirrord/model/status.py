"""The status document: the answer of `/status` and `mirrord status --json`.

Tables, metrics and the status page are derived from it. Names carry their units: `_s` seconds, `_ms` milliseconds,
`_bytes`, `_records`. An `_ms` that is a point in time is measured from the Unix epoch. None means "not known", which is
the case when the daemon or the source cannot be asked. It never means zero.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from mirrord.model.jobs import Job, JobOutcome, ProvingLevel
from mirrord.model.names import Alias, ClusterId

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
"""A lane's phase. "paused" means that an operator paused it and it is drained; "unknown" means that no replicator
reports it.
"""

WAITING: frozenset[LanePhase] = frozenset({"opening", "waiting", "resuming", "settling", "rebuilding"})
"""States in which nothing is copied and a lane tries to continue by itself, or waits for an operator."""

FlowPhase = Literal["starting", "running", "standby", "draining", "stopped", "down"]
""""standby": another daemon holds the lease. "stopped": the last holder drained and left. "down": the last holder
vanished.
"""

HostState = Literal["starting", "healthy", "unsure", "quarantined", "unknown", "leaving"]
""""unsure": it has not answered for a while, or its event loop makes no progress. "quarantined": it is being ended; its
lanes move once it is known to have ended, or its right to write has expired. "unknown": it was cut off, and may
continue until the ledger shows that other replicators have its lanes. "leaving": it is giving up its lanes.
"""

Guarantee = Literal["exactly-once", "at-least-once"]
""""at-least-once": the target's brokers failed the probe, so a record may be duplicated; none is lost."""


class ClusterStatus(msgspec.Struct, frozen=True):
    """A cluster as this observer sees it. `since_ms` is when it became reachable or unreachable."""

    alias: Alias
    cluster_id: ClusterId | None
    reachable: bool
    since_ms: int | None = None
    error: str | None = None


class LeaseStatus(msgspec.Struct, frozen=True):
    """The daemon that copies the flow, according to the ledger.

    `age_ms` is the time since the lease was last renewed.
    """

    host: str
    pid: int
    instance: str
    http: str
    epoch: int
    age_ms: int
    program: str = ""
    """Version and commit of its mirrord."""


class OpenTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction at the source that has not ended, and that a lane waits for."""

    first_offset: int
    """Its first source offset. Nothing from there on is copied before the transaction ends."""
    since_ms: int
    """Time at which the source was first seen to be blocked there."""
    producer_id: int = -1
    """-1 while the source does not report it."""
    producer_epoch: int = -1
    transactional_id: str = ""
    """Empty if no coordinator reports it: that requires permission to DESCRIBE the transactional id."""
    state: str = ""
    """State as reported by the coordinator, such as Ongoing."""
    last_record_ms: int = -1
    """Record timestamp of its producer's newest record there."""
    trouble: str = ""
    """One line for people that says why its producer is not known."""

    @property
    def line(self) -> str:
        """Description of the transaction's owner, for people."""
        if self.producer_id < 0:
            return f"a transaction that began at offset {self.first_offset}, whose producer is not known{self._why}"
        name = f', transactional id "{self.transactional_id}"' if self.transactional_id else ""
        return (
            f"the transaction of producer {self.producer_id} epoch {self.producer_epoch}{name}, "
            f"which began at offset {self.first_offset}"
        )

    @property
    def _why(self) -> str:
        return f" ({self.trouble})" if self.trouble else ""


class ProofStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far audits have proven a lane: each source offset below `source_offset` is at the target, or explained."""

    level: ProvingLevel
    source_offset: int
    newest_ms: int | None = None
    """Highest record timestamp below it, if known."""
    at_ms: int
    """End time of the last audit that extended the proof."""


class LaneStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One source partition that is copied into one target partition."""

    topic: str
    partition: int
    target_topic: str
    state: LanePhase
    host: str = ""
    """The replicator that hosts the lane."""
    ordinal: int | None = None
    """Number of records copied since the lane was opened, which is also the next ordinal."""
    source_offset: int | None = None
    """The next source offset to be copied."""
    source_end: int | None = None
    target_offset: int | None = None
    lag_records: int | None = None
    """Number of source offsets not yet copied. Markers and compacted offsets are included, so the actual number of
    records may be smaller.
    """
    lag_s: float | None = None
    """Time since the target last held everything that the source had: no missing record is older. 0 while nothing is
    missing.
    """
    source_start: int | None = None
    """Log start of the source."""
    retention_left_s: float | None = None
    """Time until the source deletes records that are not copied yet, extrapolated from the last hour by its log start
    or by its topic's retention. None if no limit comes closer.
    """
    open_transaction: OpenTransaction | None = None
    """The open transaction that the lane has waited for longer than the flow's `transaction_alarm`."""
    protected: bool | None = None
    """Whether the target broker remembers the lane's producer and would refuse a repeated batch by itself."""
    records_per_s: float | None = None
    bytes_per_s: float | None = None
    in_flight_bytes: int = 0
    copied_records: int = 0
    copied_bytes: int = 0
    raw_batches: int = 0
    rebuilt_batches: dict[str, int] = {}
    """Number of batches by the reason why they could not be copied raw."""
    verdict_offsets: dict[str, int] = {}
    """Number of source offsets that were not copied, by reason."""
    foreign_offsets: int = 0
    """Number of target offsets between the lane's records that other clients wrote, as far back as its map reaches."""
    proof: ProofStatus | None = None
    """None if no audit has proven anything about the lane."""
    unproven_records: int | None = None
    """Number of copied records that no audit has proven yet."""
    seek_to: int | None = None
    """The source offset to which a command seeks the lane, while the command has not been carried out."""
    note: str = ""
    """One line for people that says why the lane is halted, or what it waits for."""


RequestKind = Literal["fetch", "produce"]


class RequestsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of one kind of request, since the reporting process started."""

    api: RequestKind
    buckets: tuple[int, ...]
    """Number of answers by latency (`mirrord.model.metrics.LATENCY_BOUNDS_S`; the last bucket holds everything above).
    For fetches, only those that returned records are counted, because the others wait at the broker on purpose.
    """
    seconds: float
    """Total duration of these requests."""
    errors: dict[str, int]
    """Number of partitions that were answered with an error, by Kafka's name of the error."""
    throttled_s: float = 0.0
    """Total time for which brokers throttled connections because a quota was used up."""


class CountsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a flow has done since this daemon started to observe it.

    The values only grow, even when lanes move and replicators end.
    """

    copied_records: int = 0
    copied_bytes: int = 0
    raw_batches: int = 0
    rebuilt_batches: dict[str, int] = {}
    replicator_deaths: int = 0
    """Number of replicators that ended unexpectedly, or were ended because they did not answer."""
    requests: tuple[RequestsStatus, ...] = ()


class ReplicatorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One process that hosts lanes, according to its last report."""

    name: str
    host: str
    pid: int
    lanes: int
    cpu_seconds: float
    """User and system time of the whole process since it started."""
    rss_bytes: int
    loop_age_ms: float
    """Time between the last completed turn of its event loop and the report."""
    state: HostState = "healthy"
    node: str = ""
    """The node of the Ray cluster on which it runs, by Ray's id. Empty without Ray."""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The sums over the lanes of a flow. Counters restart at zero when a lane moves to another replicator."""

    lanes: dict[str, int]
    """Number of lanes in each state."""
    records_per_s: float | None
    bytes_per_s: float | None
    lag_records: int | None
    """None unless it is known for every lane, because a partial sum would look like a smaller lag."""
    lag_s: float | None
    """The largest lag of the lanes, or None unless it is known for every lane."""
    in_flight_bytes: int
    copied_records: int
    copied_bytes: int
    raw_batches: int
    rebuilt_batches: dict[str, int]
    raw_share: float | None
    """Share of batches that were copied raw, or None before the first batch."""
    verdict_offsets: dict[str, int]
    foreign_offsets: int = 0
    unproven_records: int | None = None
    """None unless it is known for every lane."""
    audited_ms: int | None = None
    """End time of the last audit that extended the proof of any lane."""

    @staticmethod
    def of(lanes: Sequence[LaneStatus]) -> "Totals":
        """Return the sums over these lanes.

        A rate is None if no lane knows its part; a lag is None if one lane does not.
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
    """Source offsets that are lost with a deleted topic. They are not included in the losses of any lane in the
    status."""

    topic: str
    partition: int
    reason: str
    offsets: int


class TopicStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that needs attention. Each entry is one line."""

    topic: str
    target_topic: str
    faults: tuple[str, ...] = ()
    """Why it is not copied, or its configs are not synced."""
    remarks: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()
    """Configs of the target topic that differ and could not be altered: name, current value and required value."""


class LatencyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The latency that the flow's heartbeats show. Only the daemon knows it."""

    latency_ms: float | None = None
    """Time from writing a record at the source until it can be read at the target. A heartbeat that is still in flight
    counts once it takes longer.
    """
    latency_error_ms: float | None = None
    """Error on either side. It is 0 if the daemon itself wrote the heartbeat, so that one clock saw both ends."""
    clock_offset_ms: float | None = None
    """How far the source's clock is ahead of the target's, according to their active controllers."""
    clock_error_ms: float | None = None
    """Error on either side."""
    note: str = ""
    """One line for people that says why a clock is not known."""


class RpoStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a flow meets its recovery point objective."""

    rpo_s: float
    within: bool | None
    """Whether each selected topic is copied and no lane lags further. It is also False if that is not known. None on a
    standby, which does not measure it.
    """
    why: str = ""
    """One line for people that says why the objective is not met, or why that is not known."""


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Audits, or compactions, of a flow: the last one, wherever it ran, and the next scheduled one."""

    job: Job
    every_s: float | None = None
    """Interval of the schedule, or None if it is not scheduled."""
    runs: bool = False
    """Whether the last one appears to be still running."""
    host: str = ""
    pid: int = 0
    done: int = 0
    every: int = 0
    """Progress of the last one: ranges of an audit, gaps of a compaction. Both are 0 while that is not known."""
    began_ms: int | None = None
    """None if there was none yet."""
    ended_ms: int | None = None
    succeeded_ms: int | None = None
    """End time of the last one that completed its work, even if it found differences."""
    outcome: JobOutcome | None = None
    """None if it is running, or its process has died."""
    line: str = ""
    """Result of the last one, for people."""
    next_ms: int | None = None
    """Start time of the next one. Only the daemon that holds the flow knows it."""
    note: str = ""
    """One line for people that says why there was none."""


class FlowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One flow. `totals` is always `Totals.of(lanes)`; it is included so that readers need not add up."""

    name: str
    source: ClusterStatus
    target: ClusterStatus
    state: FlowPhase
    lease: LeaseStatus | None
    totals: Totals
    lanes: tuple[LaneStatus, ...]
    replicators: tuple[ReplicatorStatus, ...] = ()
    """The replicators in service. Only the daemon knows them."""
    guarantee: Guarantee | None = None
    """None if it is not known, because the flow has never run or its ledger cannot be read."""
    guarantee_note: str = ""
    """One line for people that says which rules the target's brokers broke, or why they were not probed."""
    note: str = ""
    """One line for people, such as why the flow does not run, or which topic could not be created."""
    topics: tuple[TopicStatus, ...] = ()
    """The topics that need attention. Only the daemon knows them."""
    remarks: tuple[str, ...] = ()
    """Additional remarks, one line each."""
    latency: LatencyStatus | None = None
    """None while the flow copies no heartbeats."""
    rpo: RpoStatus | None = None
    """None while the flow has no `rpo`."""
    counts: CountsStatus | None = None
    """The counters. Only the daemon that holds the flow knows them."""
    ledger_end: int | None = None
    """Offset up to which the ledger has been read."""
    groups: dict[str, int] | None = None
    """Number of positions of consumer groups by `mirrord.model.group_status.GroupState`.

    None while groups are not followed.
    """
    groups_followed: bool | None = None
    """Whether groups are followed. None if that is not configured."""
    jobs: tuple[JobStatus, ...] = ()
    """The jobs that are scheduled, or have ever run."""
    losses: tuple[LossStatus, ...] = ()
    """What was lost with deleted topics, whether or not they were created again."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What one observer knows at one moment."""

    version: str
    """Version of mirrord."""
    instance: str
    at_ms: int
    gathered: Literal["daemon", "target"]
    """Whether the running daemon gathered the document, or it was derived from the target cluster's contents alone."""
    flows: tuple[FlowStatus, ...]
    commit: str | None = None
    """Commit of mirrord, or None if it cannot be determined."""

    def encode(self) -> bytes:
        """Return the document as JSON."""
        return msgspec.json.encode(self)

    @staticmethod
    def decode(document: bytes) -> "Status":
        """Read a document, possibly of another version. Raises ValueError if it is not one."""
        return msgspec.json.decode(document, type=Status)


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
