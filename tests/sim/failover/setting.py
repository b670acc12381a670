"""The failovers of a story: the processes that carry them out, the operator, and what becomes of the source."""

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import Entry, Holder, LaneFact, LeaseTaken, Progress
from mirrord.ledger.facts.recovery import (
    CopyingEnded,
    RecoveryBegan,
    RecoveryFact,
    RecoveryFinished,
    RecoveryMode,
    RecoveryStepDone,
)
from mirrord.ledger.folding.failovers import CAUGHT_UP, has_ended, in_progress
from mirrord.model.errors import ConfigError
from mirrord.replication.lane.signals import AskCheck, AskDivergence, AskRebuild, AskStart, AskSuperseded
from mirrord.supervision.rules.failover_orders import rule_cancel, rule_failover
from tests.sim import toy
from tests.sim.failover import moments
from tests.sim.failover.groups import ReadingGroups
from tests.sim.failover.process import TIMES, Final, Process
from tests.sim.host import LANE, TTL_S, Host, Request
from tests.sim.violation import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

_OF_SOURCE = (AskCheck, AskDivergence, AskRebuild, AskStart, AskSuperseded)
"""Questions of lanes that only the source can answer."""
ADA = Origin("ada@host", "fire", 1)


class Ending(NamedTuple):
    """The moment at which the copying ended."""

    number: int
    """The number of the failover."""
    known_end: int
    """The high watermark of the source that was known to the process that ended the copying, or -1."""
    process: Process
    there: frozenset[tuple[int, ...]]
    """The lane's batches on any broker of the target."""
    wanted: frozenset[int]
    """The records of the source that were to be copied."""
    found: frozenset[int]
    """Those that were there when the process began the step "end"."""


