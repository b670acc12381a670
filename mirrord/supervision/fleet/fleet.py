"""Starts and monitors the replicators of one flow under one lease, and carries out the steps that
`mirrord.supervision.rules.reconcile` plans.

Once a lane has been assigned to a replicator, it belongs to the replicator until the replicator has given it back or
counts as lost. Calls to several replicators run concurrently, so that a slow replicator does not delay the lanes of the
others.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import structlog
from msgspec.structs import replace

from mirrord.config.schema import ReplicatorsConfig
from mirrord.ledger.facts.orders import CopyingPaused
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import Tenure
from mirrord.ledger.store.lease import LeaseKeeper
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId, TopicPartition
from mirrord.model.status import WAITING, HostState
from mirrord.replication.lane.assignment import NOT_LEFT, FlowSetup, LaneAssignment, Parting, ReplicatorReport
from mirrord.runtime.clock import Clock
from mirrord.runtime.tasks import BackgroundTasks
from mirrord.supervision.fleet.adoption import Greeted, greet, left_running
from mirrord.supervision.fleet.desired_lanes import DesiredLanes
from mirrord.supervision.fleet.engine import (
    Engine,
    NodeLost,
    ReplicatorDead,
    ReplicatorForeign,
    ReplicatorUnreachable,
    ReplicatorUnsure,
)
from mirrord.supervision.fleet.handoff_preparation import NOWHERE, Coming, prepare_ahead
from mirrord.supervision.fleet.lane_ownership import Custody
from mirrord.supervision.fleet.member import LONGEST_PAUSE_S, MOVE_S, Member, lanes_by_ledger
from mirrord.supervision.fleet.unreachable import CutOff
from mirrord.supervision.rules.order_resolution import FlowView
from mirrord.supervision.rules.reconcile import (
    Assign,
    ObservedReplicator,
    ReconcileStep,
    Release,
    StartReplicator,
    StopReplicator,
)
from mirrord.topics.rules.topic_plan import PlannedLane

REPEAT_S = 3.0
"""If a replicator does not report a lane within this time after the assignment, the lane is assigned to the same
replicator again."""
UNREACHABLE_S = 3.0
"""A replicator that cannot be reached for this long counts as lost. Either its process or its node has failed, or it is
cut off from the network."""
SILENT_S = 10.0
"""A replicator is killed if it has not answered for this long, or if its event loop has been stuck for this long. In
either case, its lanes make no progress."""
RETIRED_AT_ONCE = 16
RETIRE_PAUSE_S = 0.5
"""Pause between two groups of lanes that leave a retiring replicator. A group consists of up to `RETIRED_AT_ONCE`
lanes, which resume on other replicators during the pause."""

log = structlog.get_logger()


class Fleet:
    """The replicators of one flow. When the event `changed` is set, the caller should call `step`."""

    def __init__(
        self,
        engine: Engine,
        setup: FlowSetup,
        config: ReplicatorsConfig,
        instance: str,
        ledger: Callable[[], FlowState],
        clock: Clock,
        lease: LeaseKeeper,
    ) -> None:
        """Create a fleet without replicators. The daemon must hold `lease`."""
        self.changed = asyncio.Event()
        self.note = ""
        """Why replicators do not start, as one line for operators. Empty if they do start."""
        self.deaths = 0
        """Number of replicators that died, or that were killed because they did not answer."""
        self._engine = engine
        self._setup = setup
        self._prefix = f"{instance}/{setup.flow.name}/"
        self._tenure = Tenure(setup.lease_epoch, lease.turn)
        self._ledger = ledger
        self._clock = clock
        self._log = log.bind(flow=setup.flow.name)
        self._wanted = DesiredLanes(engine, config, ledger)
        self._members: dict[str, Member] = {}
        self._custody = Custody(setup, ledger, former_ended=lease.former_ended)
        self._cut_off = CutOff(ledger)
        self._started = 0
        self._failed_starts = 0
        self._start_after = 0.0
        self._closing = False
        self._tasks = BackgroundTasks("step_failed", flow=setup.flow.name)

    @property
    def reports(self) -> Mapping[str, ReplicatorReport]:
        """The latest report of each active replicator."""
        return {name: member.report for name, member in self._members.items() if member.report is not None}

    @property
    def last_reports(self) -> list[ReplicatorReport]:
        """The latest report of each active replicator, and of each unreachable replicator that may still be running."""
        return [*self.reports.values(), *self._cut_off.reports]

    def states(self) -> dict[str, HostState]:
        """Return the state of each replicator, by its name."""
        now = self._clock.monotonic()
        return {**{name: member.health(now) for name, member in self._members.items()}, **self._cut_off.states()}

    def hosts(self) -> list[ObservedReplicator]:
        """Return the current state of each active replicator, in the form that `reconcile` needs."""
        return [
            ObservedReplicator(
                each.name, each.slot, each.state, frozenset(each.lanes), frozenset(each.leaving), each.node
            )
            for each in self._members.values()
        ]

    def view(self) -> FlowView:
        """Return the information that is needed to interpret operator commands, such as the flow's lanes and
        replicators."""
        view = self._wanted.view(self._setup.flow.name, self.hosts(), self._clock.monotonic())
        lanes = [lane for report in self.reports.values() for lane in report.lanes]
        # A replicator's report is newer than the progress records.
        standings = {
            lane.lane: view.standings[lane.lane]._replace(position=lane.source_offset)
            for lane in lanes
            if lane.lane in view.standings
        }
        ends = {lane.lane: lane.source_end for lane in lanes if lane.source_end >= 0}
        retrying = {
            TopicPartition(lane.source_topic, lane.partition): lane.note for lane in lanes if lane.phase in WAITING
        }
        return view._replace(ends=ends, standings={**view.standings, **standings}, retrying=retrying)

    def pauses(self) -> list[CopyingPaused]:
        """Return the pauses to record, of lanes that end their replicators again and again."""
        return self._wanted.suspects.pauses(self._wanted.lanes, self._clock.wall_ms())

    def place_by(self, config: ReplicatorsConfig) -> None:
        """Change the number of replicators and the placement of lanes. A surplus replicator is stopped after its lanes
        have moved to other replicators."""
        self._wanted.place_by(config)
        self.changed.set()

    def want(self, lanes: Iterable[PlannedLane]) -> None:
        """Set the lanes that the flow should have. They replace all earlier ones."""
        self._wanted.want(lanes)
        hosted = {lane for member in self._members.values() for lane in member.lanes}
        self._custody.keep(self._wanted.lanes.keys() | hosted)
        self.changed.set()

    def step(self) -> list[ReconcileStep]:
        """Start the steps that lead from the current state to the desired state, and return them. The steps run in the
        background."""
        # Until the desired lanes are known, hosted lanes must not be treated as unwanted.
        if self._closing or not self._wanted.is_known:
            return []
        hosts, now = self.hosts(), self._clock.monotonic()
        steps = self._wanted.steps(hosts, self._custody.orphans, now)
        for step in steps:
            match step:
                case StartReplicator() if now >= self._start_after:
                    self._start(step.slot, step.node)
                case StartReplicator():
                    pass
                case Assign():
                    self._assign(self._members[step.host], step.lanes)
                case Release():
                    member = self._members[step.host]
                    member.leaving.update(step.lanes)
                    to = self._wanted.destinations(step.lanes, hosts, now)
                    self._spawn(self._release(member, step.lanes, to))
                case StopReplicator():
                    member = self._members[step.host]
                    member.state = "stopping"
                    self._spawn(self._stop(member))
        return steps

    async def adopt(self) -> None:
        """Adopt the replicators that an earlier process of this daemon left running. Their lanes continue to copy
        during the adoption."""
        members = await left_running(self._engine, self._prefix)
        for member in members:
            try:
                member.handle = await self._engine.attach(member.name, partial(self._died, member))
            except ReplicatorDead:
                continue
            member.heard = self._clock.monotonic()
            self._members[member.name] = member
            self._host_all(member, lanes_by_ledger(self._ledger(), member.name))
        await asyncio.gather(*(self._greet(member) for member in list(self._members.values())))
        state, hosted = self._ledger(), {lane for member in self._members.values() for lane in member.lanes}
        self._custody.orphans |= {lane for lane, known in state.lanes.items() if known.grant and lane not in hosted}
        self._wanted.loads.evened_out(self._clock.monotonic())
        self._log.info("replicators_adopted", names=sorted(self._members), lanes=len(hosted))

    async def poll(self) -> None:
        """Request the current state of every replicator.

        Lanes that were assigned to a replicator but are missing from its report are either assigned again or no longer
        counted as lanes of this replicator.
        """
        asked = [member for member in self._members.values() if member.is_asked]
        await asyncio.gather(*(self._poll(member) if member.greeted else self._greet(member) for member in asked))
        self._cut_off.forget_replaced(self._wanted.lanes)

    async def hurry(self, urgent: Collection[LaneId]) -> None:
        """Make every replicator fetch its urgent lanes first.

        The caller repeats the call while there are urgent lanes, because an urgent lane may move to another replicator.
        When a replicator no longer has urgent lanes, it gets one last call without lanes.
        """
        lanes_of = {member: sorted(member.lanes.intersection(urgent)) for member in self._members.values()}
        await asyncio.gather(*(self._hurry(*each) for each in lanes_of.items() if each[1] or each[0].hurried))

    async def drain(self, deadline_s: float) -> None:
        """Make all replicators drain their lanes and shut down. Kill the replicators that have not ended by the
        deadline."""
        self._closing = True
        await asyncio.gather(*(self._close(member, deadline_s) for member in list(self._members.values())))
        await self._tasks.end()

    async def abandon(self) -> None:
        """Kill all replicators, because another daemon holds the flow's lease."""
        self._closing = True
        await asyncio.gather(*(self._kill(member) for member in list(self._members.values())))
        await self._tasks.end()

    async def part(self) -> None:
        """Forget all replicators without ending them, because another process of this daemon has taken them over."""
        self._closing = True
        await self._tasks.end()
        self._members.clear()

    def _start(self, slot: int, node: str) -> None:
        self._started += 1
        name = f"{self._prefix}replicator-{slot}.g{self._tenure}.{self._started}"
        member = self._members[name] = Member(name, slot, node=node)
        self._spawn(self._bring_up(member))

    async def _bring_up(self, member: Member) -> None:
        try:
            handle = await self._engine.start(member.name, self._setup, partial(self._died, member), member.node)
        except EnvironmentFault as fault:
            self._members.pop(member.name, None)
            self._failed_starts += 1
            pause_s = min(2.0 ** (self._failed_starts - 1), LONGEST_PAUSE_S)
            self._start_after = self._clock.monotonic() + pause_s
            if self.note != str(fault):
                self._log.error("replicator_not_started", replicator=member.name, reason=str(fault))
            self.note = str(fault)
            return
        self._failed_starts = 0
        self.note = ""
        member.handle = handle
        member.heard = self._clock.monotonic()
        if self._closing or member.name not in self._members:
            await self._kill(member)
            return
        member.state = "serving"
        self._log.info("replicator_started", replicator=member.name)
        self.changed.set()

    def _assign(self, member: Member, lanes: Collection[LaneId]) -> None:
        now = self._clock.monotonic()
        self._wanted.suspects.given(lanes, member.name)
        for lane in lanes:
            self._custody.give(lane, member.name, now)
        member.lanes.update(lanes)
        self._send_assignments(member, lanes)

    def _send_assignments(self, member: Member, lanes: Iterable[LaneId]) -> None:
        assignments: list[LaneAssignment] = []
        for lane in lanes:
            assignments.append(self._custody.assignment(self._wanted.lanes[lane]))
            member.assigned_at[lane] = self._clock.monotonic()
        sending = self._spawn(self._send(member, assignments))
        member.sending.add(sending)
        sending.add_done_callback(member.sending.discard)

    async def _send(self, member: Member, assignments: list[LaneAssignment]) -> None:
        assert member.handle is not None  # noqa: S101 -- only a serving replicator is given lanes
        try:
            await member.handle.assign(assignments)
        except ReplicatorDead:
            self._died(member)
        except ReplicatorUnsure as fault:
            self._log.warning("replicator_unsure", replicator=member.name, reason=str(fault))

    async def _release(self, member: Member, lanes: tuple[LaneId, ...], to: Coming = NOWHERE) -> None:
        assert member.handle is not None  # noqa: S101
        await prepare_ahead(self._members, self._wanted.lanes, to)
        if member.sending:
            await asyncio.wait(member.sending)
        try:
            left = await member.handle.release(lanes, MOVE_S)
        except ReplicatorDead:
            self._died(member)
            return
        except ReplicatorUnsure as fault:
            self._log.warning("replicator_unsure", replicator=member.name, reason=str(fault))
            # A later step releases the lanes again if they still have to be released.
            member.leaving.difference_update(lanes)
            return
        for lane in lanes:
            self._give_back(member, lane, left.get(lane, NOT_LEFT))
        self.changed.set()

    async def _stop(self, member: Member) -> None:
        await self._close(member, MOVE_S)
        self._log.info("replicator_stopped", replicator=member.name)
        self.changed.set()

    def _give_back(self, member: Member, lane: LaneId, parting: Parting = NOT_LEFT) -> None:
        member.lanes.discard(lane)
        member.leaving.discard(lane)
        member.assigned_at.pop(lane, None)
        self._custody.left(lane, member.name, parting)

    async def _greet(self, member: Member) -> None:
        try:
            greeted = await greet(member, self._setup, self._ledger())
        except ReplicatorDead:
            self._died(member)
        except ReplicatorUnsure as fault:
            await self._silent(member, fault)
        else:
            member.heard = self._clock.monotonic()
            self._take_over(member, greeted)
            self.changed.set()

    def _take_over(self, member: Member, greeted: Greeted) -> None:
        self._custody.not_found(member.lanes - greeted.lanes)
        member.lanes.clear()
        self._host_all(member, greeted.lanes)
        member.state = "serving" if greeted.fits else "stopping"
        if not greeted.fits:
            self._log.info("replicator_retires", replicator=member.name, lanes=len(member.lanes))
            self._spawn(self._retire(member))
        elif greeted.leaving:
            member.leaving.update(greeted.leaving)
            self._spawn(self._release(member, tuple(sorted(greeted.leaving))))

    def _host_all(self, member: Member, lanes: Collection[LaneId]) -> None:
        self._custody.found(lanes, member.name, self._clock.monotonic())
        member.lanes.update(lanes)

    async def _retire(self, member: Member) -> None:
        """Retire a replicator that runs a different version or has a different configuration. Once other replicators
        are serving the flow, its lanes move to them, one group at a time."""
        # The lanes do not move until the barrier for this replicator's predecessors has passed. Otherwise, the next
        # replicator would have to wait for that barrier again.
        moves_at = self._clock.monotonic() + self._custody.longest_s(member.lanes)
        while member.lanes and member.name in self._members:
            await self._poll(member)
            serves = any(each.state == "serving" for each in self._members.values())
            if serves and self._clock.monotonic() >= moves_at and member.name in self._members:
                lanes = tuple(sorted(member.lanes))[:RETIRED_AT_ONCE]
                member.leaving.update(lanes)
                await self._release(member, lanes)
            await self._clock.sleep(RETIRE_PAUSE_S)
        if member.name in self._members:
            await self._stop(member)

    async def _poll(self, member: Member) -> None:
        assert member.handle is not None  # noqa: S101
        asked = self._clock.monotonic()
        try:
            report = await member.handle.report()
        except ReplicatorDead:
            self._died(member)
            return
        except ReplicatorForeign:
            # The replicator is being retired. The ledger shows which lanes it hosts.
            member.heard = self._clock.monotonic()
            return
        except ReplicatorUnsure as fault:
            await self._silent(member, fault)
            return
        member.heard = self._clock.monotonic()
        member.report = replace(report, received_s=member.heard)
        member.node = report.node
        self._wanted.note(report, member.heard)
        if report.loop_age_ms > SILENT_S * 1000:
            self._log.error("replicator_hangs", replicator=member.name, loop_age_ms=report.loop_age_ms)
            await self._quarantine(member)
            return
        self._compare(member, report, asked)

    async def _hurry(self, member: Member, lanes: Sequence[LaneId]) -> None:
        if member.handle is not None and member.is_asked and member.greeted:
            with suppress(ReplicatorDead, ReplicatorUnsure):  # the next poll notices the failure
                await member.handle.hurry(lanes)
                member.hurried = bool(lanes)

    async def _silent(self, member: Member, fault: ReplicatorUnsure) -> None:
        silent_s = self._clock.monotonic() - member.heard
        if isinstance(fault, NodeLost) or (isinstance(fault, ReplicatorUnreachable) and silent_s > UNREACHABLE_S):
            # If the replicator is still running, it continues to copy until it learns from the ledger that other
            # replicators have taken its lanes.
            self._give_up(member, str(fault))
            self._spawn(self._kill(member))
        elif silent_s > SILENT_S:
            self._log.error("replicator_silent", replicator=member.name, reason=str(fault))
            await self._quarantine(member)

    async def _quarantine(self, member: Member) -> None:
        """Kill this replicator, and assign no more lanes to it. Other replicators get its lanes once it is known to
        have ended, or once the attempt to confirm its end has failed."""
        member.quarantined, member.state = True, "stopping"
        await self._kill(member)

    def _compare(self, member: Member, report: ReplicatorReport, asked: float) -> None:
        phases = {lane.lane: lane.phase for lane in report.lanes}
        for lane in list(member.lanes - member.leaving):
            assigned_at = member.assigned_at.get(lane, asked)
            if phases.get(lane) == "gone":
                self._custody.taken_away(lane)
                self._give_back(member, lane)
                self.changed.set()
            elif lane in phases:
                member.assigned_at.pop(lane, None)
            elif lane not in member.assigned_at:
                member.assigned_at[lane] = asked
            elif asked - assigned_at > REPEAT_S and lane in self._wanted.lanes:
                if member.state != "serving":
                    self._give_back(member, lane)
                    continue
                self._log.warning("lane_told_again", replicator=member.name, lane=lane)
                self._send_assignments(member, [lane])

    def _died(self, member: Member) -> None:
        if member.killed:
            return  # `_kill` determines whether the replicator has ended
        if member.name in self._members:
            self._log.warning("replicator_died", replicator=member.name, lanes=len(member.lanes))
            self._wanted.suspects.died(member, self._custody.held, self._clock.monotonic())
        self._ended(member)

    def _ended(self, member: Member) -> None:
        """Record that the process of a replicator has ended, so that no replicator hosts its lanes now."""
        self._custody.ended(member.name)
        self._cut_off.ended(member.name)
        self._lost(member)

    def _give_up(self, member: Member, reason: str) -> None:
        """Record that a replicator counts as lost, although it may still be running. Its lanes are assigned to other
        replicators."""
        if member.name in self._members:
            self._log.error("replicator_cut_off", replicator=member.name, lanes=len(member.lanes), reason=reason)
            self._cut_off.add(member)
        self._lost(member)

    def _lost(self, member: Member) -> None:
        if self._members.pop(member.name, None) is not None:
            self.deaths += 1
            self._custody.orphans |= member.lanes
            self.changed.set()

    async def _close(self, member: Member, deadline_s: float) -> None:
        if member.handle is not None:
            try:
                await member.handle.close(deadline_s)
            except ReplicatorDead:
                pass
            except ReplicatorUnsure as fault:
                self._log.warning("replicator_unsure", replicator=member.name, reason=str(fault))
                await self._kill(member)
        self._members.pop(member.name, None)

    async def _kill(self, member: Member) -> None:
        if member.handle is None:
            return
        member.killed = True
        try:
            await member.handle.kill()
        except ReplicatorUnsure as fault:
            self._log.error("replicator_not_ended", replicator=member.name, reason=str(fault))
            self._give_up(member, str(fault))
        except ReplicatorDead:
            self._ended(member)
        else:
            self._ended(member)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._tasks.start(work)
        task.add_done_callback(lambda _: self.changed.set())
        return task
