"""A process that may hold the flow's lease: a daemon with replicators and a group follower, or the failover command."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mirrord.config.schema import FlowConfig
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.facts.core import AnyFact, Entry, LeaseReleased, LeaseTaken, Progress
from mirrord.ledger.facts.recovery import CopyingEnded, Recovery
from mirrord.ledger.fold import fold, writer_text
from mirrord.ledger.folding.failovers import in_progress, stops
from mirrord.ledger.last_seen.group_positions import seen_groups
from mirrord.ledger.last_seen.source_ends import SeenEnd, SeenEnds, end_records
from mirrord.ledger.state import FlowState
from mirrord.model.errors import EnvironmentFault, MirrordError
from mirrord.model.names import LaneId
from mirrord.replication.lane import lane_report
from mirrord.replication.lane.signals import Drain
from mirrord.supervision.failover.client_steps import ClientSteps, HookOutcome
from mirrord.supervision.failover.daemon_hands import DaemonHands
from mirrord.supervision.failover.executor import FailoverExecutor, FailoverHands
from mirrord.supervision.failover.ledger_hands import LedgerHands
from mirrord.supervision.rules.final_positions import FinalPlan, SourceCommit
from mirrord.supervision.rules.unrecorded_copies import Written
from mirrord.supervision.settled_lanes import SettledLanes
from mirrord.supervision.unrecorded_copies import BatchQuestion, _written
from tests.fixtures.attic import no_room
from tests.sim.failover.brokers import KEY, WHERE, Logs, Quiet, Side, in_place
from tests.sim.failover.follower import Follower
from tests.sim.failover.virtual_loop import VirtualLoop
from tests.sim.host import LANE, REQUEST_S, TTL_S, Host

if TYPE_CHECKING:
    from tests.sim.failover.setting import Failover
    from tests.sim.world import World

FLOW = FlowConfig(name="f", source="A", target="B", topics=("orders",))
TIMES = (int(TTL_S * 1000), int(REQUEST_S * 1000))
_STOPPED_FOR_S = 2.0
"""While nothing else happens, time passes in steps of this length for the timers of processes."""


class Final(NamedTuple):
    """The decision about the final positions."""

    positions: list[SourceCommit]
    plan: FinalPlan
    in_step: frozenset[str]
    """Groups whose positions matched when they were last recorded."""
    source: dict[str, int]
    """The position of each group on the source at that time."""


class Clock:
    """The clock of a process."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def monotonic(self) -> float:
        return self._world.now

    def wall_ms(self) -> int:
        return self._world.wall_ms

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Waiting(NamedTuple):
    """A request that has been sent, or an append that is on its way."""

    to: str
    """"source", "target" or "ledger"."""
    arrives: asyncio.Future[None]


class Clients(ClientSteps):
    """Hooks that fail now and then."""

    async def before(self, recovery: Recovery) -> HookOutcome:
        outcome = await super().before(recovery)
        return outcome._replace(failed=self._flow_is_unlucky())

    def __init__(self, process: "Process") -> None:
        upkeep: Any = None
        super().__init__(lambda: FLOW, ("broker:1",), upkeep, lambda: process.state)
        self._flow_is_unlucky: Callable[[], bool] = lambda: process.is_unlucky(0.1)

    async def close(self) -> None:
        """There are no connections."""


class Executor(FailoverExecutor):
    """The executor of a process. What it takes for an error in mirrord itself fails the story."""

    def __init__(self, process: "Process", hands: FailoverHands) -> None:
        known = (lambda: process.state, process.write_now, hands, Clients(process), process.clock)
        super().__init__("f", *known, lambda _: lambda *_: process.world.source.begin)
        self._process = process
        self._log: Any = Quiet()

    async def _end(self, recovery: Recovery) -> None:
        self._process.end_began = frozenset(self._process.world.source.wanted())
        await super()._end(recovery)

    def _note_fault(self, step: Any, fault: Exception | None) -> None:
        if fault is not None and not isinstance(fault, MirrordError):
            self._process.loop.faults.append(fault)
        super()._note_fault(step, fault)


