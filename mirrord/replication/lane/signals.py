"""The inputs that a lane receives, and the effects that it requests.

Every request that a lane makes carries a number (`question`), and the answer carries the same number. Only the first
answer to a request counts; any further answer is dropped. When a lane is in doubt about its state, it begins a new
round. From then on, it ignores answers to earlier requests, and answers for batches that were sent in an earlier round.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from mirrord.ledger.facts.core import CopyInherited, LaneFact, Progress
from mirrord.replication.lane.dead_letter_signals import Park, ParkAnswer
from mirrord.replication.lane.lane_record import LaneRecord
from mirrord.replication.lane.source.cleanup_policy import AskCleanup, CleanupAnswer
from mirrord.replication.lane.source.origin_writer import Writer
from mirrord.replication.lane.target.relocation_result import Located
from mirrord.replication.lane.target.superseded_records import AskShared, AskSuperseded, SharedAnswer, SupersededAnswer
from mirrord.replication.lane.target.topic_configs import AskConfigs, ConfigsAnswer

ScanPurpose = Literal["resume", "verify", "confirm", "gap", "later"]


class Batch:
    """One record batch with its new header, ready to be produced. It is a plain class and not a msgspec struct, because
    one object per batch is created on the hot path."""

    __slots__ = ("buffer", "count", "end", "first", "frame", "newest_ms", "next_offset", "offset", "start")

    def __init__(  # noqa: PLR0913, PLR0917 -- one per batch on the hot path: keywords cost more than the call
        self,
        first: int,
        count: int,
        offset: int,
        next_offset: int,
        buffer: bytearray,
        start: int,
        end: int,
        newest_ms: int,
        frame: object,
    ) -> None:
        self.first = first
        """Ordinal of the batch's first record."""
        self.count = count
        self.offset = offset
        """Source offset of the batch's first record."""
        self.next_offset = next_offset
        """Source offset right after the batch."""
        self.buffer = buffer
        self.start = start
        self.end = end
        """The batch is buffer[start:end]."""
        self.newest_ms = newest_ms
        self.frame = frame
        """Keeps the receive buffer from being reused while the batch may still be sent."""

    def __repr__(self) -> str:
        return f"Batch({self.first}+{self.count} @{self.offset})"


class OwnBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch in the target log with the lane's producer id, described by fields of its header."""

    base_offset: int
    count: int
    base_sequence: int
    records_crc: int
    leader_epoch: int = -1
    """Epoch of the target leader that appended the batch."""


# --- inputs -----------------------------------------------------------------------------------------------------------


class Start(msgspec.Struct, frozen=True):
    """Start the lane. `record` is None if the ledger does not contain the lane."""

    record: LaneRecord | None
    progress: Progress | None
    replicator: str
    """The name of this attempt to host the lane. No other attempt has this name, so the lane can recognize its own
    `LaneTaken`."""
    barrier_s: float
    """How long a former holder may still write, in seconds: lease time plus request timeout, or less if the holder's
    process is known to have exited."""
    left_cleanly: bool
    """Whether the former holder drained the lane, so that none of its batches is in flight."""
    handed: Progress | None = None
    """The former holder's last progress record, which the former holder passed on when it left. Used for a fast handoff
    (see `mirrord.replication.lane.fast_handoff`)."""
    times: tuple[int, int] = (0, 0)
    """The lease time and the request timeout, in milliseconds, that the next holder must assume. They are recorded in
    `LaneTaken`."""


class ProducerIdAnswer(msgspec.Struct, frozen=True):
    question: int
    error: int
    producer_id: int
    producer_epoch: int


class Bound(msgspec.Struct, frozen=True):
    """The facts of an `Append` have been read back from the ledger; `bound` says for each fact whether it has taken
    effect."""

    tag: int
    bound: tuple[bool, ...]
    record: LaneRecord | None


class AppendFailed(msgspec.Struct, frozen=True):
    """The ledger did not answer in time, so it may or may not contain the facts. `record` is the last known state of
    the lane in the ledger."""

    tag: int
    record: LaneRecord | None


class StartAnswer(msgspec.Struct, frozen=True):
    """The source offset at which a lane without history begins."""

    question: int
    error: int
    offset: int
    inherited: CopyInherited | None = None
    """The position that the lane takes over from MirrorMaker 2, if any; the lane fills in the grant."""
    trouble: str = ""
    """Why the lane cannot begin, as one line for the operator."""
    waits: bool = False
    """Whether the problem in `trouble` is expected to resolve itself without an operator. If so, the lane asks
    again."""


class EndAnswer(msgspec.Struct, frozen=True):
    """The end of the log on the target partition's leader (OffsetForLeaderEpoch). Records below this end may not have
    been replicated yet."""

    question: int
    error: int
    leader_epoch: int
    end: int


