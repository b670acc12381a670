"""A lane's state: what the lane knows and what it waits for.

Only functions that `step` calls change it. It has no clock and no connection: it can be copied, compared and explored.
"""

from collections import deque
from dataclasses import dataclass, field

import msgspec

from mirrord.config.schema import OnLoss, OnReject
from mirrord.ledger.facts.core import LaneFact, Mode, Progress, Rewound, TakeoverChecked, Verdict
from mirrord.ledger.seeks import Seeks
from mirrord.model.names import LaneId
from mirrord.model.runs import Run
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
)
from mirrord.replication.lane.source.epoch_cache import EpochCache
from mirrord.replication.lane.source.loop_detection import Doubt, Origins
from mirrord.replication.lane.target.scan_result import Reading
from mirrord.replication.lane.transitions import Resume, Transition


class ResumePosition(msgspec.Struct, frozen=True):
    """The position below which all is known to be in the target log: next ordinal, and offset after the last."""

    ordinal: int
    target_offset: int
    leader_epoch: int = -1


NOTHING = ResumePosition(0, 0)
NO_VERDICTS: tuple[int, tuple[Verdict, ...]] = (-1, ())


class Parking(msgspec.Struct, frozen=True):
    """A record that the flow's policy skips once the record has been parked."""

    offset: int
    error: int
    line: str
    data: bytes
    """The same bytes as `data` in `Park`."""
    tries: int = 0
    """Number of failed attempts."""


class SplitLimit(msgspec.Struct, frozen=True):
    """A limit of `most` records per batch for source offsets [start, end): the target refused more of them at once."""

    start: int
    end: int
    most: int


@dataclass(slots=True, eq=False)
class Handed:
    """The questions that were asked while a lane is handed over, and the answers received so far."""

    grant: int
    """The former holder's grant."""
    fetch: int
    """The fetch question whose answer brings the first records."""
    position: int
    epoch: int
    end: EndAnswer | None = None
    producers: ProducersAnswer | None = None
    chunk: Chunk | None = None


@dataclass(slots=True)
class TakeOver:
    """How the lane was taken over from its former holder."""

    left_cleanly: bool = False
    opened_here: bool = False
    """This very attempt opened the lane, so no one else can have written with its producer id."""
    barrier_s: float = 0.0
    times: tuple[int, int] = (0, 0)
    """The times that `LaneTaken` records for the next holder."""
    begun: Progress | None = None
    """The saved position that the lane started with, until its first grant takes effect."""
    fast_handoff: Handed | None = None
    """Set while the lane is taken over from its former holder's handoff checkpoint."""
    knows_sent: bool = False
    """Nothing was sent above `sent_below`: this attempt has resumed once, or the former holder said so when it left."""
    leaps_recorded: bool = False
    """The former holder left after it had recorded where in the target log its records are."""


@dataclass(slots=True)
class LateWrites:
    """Batches that may still be appended, although the lane no longer waits for their answers (`target.in_doubt`)."""

    until: float = 0.0
    """Until this time something that was sent earlier (by a former holder, over a dead connection) may be appended."""
    former_holder_until: float = 0.0
    """Until this time a former holder may be writing, whatever the broker remembers."""
    unanswered: bool = False
    """Something may still be appended, and the leader has not answered since."""
    delayed: bool = False
    """A slow answer has already made the lane wait for batches that may still be appended."""
    end_asked_at: float = 0.0
    """When a resume last asked for the end of the target log."""
    end_read_at: float = 0.0
    """When the target was last asked for its end (`target.in_doubt`)."""
    in_doubt_below: int = -1
    """Batches of this attempt with ordinals below it may still be appended, though no longer awaited. -1: none."""


@dataclass(slots=True)
class WentBack:
    """What the lane knew before the log went back. It returns to that unless the ledger takes the new plan."""

    resume_position: ResumePosition
    recorded_position: ResumePosition
    acknowledged: tuple[tuple[int, int], ...]
    rewinds: int
    """Number of `rewinds` in the ledger at that time."""
    tag: int = -1
    """Tag of the append that records the plan, once it is made."""
    rewound: Rewound | None = None
    """What that append adds to the `rewinds`, if anything: it shows whether an append of unknown outcome is there."""


