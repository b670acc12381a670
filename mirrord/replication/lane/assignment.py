"""The messages between supervision and the data path: instructions to a replicator, and its reports."""

from typing import Literal, NamedTuple

import msgspec

from mirrord.config.schema import ClusterConfig, FlowConfig, RuntimeConfig
from mirrord.ledger.facts.core import Mode, Progress
from mirrord.model.names import ClusterId, LaneId, LaneKey
from mirrord.model.status import LanePhase, OpenTransaction, RequestsStatus

_DEFAULTS = RuntimeConfig()
"""Times assumed for a holder whose times are not in the ledger, unless this replicator's own times are longer."""

Former = Literal["none", "left", "dead", "unknown"]
"""What is known about a lane's previous holder. "none": there never was one. "left": it drained the lane. "dead": its
process is known to have ended. "unknown": nothing is known.
"""


class LaneAssignment(msgspec.Struct, frozen=True):
    """A lane that a replicator is to host."""

    key: LaneKey
    source_topic: str
    target_topic: str
    former: Former
    grant: int = -1
    """The lane's grant when `former` was determined, or -1 if it is not known. If the grant has changed since, nothing
    is known about the previous holder.
    """
    word: Progress | None = None
    """The handoff checkpoint: the previous holder's last progress record, which it passed on when it left
    (`Parting`)."""

    @property
    def lane(self) -> LaneId:
        """The lane's id."""
        return self.key.id

    def former_under(self, grant: int) -> Former:
        """Return what is known about the previous holder if this is the lane's grant."""
        return self.former if self.grant in {-1, grant} else "unknown"


class Parting(msgspec.Struct, frozen=True):
    """How a replicator left a lane, and the handoff checkpoint for the next holder."""

    clean: bool
    """Whether the replicator left the lane cleanly, so that none of its batches is in flight."""
    word: Progress | None = None
    """The lane's last progress record, if the replicator left the lane cleanly.

    The record is also written to the state topic, but nothing has to wait for that.
    """


NOT_LEFT = Parting(clean=False)


class FlowSetup(msgspec.Struct, frozen=True):
    """Everything that a replicator needs to serve one flow. It holds references to secrets, but never secrets."""

    flow: FlowConfig
    source: ClusterConfig
    target: ClusterConfig
    runtime: RuntimeConfig
    lease_epoch: int
    """Epoch of the lease under which facts are written."""
    source_cluster_id: ClusterId
    target_cluster_id: ClusterId
    mode: Mode = "sequence"
    """Mode of all lanes of the flow, according to the last probe of the target's brokers."""

    @property
    def request_timeout_s(self) -> float:
        """Maximum duration of a request, in seconds."""
        return self.runtime.request_timeout_ms / 1000

    def times(self, former: Former, holder: tuple[int, int]) -> tuple[int, int]:
        """Return the longer times of this replicator and of a previous holder that may still write.

        The result is (`lease_ttl_ms`, `request_timeout_ms`). `holder` are the times of the previous holder, according
        to the ledger (`LaneTaken`).
        """
        own = (self.runtime.lease_ttl_ms, self.runtime.request_timeout_ms)
        if former in {"none", "left"}:
            return own
        ttl_ms, timeout_ms = holder if all(holder) else (_DEFAULTS.lease_ttl_ms, _DEFAULTS.request_timeout_ms)
        return max(own[0], ttl_ms), max(own[1], timeout_ms)

    def barrier_s(self, former: Former, holder: tuple[int, int]) -> float:
        """Return for how many seconds a previous holder may still write. `holder` are its times, according to the
        ledger.

        A living process may write until its lease ends. Batches that it has sent are appended within its request
        timeout: when its connection is closed or the process ends, the kernel discards undelivered data (`tune` in
        `mirrord.kafka.client.socket_options`).
        """
        ttl_ms, timeout_ms = self.times(former, holder)
        match former:
            case "none" | "left":
                return 0.0
            case "dead":
                # An older version left the connection of a dead process to the kernel for the length of its lease.
                return max(timeout_ms, 0 if all(holder) else ttl_ms) / 1000
            case "unknown":
                return (ttl_ms + timeout_ms) / 1000


class SourceBounds(NamedTuple):
    """What the source has reported about a partition."""

    end: int
    """High watermark of the partition, or -1 while it is not known."""
    age_s: float
    """Age of the high watermark, in seconds."""
    start: int
    """Log start of the partition, or -1."""


class LaneReport(msgspec.Struct, frozen=True, kw_only=True):
    """One lane as its replicator sees it at this moment."""

    lane: LaneId
    source_topic: str
    target_topic: str
    partition: int
    phase: LanePhase
    ordinal: int
    """Next ordinal to be acknowledged, which is the number of records the lane has copied since it was opened."""
    source_offset: int
    """Source offset after the last acknowledged record and the offsets skipped directly after it."""
    source_end: int
    """High watermark that the source last reported, or -1."""
    target_offset: int
    """Target offset after the last acknowledged record."""
    protected: bool
    """Whether the target broker remembers the lane's producer, so that it refuses a repeated batch by itself."""
    last_record_ms: int
    """Timestamp of the newest acknowledged record in epoch milliseconds, or -1."""
    raw_batches: int
    rebuilt: dict[str, int]
    """Number of batches that could not be copied raw, by reason."""
    copied_records: int
    copied_bytes: int
    in_flight_bytes: int
    """Bytes fetched or produced and not yet acknowledged."""
    note: str
    """One line for people that says why the lane makes no progress, or an empty string."""
    source_end_age_s: float = 0.0
    """Age of `source_end`, in seconds."""
    source_start: int = -1
    """Log start that the source last reported, or -1."""
    open_transaction: OpenTransaction | None = None
    """The open transaction that the lane has waited for longer than the flow's `transaction_alarm`."""
    next_record_ms: int = -1
    """Newest record timestamp in the batch that is copied next, or -1 while it is not known."""


class ReplicatorReport(msgspec.Struct, frozen=True, kw_only=True):
    """A replicator as it sees itself at this moment."""

    name: str
    pid: int
    host: str
    loop_age_ms: float
    """Time since its event loop last completed an iteration."""
    cpu_seconds: float
    rss_bytes: int
    lanes: tuple[LaneReport, ...]
    source_error: str
    """Why the source cluster cannot be reached, in one line; empty while it can."""
    target_error: str
    lease_valid_s: float
    """For how many more seconds the replicator may write without a renewal of the lease, or 0 if it may not write."""
    lost: bool
    """Whether another daemon took the flow, so that nothing is written any more."""
    requests: tuple[RequestsStatus, ...] = ()
    """Statistics of fetch and produce requests since the replicator started."""
    node: str = ""
    """The node of the Ray cluster on which the replicator runs. Empty without Ray."""
    remark: str = ""
    """The reason why lanes wait, if it is not in one of the lanes themselves. Empty if there is none."""


class Greeting(msgspec.Struct, frozen=True):
    """The answer of a replicator or follower that another process of the daemon left running.

    Only `program` has a fixed format. It says which version encoded the other fields.
    """

    program: str
    """Version and commit of the mirrord that it runs."""
    setup: bytes
    """The `FlowSetup` that it uses, as msgpack."""
    report: bytes = b""
    """The `ReplicatorReport` of a replicator, as msgpack."""