class DivergenceAnswer(msgspec.Struct, frozen=True):
    """The source's answer to `AskDivergence`: the newest epoch in its log that is not above the requested one, and the
    offset at which that epoch ends. -1 means that a value is unknown."""

    question: int
    error: int
    epoch: int = -1
    end: int = -1
    leader_epoch: int = -1
    """The leader epoch of the source broker that has answered."""


class ProducerEntry(msgspec.Struct, frozen=True):
    """What the target broker remembers about the lane's producer id (DescribeProducers, KIP-664)."""

    last_sequence: int
    age_ms: int
    """The age of the producer's last record, based on the record's timestamp: a broker uses these timestamps to decide
    when to forget a producer."""


class ProducersAnswer(msgspec.Struct, frozen=True):
    question: int
    error: int
    entry: ProducerEntry | None


class VisibleAnswer(msgspec.Struct, frozen=True):
    """The target's high watermark and log start offset (ListOffsets)."""

    question: int
    error: int
    high_watermark: int
    log_start: int


class ScanAnswer(msgspec.Struct, frozen=True):
    """The lane's own batches that were found at the target offsets [start, end), in log order."""

    question: int
    error: int
    purpose: ScanPurpose
    start: int
    end: int
    own: tuple[OwnBatch, ...]
    others: tuple[tuple[int, int], ...] = ()
    """Target offsets [start, end) of batches from other writers, in ascending order; adjacent ranges are merged."""
    compacts: bool | None = False
    """Whether the topic is compacted; None if that is not known. If it is certain that no record has been removed, the
    cluster is not asked, and the value is False."""
    leader_epoch: int = -1
    """The highest leader epoch of the batches in the range, from any client. -1 if there are none, or if they have
    no leader epochs."""


class CheckAnswer(msgspec.Struct, frozen=True):
    """The outcome of a comparison of the lane's own batches in the target with the source."""

    question: int
    error: int
    first: int
    last: int
    outcome: Literal["equal", "unverifiable", "different"]
    note: str = ""
    source_epoch: int = -1
    """Leader epoch of the source batch before the requested position (`AskCheck.position`), or -1."""
    source_end: int = -1
    """The end of the source log if it is below `AskCheck.position`, otherwise -1."""
    gone: tuple[tuple[int, int], ...] = ()
    """Ordinals [start, end) whose records are in the target but no longer in the source, in ascending order."""
    equal_until: int = -1
    """The ordinal after the last one whose record was compared and found equal, or -1."""
    replaced: tuple[tuple[int, int], ...] = ()
    """Ordinals [start, end) whose records the source has lost in an election, or never had: at the offsets of these
    records, the source has different records from a different leader epoch, or its log ends below these offsets."""
    deleted_until: int = -1
    """The ordinal after the last one that was not compared because retention on the target has deleted its record, or
    -1."""
    unwritten: tuple[tuple[int, int], ...] = ()
    """Ordinals [start, end) whose records are in the target, although the source has never had records at the offsets
    that the map assigns to them: its log ends below these offsets, and its leader epoch is still that of the records.
    The target therefore holds other records."""


class RebuildAnswer(msgspec.Struct, frozen=True):
    """The lane's own batches in the requested range of target offsets, with their source offsets. If the source offsets
    cannot be determined, `trouble` gives the reason."""

    question: int
    error: int
    own: tuple[OwnBatch, ...]
    located: Located | None
    trouble: str = ""
    compacts: bool = False
    """Whether the target topic is, or may be, compacted."""
    unclear: tuple[tuple[int, int], ...] = ()
    """Source offsets [start, end) of missing records whose keys other clients have written to a compacted target. It is
    not known whether the missing records are older."""


class Chunk(msgspec.Struct, frozen=True):
    """Whole batches from one fetch response: buffer[start:end] contains the partition's record batches.

    If there is an error, `log_start` and `high_watermark` are the values that the source broker returned, or -1.
    """

    question: int
    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: Sequence[tuple[int, int]]
    """(producer id, first offset) of the aborted transactions in this response, sorted by first offset (KIP-98)."""
    buffer: bytearray
    start: int
    end: int
    frame: object = None
    diverging_epoch: int = -1
    """The highest epoch in the source log that is not above the epoch of the last copied batch, or -1."""
    diverging_end: int = -1
    """The offset at which `diverging_epoch` ends in the source log, if the lane copied records beyond that offset
    (KIP-595); otherwise -1."""
    leader_epoch: int = -1
    """The leader epoch of the source broker, or -1 if it is not known."""


class OriginsAnswer(msgspec.Struct, frozen=True):
    """All lanes that write to the source partition, according to the ledgers on the source cluster. Each ledger was
    read up to its end, which was determined only after the lane had made the request. If the ledgers cannot be read,
    `trouble` says why."""

    question: int
    writers: tuple[Writer, ...] = ()
    trouble: str = ""


