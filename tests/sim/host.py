"""A replicator of the simulation: the real lane, and a shell that performs its effects on the fake world."""

from collections import deque
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mirrord.config.schema import OnReject
from mirrord.ledger.facts.core import Entry, Mode, Progress
from mirrord.ledger.fold import writer_text
from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneKey, TopicId
from mirrord.replication.lane import state
from mirrord.replication.lane import step as flow_lane
from mirrord.replication.lane.lane_report import progress_record
from mirrord.replication.lane.signals import (
    Append,
    AskCheck,
    AskConfigs,
    AskDivergence,
    AskEnd,
    AskOrigins,
    AskProducerId,
    AskProducers,
    AskRebuild,
    AskScan,
    AskShared,
    AskStart,
    AskSuperseded,
    AskVisible,
    Chunk,
    Drain,
    Drained,
    Effect,
    Fenced,
    FetchFrom,
    Gone,
    Halted,
    Input,
    Lost,
    Park,
    Produce,
    ProduceAnswer,
    Released,
    SaveProgress,
    StopFetch,
    TargetFar,
    TargetMoved,
    Wake,
)
from mirrord.replication.lane.state import Lane
from tests.sim.compared_ranges import check_range

if TYPE_CHECKING:
    from tests.sim.world import World

LANE = LaneKey(TopicId("S" * 22), 0, TopicId("T" * 22)).id
TTL_S, REQUEST_S = 6.0, 8.0
NETWORK, LOADING = 13, 14
NEWS = (TargetMoved, TargetFar, Fenced, Drain, Released)
"""Inputs that are not answers: each is valid on its own, however often it is repeated."""
ASKED = (
    AskEnd,
    AskVisible,
    AskProducers,
    AskCheck,
    AskScan,
    AskProducerId,
    AskStart,
    AskDivergence,
    AskRebuild,
    AskShared,
    AskSuperseded,
    AskOrigins,
    Park,
    AskConfigs,
)
"""Effects that are questions."""


@dataclass
class Shape:
    """The kind of world: which faults exist in it."""

    hosts: int = 2
    record_age_ms: int = 0
    forgetting: bool = False
    transactions: bool = False
    compaction: bool = False
    elections: bool = True
    unclean: bool = False
    kills: bool = True
    pauses: bool = True
    ledger_faults: bool = True
    refusals: bool = True
    creating: bool = False
    slow_replication: bool = False
    slow_wire: bool = False
    foreign: bool = False
    """Another client writes to the target partition as well."""
    others: int = 0
    """The number of clients that write to the target partition in transactions."""
    truncation: bool = False
    """The source loses records by unclean elections."""
    retention: bool = False
    """The source deletes its oldest records, copied or not."""
    poison: bool = False
    """The target refuses some records for their content, and batches of many records."""
    on_reject: OnReject = "halt"
    seeks: bool = False
    """An operator commands the lane to continue further ahead in the source."""
    policies: bool = False
    """Records go through a filter whose answers change at random."""
    steady: bool = False
    """The answers of the filter do not change."""
    late: bool = False
    """Bytes of a dead connection may arrive long after everyone gave them up."""
    twice: bool = False
    """Everything delivered may be delivered once more: answers to the lane, requests to a broker, entries of the
    ledger."""
    starts_late: bool = False
    """The source has records that are older than the flow, which does not copy them. If `until_wrap` is set, they have
    been deleted."""
    until_wrap: int = 0
    """The number of records that the lane copies before its sequence numbers start again at 0. 0 if it begins with
    ordinal 0."""
    repeats: bool = False
    """Answers to the lane may arrive once more."""
    together: bool = False
    """The lane often learns in one step of several batches that the target has accepted."""
    traps: tuple[str, ...] = ()
    """Faults that also strike at the moments at which a rule of the lane matters (`tests.sim.traps`)."""
    faults: tuple[str, ...] = ()
    """Faults that are more frequent in this world."""
    daemons: bool = False
    """Another daemon takes the lease now and then."""
    handed: bool = False
    """The holder that drains a lane hands its last progress record to the next holder, which need not have read the
    ledger."""
    far: bool = False
    """The target is far away now and then: much is written and in flight, far more than a broker remembers."""
    frozen: bool = False
    """A host may be suspended after it has checked its lease, and before the bytes of its requests leave."""
    failover: bool = False
    """An operator ends the copying by failovers (`tests.sim.failover`). No traps are set."""
    misled: bool = False
    """Daemons start replicators although a failover forbids it."""
    expires: bool = False
    """The target deletes its oldest records."""
    slow_answers: bool = False
    """Answers may arrive long after a broker computed them, or too late."""
    suspends: bool = False
    """Brokers are suspended for a while."""
    throttles: bool = False
    """Brokers throttle connections for longer than the next holder of the lane waits."""
    cleans: bool = False
    """The target topic is compacted, and its records have few keys."""
    isolations: bool = False
    """Every other holder of the lane copies records of transactions that have not ended. All of these are committed, so
    this means nothing if `transactions` is set."""
    keys: int = 3
    window: int = 8
    expiry_ms: int = 86_400_000
    mode: Mode = "sequence"

    def reads_committed(self, attempt: int) -> bool:
        """Whether this holder copies committed records only, counted from 1."""
        return not self.isolations or self.transactions or attempt % 2 == 0


