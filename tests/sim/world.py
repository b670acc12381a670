"""The whole mirror of one lane in one process: fake clusters, a fake ledger, the real fold and the real lane.

Nothing happens by itself. `World.choices()` lists what could happen next, `World.do(choice)` lets it happen, and after
every step `tests.sim.truth` compares the target log with the source and the ledger. The caller (a seeded scheduler, an
exhaustive explorer) decides the order of everything, faults included.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

from mirrord.ledger.facts.core import (
    AnyFact,
    Entry,
    FlowOpened,
    Holder,
    LaneHalted,
    LeaseTaken,
    MapRebuilt,
    Progress,
    SourceRun,
    Verdict,
    VerdictGiven,
)
from mirrord.ledger.facts.quarantine import Quarantined
from mirrord.ledger.fold import fold
from mirrord.ledger.gaps import Gaps
from mirrord.ledger.state import FlowState
from mirrord.model.names import ClusterId
from mirrord.replication.lane import fast_handoff
from mirrord.replication.lane.limits import NEAR, Limits, Reach
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Bound,
    ProduceAccepted,
    ProduceAnswer,
    Start,
    TargetMoved,
    Woken,
    Writer,
)
from mirrord.replication.lane.source.loop_detection import Origins
from mirrord.replication.lane.state import Lane
from tests.fixtures.attic import no_room
from tests.sim import answering, first_records, late_bytes, leases, past, slow_brokers, target_retention, toy
from tests.sim.checks import Checks
from tests.sim.comparing import is_asked_again
from tests.sim.failover.process import Process
from tests.sim.failover.setting import Failover
from tests.sim.host import LANE, REQUEST_S, TTL_S, Host, Hosts, Request, Shape, word_for_the_next
from tests.sim.known import Known
from tests.sim.letters import FakeLetters
from tests.sim.slow_brokers import AT_ONCE
from tests.sim.source import FakeSource
from tests.sim.target import NOT_LEADER
from tests.sim.transactions import target_of

_METHODS = {
    kind: f"_do_{kind}"
    for kind in (
        "inbox",
        "append",
        "read",
        "answer",
        "moved",
        "timer",
        "write",
        "arrive",
        "late",
        "replicate",
        "failover",
    )
}
"""Name of the method for each kind of event."""


class World:
    """The state of everything, and what can happen next."""

    host_type: type[Host] = Host
    failover: Failover | None = None
    """The failovers of the story."""

    def __init__(self, seed: int, shape: Shape) -> None:
        self.rng = random.Random(seed)
        self.filter = toy.Filter(self.rng, steady=shape.steady)
        self.shape, self.now = shape, 0.0
        self.source = FakeSource(self.rng, shows_all=shape.isolations)
        self.target, self.letters = target_of(shape), FakeLetters()
        self.target.exists = not shape.creating
        self.source.keys = self.target.keys = shape.keys if shape.cleans else 0
        self.ledger: list[Entry] = []
        self.truth = FlowState(memory=no_room())
        """The ledger folded at once, as an omniscient reader."""
        self.hosts = Hosts()
        self.wire: list[Request] = []
        self.progress: Progress | None = None
        self.left_cleanly = False
        self.words: list[Progress] = []
        """The handovers of holders that left."""
        self.by_word = 0
        """The number of lanes that continued on a handover."""
        self.slow_replication, self.slow_wire, self.holds_bytes = shape.slow_replication, shape.slow_wire, shape.frozen
        self.slow = slow_brokers.Slowness(shape.slow_answers)
        # An old resume position makes a lane read much of what a cleaner has touched.
        self.saves, self.producer_ids = 0.1 if shape.cleans else 0.3 if shape.expires else 0.8, 500
        self.given: set[int] = set()
        self.trail: list[str] = []
        self.limbo: list[Request] = []
        """Requests that no one is waiting for and that may still arrive: from dead connections, or a second time."""
        self.stray: list[Entry] = []
        """Ledger entries that may still arrive: because their writer gave them up, or for a second time."""
        self.excused: set[int] = set()
        """Numbers of records that arrived so late that no rule can keep them out; the lane has to find them."""
        self.late: set[int] = set()
        """The same, for an idle lane, which reads the end once more before it sends anything."""
        self.known = Known()
        self.named: set[int] = set()
        """Source offsets that the target holds twice according to the ledger."""
        self.lost: set[int] = set()
        """Source offsets that were deleted before they were copied, according to the ledger."""
        self.truncated: list[tuple[Verdict, list[set[int]]]] = []
        """The ledger's verdicts about what the source lost after it was copied (see `FakeSource.notice`)."""
        self.gaps = Gaps(self.truth)
        self.rejected: set[int] = set()
        """Source offsets that were skipped because the target refuses them, according to the ledger."""
        self.rebuilds = self.attempts = 0
        self.checks, self.faults = Checks(), True
        self.origins: Callable[[], Origins | None] = lambda: None
        self.writers: Callable[[], tuple[Writer, ...]] = tuple
        """What the ledgers on the source's cluster say."""
        self.write((FlowOpened("f", ClusterId("A"), ClusterId("B")),), 0)
        self.write((LeaseTaken(1, Holder("h", 1, "i", ""), int(TTL_S * 1000)),), 1)
        self.past = past.begin(self, shape.until_wrap)
        self.failover = Failover(self) if shape.failover else None

    def note(self, line: str) -> None:
        self.trail.append(f"{self.now:7.2f} {line}")

    @property
    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now * 1000)

    def record_ms(self) -> int:
        return self.wall_ms - self.shape.record_age_ms

    def write(self, facts: tuple[AnyFact, ...], epoch: int) -> int:
        return self.write_entry(Entry(epoch, 0, facts))

    def write_entry(self, entry: Entry) -> int:
        """Append an entry to the ledger; returns its offset."""
        self.ledger.append(entry)
        kept = self.checks.forgotten.kept_by(self.truth.lanes.get(LANE))
        had_ended = self.failover is not None and self.failover.has_ended
        bound = fold(self.truth, entry, len(self.ledger) - 1)
        for fact, binds in zip(entry.facts, bound, strict=True):
            if isinstance(fact, LaneHalted):
                self.checks.halts.append(len(self.ledger) - 1)
            if binds:
                self.gaps.take(fact, 0)
            if binds and isinstance(fact, VerdictGiven):
                self.named.update(*(range(each.start, each.end) for each in fact.verdicts if each.reason == "doubled"))
                left_out = [each for each in fact.verdicts if each.reason == "compacted"]
                self.known.leave_out(self.source.at(at) for each in left_out for at in range(each.start, each.end))
            if binds and isinstance(fact, SourceRun):
                self.checks.mapped_at = len(self.ledger) - 1
                for reason, offsets in (("expired", self.lost), ("rejected", self.rejected)):
                    offsets.update(*(range(each.start, each.end) for each in fact.verdicts if each.reason == reason))
                gone = [each for each in fact.verdicts if each.reason == "truncated"]
                self.truncated += [(each, self.source.notice(each.start)) for each in gone]
            if binds and isinstance(fact, MapRebuilt):
                self.rebuilds += 1
                target_retention.rebuilt(self, fact.first)
            if isinstance(fact, Quarantined) and fact.skip and self.shape.on_reject == "skip":
                self.letters.check(fact)
        self.checks.forgotten.note(kept, entry.facts, self.truth.lanes.get(LANE), self.gaps)
        if self.failover is not None:
            self.failover.folded(entry, bound, had_ended=had_ended)
        return len(self.ledger) - 1

    # --- hosts

    def start_host(self, *, former_dead: bool, starter: Process | None = None) -> Host:
        """A new replicator takes the lane, as the supervisor would let it. In a story with a failover, `starter` is the
        daemon that starts it; by default, the one that copies the flow. If none does, return the last replicator."""
        if self.failover is not None:
            starter = starter or self.failover.starter()
            if starter is None:
                return self.hosts[-1]
        self.attempts += 1
        near, expiry = Reach(self.shape.window, NEAR.bytes), self.shape.expiry_ms
        limits = Limits(near=near, producer_expiry_ms=expiry, request_timeout_s=REQUEST_S, skipped_offsets_noted=6)
        name, committed = f"r{self.attempts}", self.shape.reads_committed(self.attempts)
        lane = Lane(LANE, "orders", "eu.orders", 0, "p", committed, toy.rebuild, limits, self.shape.mode)
        # No story loses a segment (tests/unit/replication/lane/source/test_offset_gaps.py): gaps are the cleaner's.
        lane.gap.compacts = True
        lane.origins = self.origins()
        lane.on_reject = self.shape.on_reject
        lane.has_policies = self.shape.policies
        lane.rebuild = self.filter.rebuild if self.shape.policies else toy.rebuild
        host = self.host_type(name, self, lane, FlowState(memory=no_room()), started_at=self.now)
        host.leader = self.target.leader
        host.lease_epoch = self.truth.lease_epoch if starter is None else starter.epoch
        host.lease_until = self.now + TTL_S
        first_records.begins(self, host)
        word = word_for_the_next(self)
        behind = self.rng.randrange(4) if word is not None else 0
        read = len(self.ledger) - behind
        for offset, entry in enumerate(self.ledger):
            if offset < read or not fast_handoff.is_last(word, host.record()):
                fold(host.state, entry, offset)
        self.hosts.begin(host)
        record = host.record()
        progress = self.progress if self.left_cleanly else None
        left = progress is not None and record is not None and progress.grant == record.grant
        left |= fast_handoff.is_last(word, record)
        self.left_cleanly = False
        barrier = 0.0 if left else (REQUEST_S if former_dead else TTL_S + REQUEST_S)
        word = word if left and fast_handoff.is_last(word, record) else None
        self.known.take_over(name, word or self.progress, self.truth.lanes.get(LANE), self.source.offset_of)
        host.take(Start(record, self.progress, name, barrier, left, word, (int(TTL_S * 1000), int(REQUEST_S * 1000))))
        self.by_word += host.lane.takeover.fast_handoff is not None
        return host

    # --- what can happen

    def choices(self) -> list[tuple[str, Any]]:  # noqa: C901 -- one line for each kind of thing that can happen
        """Everything that could happen now, except for faults."""
        found: list[tuple[str, Any]] = []
        now, end, epoch = self.now, len(self.ledger), self.target.epoch
        for host in self.hosts.recent:
            if host.paused or not host.alive:
                continue
            for at, item in enumerate(host.inbox):
                if self.failover is not None and self.failover.is_mute(item):
                    continue
                if item[0] in AT_ONCE or self.answerable(item):
                    found.append(("inbox", (host, at)))
            if host.appends and not host.ledger_is_slow:
                found.append(("append", host))
            if host.state.next_offset < end:
                found.append(("read", host))
            if host.answers and self._answerable(host.answers[0]):
                found.append(("answer", host))
            has_moved = host.lane.log.end_epoch != epoch and host.lane.phase is Phase.COPYING
            if has_moved and self.rng.random() < 0.2:
                found.append(("moved", host))
            if host.timers and min(host.timers)[0] <= now:
                found.append(("timer", host))
            if host.unsent and not (self.holds_bytes and self.rng.random() < 0.7):
                found.append(("write", host))
        found += [("arrive", request) for request in self._arriving()] if self.wire else ()
        if self.limbo and late_bytes.any_is_read(self):
            found.append(("late", None))
        if self._behind() and not (self.slow_replication and self.rng.random() < 0.95):
            found.append(("replicate", None))
        found += self.failover.choices() if self.failover is not None else ()
        return found

    def _arriving(self) -> Iterator[Request]:
        """The requests that a broker may read now: the first one of each connection."""
        heads: set[tuple[str, int]] = set()
        for request in self.wire:
            key = (request.host.name, request.connection)
            if key in heads:
                continue
            heads.add(key)
            if (self.slow_wire and self.rng.random() < 0.9) or not slow_brokers.is_read(self, request):
                continue
            if not request.held or any(each.lane.in_flight for each in self.hosts if each is not request.host):
                yield request

    def answerable(self, item: tuple[str, Any]) -> bool:
        """Whether a question or an answer in flight can end now."""
        # A fetch at the end of the log is a long poll: nothing happens until something is written.
        if item[0] != "fetch":
            return slow_brokers.is_due(self, item)
        source, wish = self.source, item[1]
        if source.has(wish.position) or not source.start <= wish.position <= source.end:
            return True
        return source.diverging(wish.position, wish.last_epoch)[1] >= 0

    def _behind(self) -> bool:
        target = self.target
        leader, follower = target.brokers[target.leader], target.brokers[1 - target.leader]
        if follower.leads or (self.slow.suspended and self.slow.suspended_until() > self.now):
            return False
        return not target.in_sync or follower.start < leader.start or follower.end < leader.end

    def _answerable(self, answer: tuple[Request, int, int, int]) -> bool:
        request, error, base, epoch = answer
        if request.answer_at > self.now:
            return False
        if error or self._deposed(request.broker, epoch):
            return True
        return self.target.committed(request.broker, base + request.batch.count, epoch)

    def _deposed(self, broker: int, epoch: int) -> bool:
        """The broker no longer leads in the epoch in which it took a batch: it answers with an error."""
        return not self.target.brokers[broker].leads or self.target.brokers[broker].epoch != epoch

    def do(self, choice: tuple[str, Any]) -> None:
        kind, what = choice
        getattr(self, _METHODS[kind])(what)

    def _do_timer(self, host: Host) -> None:
        timer = min(host.timers)
        host.timers.remove(timer)
        host.take(Woken(timer[1]))

    def _do_moved(self, host: Host) -> None:
        host.leader = self.target.leader
        host.take(TargetMoved(self.target.epoch))

    def _do_replicate(self, _: None) -> None:
        self.target.replicate()

    def _do_arrive(self, request: Request) -> None:
        self.wire.remove(request)
        if slow_brokers.is_overdue(self, request):
            error, base = late_bytes.land(self, request)
            self.note(f"{request.host.name} overdue {request.batch} at b{request.broker}: {error} {base}")
            if request.connection != request.host.connection or not request.host.alive:
                return
            request.host.answers.append((request, error, base, self.target.brokers[request.broker].epoch))
            return
        end = self.target.brokers[request.broker].end
        first_records.check(self, request)
        error, base = self.target.produce(request.broker, request.data, self.wall_ms)
        if self.shape.slow_wire and self.rng.random() < 0.3:
            self.target.forget(request.broker, self.wall_ms)
        self.note(f"{request.host.name} arrive {request.batch} at b{request.broker}: {error} {base}")
        if not error:
            if base >= end:
                target_retention.appended(self, request, base)
                if self.failover is not None:
                    self.failover.appended(request, late=self.shape.suspends or self.shape.throttles)
            hidden = self.known.arrived(request, self.target.foreign_numbers, self.target.lost)
            self.target.hid.setdefault((base, self.target.brokers[request.broker].epoch), set()).update(hidden)
        if self.shape.twice and self.rng.random() < 0.3:
            self.limbo.append(request)
        slow_brokers.answer_later(self, request)
        if request.connection == request.host.connection and request.host.alive:
            request.host.answers.append((request, error, base, self.target.brokers[request.broker].epoch))

    def forsake(self, request: Request) -> None:
        """A request does not arrive or, in some worlds, arrives later."""
        self.wire.remove(request)
        if self.shape.late:
            self.limbo.append(request)

    def _do_write(self, host: Host) -> None:
        """The process passes requests to the kernel, in their order."""
        for _ in range(self.rng.randint(1, len(host.unsent))):
            self.wire.append(host.unsent.popleft())

    def _do_failover(self, happens: Callable[[], None]) -> None:
        happens()

    def _do_late(self, _: None) -> None:
        late_bytes.arrive(self)

    def _do_answer(self, host: Host) -> None:
        request, error, base, epoch = host.answers.popleft()
        host.sent.remove(request)
        if not error and not self.target.committed(request.broker, base + request.batch.count, epoch):
            error, base = NOT_LEADER, -1
        if error:
            host.leader = self.target.leader
        if error or not self.shape.together:
            host.take(ProduceAnswer(request.round, request.batch, error, base))
            self.known.took([request], self.target)
            return
        taken = [request]
        accepted = ProduceAccepted(request.round, [request.batch], [base])
        while host.answers and self.rng.random() < 0.8:
            request, error, base, epoch = host.answers[0]
            if (
                error
                or request.round != accepted.round
                or not self.target.committed(request.broker, base + request.batch.count, epoch)
            ):
                break
            host.answers.popleft()
            host.sent.remove(request)
            accepted.batches.append(request.batch)
            accepted.base_offsets.append(base)
            taken.append(request)
        host.take(accepted)
        self.known.took(taken, self.target)

    def _do_append(self, host: Host) -> None:
        tag, entry = host.appends.popleft()
        host.landed[self.write_entry(entry)] = tag
        self.note(f"{host.name} ledger {entry.facts}")
        if self.shape.twice and self.rng.random() < 0.3:
            self.stray.append(entry)

    def _do_read(self, host: Host) -> None:
        offset = host.state.next_offset
        entry = self.ledger[offset]
        bound = fold(host.state, entry, offset)
        tag = host.landed.pop(offset, None)
        self._tell_news(host, entry, bound)
        if tag is not None:
            host.take(Bound(tag, bound, host.record()))

    def _tell_news(self, host: Host, entry: Entry, bound: tuple[bool, ...]) -> None:
        for fact, binds in zip(entry.facts, bound, strict=True):
            signal = leases.news(host, fact) if binds else None
            if signal is not None:
                host.take(signal)

    def _do_inbox(self, what: tuple[Host, int]) -> None:
        host, at = what
        kind, content = host.inbox[at]
        del host.inbox[at]
        if kind == "fetch":
            host.inbox.append(answering.fetch(self, host, content))
        elif kind == "tell":
            host.take(content)
        elif kind == "slow":
            host.take(content[0])
        elif (held := slow_brokers.hold(self, kind, content)) is not None:
            host.inbox.append(held)
        else:
            question, broker = content[0] if kind == "held" else content
            answer = answering.answer(self, host, question, broker)
            if error := getattr(answer, "error", 0):
                host.leader = self.target.leader
                if is_asked_again(host.lane, question, error):
                    host.inbox.append(("ask", (question, broker)))
                    return
            host.inbox.append(slow_brokers.reply(self, host, question, answer))

    # --- time

    def next_time(self) -> float | None:
        """The next moment at which something becomes possible by itself; bytes in flight do not outlive it."""
        times = [max(request.deadline, request.read_until) for request in self.wire]
        for host in self.hosts.recent:
            if host.alive and not host.paused:
                times += [at for at, _ in host.timers if at > self.now]
                times += slow_brokers.times(self, host)
                times += [host.sent[0].deadline] if host.sent else ()
        if self.slow.suspended or self.slow.muted:
            times += [until for until in (*self.slow.suspended.values(), *self.slow.muted.values()) if until > self.now]
        times += self.failover.times() if self.failover is not None else ()
        return min(times, default=None)

    def advance(self, to: float) -> None:
        self.now = max(self.now, to)
        for request in [each for each in self.wire if max(each.deadline, each.read_until) <= self.now]:
            if request in self.wire:
                self.forsake(request)
            if request.connection == request.host.connection and request.host.alive:
                if self.shape.frozen and request.host.paused:
                    request.host.is_cut = True  # the kernel gives the connection up (TCP_USER_TIMEOUT)
                else:
                    request.host.disconnect()
        for host in self.hosts.recent:
            if host.alive and not host.paused and host.sent and host.sent[0].deadline <= self.now:
                host.disconnect()
            if leases.is_renewed(host):
                host.lease_until = self.now + TTL_S
        if self.failover is not None:
            self.failover.renew()

    def phase(self) -> Phase | None:
        """Phase of the newest live host's lane."""
        return self.hosts.living[-1].lane.phase if self.hosts.living else None
