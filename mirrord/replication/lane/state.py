"""A lane's state: what the lane knows and what it is waiting for.

Only functions that `step` calls change the state. The state contains no clock and no connection, so tests can copy and
compare states, and explore which states can follow a given one.
"""

from collections import deque
from dataclasses import dataclass, field

import msgspec

from mirrord.config.schema import OnLoss, OnReject
from mirrord.ledger.facts.core import LaneFact, Mode, Progress, Rewound, Verdict
from mirrord.ledger.seeks import Seeks
from mirrord.model.names import LaneId
from mirrord.model.runs import Run
from mirrord.replication.lane.dead_letter_signals import Parking
from mirrord.replication.lane.limits import NEVER, Limits, Reach
from mirrord.replication.lane.phases import Phase, Stage
from mirrord.replication.lane.second_path import NOT_YET, Decided, Rebuilder
from mirrord.replication.lane.signals import (
    Batch,
    Chunk,
    Effects,
    EndAnswer,
    LaneRecord,
    ProducerEntry,
    ProducersAnswer,
    ScanAnswer,
)
from mirrord.replication.lane.source.epoch_cache import EpochCache
from mirrord.replication.lane.source.left_out_ranges import LeftOut
from mirrord.replication.lane.source.loop_detection import Doubt, Origins
from mirrord.replication.lane.source.source_history import SourceHistory
from mirrord.replication.lane.target.acknowledged_records import Forgotten
from mirrord.replication.lane.target.comparison_state import ComparisonState
from mirrord.replication.lane.target.resume_position import NOTHING, ResumePosition
from mirrord.replication.lane.target.scan_result import Reading
from mirrord.replication.lane.transitions import Resume, Transition

NO_VERDICTS: tuple[int, tuple[Verdict, ...]] = (-1, ())


class SplitLimit(msgspec.Struct, frozen=True):
    """A batch with source offsets in [start, end) may contain at most `most` records, because the target has refused a
    larger batch."""

    start: int
    end: int
    most: int


@dataclass(slots=True, eq=False)
class Handed:
    """The requests for taking the lane over from a handoff checkpoint, and the answers received so far."""

    grant: int
    """The former holder's grant."""
    fetch: int
    """Number of the fetch request whose answer contains the first records to copy."""
    position: int
    epoch: int
    end: EndAnswer | None = None
    producers: ProducersAnswer | None = None
    chunk: Chunk | None = None


@dataclass(slots=True)
class TakeOver:
    """What the lane knows about its former holder, and about the takeover from this holder. If the ledger shows that
    another replicator has held the lane since, nothing of this counts any more (see `opening.check_former_holder`)."""

    grant: int = 0
    """The former holder's grant, or 0 if the lane had no holder."""
    own_grant: int = 0
    """The newest grant of this attempt to host the lane, according to the ledger. 0 if there is none. If an append of
    `LaneTaken` was reported as failed, it may be higher than `Lane.grant`."""
    left_cleanly: bool = False
    """Whether the former holder left no batch in flight."""
    opened_here: bool = False
    """Whether this is the very first attempt to host the lane, so that no other has used the lane's producer id."""
    barrier_s: float = 0.0
    """How long the former holder may still write after it has lost the lane."""
    times: tuple[int, int] = (0, 0)
    """The lease time and the request timeout that `LaneTaken` records for the next holder."""
    begun: Progress | None = None
    """The progress record with which the lane started. It is kept until the lane's first grant takes effect."""
    fast_handoff: Handed | None = None
    """Set while the lane is being taken over from its former holder's handoff checkpoint."""
    knows_sent: bool = False
    """Whether it is known that nothing was sent above `sent_below` and `LateWrites.sent_before`. This is the case if
    the lane has resumed once in this attempt to host it, or if the former holder reported it on leaving the lane."""
    leaps_recorded: bool = False
    """Whether the former holder recorded every leap in the target offsets of its records before it left."""


