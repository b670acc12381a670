"""The status document: what `/status` and `mirrord status --json` answer; tables, metrics and page are made from it.

Names carry their units: `_s` seconds, `_ms` milliseconds, `_bytes`, `_records`; an `_ms` that names a moment counts
from the epoch. None means "not known": that is left when daemon or source cannot be asked, and it is never zero.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from mirrord.model.jobs import Job, Outcome, ProvingLevel
from mirrord.model.names import Alias, ClusterId

LaneState = Literal[
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
"""A lane's phase; "paused" when somebody ordered that and it is drained; "unknown" while nobody reports it."""

WAITING: frozenset[LaneState] = frozenset({"opening", "waiting", "resuming", "settling", "rebuilding"})
"""States in which nothing is copied and a lane tries to go on by itself, or waits for a person to act."""

FlowState = Literal["starting", "running", "standby", "draining", "stopped", "down"]
"""standby: another daemon holds the lease. stopped: the last holder drained and left. down: it vanished."""

HostState = Literal["starting", "healthy", "unsure", "quarantined", "unknown", "leaving"]
"""unsure: it has not answered for a while, or its event loop has not come round. quarantined: it is being ended; its
lanes go elsewhere when it is known to have ended, or its right to write has run out. unknown: it was cut off, and may
go on until the ledger shows it that others have its lanes. leaving: it gives its lanes up."""

Guarantee = Literal["exactly-once", "at-least-once"]
"""at-least-once: the target's brokers failed the probe, so a record may be doubled; none is lost."""


class ClusterStatus(msgspec.Struct, frozen=True):
    """A cluster as this observer sees it; `since_ms` is when it became reachable or unreachable."""

    alias: Alias
    cluster_id: ClusterId | None
    reachable: bool
    since_ms: int | None = None
    error: str | None = None


class LeaseStatus(msgspec.Struct, frozen=True):
    """Who copies the flow, by the ledger; `age_ms` since the lease was last renewed."""

    host: str
    pid: int
    instance: str
    http: str
    epoch: int
    age_ms: int
    program: str = ""
    """Version and commit of its mirrord."""


class OpenTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction at the source that nobody has ended, and that a lane waits for."""

    first_offset: int
    """Its first source offset: nothing from there on is copied before it ends."""
    since_ms: int
    """When the source was first seen to be held there."""
    producer_id: int = -1
    """-1 while the source does not tell."""
    producer_epoch: int = -1
    transactional_id: str = ""
    """Empty where no coordinator tells it: that takes the right to DESCRIBE the transactional id."""
    state: str = ""
    """The coordinator's word for it, such as Ongoing."""
    last_record_ms: int = -1
    """Record time of the newest record of its producer there."""
    trouble: str = ""
    """One line for people: why its producer is not told."""

    @property
    def line(self) -> str:
        """Whose it is, for people."""
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
    """The highest record time below it, as far as it is known."""
    at_ms: int
    """When the last audit that proved more of it ended."""


class LaneStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One source partition on its way into one target partition."""

    topic: str
    partition: int
    target_topic: str
    state: LaneState
    host: str = ""
    """The replicator that hosts the lane."""
    ordinal: int | None = None
    """Records copied since the lane was opened: the ordinal that comes next."""
    source_offset: int | None = None
    """The next source offset to be copied."""
    source_end: int | None = None
    target_offset: int | None = None
    lag_records: int | None = None
    """Source offsets not yet copied; markers and compacted offsets count, so the true number may be smaller."""
    lag_s: float | None = None
    """How long ago the target had all that the source had: no missing record is older. 0 while nothing is missing."""
    source_start: int | None = None
    """Where the source's log begins."""
    retention_left_s: float | None = None
    """Until the source deletes what is not copied yet, by its log start or by its topic's retention, as the last hour
    went; None where nothing comes nearer."""
    open_transaction: OpenTransaction | None = None
    """What the lane has waited for longer than the flow's `transaction_alarm`."""
    protected: bool | None = None
    """Whether the target broker remembers the lane's producer and would refuse a repeated batch by itself."""
    records_per_s: float | None = None
    bytes_per_s: float | None = None
    in_flight_bytes: int = 0
    copied_records: int = 0
    copied_bytes: int = 0
    raw_batches: int = 0
    rebuilt_batches: dict[str, int] = {}
    """By the reason why a batch could not go raw."""
    verdict_offsets: dict[str, int] = {}
    """Source offsets that were not copied, by the reason."""
    foreign_offsets: int = 0
    """Target offsets between the lane's records that somebody else wrote, as far back as its map reaches."""
    proof: ProofStatus | None = None
    """None: no audit has proven anything of it."""
    unproven_records: int | None = None
    """Records that were copied and that no audit has proven yet."""
    seek_to: int | None = None
    """The source offset at which an order lets it go on, while that is not carried out."""
    note: str = ""
    """One line for people: why the lane is halted, what it waits for."""


Api = Literal["fetch", "produce"]


class RequestsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How requests of one kind went, since whoever tells began."""

    api: Api
    buckets: tuple[int, ...]
    """Answers by how long they took (`mirrord.model.metrics.LATENCY_BOUNDS_S`; the last one has all above). Of fetches
    only those that brought records: the others wait at the broker on purpose."""
    seconds: float
    """All of them together."""
    errors: dict[str, int]
    """Partitions that were answered with an error, by Kafka's name of it."""
    throttled_s: float = 0.0
    """For so long brokers let connections wait because a quota was used up, all of them together."""


class CountsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a flow has done since this daemon began to look. It only grows, also when lanes move and replicators end."""

    copied_records: int = 0
    copied_bytes: int = 0
    raw_batches: int = 0
    rebuilt_batches: dict[str, int] = {}
    replicator_deaths: int = 0
    """Replicators that ended unasked, or were ended because they did not answer."""
    requests: tuple[RequestsStatus, ...] = ()


class ReplicatorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One process that hosts lanes, by its own last word."""

    name: str
    host: str
    pid: int
    lanes: int
    cpu_seconds: float
    """User and system time of the whole process since it began."""
    rss_bytes: int
    loop_age_ms: float
    """How long before that word its event loop had last come round."""
    state: HostState = "healthy"
    node: str = ""
    """The node of the Ray cluster that it runs on, by Ray's id of it; empty without Ray."""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The lanes of a flow added up. Counters begin again at zero when a lane moves to another replicator."""

    lanes: dict[str, int]
    """How many lanes are in which state."""
    records_per_s: float | None
    bytes_per_s: float | None
    lag_records: int | None
    """None unless it is known of every lane: a sum of some would look like less."""
    lag_s: float | None
    """The largest of the lanes; None unless it is known of every lane."""
    in_flight_bytes: int
    copied_records: int
    copied_bytes: int
    raw_batches: int
    rebuilt_batches: dict[str, int]
    raw_share: float | None
    """Batches that went raw, of all; None before the first."""
    verdict_offsets: dict[str, int]
    foreign_offsets: int = 0
    unproven_records: int | None = None
    """None unless it is known of every lane."""
    audited_ms: int | None = None
    """When the last audit that proved more of any lane ended."""

    @staticmethod
    def of(lanes: Sequence[LaneStatus]) -> "Totals":
        """The sums over these lanes; a rate is None when no lane knows its part, a lag when one lane does not."""
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
    """Source offsets that are lost with a topic that was deleted; no lane of the status counts them."""

    topic: str
    partition: int
    reason: str
    offsets: int


class TopicStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that needs attention; one line each."""

    topic: str
    target_topic: str
    faults: tuple[str, ...] = ()
    """Why it is not copied, or its settings are not kept like the source's."""
    remarks: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()
    """Settings of the copy that differ and could not be altered: name, value there and value wanted."""


class LatencyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the heartbeats that a flow carries tell; only the daemon knows it."""

    latency_ms: float | None = None
    """From a record's being written at the source until it can be read at the target; what is still under way counts
    once it takes longer."""
    latency_error_ms: float | None = None
    """On either side: 0 when the daemon itself wrote the heartbeat, so that one clock saw both ends."""
    clock_offset_ms: float | None = None
    """How far the source's clock is ahead of the target's, by their active controllers."""
    clock_error_ms: float | None = None
    """On either side."""
    note: str = ""
    """One line for people: why a clock is not known."""


class RpoStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a flow keeps its recovery point objective."""

    rpo_s: float
    within: bool | None
    """Each selected topic is copied, and no lane is further behind; False also when that is not known. None: on a
    standby, where nobody needs to know."""
    why: str = ""
    """One line for people: why it is not within, or why that is not known."""


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Audits, or compactions, of a flow: the last one, wherever it ran, and the next one by schedule."""

    job: Job
    every_s: float | None = None
    """None: not by schedule."""
    runs: bool = False
    """The last one has not ended, as far as is known."""
    host: str = ""
    pid: int = 0
    done: int = 0
    every: int = 0
    """How far the last one is, or was: ranges of an audit, gaps of a compaction; 0 while that is not known."""
    began_ms: int | None = None
    """None: there was none yet."""
    ended_ms: int | None = None
    succeeded_ms: int | None = None
    """When the last one ended that did its work, also if it found differences."""
    outcome: Outcome | None = None
    """None: it runs, or its process has died."""
    line: str = ""
    """What came of the last one, for people."""
    next_ms: int | None = None
    """When the next one begins; only the daemon that holds the flow knows it."""
    note: str = ""
    """One line for people: why there was none."""


class FlowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One flow. `totals` is always `Totals.of(lanes)`; it is there so that no reader has to add up."""

    name: str
    source: ClusterStatus
    target: ClusterStatus
    state: FlowState
    lease: LeaseStatus | None
    totals: Totals
    lanes: tuple[LaneStatus, ...]
    replicators: tuple[ReplicatorStatus, ...] = ()
    """Those that serve; only the daemon knows them."""
    guarantee: Guarantee | None = None
    """None when it is not known: the flow has never run, or its ledger cannot be read."""
    guarantee_note: str = ""
    """One line for people: what the target's brokers failed in, or why they were not probed."""
    note: str = ""
    """One line for people: why the flow does not run, a topic that could not be created."""
    topics: tuple[TopicStatus, ...] = ()
    """Those that need attention; only the daemon knows them."""
    remarks: tuple[str, ...] = ()
    """What is good to know, one line each."""
    latency: LatencyStatus | None = None
    """None while the flow carries no heartbeats."""
    rpo: RpoStatus | None = None
    """None while the flow has no `rpo`."""
    counts: CountsStatus | None = None
    """Only the daemon that holds the flow knows them."""
    ledger_end: int | None = None
    """Up to which offset the ledger has been read."""
    groups: dict[str, int] | None = None
    """Positions of consumer groups by `mirrord.model.group_status.GroupState`; None while nobody follows groups."""
    groups_followed: bool | None = None
    """None where nobody wants it."""
    jobs: tuple[JobStatus, ...] = ()
    """Those that are scheduled, or have ever run."""
    losses: tuple[LossStatus, ...] = ()
    """What was lost with topics that were deleted, whether or not they were created again."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What one observer knows at one moment."""

    version: str
    """Of mirrord."""
    instance: str
    at_ms: int
    gathered: Literal["daemon", "target"]
    """By the running daemon, or from what stands in the target cluster alone."""
    flows: tuple[FlowStatus, ...]
    commit: str | None = None
    """Of mirrord; None when it cannot be told."""

    def encode(self) -> bytes:
        """The document as JSON."""
        return msgspec.json.encode(self)

    @staticmethod
    def decode(document: bytes) -> "Status":
        """Reads a document, also of another version. Raises ValueError when it is not one."""
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
