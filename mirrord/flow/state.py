"""A lane's state: what it knows, what it waits for.

Only the functions that `lane.step` calls change it. It holds no clock and no connection, so it can be copied, compared
and explored.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from mirrord.flow.epochs import Epochs
from mirrord.flow.provenance import Doubt, Origins
from mirrord.flow.signals import Batch, Chunk, EndTold, LaneRecord, ProducerEntry, ProducersTold
from mirrord.flow.walked import Reading
from mirrord.model.config import OnLoss, OnReject
from mirrord.model.facts import LaneFact, Mode, Progress, TakeoverChecked, Verdict
from mirrord.model.names import LaneId
from mirrord.model.runs import Run
from mirrord.model.seeking import Seeks


class Phase(Enum):
    """Where a lane stands. The arrows: opening → resuming ⇄ waiting; resuming → copying → settling → resuming;
    copying → draining → drained; resuming, copying → rebuilding → resuming; from anywhere → halted or gone."""

    OPENING = "opening"
    """Its facts are being bound: producer id, grant, first source offset."""
    WAITING = "waiting"
    """What a former holder or a dead connection may still write has not run out yet."""
    RESUMING = "resuming"
    """It asks the target log what stands in it."""
    REBUILDING = "rebuilding"
    """Target and source differ: it stands still, and both logs are read to find out what really stands there."""
    COPYING = "copying"
    SETTLING = "settling"
    """A batch was refused or an answer is in doubt: nothing new is sent until all in flight are answered."""
    DRAINING = "draining"
    DRAINED = "drained"
    HALTED = "halted"
    GONE = "gone"


class Stage(Enum):
    """Which question of the resume sandwich is open."""

    END = "end"
    PRODUCERS = "producers"
    END_AGAIN = "end-again"
    VISIBLE = "visible"
    SCAN = "scan"
    VERIFY = "verify"
    SHARED = "shared"
    MISSING = "missing"
    CHECK = "check"
    DIFFERENCE = "difference"
    LOCATE = "locate"
    FACTS = "facts"
    RELEASED = "released"
    HANDED = "handed"
    DONE = "done"


class Mark(msgspec.Struct, frozen=True):
    """Below it everything is known to stand in the target log: the next ordinal, and the offset behind the last."""

    ordinal: int
    target_offset: int
    leader_epoch: int = -1


NOTHING = Mark(0, 0)
NO_VERDICTS: tuple[int, tuple[Verdict, ...]] = (-1, ())


class Rebuilt(msgspec.Struct, frozen=True):
    """A batch of the second path: new bytes, and the source offsets of its records as pieces `(offset, length)`."""

    data: bytearray
    pieces: tuple[tuple[int, int], ...]
    """Empty when no record is left; then there are no bytes."""
    newest_ms: int
    left_out: tuple[Verdict, ...] = ()
    """Offsets of records that a policy left out, ascending; each range lies between two pieces."""
    is_cut: bool = False
    """Not all that was wanted: the batch would have been too large."""


class Decided(msgspec.Struct, frozen=True):
    """What the ledger says of source offsets below `end`: those of `pieces` (offset, length) are copied, and no others.

    No filter is asked about them: what another answer would make of them could not be written any more.
    """

    pieces: tuple[tuple[int, int], ...]
    """Ascending."""
    end: int
    open: tuple[tuple[int, int], ...] = ()
    """Offsets [start, end) of which it says nothing."""

    def keeps(self, offset: int) -> bool | None:
        """Whether it is copied; None: that is open."""
        if offset >= self.end:
            return None
        at = bisect_right(self.pieces, (offset, NEVER)) - 1
        if at >= 0 and offset < sum(self.pieces[at]):
            return True
        return None if any(start <= offset < end for start, end in self.open) else False


NEVER = 1 << 62
ALL = Decided(((0, NEVER),), NEVER)
"""What is copied again was copied once."""
NOT_YET = Decided((), 0)


class Rebuild(msgspec.Struct, frozen=True):
    """A request to the second path: at most so many records of the batch buffer[start:end], those from source offset
    `from_offset` on and below `until_offset`."""

    buffer: bytearray
    start: int
    end: int
    from_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    most: int = 1 << 31
    until_offset: int = 1 << 62
    decided: Decided = NOT_YET
    refused_codecs: frozenset[int] = frozenset()
    """The batch may have none of these."""

    def codec(self, own: int) -> int:
        """What the new batch is compressed with, where the old one has this codec."""
        return next(each for each in (own, *INSTEAD) if each not in self.refused_codecs)


INSTEAD = (3, 1, 0)
"""Codecs for batches whose own one the target does not take: lz4, which costs the least; gzip, which every Kafka has
known; none. A batch without one is never refused for it (`mirrord.flow.parking`)."""


class PolicyRefused(Exception):
    """A policy of the flow has no answer for a record; the text says which and why."""

    def __init__(self, line: str, offset: int) -> None:
        super().__init__(line)
        self.offset = offset


class Unparked(msgspec.Struct, frozen=True):
    """A record that the flow's policy leaves out once it is parked."""

    offset: int
    error: int
    line: str
    data: bytes
    """As of `Park`."""
    tries: int = 0
    """So many have failed."""