class ProduceAnswer(msgspec.Struct, frozen=True):
    """The target's answer for one batch. The error is NETWORK_EXCEPTION (13) if the connection ended before an answer
    arrived."""

    round: int
    batch: Batch
    error: int
    base_offset: int
    held_s: float = 0.0
    """If the connection ended: the number of seconds for which the broker still reads nothing from it, because a quota
    was exceeded (KIP-219). Batches that were sent over this connection may be appended after that time."""


class ProduceAccepted(msgspec.Struct, frozen=True):
    """The target has appended these batches, which were sent one after another. `base_offsets` contains the offset at
    which each of them begins. This signal replaces one `ProduceAnswer` per batch, so that the lane can handle all of
    the batches in one step."""

    round: int
    batches: list[Batch]
    base_offsets: list[int]


class Woken(msgspec.Struct, frozen=True):
    """The time that was requested in a `Wake` has been reached."""

    question: int


class Fenced(msgspec.Struct, frozen=True):
    """Another replicator has taken the lane, or another daemon has taken the flow."""


class TargetMoved(msgspec.Struct, frozen=True):
    """The target partition has a new leader epoch, according to the cluster's metadata."""

    leader_epoch: int


class TargetFar(msgspec.Struct, frozen=True):
    """Says whether the broker that the lane writes to is far away. More data is kept in flight to a distant broker."""

    is_far: bool


class Released(msgspec.Struct, frozen=True):
    """The ledger contains a decision that lets the lane resume: a decision about a quarantined record or, if `ahead` is
    set, a command to seek ahead."""

    ahead: bool = False


class Drain(msgspec.Struct, frozen=True):
    """Stop at the next safe point: send nothing new, and wait until all batches in flight have been answered."""


Input = (
    Start
    | ProducerIdAnswer
    | Bound
    | AppendFailed
    | StartAnswer
    | EndAnswer
    | DivergenceAnswer
    | ProducersAnswer
    | VisibleAnswer
    | ScanAnswer
    | CheckAnswer
    | RebuildAnswer
    | OriginsAnswer
    | Chunk
    | ProduceAnswer
    | ProduceAccepted
    | Woken
    | Fenced
    | TargetMoved
    | TargetFar
    | Released
    | ParkAnswer
    | ConfigsAnswer
    | CleanupAnswer
    | SharedAnswer
    | SupersededAnswer
    | Drain
)

# --- effects ----------------------------------------------------------------------------------------------------------


class AskProducerId(msgspec.Struct, frozen=True):
    """Request a producer id from the target (InitProducerId without a transactional id)."""

    question: int


class Append(msgspec.Struct, frozen=True):
    """Append facts to the ledger. The answer is `Bound` once the facts have been read back, or `AppendFailed`."""

    tag: int
    facts: tuple[LaneFact, ...]


class AskStart(msgspec.Struct, frozen=True):
    """Ask where a lane without history begins. The answer depends on the configuration: earliest, latest, or a
    timestamp."""

    question: int


class AskEnd(msgspec.Struct, frozen=True):
    """Ask for the end of the target log and for the epoch of the leader that answers (OffsetForLeaderEpoch,
    KIP-320)."""

    question: int


class AskDivergence(msgspec.Struct, frozen=True):
    """Ask whether the source's log has diverged below `position`. `epoch` is the leader epoch of the last copied record
    below `position` (KIP-595)."""

    question: int
    position: int
    epoch: int


class AskProducers(msgspec.Struct, frozen=True):
    """Ask what the target's leader remembers about the producer id (DescribeProducers, KIP-664)."""

    question: int
    producer_id: int


class AskVisible(msgspec.Struct, frozen=True):
    """Ask the leader of the target partition for the high watermark and the log start offset. Only a leader with
    exactly the given epoch may answer."""

    question: int
    leader_epoch: int


class AskScan(msgspec.Struct, frozen=True):
    """Read the batch headers at the target offsets [start, end), and report the lane's own batches."""

    question: int
    purpose: ScanPurpose
    producer_id: int
    start: int
    end: int
    expected: int = 0
    """If `purpose` is `resume`: the ordinal of the resume position. If the lane's batches begin with a later ordinal,
    records are missing from the log."""
    until: int = 0
    """If `purpose` is `resume`: the ordinal after the last one that was copied (`evidence.copied_until`). If the lane's
    batches end with an earlier ordinal, the log has lost its last records, or a cleaner has removed them."""