@dataclass(slots=True)
class TargetLog:
    """What a resume has found out about the target log."""

    end_epoch: int = -1
    end: int = -1
    entry: ProducerEntry | None = None
    log_start: int = 0
    unread_from: ResumePosition | None = None
    """The position before the first part of the target log to be read, or read again: no higher one is saved."""
    unread_parts: int = 0
    """Number of such parts that are being read."""
    must_read_log: bool = False
    """A success followed a failure, so the log itself must be read."""
    holes: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Ordinals (first, last) that the target log leaps over, found by the last scan and not yet in the ledger."""
    facts_with_holes: tuple[LaneFact, ...] = ()
    """Facts that were read along with the holes and are recorded in the same entry."""
    cleaned: bool = False
    """The part of the target log that was read last is compacted."""
    shared: int = -2
    """Target offset up to which this is the log that the resume position was taken in; -1: not known, -2: not asked."""
    scan: Reading | None = None
    """The result of the last walk, while the ordinals missing from the log are looked up."""
    lost_ordinals: tuple[tuple[int, int], ...] = ()
    """Ordinals (first, last) that were acknowledged, and that the log has lost with its end."""
    copied_again: tuple[tuple[int, int], ...] | None = None
    """The lost ordinals that are copied again, if not all are: the target has a newer record of the other keys."""
    copied_again_until: int = 0
    went_back: WentBack | None = None
    """Set while the ledger does not record yet what is copied again after the log went back."""
    look_back: int = 0
    """How far below the target's end the lane searches for the last of its own batches."""


@dataclass(slots=True)
class ComparisonState:
    """Comparisons of the target with the source, and what they found."""

    compared: int = -1
    """Ordinals below it need no other comparison in this round, although the ledger may not record that yet."""
    differs: TakeoverChecked | None = None
    """A comparison found target and source to differ from its first ordinal on; the map is not rebuilt yet."""
    rebuild_in_doubt: bool = False
    """The rebuilt map was appended to the ledger with an unknown outcome."""
    first_ack_pending: bool = False
    later_pending: bool = False
    """Once a former holder can no longer write, compare again what was written since the takeover."""
    later_from: ResumePosition | None = None
    """Start of that comparison. No higher position is saved: later answers may be for another holder's batch."""
    later_begins_at: int = NEVER
    """The lowest target offset found for that start, in case the log has gone back since."""
    later_end_question: int = -1
    """The open question for the end of the target log at that time; `later_end` is the answer."""
    later_end: int = -1
    later_question: int = -1
    """The open question of that comparison."""


@dataclass(slots=True)
class SourceHistory:
    """Leader epochs of the source, and whether the source still has what was copied."""

    recorded_epoch: int = -2
    """The epoch of the next ordinal by ledger and saved position (`source.source_epochs`); below 0: none."""
    recorded_epoch_since: int = 0
    """The ordinal from which that epoch applies."""
    epochs_recorded: bool = False
    """The holder that saved the position recorded every later change of epoch in the ledger."""
    new_epochs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """(ordinal, epoch) that must be recorded in the ledger with the next runs."""
    epochs_again: tuple[tuple[int, int], ...] = ()
    """(ordinal, epoch) of records to be copied again, as this round recorded them again."""
    found_epoch: tuple[int, int] = (-1, -1)
    """(position, leader epoch of the batch before it), as the last comparison with the source read it."""
    found_equal: bool = False
    """That comparison found everything equal."""
    source_confirmed: bool = False
    """The source still has what was copied. It was asked because a fetch from the position would not show that."""
    divergence_question: int = -1
    """The open question about it, or the pause before it is asked again."""
    unconfirmed_chunk: Chunk | None = None
    """A chunk fetched at a position of unknown epoch, kept while the source is asked."""
    left_position: tuple[int, int] | None = None
    """The position that the lane left in this round to skip ahead, and the epoch before it."""
    suspected_position: int = -1
    """The position at which the source had another record than the one that was to be copied again."""