class Cut(msgspec.Struct, frozen=True):
    """The source offsets [start, end) go to the target so many records at a time: it refused more of them at once."""

    start: int
    end: int
    most: int


Rebuilder = Callable[[Rebuild], Rebuilt | None]
"""Makes the batch anew, record by record; None when there is no record. Raises ValueError when it cannot be read,
PolicyRefused when a policy gives no answer."""


@dataclass(slots=True, eq=False)
class Handed:
    """What was asked beside the taking of a lane that was handed over, and what came of it so far."""

    grant: int
    """Of the former holder."""
    fetch: int
    """The question whose answer is the first records."""
    position: int
    epoch: int
    end: EndTold | None = None
    producers: ProducersTold | None = None
    chunk: Chunk | None = None


class Reach(msgspec.Struct, frozen=True):
    """How much of a lane may be on its way."""

    batches: int
    bytes: int
    """While this much is fetched and not yet acknowledged, no further chunk is asked for, and no batch sent."""


NEAR = Reach(64, 8 << 20)
FAR = Reach(1_024, 24 << 20)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane may hold and how long it waits. Times in seconds of the shell's monotonic clock."""

    near: Reach = NEAR
    far: Reach = FAR
    """The same where the target's broker is far away: what it takes in a round trip, and as much again."""
    producer_expiry_ms: int = 24 * 3600 * 1000
    """The target's producer.id.expiration.ms: how old a producer's last record time may be before it is forgotten."""
    request_timeout_s: float = 8.0
    """The longest time after which something that was sent can still be appended."""
    poll_s: float = 0.05
    retry_s: float = 0.2
    denied_s: float = 5.0
    skipped_offsets_noted: int = 10_000
    """After so many skipped offsets without a record, the ledger is told where the lane stands."""