@dataclass(slots=True)
class LateWrites:
    """Batches that may still be appended, although the lane no longer waits for their answers (see
    `target.in_doubt`)."""

    until: float = 0.0
    """Until this time, batches from a former holder or from a lost connection may still be appended."""
    former_holder_until: float = 0.0
    """Until this time, a former holder may still be writing, whether or not the broker remembers the producer."""
    unanswered: bool = False
    """Set when the lane gives up waiting for an answer, or a request times out; cleared when the leader answers."""
    is_waiting: bool = False
    """Whether the lane cannot resume before `until`. It then only asks for the end of the target log, again and again,
    to notice whether the leader is suspended."""
    delayed: bool = False
    """Whether a slow answer has already extended the wait for batches that may still be appended."""
    asked_at: float = 0.0
    """When the lane last asked the leader of the target partition for the end of its log, or for its state of the
    producer, during a resume or after a takeover. If the lane has given up requests since the leader's last answer, the
    time of the first of them."""
    is_asking: bool = False
    """Whether the leader has not answered since `asked_at`."""
    end_read_at: float = 0.0
    """When the target was last asked for the end of its log. The answer accounts for every batch that cannot be
    appended after this time (see `target.in_doubt`)."""
    sent_before: int = 0
    """Ordinals below this one may have been sent by this attempt to host the lane before they were assigned to other
    records."""
    sent_since: int = NEVER
    """The lowest leader epoch of the target in which this attempt to host the lane, or its former holder, may have sent
    batches. -1 if it is not known."""
    in_doubt_below: int = -1
    """Batches with ordinals below this one that were sent in this attempt to host the lane may still be appended,
    although the lane no longer waits for their answers. -1 if there are no such batches."""


@dataclass(slots=True)
class WentBack:
    """The lane's state before the target log lost its last records (before it "went back"). The lane restores this
    state if its plan for copying records again does not take effect in the ledger."""

    resume_position: ResumePosition
    recorded_position: ResumePosition
    acknowledged: tuple[tuple[int, int], ...]
    rewinds: int
    """Number of `Rewound` notes in the ledger before the target log lost its last records."""
    tag: int = -1
    """Tag of the append that records the plan, or -1 if it has not been appended yet."""
    rewound: Rewound | None = None
    """The `Rewound` note that is recorded together with the plan, if any. If the outcome of the append is unknown, the
    lane looks for this note in the ledger."""


class LostBelow(msgspec.Struct, frozen=True):
    """Which records the target log lost, by their source offsets. A rebuilt offset map may give them different
    ordinals."""

    offset: int
    """All lost records have lower source offsets than this one."""
    target_epoch: int
    """The leader epoch in which the target log last contained the records."""
    source_epoch: int
    """The leader epoch that the last lost record has in the source, or -1 if it is not known."""