@dataclass(eq=False)
class Request:
    """A produce request on its way to a broker."""

    host: "Host"
    broker: int
    round: int
    batch: Any
    data: bytes
    deadline: float
    connection: int
    held: bool = False
    """It does not arrive until another replicator has sent something as well."""
    kept: bool = False
    """It does not arrive for now."""
    answer_at: float = 0.0
    """The broker does not answer earlier."""
    read_until: float = 0.0
    """Up to this time the broker may read it from a receive buffer, even if the connection is closed by then."""
    late_after: float = 0.0
    """If positive: from then on, the next holder of the lane no longer waits for it."""
    log_end: int = 0
    """The end of the target log that the sender had read before it sent this."""
    overdue: bool = False
    """Its bytes left later than anyone waits for them, because its host was suspended."""


def word_for_the_next(world: "World") -> Progress | None:
    """The handover of the holder that left last; now and then the handover of an earlier holder."""
    if not world.shape.handed or not world.left_cleanly or not world.words:
        return None
    return world.rng.choice(world.words) if world.rng.random() < 0.2 else world.words[-1]


@dataclass(eq=False)
class Host:
    """A replicator with this lane: the shell of the simulation."""

    name: str
    world: "World"
    lane: Lane
    state: FlowState
    alive: bool = True
    paused: bool = False
    leader: int = 0
    connection: int = 0
    lease_until: float = 0.0
    lease_epoch: int = 1
    """The epoch of the lease under which its daemon has started it."""
    started_at: float = 0.0
    inbox: deque[tuple[str, Any]] = field(default_factory=deque)
    """Questions and answers in flight, by kind; several of them may be chosen in any order."""
    appends: deque[tuple[int, Entry]] = field(default_factory=deque)
    landed: dict[int, int] = field(default_factory=dict)
    """Ledger offset → tag of own entries that are still to be read back."""
    timers: list[tuple[float, int]] = field(default_factory=list)
    sent: deque[Request] = field(default_factory=deque)
    """Unanswered requests on the current connection."""
    unsent: deque[Request] = field(default_factory=deque)
    """Those of them that passed the check of the lease, and that the process has not passed to the kernel."""
    is_cut: bool = False
    """The kernel gave the connection up while the host was suspended."""
    answers: deque[tuple[Request, int, int, int]] = field(default_factory=deque)
    """(request, error, base offset, epoch in which it was accepted)"""
    heard: deque[Input] = field(default_factory=lambda: deque[Input](maxlen=6))
    """Answers that may arrive again."""
    ledger_is_slow: bool = False
    """Nothing that it appends reaches the ledger for now."""
    entries: int = 0
    """How many entries it has written to the ledger."""
    began_with: tuple[int, ...] | None = None
    """What source and target had lost when it began (`first_records`), until its first batch arrives."""

    def record(self) -> Any:
        return self.state.lanes.get(LANE)

    def take(self, signal: Input) -> None:
        """Give the lane an input and perform the effects it asks for."""
        world, lane, shape = self.world, self.lane, self.world.shape
        may_repeat = (shape.repeats or shape.twice) and not isinstance(signal, NEWS)
        if may_repeat and (shape.repeats or world.rng.random() < 0.2):
            # The lane writes into the buffer; a repeated input is as it was.
            fresh = isinstance(signal, Chunk)
            self.heard.append(replace(signal, buffer=bytearray(signal.buffer)) if fresh else signal)
        resumed_at, begun = lane.resumed_at, lane.resume_position
        effects = flow_lane.step(lane, world.now, signal)
        if lane.resumed_at is not resumed_at:
            world.known.resumed(self, begun)
        for effect in effects:
            self.perform(effect)

    def hear_again(self) -> None:
        """Repeat an answer: nothing may change."""
        signal = self.heard.popleft()
        before = _picture(self.lane)
        effects = flow_lane.step(self.lane, self.world.now, signal)
        after = _picture(self.lane)
        if effects or before != after:
            changed = [name for name in before if before[name] != after[name]]
            raise AssertionError(f"{self.name} acts on what it hears twice: {signal}: {effects} {changed}")

    def perform(self, effect: Effect) -> None:
        if isinstance(effect, ASKED):
            if isinstance(effect, AskCheck):
                check_range(self, effect)
            self.inbox.append(("ask", (effect, self.leader)))
            return
        match effect:
            case Wake():
                self.timers.append((effect.at, effect.question))
                if effect.refresh:
                    self.leader = self.world.target.leader
            case Append():
                self.entries += 1
                writer = writer_text(self.name, self.entries)
                self.appends.append((effect.tag, Entry(self.lease_epoch, 0, effect.facts, writer)))
            case Produce():
                self.world.note(f"{self.name} produce {effect.batches} lease {self.lease_until}")
                self._produce(effect)
            case FetchFrom():
                self._stop_fetch()
                self.inbox.append(("fetch", effect))
            case StopFetch():
                self._stop_fetch()
            case SaveProgress():
                self.save_progress()
            case Gone() | Halted() | Lost() | Drained():
                self.world.note(f"{self.name} {effect}")
                if isinstance(effect, Drained | Gone):
                    self.alive = False
                    self._left(clean=isinstance(effect, Drained) and effect.clean)

    def _stop_fetch(self) -> None:
        for each in [each for each in self.inbox if each[0] == "fetch"]:
            self.inbox.remove(each)

    def _produce(self, effect: Produce) -> None:
        if self.world.failover is not None:
            self.world.failover.check_sender(self)
        for batch in effect.batches:
            data = bytes(batch.buffer[batch.start : batch.end])
            request = Request(self, self.leader, effect.round, batch, data, self.world.now + REQUEST_S, self.connection)
            request.log_end = self.lane.log.end
            if self.world.slow.suspended.get(self.leader, 0.0) > self.world.now:
                request.read_until = self.world.slow.suspended[self.leader] + REQUEST_S
            if self.world.now < self.lease_until:
                self.sent.append(request)
                holds = bool(self.unsent) or (self.world.holds_bytes and self.world.rng.random() < 0.6)
                (self.unsent if holds else self.world.wire).append(request)
            else:
                self.sent.append(request)
                self.answers.append((request, NETWORK, -1, 0))

    def _left(self, *, clean: bool) -> None:
        # The handover of a former holder does not count once another one has the lane
        # (`mirrord.supervision.fleet.lane_ownership`).
        if self is self.world.hosts[-1]:
            self.world.left_cleanly = clean
            word = progress_record(self.lane, self.lease_epoch, self.world.wall_ms) if clean else None
            if word is not None:
                self.world.words.append(word)
                self._publish(word)
                self.world.known.epochs.saved(word)

    def save_progress(self) -> None:
        saved = progress_record(self.lane, self.lease_epoch, self.world.wall_ms)
        if not self.lane.grant or saved is None:
            return
        # The high watermark falls in elections only.
        is_fixed = not high_watermark_can_fall(self.world) or saved.leader_epoch == self.world.target.epoch
        if is_fixed and saved.target_offset > self.world.target.high_watermark:
            raise AssertionError(f"{self.name} claims target offset {saved.target_offset}, which is not committed")
        if saved.settled and not high_watermark_can_fall(self.world):
            self._check_settled(saved.source_offset)
        is_last = self.world.failover is not None and saved.state == "drained"
        if is_last or self.world.rng.random() < self.world.saves:
            self.world.progress = saved
            self.world.known.epochs.saved(saved)
            self._publish(saved)

    def _publish(self, saved: Progress) -> None:
        if self.world.failover is not None:
            self.world.failover.topic.append(saved)

    def _check_settled(self, source_offset: int) -> None:
        """Check that every record before the position is in the target, as far as it is copied at all."""
        source, target = self.world.source, self.world.target
        if target.leapt or source.cut or self.world.excused or self.world.shape.cleans:
            return
        # A former holder may have saved a position above records that a later one copied again without knowing of them.
        leader = target.brokers[target.leader]
        stand = {number for stored in (*leader.deleted, *leader.history) for number in stored.numbers}
        offset_of = source.offset_of
        offsets = [offset_of[number] for number in source.wanted() if number not in stand]
        left_out = self.world.rejected | _recorded_as_left_out(self.world) | _left_out(self.lane)
        missing = {offset for offset in offsets if offset < source_offset and offset not in left_out}
        # The state keeps only the newest verdicts.
        if missing and missing.difference(*(range(gap.start, gap.end) for gap in self.world.gaps)):
            raise AssertionError(f"{self.name} claims to have settled below {source_offset}, without {sorted(missing)}")

    def disconnect(self) -> None:
        """End the connection to the target: unanswered requests are in doubt, and some of them may still arrive."""
        world = self.world
        mine = [each for each in world.wire if each.host is self and each.connection == self.connection]
        mine = [each for each in mine if not each.kept]
        arriving = world.rng.randrange(len(mine) + 1)
        for request in mine[arriving:] if not _is_received(world, mine) else ():
            world.forsake(request)
        held_s = max(0.0, world.slow.muted.get((self.name, self.connection), 0.0) - world.now)
        self.connection += 1
        self.unsent.clear()
        if world.rng.random() < 0.5:
            self.leader = world.target.leader
        self.answers.clear()
        lost, self.sent = list(self.sent), deque()
        for request in lost:
            self.take(ProduceAnswer(request.round, request.batch, NETWORK, -1, held_s))


