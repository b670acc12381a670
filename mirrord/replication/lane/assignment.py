"""The messages between the supervisor and the replicators: assignments of lanes, and reports."""

from typing import Literal, NamedTuple

import msgspec

from mirrord.config.schema import ClusterConfig, FlowConfig, RuntimeConfig
from mirrord.ledger.facts.core import Mode, Progress
from mirrord.model.names import ClusterId, LaneId, LaneKey
from mirrord.model.open_transaction import OpenTransaction
from mirrord.model.status import LanePhase, RequestsStatus

_DEFAULTS = RuntimeConfig()
"""The default configuration. Its lease time and request timeout are assumed for a previous holder whose times are not
in the ledger. If this replicator's own time is longer, the longer time is used."""

Former = Literal["none", "left", "dead", "unknown"]
"""What is known about a lane's previous holder.

- "none": the lane has never had a holder.
- "left": the holder drained the lane.
- "dead": the holder's process is known to have exited.
- "unknown": nothing is known.
"""


class LaneAssignment(msgspec.Struct, frozen=True):
    """A lane that a replicator is to host."""

    key: LaneKey
    source_topic: str
    target_topic: str
    former: Former
    grant: int = -1
    """The lane's grant when `former` was determined, or -1 if that grant is not known. If the grant has changed since
    then, nothing is known about the previous holder.
    """
    word: Progress | None = None
    """The handoff checkpoint: the last progress record of the previous holder, taken from that holder's `Parting`."""

    @property
    def lane(self) -> LaneId:
        """The lane's id."""
        return self.key.id

    def former_under(self, grant: int) -> Former:
        """Return what is known about the previous holder. `grant` is the lane's current grant."""
        return self.former if self.grant in {-1, grant} else "unknown"


class Parting(msgspec.Struct, frozen=True):
    """How a replicator left a lane, and the handoff checkpoint for the next holder."""

    clean: bool
    """Whether the replicator left the lane cleanly. If so, none of its batches is in flight."""
    word: Progress | None = None
    """The lane's last progress record, if the replicator left the lane cleanly.

    The record is also written to the state topic, but a handoff does not wait for this write.
    """


NOT_LEFT = Parting(clean=False)


def longer_times(own: tuple[int, int], holder: tuple[int, int]) -> tuple[int, int]:
    """Return (`lease_ttl_ms`, `request_timeout_ms`), each the longer of a replicator's own time and a previous holder's
    time. `holder` contains the times that the ledger has for the previous holder (`LaneTaken.times`), 0 if unknown."""
    ttl_ms, timeout_ms = holder if all(holder) else (_DEFAULTS.lease_ttl_ms, _DEFAULTS.request_timeout_ms)
    return max(own[0], ttl_ms), max(own[1], timeout_ms)


def longest_s(times: tuple[int, int]) -> float:
    """Return the number of seconds during which a holder with these times may still write if nothing else is known
    about it. It may send batches until its lease ends, and a batch is appended within the request timeout, or never."""
    return sum(times) / 1000


class FlowSetup(msgspec.Struct, frozen=True):
    """Everything that a replicator needs to serve one flow. It contains references to secrets, but never the secrets
    themselves."""

    flow: FlowConfig
    source: ClusterConfig
    target: ClusterConfig
    runtime: RuntimeConfig
    lease_epoch: int
    """Epoch of the lease under which facts are written."""
    source_cluster_id: ClusterId
    target_cluster_id: ClusterId
    mode: Mode = "sequence"
    """How the lanes of the flow avoid writing a record twice (`Mode`). The most recent probe of the target's brokers
    determines the mode."""

    @property
    def request_timeout_s(self) -> float:
        """Maximum duration of a request, in seconds."""
        return self.runtime.request_timeout_ms / 1000

    def times(self, former: Former, holder: tuple[int, int]) -> tuple[int, int]:
        """Return the lease time and the request timeout to assume for a previous holder that may still write.

        The result is (`lease_ttl_ms`, `request_timeout_ms`). Each value is the longer of this replicator's own time and
        the previous holder's time. `holder` contains the previous holder's times, as recorded in the ledger
        (`LaneTaken.times`).
        """
        own = (self.runtime.lease_ttl_ms, self.runtime.request_timeout_ms)
        return own if former in {"none", "left"} else longer_times(own, holder)

    def barrier_s(self, former: Former, holder: tuple[int, int]) -> float:
        """Return the number of seconds during which a previous holder may still write. `holder` contains the lease
        duration and the request timeout that the ledger has for the previous holder, in milliseconds (0 if unknown).

        A process that is still running may send batches until its lease ends. A batch that has been sent is appended
        within the sender's request timeout, or never. The same limit applies if the process exits, because the kernel
        then discards all undelivered data (see `tune` in `mirrord.kafka.client.socket_options`).
        """
        ttl_ms, timeout_ms = self.times(former, holder)
        match former:
            case "none" | "left":
                return 0.0
            case "dead":
                # If the holder's times are not in the ledger, its process ran an older version. The kernel may still
                # deliver the data of such a process until the lease ends.
                return max(timeout_ms, 0 if all(holder) else ttl_ms) / 1000
            case "unknown":
                return longest_s((ttl_ms, timeout_ms))