@dataclass(slots=True)
class TargetLog:
    """What the lane has found out about the target log during a resume."""

    end_epoch: int = -1
    end: int = -1
    end_before_entry: int = -1
    """End of the log before the broker was asked for `entry`."""
    entry: ProducerEntry | None = None
    log_start: int = 0
    unread_from: ResumePosition | None = None
    """The position before the first part of the target log that must still be read. No higher resume position is saved
    until that part has been read."""
    unread_parts: int = 0
    """Number of parts of the target log that are being read before `unread_from` can be cleared."""
    must_read_log: bool = False
    """Whether the log must be read, for example because a batch was accepted after a preceding one had failed."""
    holes: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Ordinals (first, last) that the latest scan found missing between batches and that are not in the ledger yet."""
    facts_with_holes: tuple[LaneFact, ...] = ()
    """Facts from the scan that found the holes. They are recorded in the same entry as the holes."""
    cleaned: bool = False
    """Whether the log cleaner may have removed records from the part of the target log that was read most recently."""
    shared: int = -2
    """Offset up to which the log has not changed since the resume position was saved. -1: not known. -2: not asked."""
    is_shared_proven: bool = False
    """Whether the leader still knows where the epoch ends from which `shared` follows. If not, retention has deleted
    all records of that epoch, and the log may have diverged below `shared`."""
    held_scan: ScanAnswer | None = None
    """The result of the latest scan, kept while the lane asks for `unchanged`."""
    unchanged: tuple[int, int] | None = None
    """A leader epoch, and the offset up to which the log has not changed since the leader with this epoch. None if the
    lane has not asked for it in this round (see `displaced_ordinals.must_ask`)."""
    epoch_end: int = -1
    """Target offset at which the leader epoch of the resume position ends. If the log does not have that epoch, the
    offset at which the next lower epoch in the log ends. -1: not known."""
    epoch_ends: tuple[tuple[int, int, int], ...] = ()
    """What is known about earlier leader epochs in the log (see `mirrord.replication.lane.target.epoch_ends`)."""
    scan: Reading | None = None
    """The result of the latest scan, kept while the ordinals that are missing from the log are looked up."""
    lost_ordinals: tuple[tuple[int, int], ...] = ()
    """Ordinals (first, last) of acknowledged records that the target log has lost."""
    copied_again: tuple[tuple[int, int], ...] | None = None
    """The lost ordinals whose records are copied again, or None if all lost records are copied again. For each omitted
    ordinal, the target has a newer record with the same key."""
    copied_again_until: int = 0
    plans_end: int = -1
    """The ordinal at which the last plan in the ledger for copying lost records again ends. -1 if there is no plan."""
    looked_up_to: int = -1
    """End of the target log at the time when the records that are still to be copied again were looked up for a plan.
    -1 if this attempt to host the lane has not made any plan."""
    lost_below: LostBelow | None = None
    """The lost records of a plan that omits some of them. None if there is no such plan."""
    last_by_look_up: tuple[int, int] | None = None
    """The last ordinals [start, end) if a lookup in this round is the only evidence that they were in the target log,
    otherwise None."""
    look_up_epoch: int = -1
    """Leader epoch of the source record for the last ordinal in `last_by_look_up`, as read by the lookup, or -1."""
    went_back: WentBack | None = None
    """Set when the target log has lost records, and kept until the ledger records which of them are copied again."""
    forgotten: Forgotten | None = None
    """Set when `acknowledged` is lowered because ordinals were reassigned; kept until the ledger shows whether the
    reassignment has taken effect."""
    saved: tuple[int, int] = (0, 0)
    """The ordinal up to which a resume position may have been saved, and the number of `Rewound` notes that were in the
    ledger when this was noted (see `evidence.saved_until`)."""
    unproven: tuple[int, int] = (-1, 0)
    """The ordinal up to which a position may have been saved although the log may lack records below it, and the number
    of `Rewound` notes that were in the ledger when this was noted."""
    appended_later: tuple[int, int, int] = (-1, -1, -1)
    """(first, end, leader epoch): the ordinals [first, end) were acknowledged after the last resume, and their records
    were appended in this leader epoch or a later one. (-1, -1, -1) if no such ordinals are known."""
    earlier: tuple[tuple[int, int], ...] = ()
    """Ordinals [first, end) of batches that were appended before an earlier read of the log, although that read did not
    show them (see `evidence.note_earlier`)."""
    reassigned: tuple[tuple[int, int], ...] = ()
    """Those of the ordinals in `earlier` that were certainly assigned to other records since."""
    look_back: int = 0
    """How many offsets below the end of the target log the lane searches for the last batch that it wrote."""
    out_of_order: tuple[int, int, int] = (-1, -1, 0)
    """The last batch that the target refused as out of order: its ordinal, the leader epoch, and how many times in
    succession it was refused (see `target.out_of_order`). (-1, -1, 0) if a batch has been accepted since."""


@dataclass(slots=True)
class OriginDoubt:
    """A source batch that may be a copy, and the request for its origin (see `source.origin_check`)."""

    doubt: Doubt | None = None
    """The batch of unknown origin, which must be looked up in the ledgers."""
    asked_about: Doubt | None = None
    """The batch that the most recent request was about."""
    line: str = ""
    """Why the lane is waiting, in one line for the operator; empty while the wait is short."""
    question: int = -1
    """Number of the open request for the origin of the batch, or of the pause before this request is repeated."""


@dataclass(slots=True)
class SourceGap:
    """Offsets that are missing between the batches of the source (see `source.offset_gaps`)."""

    compacts: bool = False
    """Whether the source topic may have been compacted."""
    offsets: tuple[int, int] | None = None
    """Offsets for which the source has no batch, kept while the reason is not known."""
    question: int = -1
    """Number of the open request about the gap, or of the pause before this request is repeated."""
    judged: Verdict | None = None
    """The verdict on the most recent gap for which the lane requested the topic's cleanup.policy."""


@dataclass(slots=True)
class RefusalState:
    """What the target has refused, and how later batches are built so that the target does not refuse them. The modules
    `quarantine` and `target.refused_retry` use this state."""

    largest: int = 1 << 62
    """Batches larger than this number of bytes are split, because the target refused a larger batch."""
    split: SplitLimit | None = None
    """The limit for the batch that the target refused most recently, kept until it is known which of its records are
    refused."""
    refused_codecs: frozenset[int] = frozenset()
    """Codecs for which the target refused batches; later batches use a different codec."""
    parking: Parking | None = None
    """The record that is being parked. Until it is parked, the lane does not copy the records after it."""
    parking_pause: int = -1
    """Number of the pause before parking is retried, or -1."""
    configs_seen: str = ""
    """Digest of the target topic's configs at the time of the last refusal of a record (see `target.refused_retry`)."""
    configs_since: float = 0.0
    """When the configs in `configs_seen` were first seen."""
    configs_pause: int = -1
    """While the lane is halted: number of the pause before the configs are read again, or -1."""
    config_reads: int = 0
    """Number of times that the configs have been read since the lane was halted."""
    corrupt_ordinal: int = -1
    """First ordinal of a batch that the target has reported as corrupt. The batch is fetched again before the error
    counts as a refusal."""