class Hosts(list[Host]):
    """The replicators of a lane, in the order in which they began."""

    def __init__(self, hosts: Iterable[Host] = ()) -> None:
        super().__init__(hosts)
        self.recent = list(self)
        """Those whose processes had not ended when the last one began. The others never begin again."""

    def begin(self, host: Host) -> None:
        """Another replicator begins."""
        self.append(host)
        self.recent = [*self.living, host]

    @property
    def living(self) -> list[Host]:
        """Those whose processes have not ended."""
        return [host for host in self.recent if host.alive]


def _is_received(world: "World", requests: list[Request]) -> bool:
    """Whether these requests are in the receive buffer of a broker that does not read them now."""
    return bool(requests) and requests[-1].read_until > world.now and world.rng.random() < 0.8


def _picture(part: Any) -> dict[str, Any]:
    """Return a copy of the state of a lane or of a part of it."""
    values = {each.name: getattr(part, each.name) for each in fields(part)}
    return {name: _copied(value) for name, value in values.items()}


def _copied(value: Any) -> Any:
    if type(value).__module__ == state.__name__ and is_dataclass(value):
        return _picture(value)
    return copy(value) if isinstance(value, list | deque | set) else value


def _recorded_as_left_out(world: "World") -> set[int]:
    record = world.truth.lanes.get(LANE)
    verdicts = record.verdicts.recent if record is not None else ()
    return {offset for verdict in verdicts for offset in range(verdict.start, verdict.end)}


def _left_out(lane: Lane) -> set[int]:
    return {offset for verdict in lane.skipped for offset in range(verdict.start, verdict.end)}


def high_watermark_can_fall(world: "World") -> bool:
    """The high watermark itself may fall, so a claim that was true may no longer be true."""
    return world.shape.unclean or "bounce" in world.shape.faults