class Failover:
    """The failovers of a story."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.quiet = False
        """Whether all faults are over."""
        self.is_source_dead = False
        self.topic: list[Progress] = [world.progress] if world.progress is not None else []
        """The records of the state topic."""
        world.saves = world.rng.choice((0.05, 0.3, 0.8))
        self.groups = ReadingGroups(world.rng)
        self.known_ends: dict[str, tuple[int, Process]] = {}
        """Writer of a `CopyingEnded` → what its process knew of the end of the source."""
        self.ending: Ending | None = None
        self.overdue: Counter[int] = Counter()
        """The numbers of the records that were appended after the copying had ended, later than anyone waits for them.
        No rule keeps them out."""
        self.final: Final | None = None
        """What the final positions were decided from, and the decision, if the step "groups" has been completed."""
        self.misled = False
        """Whether a replicator was started against the rules, after replicators had been stopped."""
        self.forgets = self.is_drama = False
        """Whether a producer is forgotten in any case, and whether replicators hurry at the moments that matter."""
        self.silent_once = False
        """Whether the leader of the source does not answer the next time."""
        self.seen: set[str] = set()
        """Rare things that have happened in this story."""
        self.producers_stopped = False
        self._lease = world.truth.lease_epoch
        self._number = 1
        self._by_name: dict[str, Process] = {}
        self.processes: list[Process] = []
        self._start("daemon", world.truth.lease_epoch)

    # Processes

    @property
    def living(self) -> list[Process]:
        """The processes that have not ended."""
        return [each for each in self.processes if each.alive]

    @property
    def holder(self) -> Process | None:
        """The process that holds the lease according to the ledger, if it lives."""
        return next((each for each in self.living if each.epoch == self.world.truth.lease_epoch), None)

    def take_lease(self, kind: Literal["daemon", "command"]) -> None:
        """Another process takes the lease."""
        world = self.world
        epoch = world.truth.lease_epoch + 1
        self._number += 1
        world.note(f"{kind} {self._number} takes lease {epoch}")
        world.write((LeaseTaken(epoch, Holder("h", epoch, "i", ""), TIMES[0]),), epoch)
        self._start(kind, epoch)
        self.seen.add(f"{kind} takes the lease" if in_progress(world.truth.recoveries) else "lease")

    def _start(self, kind: Literal["daemon", "command"], epoch: int) -> None:
        name = f"{kind} {self._number}"
        self._by_name[name] = Process(self, kind, name, epoch)
        self.processes = [*self.living, self._by_name[name]]

    def starter(self) -> Process | None:
        """Return the daemon that starts the next replicator, or None if none does."""
        found = [each for each in self.living if each.copies]
        newest = max(found, key=lambda each: each.epoch, default=None)
        is_former = newest is not None and newest.epoch != self.world.truth.lease_epoch
        return None if is_former and self.quiet else newest

    def choices(self) -> list[tuple[str, Any]]:
        """Return what can happen to the processes."""
        return [("failover", what) for each in self.processes for what in each.choices()]

    def times(self) -> list[float]:
        """Return when timers of processes elapse."""
        return [at for each in self.processes if (at := each.next_time()) is not None]

    def renew(self) -> None:
        """Processes renew their leases."""
        for each in self.processes:
            if each.is_renewed:
                each.lease_until = self.world.now + TTL_S

    def is_mute(self, item: tuple[str, Any]) -> bool:
        """Return whether a question in flight waits for a source that is dead."""
        if not self.is_source_dead:
            return False
        return item[0] == "fetch" or (item[0] == "ask" and isinstance(item[1][0], _OF_SOURCE))

    # The operator

    def begin(self, mode: RecoveryMode) -> None:
        """Begin a failover of the whole flow."""
        truth = self.world.truth
        copied = {lane.source_topic for lane in truth.lanes.values()}
        try:
            fact = rule_failover("f", truth.recoveries, copied, mode, (), ADA).fact
        except ConfigError:
            return
        self._order(fact)

    def cancel(self) -> None:
        """Cancel the failover in progress, if that is possible."""
        try:
            self._order(rule_cancel("f", self.world.truth.recoveries, self.world.wall_ms))
        except ConfigError:
            return

    def _order(self, fact: RecoveryFact | None) -> None:
        if fact is not None:
            if self.world.truth.released:
                self.take_lease("daemon")
            self.world.note(f"operator {fact}")
            self.world.write((fact,), self.world.truth.lease_epoch)

    def mislead(self) -> None:
        """A daemon starts a replicator although the failover forbids it, as if another rule were broken. After the
        copying has ended, it must not be able to write. Before, the receipt cannot know what it writes."""
        world = self.world
        starters = [each for each in self.living if each.kind == "daemon" and not each.paused]
        if not starters or not (self.has_ended or (self.is_in_progress and world.shape.misled)):
            return
        self.misled |= not self.has_ended
        self.seen.add("misled" if self.misled else "misled after the end")
        starter = world.rng.choice(starters)
        starter.cut_off[world.start_host(former_dead=True, starter=starter).name] = True

    # What the ledger says

    @property
    def is_in_progress(self) -> bool:
        """Whether a failover is in progress."""
        return in_progress(self.world.truth.recoveries) is not None

    @property
    def has_ended(self) -> bool:
        """Whether the copying has ended."""
        return has_ended(self.world.truth.recoveries, "orders")

    @property
    def may_command(self) -> bool:
        """Whether the failover command takes the lease if it can."""
        current = in_progress(self.world.truth.recoveries)
        if current is None:
            return False
        return current.mode == "source-lost" or any(each.step == CAUGHT_UP for each in current.steps)

    def folded(self, entry: Entry, bound: tuple[bool, ...], *, had_ended: bool) -> None:
        """An entry was folded into the state of the ledger. `had_ended` says whether the copying had ended before."""
        is_end = not had_ended and self.has_ended
        for fact, binds in zip(entry.facts, bound, strict=True):
            if isinstance(fact, LeaseTaken) and binds:
                self._lease = fact.epoch
            if had_ended and binds and isinstance(fact, LaneFact):
                raise Violation(f"a fact about a lane takes effect after the copying has ended: {fact}")
            if isinstance(fact, RecoveryFact):
                self._folded(fact, entry, binds=binds)
        if is_end and (self.is_drama or not self.quiet) and self.world.rng.random() < 0.5:
            moments.hurry(self.world)
            moments.read_the_end(self.world)

    def _folded(self, fact: RecoveryFact, entry: Entry, *, binds: bool) -> None:
        if not binds:
            self.seen.add("a step without effect")
            return
        if entry.lease_epoch != self._lease:
            raise Violation(f"a step of a former holder takes effect: {fact}")
        if isinstance(fact, RecoveryBegan):
            self.misled = False
            self.seen.add(fact.mode)
        if isinstance(fact, RecoveryFinished):
            self.seen.add("cancelled by mirrord" if fact.why else "cancelled" if fact.cancelled else "complete")
        if isinstance(fact, CopyingEnded):
            self._ended(fact, entry)
        if isinstance(fact, RecoveryStepDone) and fact.step == "stop":
            self._write_late()
        if isinstance(fact, RecoveryStepDone) and fact.step == "groups":
            self.final = self._by_name[entry.writer.partition("#")[0]].final

    def _ended(self, fact: CopyingEnded, entry: Entry) -> None:
        known_end, process = self.known_ends[entry.writer]
        there = frozenset(self.batches())
        wanted = frozenset(self.world.source.wanted())
        self.ending = Ending(fact.number, known_end, process, there, wanted, process.end_began)
        self.seen.add("something is lost" if fact.lost else "nothing is lost")
        for lost in fact.lost:
            self.seen.update(name for name in ("missing", "remark") if getattr(lost, name))

    def _write_late(self) -> None:
        """Now and then, a producer that was forgotten writes after the replicators have left, and the leader is
        silent."""
        world = self.world
        if world.shape.misled and not self.quiet and world.rng.random() < 0.5:
            self.mislead()
        if (self.forgets or not self.quiet) and not self.is_source_dead and world.rng.random() < 0.6:
            world.source.append(1, world.record_ms())
            current = in_progress(world.truth.recoveries)
            self.silent_once = current is not None and current.mode == "planned" and world.rng.random() < 0.7
            self.seen.add("a producer was forgotten")

    def appended(self, request: Request, *, late: bool) -> None:
        """The target has appended a batch of the lane."""
        if self.ending is None or self.misled:
            return
        if not late:
            raise Violation(f"{request.host.name} has written {request.batch} after the copying has ended")
        self.overdue.update(number for _, number in toy.records(request.data))

    def batches(self) -> dict[tuple[int, ...], set[int]]:
        """Return the lane's batches on all brokers of the target, each with the numbers of its records."""
        record = self.world.truth.lanes.get(LANE)
        own = -2 if record is None else record.producer_id
        logs = (broker.whole for broker in self.world.target.brokers)
        return {
            (each.base, each.leader_epoch, each.sequence): set(each.numbers)
            for log in logs
            for each in log
            if each.producer == own
        }

    def close(self) -> None:
        """The story is over."""
        for each in self.living:
            each.end()

    def check_sender(self, host: Host) -> None:
        """Check that a replicator does not send anything after it has read that the copying has ended."""
        if has_ended(host.state.recoveries, "orders"):
            raise Violation(f"{host.name} sends batches although it has read that the copying has ended")
