"""What a replicator is told, and what it says of itself: the words between supervision and the data path."""

from typing import Literal, NamedTuple

import msgspec

from mirrord.config.schema import ClusterConfig, FlowConfig, RuntimeConfig
from mirrord.ledger.facts.core import Mode, Progress
from mirrord.model.names import ClusterId, LaneId, LaneKey
from mirrord.model.status import LaneState, OpenTransaction, RequestsStatus

_DEFAULTS = RuntimeConfig()
"""Assumed of a holder whose times the ledger does not say, unless this replicator's own times are longer."""

Former = Literal["none", "left", "dead", "unknown"]
"""What is known of a lane's former holder: there never was one; it drained the lane; its process is known to have
ended; nothing."""


class LaneAssignment(msgspec.Struct, frozen=True):
    """A lane that a replicator is to host."""

    key: LaneKey
    source_topic: str
    target_topic: str
    former: Former
    grant: int = -1
    """The lane's grant when `former` was found out: when it is another one by now, nothing is known. -1: not known."""
    word: Progress | None = None
    """What the former holder said when it left (`Parting`)."""

    @property
    def lane(self) -> LaneId:
        """The lane's id."""
        return self.key.id

    def former_under(self, grant: int) -> Former:
        """What is known of the former holder when this is the lane's grant."""
        return self.former if self.grant in {-1, grant} else "unknown"


class Parting(msgspec.Struct, frozen=True):
    """How a replicator left a lane."""

    clean: bool
    """Nothing of it is on its way."""
    word: Progress | None = None
    """Its last mark, if it was left cleanly. The state topic gets it, too, but nobody has to wait for that."""


NOT_LEFT = Parting(clean=False)


class FlowSetup(msgspec.Struct, frozen=True):
    """All that a replicator needs to serve one flow. It holds references to secrets, never secrets."""

    flow: FlowConfig
    source: ClusterConfig
    target: ClusterConfig
    runtime: RuntimeConfig
    lease_epoch: int
    """The lease that facts are written under."""
    source_cluster_id: ClusterId
    target_cluster_id: ClusterId
    mode: Mode = "sequence"
    """How all lanes of the flow work, by the last probe of the target's brokers."""

    @property
    def request_timeout_s(self) -> float:
        """How long a request may take."""
        return self.runtime.request_timeout_ms / 1000

    def times(self, former: Former, holder: tuple[int, int]) -> tuple[int, int]:
        """The longest `lease_ttl_ms` and `request_timeout_ms` of this replicator and of a former holder that may still
        write; `holder` are those of the former holder, as the ledger says (`LaneTaken`)."""
        own = (self.runtime.lease_ttl_ms, self.runtime.request_timeout_ms)
        if former in {"none", "left"}:
            return own
        ttl_ms, timeout_ms = holder if all(holder) else (_DEFAULTS.lease_ttl_ms, _DEFAULTS.request_timeout_ms)
        return max(own[0], ttl_ms), max(own[1], timeout_ms)

    def barrier_s(self, former: Former, holder: tuple[int, int]) -> float:
        """How long a former holder may still write; `holder` are its times, as the ledger says.

        A process that lives may write until its lease ends. What it has sent is appended within its request timeout:
        when its connection is closed or it ends, the kernel discards what was not delivered (`tune` in
        `mirrord.kafka.client.request_pipeline`).
        """
        ttl_ms, timeout_ms = self.times(former, holder)
        match former:
            case "none" | "left":
                return 0.0
            case "dead":
                # An older version left the connection of a dead process to the kernel, for as long as its lease.
                return max(timeout_ms, 0 if all(holder) else ttl_ms) / 1000
            case "unknown":
                return (ttl_ms + timeout_ms) / 1000


class SourceTold(NamedTuple):
    """What the source has said of a partition."""

    end: int
    """Its high watermark, or -1 while that is not known."""
    age_s: float
    """How long ago that was so."""
    start: int
    """Where its log begins, or -1."""


class LaneReport(msgspec.Struct, frozen=True, kw_only=True):
    """One lane as its replicator sees it at this moment."""

    lane: LaneId
    source_topic: str
    target_topic: str
    partition: int
    phase: LaneState
    ordinal: int
    """Next ordinal to be acknowledged: how many records the lane has copied since it was opened."""
    source_offset: int
    """Source offset behind the last acknowledged record and what was skipped right behind it."""
    source_end: int
    """The source's high watermark when it was last heard of, or -1."""
    target_offset: int
    """Target offset behind the last acknowledged record."""
    protected: bool
    """The target broker remembers the lane's producer and refuses a repeated batch by itself."""
    last_record_ms: int
    """Record time of the newest acknowledged record, epoch milliseconds, or -1."""
    raw_batches: int
    rebuilt: dict[str, int]
    """Batches that could not go raw, by the reason."""
    copied_records: int
    copied_bytes: int
    in_flight_bytes: int
    """Fetched or produced, and not yet acknowledged."""
    note: str
    """One line for people, or empty: why the lane stands still."""
    source_end_age_s: float = 0.0
    """How long ago `source_end` was so."""
    source_start: int = -1
    """Where the source's log began when it was last heard of, or -1."""
    open_transaction: OpenTransaction | None = None
    """What the lane has waited for longer than the flow's `transaction_alarm`."""
    next_record_ms: int = -1
    """The newest record time in the batch that is copied next; -1 while it is not known."""


class ReplicatorReport(msgspec.Struct, frozen=True, kw_only=True):
    """A replicator as it sees itself at this moment."""

    name: str
    pid: int
    host: str
    loop_age_ms: float
    """How long ago its event loop last came round."""
    cpu_seconds: float
    rss_bytes: int
    lanes: tuple[LaneReport, ...]
    source_error: str
    """Empty while the cluster is reachable, else one line."""
    target_error: str
    lease_valid_s: float
    """How much longer it may write without a renewal of the lease; 0 when it may not."""
    lost: bool
    """Another daemon took the flow; nothing is written any more."""
    requests: tuple[RequestsStatus, ...] = ()
    """Since the replicator began."""
    node: str = ""
    """The node of the Ray cluster that it runs on; empty without Ray."""
    remark: str = ""
    """What lanes wait for that is no fault of their own; empty: nothing."""


class Greeting(msgspec.Struct, frozen=True):
    """The answer of who was left running by another process of the daemon: only what cannot change tells whose words
    the rest is in."""

    program: str
    """Version and commit of its mirrord."""
    setup: bytes
    """The `FlowSetup` that it works by, as msgpack."""
    report: bytes = b""
    """The `ReplicatorReport` of a replicator, as msgpack."""
