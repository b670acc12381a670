"""What a daemon does for the steps of a failover, while its replicators and its group follower run."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import structlog

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.topic_admin import TopicAdmin
from mirrord.ledger.facts.core import LaneTaken
from mirrord.ledger.facts.recovery import Recovery
from mirrord.ledger.last_seen.source_ends import SeenEnd
from mirrord.ledger.source_ends import CopiedPart, SourcePartition, StartOffset, has_begun
from mirrord.ledger.state import FlowState, LaneState
from mirrord.ledger.store.fact_recorder import Recorder
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.runtime.clock import Clock
from mirrord.supervision.failover.client_steps import ClientSteps
from mirrord.supervision.failover.cluster_ends import complete, observed, partitions_of, source_ends, target_ends
from mirrord.supervision.failover.executor import FailoverExecutor
from mirrord.supervision.failover.final_commits import FinalTarget, commit_final, recorded_positions
from mirrord.supervision.failover.producer_fence import fence_off
from mirrord.supervision.failover.source_use import SourceGroups, lacking, partitions_to_copy, source_groups
from mirrord.supervision.fleet.fleet import Fleet
from mirrord.supervision.group_follower_keeper import GroupKeeper
from mirrord.supervision.rules.failover_plan import concerned_lanes
from mirrord.supervision.rules.final_positions import Offsets, SourceCommit, with_commits
from mirrord.supervision.rules.producer_fence import former_producers
from mirrord.supervision.rules.unrecorded_copies import is_final
from mirrord.supervision.settled_lanes import SettledLanes
from mirrord.supervision.shared_services import Services
from mirrord.topics.discovery import Discovered
from mirrord.topics.rules.ledger_start_evidence import start_offsets

LOOK_S = 0.5
"""Interval, in seconds, at which a step looks whether it can end."""
QUIET_S = 2.0
"""The source counts as no longer used if its high watermarks have not changed for this long."""
DRAIN_S = 10.0
"""How long replicators may take to leave the lanes of a failover. After that, the ledger revokes their lanes."""
GROUPS_S = 15.0
"""How long the group follower may take to examine all positions. After that, those that were last recorded count."""
LIST_S = 30.0
"""How long a planned failover waits for a new list of the topics before it reports that there is none."""
REVOKED = "failover"
"""The holder, according to the ledger, of a lane that was taken from its replicator."""

log = structlog.get_logger()


class DaemonParts(NamedTuple):
    """The parts of a running flow that a failover needs."""

    setup: FlowSetup
    flow: Callable[[], FlowConfig]
    """Returns the current configuration of the flow."""
    recorder: Recorder
    fleet: Fleet
    groups: GroupKeeper
    target: TopicAdmin
    discovered: Callable[[], Discovered | None]
    discover: Callable[[], None]
    """Makes discovery list the topics again at once."""
    may_write: Callable[[], bool]
    """Whether this process holds the lease now."""


def daemon_executor(services: Services, parts: DaemonParts) -> FailoverExecutor:
    """Return the object that carries out the failovers of a running flow."""
    runtime, recorder = parts.setup.runtime, parts.recorder
    settled = SettledLanes((runtime.lease_ttl_ms, runtime.request_timeout_ms), services.find_written, services.clock)
    hands = DaemonHands(parts, settled, services.clock)

    def ledger() -> FlowState:
        return recorder.state

    def starts(state: FlowState) -> StartOffset:
        return start_offsets(state, parts.flow().start_at)

    bootstrap = parts.setup.target.bootstrap
    clients = ClientSteps(parts.flow, bootstrap, services.upkeep(parts.setup.flow.target), ledger)
    name = parts.setup.flow.name
    return FailoverExecutor(name, ledger, recorder.write_now, hands, clients, services.clock, starts)


class DaemonHands:
    """Implements `FailoverHands` for the daemon that holds the flow's lease."""

    def __init__(self, parts: DaemonParts, settled: SettledLanes, clock: Clock) -> None:
        self.note = ""
        self._parts = parts
        self._settled = settled
        self._clock = clock

    @property
    def _state(self) -> FlowState:
        return self._parts.recorder.state

    @property
    def _flow(self) -> FlowConfig:
        return self._parts.flow()

    async def catch_up(self, recovery: Recovery) -> str:
        """See `FailoverHands`."""
        before: Mapping[SourcePartition, int] = {}
        since = self._clock.monotonic()
        await self._rediscover()
        while True:
            found = self._found()
            partitions = partitions_to_copy(recovery, found)
            seen = await source_ends(self._parts.setup.source, partitions, self._clock, is_lost=False)
            ends = {where: each.end for where, each in seen.items()}
            now = self._clock.monotonic()
            if ends != before:
                before, since = ends, now
            waits = lacking(recovery, found, self._parts.fleet.reports, ends) or await self._members(recovery)
            if not waits and now - since < QUIET_S:
                waits = "waiting whether producers still write to the source"
            if not waits:
                await self._rediscover()
                if partitions_to_copy(recovery, self._found()) == partitions:
                    return f"the target has all records of {len(ends)} partitions, and the source is not used"
                waits = "new partitions were found"
            self.note = waits
            await asyncio.sleep(LOOK_S)

    async def _rediscover(self) -> None:
        """Make discovery list the topics again, and wait for the result. Raises EnvironmentFault."""
        before, until = self._parts.discovered(), self._clock.monotonic() + LIST_S
        self._parts.discover()
        while self._parts.discovered() is before:
            if self._clock.monotonic() > until:
                raise EnvironmentFault("the topics cannot be listed")
            await asyncio.sleep(LOOK_S / 5)

    def _found(self) -> Discovered:
        found = self._parts.discovered()
        if found is None:
            raise EnvironmentFault("the topics of the source are not known yet")
        return found

    async def _members(self, recovery: Recovery) -> str:
        """Return which groups still read from the source, as one line, or an empty string."""
        active = [*(await self._source_groups(recovery)).active]
        if not active:
            return ""
        more = f" and {len(active) - 1} more groups" if len(active) > 1 else ""
        return f"group {active[0]}{more} still has members on {self._flow.source}: stop them"

    async def _source_groups(self, recovery: Recovery) -> SourceGroups:
        topics = frozenset(lane.source_topic for lane in concerned_lanes(self._state, recovery))
        return await source_groups(self._flow, self._parts.setup, recovery, topics)

    async def stop(self, lanes: Sequence[LaneState]) -> None:
        """See `FailoverHands`. Lanes that a replicator does not leave in time are taken from it in the ledger."""
        ids, fleet = {lane.key.id for lane in lanes}, self._parts.fleet
        fleet.changed.set()
        until = self._clock.monotonic() + DRAIN_S
        while (hosted := _hosted(fleet) & ids) and self._clock.monotonic() < until:
            self.note = f"replicators leave {len(hosted)} lanes"
            await asyncio.sleep(LOOK_S / 5)
        state, hosted = self._state, _hosted(fleet)
        for lane_id in ids:
            lane = state.lanes[lane_id]
            if lane.grant and (lane_id in hosted or not is_final(lane, state.progress.get(lane_id))):
                if lane.replicator == REVOKED:
                    continue
                log.warning("lane_revoked", flow=self._flow.name, lane=lane_id, replicator=lane.replicator)
                if not await self._parts.recorder.write_now(LaneTaken(lane_id, lane.grant + 1, REVOKED, lane.times)):
                    raise EnvironmentFault("a lane could not be taken from its replicator")

    async def copied(self, lanes: Sequence[LaneState]) -> Mapping[LaneId, CopiedPart]:
        """See `FailoverHands`."""
        targets = (await self._parts.target.describe({lane.target_topic for lane in lanes})).topics
        ids = [lane.key.id for lane in lanes]
        return await self._settled.until_settled(self._flow, lambda: self._state, ids, targets, self._wait_for)

    def _wait_for(self, lanes: int) -> None:
        self.note = f"waiting until no process can write to {lanes} target partitions"

    async def fence(self, recovery: Recovery) -> str:
        """See `FailoverHands`."""
        line = await fence_off(self._flow.target, self._parts.setup.target, former_producers(self._state, recovery))
        self._settled.read_again()
        return line

    async def source_ends(self, recovery: Recovery) -> Mapping[SourcePartition, SeenEnd]:
        """See `FailoverHands`."""
        is_lost = recovery.mode == "source-lost"
        if not is_lost:
            await self._rediscover()
        found = self._parts.discovered()
        partitions = set[SourcePartition]() if found is None else partitions_to_copy(recovery, found)
        if is_lost:
            partitions |= observed(partitions_of(concerned_lanes(self._state, recovery)), self._state)
        ends = await source_ends(self._parts.setup.source, partitions, self._clock, is_lost=is_lost)
        return ends if is_lost else complete(ends, partitions)

    async def target_ends(self, lanes: Sequence[LaneState]) -> Mapping[LaneId, int]:
        """See `FailoverHands`."""
        return await target_ends(self._parts.setup.target, lanes)

    async def finish_groups(self, recovery: Recovery) -> str:
        """See `FailoverHands`."""
        if self._flow.groups.mode == "off":
            return "positions of consumer groups are not synced"
        lanes = concerned_lanes(self._state, recovery)
        # Another process may have carried out the step "end".
        await self.copied([lane for lane in lanes if lane.grant and has_begun(self._state, lane)])
        until, state = self._clock.monotonic() + GROUPS_S, self._state
        positions, remark = await self._examined(until), ""
        in_step = omitted = 0
        if positions is None:
            positions, in_step, omitted = recorded_positions(state, lanes)
            remark = "; the follower of groups does not answer, so these are the positions that were last recorded"
        if recovery.mode == "planned":
            commits = await self._last_commits(recovery, until)
            if isinstance(commits, str):
                remark += f"; the last commits on the source could not be verified: {commits}"
            else:
                positions = with_commits(positions, commits)
        target = FinalTarget(self._flow, self._parts.setup.target, self._parts.may_write)
        line = await commit_final(target, self._state, lanes, self._settled, positions, in_step)
        return line + (f"; nothing is recorded about {omitted} more" if omitted else "") + remark

    async def _last_commits(self, recovery: Recovery, until: float) -> Offsets | str:
        """Return the commits on the source. If it does not answer in time, return why: it may have been turned off, and
        a failover that has ended the copying must come to an end."""
        while True:
            try:
                return (await self._source_groups(recovery)).commits
            except EnvironmentFault as fault:
                self.note = f"waiting for the commits on the source: {fault}"
                if self._clock.monotonic() > until:
                    return str(fault)
            await asyncio.sleep(LOOK_S)

    async def _examined(self, until: float) -> list[SourceCommit] | None:
        """Return the positions that the group follower has just examined. Return None if it does not examine all of
        them in time."""
        while self._clock.monotonic() < until:
            report = await self._parts.groups.report()
            if report is not None and report.is_current and report.source != "starting":
                return [
                    SourceCommit(
                        each.group,
                        each.topic,
                        each.partition,
                        -1 if each.source_offset is None else each.source_offset,
                        each.state,
                        each.why,
                    )
                    for each in report.groups
                ]
            self.note = "waiting for the follower of consumer groups"
            await asyncio.sleep(LOOK_S)
        return None


def _hosted(fleet: Fleet) -> set[LaneId]:
    """Return the lanes that replicators host, or may still host."""
    reported = {lane.lane for report in fleet.last_reports for lane in report.lanes}
    return reported.union(*(host.lanes | host.leaving for host in fleet.hosts()))