@dataclass(slots=True)
class HaltState:
    """Why the lane is halted."""

    line: str = ""
    facts: tuple[LaneFact, ...] = ()
    """The facts that record in the ledger why the lane is halted."""
    append_in_doubt: bool = False
    """Whether the ledger may lack an append that was made before the halt, because that append was reported as failed
    after the halt."""


@dataclass(slots=True, eq=False, repr=False)
class Lane:
    """The whole state of one lane."""

    id: LaneId
    source_topic: str
    target_topic: str
    partition: int
    policy: str
    """Fingerprint of the settings that determine which records the lane copies and how it changes them."""
    read_committed: bool
    rebuild: Rebuilder
    limits: Limits = field(default_factory=Limits)
    mode: Mode = "sequence"
    """With "at-least-once", the lane does not rely on the target broker's producer state. It requests this state only
    if the broker refuses a batch and may remember deleted records (see `out_of_order.must_ask_producers`)."""
    on_loss: OnLoss = "continue"
    """What to do if the source has lost records, whether or not they had been copied: report the loss and continue, or
    halt."""
    on_reject: OnReject = "halt"
    """What to do with a record that cannot be copied: wait for a decision, park it and then skip it, or skip it without
    parking it."""
    phase: Phase = Phase.OPENING
    stage: Stage = Stage.DONE
    transition: Transition | None = None
    """The transition that a handler requested; `step` carries it out once the handler has returned."""
    round: int = 0
    asked: int = 0
    """Number of the latest request."""
    questions: set[int] = field(default_factory=set[int])
    """Numbers of the requests in this round that have not been answered yet (see `correlation`)."""
    replicator: str = ""
    grant: int = 0
    record: LaneRecord | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    trouble: str = ""
    """One line for the operator: why the last batch was not accepted, or what a resume is waiting for. Empty after a
    batch has been acknowledged."""

    # takeover
    sent_below: int = 0
    """Ordinals below this one are known to have been sent by this attempt to host the lane or by an earlier one, with
    the records that the map assigns to them (see also `LateWrites.sent_before`)."""
    resume_position: ResumePosition = NOTHING
    recorded_position: ResumePosition = NOTHING
    """A resume position below which the ledger is known to have a run or a verdict for every source offset."""
    trusted: int = 0
    """Ordinals below this one were acknowledged to this attempt to host the lane, or compared with the source."""

    # resume
    protected: bool = False
    """Whether the broker remembers the lane's producer and therefore refuses batches that are out of order."""
    resume_ordinal: int = 0
    confirm_end: bool = False
    """Whether to ask for the log end again before the first produce request, and before a seek, because the broker
    would not refuse a duplicate batch."""
    confirming: bool = False
    """Whether this request for the log end is open."""
    sent: bool = False
    """Whether the lane has sent at least one batch in this attempt to host it."""
    acknowledged: tuple[tuple[int, int], ...] = ()
    """Pairs (ordinal, leader epoch) in ascending order. All ordinals below the one in a pair were acknowledged. When
    their records were last known to be in the target log, the target partition had the leader epoch in the pair."""

    # grouped by subject
    takeover: TakeOver = field(default_factory=TakeOver)
    late_writes: LateWrites = field(default_factory=LateWrites)
    log: TargetLog = field(default_factory=TargetLog)
    comparison: ComparisonState = field(default_factory=ComparisonState)
    history: SourceHistory = field(default_factory=SourceHistory)
    origin: OriginDoubt = field(default_factory=OriginDoubt)
    gap: SourceGap = field(default_factory=SourceGap)
    refusal: RefusalState = field(default_factory=RefusalState)
    halt: HaltState = field(default_factory=HaltState)

    # copying, source side
    position: int = 0
    """Source offset of the next fetch."""
    epoch: int = -1
    """Leader epoch of the last batch before `position`, or -1."""
    seen: EpochCache = field(default_factory=EpochCache)
    """The source epochs seen so far, by source offset."""
    fetching: bool = False
    source_end: int = -1
    """The source's high watermark in the last chunk, or -1."""
    source_epoch: int = -1
    """The leader epoch of the source broker in the last chunk or answer to `AskDivergence` of this round, or -1."""
    next_ordinal: int = 0
    open_run: Run | None = None
    plan: deque[Run] = field(default_factory=deque[Run])
    """While records are being copied again: the next runs. For each of them, the lane moves to the source offset at
    which the run begins."""
    declared: int = -1
    """Ordinal of the next run that the ledger already contains, or -1 if there is none."""
    skipped: list[Verdict] = field(default_factory=list[Verdict])
    blocked: tuple[str, int, int] | None = None
    """Source offsets that this version cannot copy: (why, start, end)."""
    has_policies: bool = False
    """Whether the records are passed to policies. If so, no batch takes the raw path. If a record is passed to a policy
    a second time, the policy's decision may differ from the first one."""
    decided: Decided = NOT_YET
    """The filter's decisions about records that have not been written yet. These decisions have taken effect in the
    ledger."""
    origins: Origins | None = None
    """Detects batches in the source that are copies; None if the source topic and the target topic have different
    names."""
    dropped: tuple[int, int] = (-1, -1)
    """(source offset, newest record timestamp) of the first batch that was fetched and then dropped."""
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])
    """Source ranges, in ascending order, that are skipped because of a decision about quarantined records or a command
    to seek ahead."""
    seeks: Seeks = ()
    """Commands to seek ahead that are still to be carried out (see `seek`)."""

    # copying, target side
    ready: deque[Batch] = field(default_factory=deque[Batch])
    ready_bytes: int = 0
    in_flight: deque[Batch] = field(default_factory=deque[Batch])
    in_flight_bytes: int = 0
    expected: int = 0
    """Target offset that the next acknowledged batch must have if no other client writes to the partition."""
    acked: int = 0
    """Next ordinal to be acknowledged."""
    pipelined: bool = False
    """Whether a batch has been acknowledged over this connection and in this leader epoch. Only then may several
    batches be in flight."""
    resumed_at: ResumePosition = NOTHING
    """The resume position from which the lane continued after its last resume."""
    failure: tuple[int, Batch] | None = None
    """(error, batch) of the first answer in this round that was not a success."""
    clean: bool = False
    """Whether the lane was drained and left nothing in flight."""

    # ledger
    tag: int = 0
    appends: set[int] = field(default_factory=set[int])
    """Tags of appends that have not been answered yet."""
    intents: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])
    """Pairs (tag, first ordinal) of the intents that are not known to have taken effect yet."""
    unbound: tuple[int, tuple[Verdict, ...]] = NO_VERDICTS
    """The ordinal of the newest intent of this round, and the verdicts in that intent."""
    notes: set[int] = field(default_factory=set[int])
    """Tags of appended facts that have not taken effect yet. Until they do, no progress record is written."""
    facts_tag: int = -1
    """Tag of the facts that the current phase is waiting for."""

    # for the status and metrics
    raw_batches: int = 0
    rebuilt_batches: dict[str, int] = field(default_factory=dict[str, int])
    """Number of batches that took the second path, by reason."""
    copied_records: int = 0
    copied_bytes: int = 0
    last_record_ms: int = -1
    is_far: bool = False
    """Whether the target's broker is far away: even its fastest answer took a long time."""

    def go(self, transition: Transition) -> None:
        """Request that `step` enter a different phase. If a handler makes several requests, the last one counts."""
        self.transition = transition

    @property
    def is_copying(self) -> bool:
        """Whether the lane is copying and no handler has requested a different phase."""
        return self.phase is Phase.COPYING and self.transition is None

    def retry(self) -> Effects:
        """Request a new round after a pause."""
        self.go(Resume(self.limits.retry_s, refresh=True))
        return []

    @property
    def reach(self) -> Reach:
        """Return the limits on the lane's data in flight. They depend on whether the target broker is far away."""
        return self.limits.far if self.is_far else self.limits.near

    @property
    def buffered_bytes(self) -> int:
        """Return the number of bytes that the lane holds in memory."""
        return self.ready_bytes + self.in_flight_bytes

    def __repr__(self) -> str:
        return f"Lane({self.source_topic}-{self.partition} {self.phase.value} {self.acked})"