@dataclass(slots=True)
class OriginDoubt:
    """A batch in the source of which it is not known whether it is a copy (`source.origin_check`)."""

    doubt: Doubt | None = None
    """A batch in the source whose origin is unknown and must be asked for."""
    asked_about: Doubt | None = None
    """The last doubt that was asked about."""
    line: str = ""
    """Why the lane waits, as a line for people, if the wait takes longer."""
    question: int = -1
    """The open question about the doubt, or the pause before it is asked again."""


@dataclass(slots=True)
class SourceGap:
    """Offsets between the batches of the source (`source.offset_gaps`)."""

    compacts: bool = False
    """The source's topic may have been compacted."""
    offsets: tuple[int, int] | None = None
    """Offsets for which the source has no batch, for a reason that is not known yet."""
    question: int = -1
    """The open question about the gap, or the pause before it is asked again."""
    judged: Verdict | None = None
    """The answer about the last gap."""


@dataclass(slots=True)
class RefusalState:
    """What the target has refused, and how later batches avoid that (`quarantine`, `target.refused_retry`)."""

    largest: int = 1 << 62
    """Batches of more bytes are split, because the target refused one of that size."""
    split: SplitLimit | None = None
    """The last batch that the target refused, until the records that it does not accept are known."""
    refused_codecs: frozenset[int] = frozenset()
    """Codecs for which the target refused batches; later batches use another one."""
    parking: Parking | None = None
    """The record that is being parked; the lane waits before it."""
    parking_pause: int = -1
    """The pause before parking is tried again."""
    configs_seen: str = ""
    """The configs of the target topic when it had last refused a record (`target.refused_retry`)."""
    configs_since: float = 0.0
    """When these configs were first seen."""
    configs_pause: int = -1
    """The pause before they are read again, while the lane is halted."""
    config_reads: int = 0
    """Number of times they were read since the lane was halted."""
    corrupt_ordinal: int = -1
    """The ordinal whose batch the target once called corrupt. It is fetched again before that counts as a refusal."""


@dataclass(slots=True)
class HaltState:
    """Why the lane is halted."""

    line: str = ""
    facts: tuple[LaneFact, ...] = ()
    """The facts that record in the ledger why the lane is halted."""
    append_in_doubt: bool = False
    """While halted, the lane learned that an append from before the halt may not be in the ledger."""