@dataclass(slots=True, eq=False, repr=False)
class Lane:
    """One lane's whole state."""

    id: LaneId
    source_topic: str
    target_topic: str
    partition: int
    policy: str
    """Fingerprint of what decides which records the lane sees."""
    read_committed: bool
    rebuild: Rebuilder
    limits: Limits = field(default_factory=Limits)
    mode: Mode = "sequence"
    """With "at-least-once" the target broker's memory of the producer is neither asked for nor relied on."""
    on_loss: OnLoss = "continue"
    """What to do where the source lost records before they were copied: tell and go on behind them, or halt."""
    on_reject: OnReject = "halt"
    """What to do about a record that cannot be copied: wait for a decision, or leave it out, parked or not."""
    phase: Phase = Phase.OPENING
    stage: Stage = Stage.DONE
    round: int = 0
    asked: int = 0
    """Number of the last question."""
    questions: set[int] = field(default_factory=set[int])
    """Questions of this round without an answer (`mirrord.flow.asking`)."""
    replicator: str = ""
    grant: int = 0
    record: LaneRecord | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    halt_line: str = ""
    halt_facts: tuple[LaneFact, ...] = ()
    """What the ledger is to know of why the lane stands still."""
    trouble: str = ""
    """Why the last batch was not taken, until one is: the lane tries again."""
    untold: bool = False
    """While it stood still it was told that something from before may not stand in the ledger."""

    # take-over
    left_cleanly: bool = False
    opened_here: bool = False
    """This very attempt opened the lane, so nobody else can have written under its producer id."""
    barrier_s: float = 0.0
    times: tuple[int, int] = (0, 0)
    """What `LaneTaken` tells the next holder."""
    begun: Progress | None = None
    """The mark that it began with, until its first grant is bound."""
    dirty_until: float = 0.0
    """Until then something that was sent before (by a former holder, over a dead connection) may still be appended."""
    former_until: float = 0.0
    """Until then a former holder may be writing, whatever the broker remembers."""
    unanswered: bool = False
    """Something may still be appended, and the leader has not answered since."""
    delayed: bool = False
    """A slow answer has already made the lane wait for what may still be appended."""
    end_asked_at: float = 0.0
    """When a resume last asked for the end of the target log."""
    looked_at: float = 0.0
    """When the target was last asked for its end (`mirrord.flow.limbo`)."""
    limbo: int = -1
    """Batches of this attempt of ordinals below it may still be appended, though nobody waits for them; -1: none."""
    given: int = 0
    """Ordinals below it are known to have been sent, by this attempt or another one."""
    mark: Mark = NOTHING
    told: Mark = NOTHING
    """A mark below which the ledger is known to explain everything."""
    trusted: int = 0
    """Ordinals below it were acknowledged to this attempt, or compared with the source."""
    compared: int = -1
    """Ordinals below it were found to be what the map names in this round; the ledger may not have that yet."""
    handed: Handed | None = None
    """While the lane is taken by its former holder's word."""

    # resume
    end_epoch: int = -1
    end: int = -1
    entry: ProducerEntry | None = None
    log_start: int = 0
    protected: bool = False
    """The broker remembers the lane's producer and will refuse what is out of order."""
    resume_ordinal: int = 0
    confirm_end: bool = False
    """Read the end once more before the first produce: the broker cannot refuse what is appended twice."""
    confirming: bool = False
    """That question is open."""
    sent: bool = False
    """This attempt has sent at least one batch."""
    unread: Mark | None = None
    """In front of what has to be read from the target log first, or once more: the mark does not pass it."""
    gaps: int = 0
    """How many such stretches are being read."""
    suspicious: bool = False
    """A success came after a failure: the log itself must be read."""
    holes: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Ordinals (first, last) that the target log leaps over, found by the last scan and not yet in the ledger."""
    beside_holes: tuple[LaneFact, ...] = ()
    """What was read together with the holes, to be told in one entry with them."""
    cleaned: bool = False
    """The target log is compacted, as far as it was read last."""
    shared: int = -2
    """Up to which target offset the log is the one that the mark was taken in; -1: not known, -2: not asked."""
    found: Reading | None = None
    """The last walk, while it is looked up what is missing there."""
    lost: tuple[tuple[int, int], ...] = ()
    """Ordinals (first, last) that were acknowledged, and that the log has lost with its end."""
    retold: tuple[tuple[int, int], ...] | None = None
    """Those of them that are copied again, when not all are: a newer record of their key stands there."""
    retold_until: int = 0
    acknowledged: tuple[tuple[int, int], ...] = ()
    """(ordinal, leader epoch), ascending: ordinals below it were acknowledged, and stood there last in this epoch."""
    undone: tuple[int, Mark, Mark, tuple[tuple[int, int], ...]] | None = None
    """`mark`, `told` and `acknowledged` as they count again unless the ledger has more `rewinds` than this."""
    knows_sent: bool = False
    """Nothing was sent above `given`: this attempt has resumed once, or the former holder said so when it left."""
    look_back: int = 0
    """How far below the target's end the last own batch is being looked for."""

    # copying, source side
    position: int = 0
    """Source offset of the next fetch."""
    epoch: int = -1
    """Leader epoch of the last batch before `position`, or -1."""
    seen: Epochs = field(default_factory=Epochs)
    """The epochs in front of other positions."""
    told_epoch: int = -2
    """What a reader of ledger and mark takes for the next ordinal's epoch (`mirrord.flow.lineage`); below 0: none."""
    told_since: int = 0
    """From this ordinal on that epoch counts."""
    epochs_told: bool = False
    """Whoever wrote the mark told the ledger of every change of epoch behind it."""
    new_epochs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """(ordinal, epoch) that the ledger is to be told with the next runs."""
    anew_epochs: tuple[tuple[int, int], ...] = ()
    """(ordinal, epoch) as the ledger was told anew in this round of what is to be copied again."""
    found_epoch: tuple[int, int] = (-1, -1)
    """(position, leader epoch of the batch in front of it), as the last comparison with the source read it."""
    found_equal: bool = False
    """That comparison found everything equal."""
    fetching: bool = False
    source_end: int = -1
    """The source's high watermark as the last chunk told it, or -1."""
    next_ordinal: int = 0
    open_run: Run | None = None
    plan: deque[Run] = field(default_factory=deque[Run])
    """Jumps that must be made at these ordinals: a hole is being copied again."""
    assured: bool = False
    """The source still has what was copied. It was asked because a fetch from the position would not tell."""
    parting: int = -1
    """The open question about it, or the pause before it is asked again."""
    unproven: Chunk | None = None
    """What was fetched at a position of unknown epoch, while the source is asked."""
    left: tuple[int, int] | None = None
    """The position that the lane left in this round for one further ahead, and the epoch in front of it."""
    suspected: int = -1
    """The position at which the source had another record than was to be copied again."""
    declared: int = -1
    """Ordinal of the next run that the ledger already declares, or -1."""
    skipped: list[Verdict] = field(default_factory=list[Verdict])
    blocked: tuple[str, int, int] | None = None
    """The source holds something here that this version cannot copy: (why, start, end)."""
    shaped: bool = False
    """Records go through policies: nothing is copied raw, and what a policy answers may not be relied on twice."""
    decided: Decided = NOT_YET
    """What is bound of them and not written yet."""
    origins: Origins | None = None
    """What tells copies in the source; None where none of them can be meant for the target topic."""
    doubt: Doubt | None = None
    """The source holds a batch here of which it has to be asked where it comes from."""
    doubted: Doubt | None = None
    """The last one that was asked about."""
    doubt_line: str = ""
    """Why it waits, for people, when that takes longer."""
    doubt_question: int = -1
    """What is asked about it, or the pause before it is asked again."""
    compacts: bool = False
    """The source's topic may have been compacted."""
    gap: tuple[int, int] | None = None
    """The source has no batch for these offsets, and it is not known yet why."""
    gap_question: int = -1
    """What is asked about it, or the pause before it is asked again."""
    judged: Verdict | None = None
    """The answer on the last one."""
    dropped: tuple[int, int] = (-1, -1)
    """(source offset, newest record time) of the first batch that was fetched and then dropped."""
    largest: int = 1 << 62
    """Batches of more bytes are split: the target refused one of that size."""
    cut: Cut | None = None
    """The last batch that the target refused, until it is known which of its records it does not take."""
    refused_codecs: frozenset[int] = frozenset()
    """Those of batches that the target did not take for their codec; batches have another one from then on."""
    unparked: Unparked | None = None
    """What the lane waits in front of, while it is being parked."""
    park_pause: int = -1
    """The pause before that is tried again."""
    settings_seen: str = ""
    """The settings of the target topic, when it had last refused a record (`mirrord.flow.retrying`)."""
    settings_since: float = 0.0
    """When they were first seen."""
    settings_pause: int = -1
    """The pause before they are read again, while the lane is halted."""
    settings_reads: int = 0
    """So many times they were read since it was halted."""
    left_out: list[Verdict] = field(default_factory=list[Verdict])
    """What somebody decided to leave out, of the quarantine or by ordering the lane further ahead; ascending."""
    sought: Seeks = ()
    """Orders to go on further ahead that are still to be carried out (`mirrord.flow.seeking`)."""

    # copying, target side
    ready: deque[Batch] = field(default_factory=deque[Batch])
    ready_bytes: int = 0
    in_flight: deque[Batch] = field(default_factory=deque[Batch])
    in_flight_bytes: int = 0
    expected: int = 0
    """Target offset at which the next acknowledged batch must stand, if nobody else writes there."""
    acked: int = 0
    """Next ordinal to be acknowledged."""
    pipelined: bool = False
    """A batch was acknowledged on this connection and leader epoch: more than one may be in flight."""
    resumed_at: Mark = NOTHING
    """Where the last resume went on."""
    failure: tuple[int, Batch] | None = None
    """The first answer in this round that was not a success."""
    differs: TakeoverChecked | None = None
    """A comparison found target and source to differ from its first ordinal on, and the map is not made anew yet."""
    check_first_ack: bool = False
    check_later: bool = False
    """What was written since the take-over is compared again once a former holder cannot write any more."""
    check_from: Mark | None = None
    """Where that begins. The mark does not pass it: what is acknowledged behind it may be another holder's batch."""
    check_begins: int = NEVER
    """Where it was found to begin in the target, should the log have gone back since."""
    later_look: int = -1
    """The open question of where the target log ends then; `later_end` is the answer."""
    later_end: int = -1
    later_check: int = -1
    """The open question of that comparison."""
    corrupt_at: int = -1
    """The ordinal whose batch the target called corrupt once: it is fetched once more before it is a refusal."""
    clean: bool = False
    """Drained with nothing left on its way."""

    # ledger
    tag: int = 0
    appends: set[int] = field(default_factory=set[int])
    """Tags of appends without an answer."""
    intents: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])
    """(tag, first ordinal that it explains) of intents that are not bound yet."""
    unbound: tuple[int, tuple[Verdict, ...]] = NO_VERDICTS
    """The ordinal of the newest intent of this round, and the verdicts that it tells."""
    notes: set[int] = field(default_factory=set[int])
    """Tags of facts that the ledger was told and has not yet bound; until then no progress mark is written."""
    facts_tag: int = -1
    """Tag of the facts that the present phase waits for."""

    # what people see
    raw_batches: int = 0
    rebuilt_batches: dict[str, int] = field(default_factory=dict[str, int])
    """Second path, by reason."""
    copied_records: int = 0
    copied_bytes: int = 0
    last_record_ms: int = -1
    is_far: bool = False
    """The target's broker is far away."""

    @property
    def reach(self) -> Reach:
        """How much of it may be on its way."""
        return self.limits.far if self.is_far else self.limits.near

    @property
    def buffered_bytes(self) -> int:
        """What the lane holds in memory."""
        return self.ready_bytes + self.in_flight_bytes

    def __repr__(self) -> str:
        return f"Lane({self.source_topic}-{self.partition} {self.phase.value} {self.acked})"