class Fleet:
    """The replicators of a daemon."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self.changed = SimpleNamespace(set=lambda: None)

    @property
    def reports(self) -> dict[str, Any]:
        """The last report of each replicator."""
        there = {host.name for host in self._process.hosts}
        return {name: each for name, each in self._process.reports.items() if name in there}

    @property
    def last_reports(self) -> list[Any]:
        """The same, without the names."""
        return list(self.reports.values())

    def hosts(self) -> list[Any]:
        """Return the replicators that run."""
        return [SimpleNamespace(lanes=frozenset({LANE}), leaving=frozenset()) for _ in self._process.hosts]


class Topics:
    """Describes the topics of the target, as `TopicAdmin` does."""

    def __init__(self, process: "Process") -> None:
        self._side = Side(process, "target")

    async def describe(self, _names: object) -> Any:
        """Return the topics."""
        await self._side.reach()
        exists = self._side.process.world.target.exists
        return SimpleNamespace(topics={"eu.orders": Topic("eu.orders", KEY.target_topic_id, 1)} if exists else {})


class Process:
    """A process. It begins with the whole ledger and all records of the state topic."""

    def __init__(self, failover: "Failover", kind: Literal["daemon", "command"], name: str, epoch: int) -> None:
        self.failover, self.world = failover, failover.world
        self.kind, self.name, self.epoch = kind, name, epoch
        self.alive, self.paused = True, False
        self.lease_until = self.world.now + TTL_S
        self.state = FlowState(memory=no_room())
        self.records = 0
        """How many records of the state topic it has read."""
        self.loop, self.clock = VirtualLoop(lambda: self.world.now), Clock(self.world)
        self.waiting: list[Waiting] = []
        self.landed: dict[int, asyncio.Future[tuple[bool, ...]]] = {}
        self.entries = 0
        self.work: asyncio.Task[None] | None = None
        self.answered: int | None = None
        """The high watermark of the source that it was told last for a question that is still in force."""
        self.end_began: frozenset[int] = frozenset()
        """The records of the source when it began its last attempt at the step "end"."""
        self.final: Final | None = None
        """What it has last decided final positions from."""
        self.reports: dict[str, Any] = {}
        self.left: set[str] = set()
        """The replicators that it has commanded to leave."""
        self.cut_off: dict[str, bool] = {}
        """Whether each of its replicators does not hear it, once it has commanded them to leave."""
        self._discovered: Any = None
        self.follower = Follower(self)
        self.executor = Executor(self, self._hands())
        while self.is_behind:
            self.read()

    def _hands(self) -> FailoverHands:
        settled = SettledLanes(TIMES, self._find_written, self.clock)
        source: Any = Side(self, "source")
        target: Any = Side(self, "target")
        topics: Any = Topics(self)
        if self.kind == "command":
            return LedgerHands(
                FLOW, (source, target), lambda: self.state, settled, topics, self.clock, lambda: self.is_valid
            )
        setup = SimpleNamespace(source=source, target=target, source_cluster_id="A", flow=FLOW)
        parts: Any = SimpleNamespace(
            setup=setup,
            flow=lambda: FLOW,
            recorder=self,
            fleet=Fleet(self),
            groups=self.follower,
            target=topics,
            discovered=lambda: self._discovered,
            discover=self._discover,
            may_write=lambda: self.is_valid,
        )
        return DaemonHands(parts, settled, self.clock)

    # What it knows

    @property
    def is_valid(self) -> bool:
        """Whether it holds the lease, as far as it knows."""
        return self.alive and self.world.now < self.lease_until

    @property
    def is_renewed(self) -> bool:
        """Whether it can renew its lease now."""
        is_up_to_date = self.state.next_offset == len(self.world.ledger)
        return self.alive and not self.paused and is_up_to_date and self.state.lease_epoch == self.epoch

    @property
    def hosts(self) -> list[Host]:
        """Its replicators."""
        return [host for host in self.world.hosts.recent if host.alive and host.lease_epoch == self.epoch]

    @property
    def is_behind(self) -> bool:
        """Whether there is something that it has not read."""
        return self.state.next_offset < len(self.world.ledger) or self.records < len(self.failover.topic)

    @property
    def writes(self) -> bool:
        """Whether it has checked its lease, and a fact is on its way to the ledger."""
        return any(each.to == "ledger" and not each.arrives.done() for each in self.waiting)

    @property
    def copies(self) -> bool:
        """Whether it starts replicators, as far as it knows."""
        return self.kind == "daemon" and self.alive and not self.paused and not stops(self.state.recoveries, "orders")

    def is_unlucky(self, chance: float) -> bool:
        """Whether something goes wrong for it."""
        return not self.failover.quiet and self.world.rng.random() < chance

    # What it does

    def read(self) -> None:
        """Read the next entry of the ledger or, if there is none, the next record of the state topic."""
        offset = self.state.next_offset
        if offset >= len(self.world.ledger):
            self.state.accept_progress(self.failover.topic[self.records])
            self.records += 1
            return
        entry = self.world.ledger[offset]
        bound = fold(self.state, entry, offset)
        landed = self.landed.pop(offset, None)
        if landed is not None and not landed.done():
            landed.set_result(bound)
        for fact, binds in zip(entry.facts, bound, strict=True):
            if binds and isinstance(fact, LeaseTaken) and fact.epoch > self.epoch:
                self.end()
                return
        self.run()

    async def reach(self, to: str) -> None:
        """Wait until a request arrives there. Raises EnvironmentFault."""
        if not self.alive:
            raise asyncio.CancelledError
        arrives: asyncio.Future[None] = self.loop.create_future()
        self.waiting.append(Waiting(to, arrives))
        await arrives

    async def write_now(self, fact: AnyFact) -> bool:
        """Append a fact, as `Recorder.write_now` does. The process may be suspended after it has checked its lease."""
        if not self.is_valid:
            return False
        self.entries += 1
        writer = writer_text(self.name, self.entries)
        if isinstance(fact, CopyingEnded):
            known = SeenEnds(self.state).ends.get(WHERE)
            progress = self.state.progress.get(LANE)
            recorded = max(-1 if known is None else known.end, -1 if progress is None else progress.source_end)
            self.failover.known_ends[writer] = (recorded if self.answered is None else self.answered, self)
        try:
            await self.reach("ledger")
        except EnvironmentFault:
            return False
        entry = Entry(self.epoch, 0, (fact,), writer)
        if self.is_unlucky(0.1):
            # The entry is in the ledger, or will be, but the answer is lost.
            if self.world.rng.random() < 0.6:
                self.world.write_entry(entry)
            else:
                self.world.stray.append(entry)
            return False
        offset = self.world.write_entry(entry)
        self.world.note(f"{self.name} ledger {fact}")
        landed = self.landed[offset] = self.loop.create_future()
        return all(await landed)

    def save(self, records: Sequence[Progress]) -> None:
        """Write records to the state topic."""
        if self.is_valid:
            self.failover.topic.extend(records)

    async def _find_written(
        self, _flow: FlowConfig, questions: Sequence[BatchQuestion]
    ) -> dict[LaneId, Written | None]:
        logs: Any = Logs(self)
        found: dict[LaneId, Written | None] = {}
        for each in questions:
            try:
                found[each.lane] = await _written(logs, each)
            except EnvironmentFault:
                found[each.lane] = None
        return found

    def _discover(self) -> None:
        self.begin(self._list())

    async def _list(self) -> None:
        await self.reach("source")
        lanes = [SimpleNamespace(source_topic="orders", key=KEY)]
        self._discovered = SimpleNamespace(lanes=lanes, faults={})

    def note_final(self, positions: list[SourceCommit], plan: FinalPlan) -> None:
        """Remember a decision about the final positions."""
        in_step = seen_groups(self.state).in_step
        groups = frozenset(group for (group, _), count in in_step.items() if count)
        self.final = Final(positions, plan, groups, dict(self.failover.groups.source))

    def record_ends(self) -> None:
        """Record the high watermark of the source."""
        source = self.world.source
        seen = {WHERE: SeenEnd(source.end, self.world.wall_ms, source.start)}
        known = SeenEnds(self.state)
        self.save(end_records(known, seen, {}, (), self.state.lease_epoch, self.world.wall_ms))

    def take_reports(self) -> None:
        """Get the reports of its replicators."""
        for host in self.hosts:
            if not host.paused and host.lane.grant:
                lanes = [SimpleNamespace(lane=LANE, partition=0, source_offset=lane_report.source_offset(host.lane))]
                self.reports[host.name] = SimpleNamespace(lanes=lanes)

    # What happens to it

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task, which may fail because a cluster does not answer."""

        async def tried() -> None:
            try:
                await work
            except EnvironmentFault:
                pass
            except Exception as fault:  # noqa: BLE001 -- `run` raises it
                self.loop.faults.append(fault)

        return self.loop.create_task(tried())

    def choices(self) -> list[Callable[[], None]]:
        """Return what can happen to it now."""
        if not self.alive or self.paused:
            return []
        found: list[Callable[[], None]] = [self.read] if self.is_behind else []
        self.waiting = [each for each in self.waiting if not each.arrives.done()]
        arriving = (each for each in self.waiting if each.to != "source" or not self.failover.is_source_dead)
        found += [partial(self.arrive, each) for each in arriving]
        if (at := self.loop.next_at) is not None and at <= self.world.now:
            found.append(self.run)
        if self._has_work:
            found.append(self.carry_out)
        elif self.kind == "command" and in_progress(self.state.recoveries) is None and not self.is_behind:
            found.append(self.leave)
        if stops(self.state.recoveries, "orders"):
            staying = (host for host in self.hosts if not host.paused and host.name not in self.left)
            found += [partial(self.command_to_leave, host) for host in staying if not self._is_cut_off(host)]
        return found

    @property
    def _has_work(self) -> bool:
        is_free = self.work is None or self.work.done()
        return is_free and self.state.lease_epoch == self.epoch and in_progress(self.state.recoveries) is not None

    def carry_out(self) -> None:
        """Begin, or continue, with the failover in progress."""
        self.work = self.begin(self.executor.carry_out())
        self.run()

    def _is_cut_off(self, host: Host) -> bool:
        """Whether a replicator does not hear its daemon. It may still reach both clusters."""
        if host.name not in self.cut_off:
            self.cut_off[host.name] = self.is_unlucky(0.4)
            self.failover.seen.update({"cut off"} if self.cut_off[host.name] else ())
        return self.cut_off[host.name]

    def command_to_leave(self, host: Host) -> None:
        """Command a replicator to leave its lane."""
        self.left.add(host.name)
        host.take(Drain())

    def arrive(self, request: Waiting) -> None:
        """Let a request arrive, or let it fail."""
        if self.is_unlucky(0.02):
            request.arrives.set_exception(EnvironmentFault(f"the {request.to} does not answer"))
        else:
            request.arrives.set_result(None)
        self.run()

    def run(self) -> None:
        """Let it run until it waits. Raises what it takes for an error in mirrord itself."""
        if self.alive:
            with in_place(self):
                self.loop.run()
        if self.loop.faults:
            raise self.loop.faults[0]

    def next_time(self) -> float | None:
        """When its next timer elapses."""
        at = self.loop.next_at if self.alive and not self.paused else None
        return None if at is None else max(at, self.world.now + _STOPPED_FOR_S)

    def leave(self) -> None:
        """The command has done its work: it releases the lease, and ends."""
        if self.is_valid and not self.is_unlucky(0.3):
            self.world.write((LeaseReleased(self.epoch),), self.epoch)
        self.end()

    def end(self) -> None:
        """It ends, whatever it was about to do."""
        self.alive = False
        self.world.note(f"{self.name} ends")
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        with in_place(self):
            self.loop.run()