class AskCheck(msgspec.Struct, frozen=True):
    """Compare the lane's own batches with the source. The batches with ordinals in [first, last] and target offsets in
    [start, end) are compared.

    If `position` is given, the leader epoch of the source batch that precedes that position is read first, and then the
    batches are compared. If the source is truncated in the meantime, the first fetch from that position, which carries
    this epoch, detects the truncation.
    """

    question: int
    producer_id: int
    first: int
    last: int
    start: int
    end: int
    position: int = -1
    epochs: tuple[tuple[int, int], ...] = ()
    """Pairs (ordinal, source epoch): the records from this ordinal onward were copied from batches of this epoch. If
    the record at a source offset now has a different epoch, the source has lost the copied record, and a difference
    between the two records does not count."""
    reassigned: tuple[tuple[int, int], ...] = ()
    """Ordinals [start, end) that were certainly assigned to other records after the batches in the target had been
    appended (see `evidence.reassigned_since`)."""


class AskRebuild(msgspec.Struct, frozen=True):
    """Find the source offsets of the lane's own batches by comparing contents. The batches are those at target offsets
    [start, end) with ordinals from `first` onward."""

    question: int
    producer_id: int
    first: int
    start: int
    end: int
    unread_from: int = -1
    """The ordinal from which the ledger assigns source records that no holder has read, or -1. The target's records
    with these ordinals were sent when the ordinals belonged to other records."""
    earlier: tuple[tuple[int, int], ...] = ()
    """Ordinals [start, end) of batches that an election has brought back (see `evidence.note_earlier`). More than one
    record may have been sent under these ordinals."""
    confirmed: tuple[tuple[int, int], ...] = ()
    """Ordinals [start, end) of which a comparison in the same target log has confirmed that the offset map is right."""
    last: int = -1
    """The last ordinal that the target is known to have had, or -1."""
    acknowledged: tuple[tuple[int, int], ...] = ()
    """Pairs (ordinal, leader epoch of the target) in ascending order: the ordinals below this one were acknowledged,
    and the log had their records in this epoch or an earlier one. The epoch is -1 if it is not known."""
    is_cut: bool = False
    """Whether retention on the target may have deleted records of these ordinals below `start`."""


class AskOrigins(msgspec.Struct, frozen=True):
    """Ask which lanes write to the source partition. The answer must include everything that the ledgers contained when
    this request was made."""

    question: int


class FetchFrom(msgspec.Struct, frozen=True):
    """Fetch the next chunk from this source offset. A lane fetches only one chunk at a time: a newer request replaces
    an older one."""

    question: int
    round: int
    position: int
    last_epoch: int
    """Leader epoch of the last copied batch, or -1. The source broker uses this epoch to detect a truncation."""
    delay_s: float = 0.0
    refresh: bool = False
    """Whether to look up the leader again first, because leadership may have moved to another broker."""


class RebuildLater(msgspec.Struct, frozen=True):
    """Carry out `work` (see `Postponed`) while other work continues, and then deliver `chunk` with the number of this
    request. The chunk begins with the batch that is being rebuilt, so no later batch is copied before it."""

    question: int
    work: object
    chunk: Chunk


class StopFetch(msgspec.Struct, frozen=True):
    """Cancel the fetch request or the `RebuildLater`, because the lane no longer needs a chunk."""


class Produce(msgspec.Struct, frozen=True):
    """Send these batches in this order. A produce request contains at most one of them."""

    round: int
    batches: Sequence[Batch]


class Wake(msgspec.Struct, frozen=True):
    """Send `Woken` at the time `at`, in seconds on the same clock as `now` in `step`."""

    question: int
    at: float
    refresh: bool = False
    """Whether to look up the target's leader again in the meantime, because leadership may have moved to another
    broker."""


class SaveProgress(msgspec.Struct, frozen=True):
    """Save the lane's progress record now instead of waiting for the next regular save (one per second)."""


class Halted(msgspec.Struct, frozen=True):
    """The lane is halted. `line` gives the reason for the operator."""

    line: str
    rebuilds: bool = False
    """Whether the lane now rebuilds its offset map, and then continues by itself."""


class Lost(msgspec.Struct, frozen=True):
    """Some source records will not be copied, because they were lost or an operator skipped them. `line` identifies
    these records. The lane continues after them."""

    line: str


class Drained(msgspec.Struct, frozen=True):
    """The lane has stopped. If `clean` is true, all batches that were sent have been answered, so nothing is in
    flight."""

    clean: bool


class Gone(msgspec.Struct, frozen=True):
    """The lane now belongs to another replicator, and this replicator has dropped the lane's state."""

    why: str


Effect = (
    AskProducerId
    | Append
    | AskStart
    | AskEnd
    | AskDivergence
    | AskProducers
    | AskVisible
    | AskScan
    | AskCheck
    | AskRebuild
    | AskShared
    | AskSuperseded
    | AskOrigins
    | AskCleanup
    | FetchFrom
    | RebuildLater
    | StopFetch
    | Produce
    | Park
    | AskConfigs
    | Wake
    | SaveProgress
    | Halted
    | Lost
    | Drained
    | Gone
)

Effects = list[Effect]