class SourceBounds(NamedTuple):
    """The log start offset and the high watermark that the source last reported for a partition."""

    end: int
    """High watermark of the partition, or -1 while it is not known."""
    age_s: float
    """Age of the high watermark, in seconds."""
    start: int
    """Log start offset of the partition, or -1 while it is not known."""


class LaneReport(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of one lane, as its replicator reports it."""

    lane: LaneId
    source_topic: str
    target_topic: str
    partition: int
    phase: LanePhase
    ordinal: int
    """The ordinal of the lane's resume position. Ordinals start at 0 and count copied records, so this is also the
    number of records that the lane has copied since it was created."""
    source_offset: int
    """The lowest source offset that the lane has not dealt with yet. All records below it have been acknowledged or
    skipped."""
    source_end: int
    """High watermark that the source last reported, or -1 if none has been reported."""
    target_offset: int
    """Target offset after the last acknowledged record."""
    protected: bool
    """Whether the target broker remembers the lane's producer. If so, the broker itself rejects a duplicate batch."""
    last_record_ms: int
    """Timestamp of the newest acknowledged record, in milliseconds since the epoch, or -1 if there is none."""
    raw_batches: int
    rebuilt: dict[str, int]
    """Number of batches that could not take the raw path and were rebuilt, by reason."""
    copied_records: int
    copied_bytes: int
    in_flight_bytes: int
    """Number of bytes that have been fetched or produced but not yet acknowledged."""
    note: str
    """One line that tells the operator why the lane is making no progress, or an empty string."""
    source_end_age_s: float = 0.0
    """Age of `source_end`, in seconds."""
    source_start: int = -1
    """Log start offset that the source last reported, or -1 if none has been reported."""
    open_transaction: OpenTransaction | None = None
    """The open transaction whose end the lane has been awaiting for longer than the flow's `transaction_alarm`, if
    any."""
    next_record_ms: int = -1
    """Newest record timestamp in the next batch to be copied, or -1 if it is not known."""
    unconfirmed_records: int = 0
    """Number of acknowledged records above the resume position. The lane must still read or compare a part of the
    target log before it can confirm that the target has them exactly once."""


class ReplicatorReport(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a replicator, as the replicator itself reports it."""

    name: str
    pid: int
    host: str
    loop_age_ms: float
    """Time since the replicator's event loop last completed an iteration."""
    cpu_seconds: float
    rss_bytes: int
    lanes: tuple[LaneReport, ...]
    source_error: str
    """One line that says why the source cluster cannot be reached, or an empty string if it can be reached."""
    target_error: str
    lease_valid_s: float
    """The number of seconds during which the replicator may still write if the lease is not renewed, or 0 if it may not
    write."""
    lost: bool
    """Whether another daemon has taken over the flow. If so, this replicator no longer writes anything."""
    requests: tuple[RequestsStatus, ...] = ()
    """Statistics of fetch and produce requests since the replicator started."""
    node: str = ""
    """The Ray node on which the replicator runs, or an empty string if Ray is not used."""
    remark: str = ""
    """Why lanes are waiting, if the reason concerns the whole replicator and not just a single lane; otherwise an empty
    string."""
    received_s: float = 0.0
    """Time on the supervisor's monotonic clock at which it received the report. The replicator does not set it."""


class Greeting(msgspec.Struct, frozen=True):
    """The answer of a running replicator or group follower to a new daemon process that is taking it over.

    Only `program` has a fixed format. It says which version encoded the other fields.
    """

    program: str
    """Version and commit of the mirrord code that the replicator or group follower runs."""
    setup: bytes
    """The `FlowSetup` in use, as msgpack."""
    report: bytes = b""
    """The `ReplicatorReport` of a replicator, as msgpack."""