@dataclass(slots=True, eq=False, repr=False)
class Lane:
    """The whole state of one lane."""

    id: LaneId
    source_topic: str
    target_topic: str
    partition: int
    policy: str
    """Fingerprint of the configuration that decides which records the lane sees."""
    read_committed: bool
    rebuild: Rebuilder
    limits: Limits = field(default_factory=Limits)
    mode: Mode = "sequence"
    """With "at-least-once" the target broker's memory of the producer is neither asked for nor relied on."""
    on_loss: OnLoss = "continue"
    """What to do if the source lost records before they were copied: report and continue after them, or halt."""
    on_reject: OnReject = "halt"
    """What to do about a record that cannot be copied: wait for a decision, or skip it, parked or not."""
    phase: Phase = Phase.OPENING
    stage: Stage = Stage.DONE
    transition: Transition | None = None
    """The phase that a handler asked for; `step` enters it when the handler has returned."""
    round: int = 0
    asked: int = 0
    """Number of the last question."""
    questions: set[int] = field(default_factory=set[int])
    """Questions of this round without an answer (`correlation`)."""
    replicator: str = ""
    grant: int = 0
    record: LaneRecord | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    trouble: str = ""
    """Why the last batch was not accepted, while the lane retries."""

    # takeover
    sent_below: int = 0
    """Ordinals below it are known to have been sent, by this attempt or another one."""
    resume_position: ResumePosition = NOTHING
    recorded_position: ResumePosition = NOTHING
    """A resume position below which the ledger is known to hold a run or a verdict for everything."""
    trusted: int = 0
    """Ordinals below it were acknowledged to this attempt, or compared with the source."""

    # resume
    protected: bool = False
    """The broker remembers the lane's producer and will refuse batches that are out of order."""
    resume_ordinal: int = 0
    confirm_end: bool = False
    """Ask for the end again before the first produce, because the broker cannot refuse a repeated append."""
    confirming: bool = False
    """The question for the end before the first produce is open."""
    sent: bool = False
    """This attempt has sent at least one batch."""
    acknowledged: tuple[tuple[int, int], ...] = ()
    """(ordinal, leader epoch), ascending: ordinals below it were acknowledged, and last in the log in that epoch."""

    # grouped by what they are about
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
    """The epochs before other positions."""
    fetching: bool = False
    source_end: int = -1
    """The source's high watermark in the last chunk, or -1."""
    next_ordinal: int = 0
    open_run: Run | None = None
    plan: deque[Run] = field(default_factory=deque[Run])
    """Jumps that must be made at these ordinals, because a hole is being copied again."""
    declared: int = -1
    """Ordinal of the next run that the ledger already declares, or -1."""
    skipped: list[Verdict] = field(default_factory=list[Verdict])
    blocked: tuple[str, int, int] | None = None
    """Source offsets that this version cannot copy: (why, start, end)."""
    has_policies: bool = False
    """Records go through policies: nothing is copied raw, and a policy's second answer may differ from its first."""
    decided: Decided = NOT_YET
    """The decisions that are bound in the ledger and not written yet."""
    origins: Origins | None = None
    """Detects batches in the source that are copies; None if none of them can be meant for the target topic."""
    dropped: tuple[int, int] = (-1, -1)
    """(source offset, newest record time) of the first batch that was fetched and then dropped."""
    left_out: list[Verdict] = field(default_factory=list[Verdict])
    """Ranges to skip by decision: from the quarantine, or by an order to seek ahead; ascending."""
    seeks: Seeks = ()
    """Orders to seek ahead that are still to be carried out (`seek`)."""

    # copying, target side
    ready: deque[Batch] = field(default_factory=deque[Batch])
    ready_bytes: int = 0
    in_flight: deque[Batch] = field(default_factory=deque[Batch])
    in_flight_bytes: int = 0
    expected: int = 0
    """Target offset at which the next acknowledged batch must be, if no other client writes there."""
    acked: int = 0
    """Next ordinal to be acknowledged."""
    pipelined: bool = False
    """A batch was acknowledged on this connection and leader epoch: more than one may be in flight."""
    resumed_at: ResumePosition = NOTHING
    """The position at which the last resume continued."""
    failure: tuple[int, Batch] | None = None
    """The first answer in this round that was not a success."""
    clean: bool = False
    """The lane was drained and left nothing in flight."""

    # ledger
    tag: int = 0
    appends: set[int] = field(default_factory=set[int])
    """Tags of appends without an answer."""
    intents: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])
    """(tag, first ordinal that it maps) of intents of which it is not known yet whether they took effect."""
    unbound: tuple[int, tuple[Verdict, ...]] = NO_VERDICTS
    """The ordinal of the newest intent of this round, and the verdicts in that intent."""
    notes: set[int] = field(default_factory=set[int])
    """Tags of facts that were appended and are not bound yet; until they are, no progress record is written."""
    facts_tag: int = -1
    """Tag of the facts that the current phase waits for."""

    # what people see
    raw_batches: int = 0
    rebuilt_batches: dict[str, int] = field(default_factory=dict[str, int])
    """Batches of the second path, by reason."""
    copied_records: int = 0
    copied_bytes: int = 0
    last_record_ms: int = -1
    is_far: bool = False
    """The target's broker is far away."""

    def go(self, transition: Transition) -> None:
        """Ask `step` to enter another phase. If a handler asks several times, `step` follows its last request."""
        self.transition = transition

    @property
    def is_copying(self) -> bool:
        """Return whether the lane copies, and no handler has asked for another phase."""
        return self.phase is Phase.COPYING and self.transition is None

    def retry(self) -> Effects:
        """Ask for a new round of questions after a pause."""
        self.go(Resume(self.limits.retry_s, refresh=True))
        return []

    @property
    def reach(self) -> Reach:
        """Return the limits on the data in flight."""
        return self.limits.far if self.is_far else self.limits.near

    @property
    def buffered_bytes(self) -> int:
        """Return the number of bytes that the lane holds in memory."""
        return self.ready_bytes + self.in_flight_bytes

    def __repr__(self) -> str:
        return f"Lane({self.source_topic}-{self.partition} {self.phase.value} {self.acked})"
