"""The group follower of a flow. It syncs the committed offsets of consumer groups from the source to the target, and
runs alongside the flow's replicators.

`mirrord.groups.commit_source` tracks the commits on the source, and `mirrord.groups.sync_rounds` commits the translated
positions on the target under the flow's lease. The follower stores no state. After a restart, it rebuilds its state
from the source's `__consumer_offsets`, the offset map, the checkpoints and the offsets committed on the target. With
`groups.reverse`, the follower also tracks the commits on the target and syncs them back to the source.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial

from mirrord.groups.checkpoint_memory import remember
from mirrord.groups.commit_source import GroupSource
from mirrord.groups.group_position_translation import Atlas, Lanes, ahead_of
from mirrord.groups.lag import TargetLags, with_lags
from mirrord.groups.lane_bounds import LaneEnds
from mirrord.groups.recorded_positions import Examined, record_positions
from mirrord.groups.reverse_sync import GroupBack
from mirrord.groups.rules.reverse_plan import Asked, PositionPairs
from mirrord.groups.sync_rounds import GroupRounds
from mirrord.groups.two_way_positions import ROUND_S as BOTH_WAYS_ROUND_S
from mirrord.groups.two_way_positions import CrossedAtlas, Crossings
from mirrord.kafka.client.cluster_metadata import ClusterView
from mirrord.kafka.client.connection import ConnectionOptions
from mirrord.kafka.client.group_admin import GroupAdmin
from mirrord.kafka.client.partition_queries import Asks
from mirrord.kafka.client.receive_buffers import BufferPool
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.state_topic_records import StateRecord
from mirrord.ledger.store.leased_worker import LeasedWorker
from mirrord.ledger.store.log_interface import LedgerLog
from mirrord.model.errors import MirrordError
from mirrord.model.group_status import GroupsNews, GroupsReport
from mirrord.replication.host.fetcher import SourceFetcher
from mirrord.replication.host.flow_control.memory_budget import MemoryBudget
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.runtime.clock import Clock
from mirrord.runtime.current_failures import Troubles
from mirrord.runtime.tasks import BackgroundTasks

BUFFER_BYTES = 16 << 20
ROUND_S = 0.1
"""Delay in seconds between the first new commit and a sync round. All commits that arrive in the meantime are synced in
the same round."""
RETRY_S = 1.0
COUNT_S = 5.0
"""Minimum interval, in seconds, between two results of `GroupSync.news` that contain the number of positions in each
`GroupState`."""
CHECK_S = 60.0
"""Interval in seconds at which all positions on both clusters are compared, even if no group has committed. The target
may have deleted committed offsets in the meantime."""
FRESH_S = 2.0
"""A report compares all positions again, unless the last comparison began less than this many seconds ago. The report
waits at most this many seconds for the result of the comparison. If a cluster does not answer in time, the report
contains the older positions."""


class GroupSync(LeasedWorker):
    """The group follower of one flow. All methods must be called on the event loop on which `open` was called."""

    def __init__(self, name: str, setup: FlowSetup, topics: LedgerLog, clock: Clock | None = None) -> None:
        tasks = BackgroundTasks("groups_task_failed", follower=name)
        super().__init__(name, setup.flow, setup.runtime.lease_ttl_ms, topics, tasks, clock)
        self._setup = setup
        self._wanted = asyncio.Event()
        self._done = asyncio.Event()
        """Set when no group is left to examine. `_check_again` clears this event, requests a new examination, and
        waits for the event."""
        self._checked = self._clock.monotonic()
        """The monotonic time at which the last comparison of all positions began."""
        self._in_round = False
        self._reflected_at: float | None = None
        """A time on the event loop's clock: all commits before it are reflected in the statuses of the positions."""
        self._lanes = Lanes(omits_ended=True)
        self._troubles = Troubles("groups_not_in_step", flow=setup.flow.name)
        self._counted = float("-inf")
        self._parts: _Parts | None = None

    async def open(self) -> None:
        """Read the ledger, and then start following the groups. Raises the same errors as `LedgerStore.open`."""
        await self._join(self._setup.lease_epoch)
        self._parts = parts = _Parts(self._setup, self._chart, self._may_write, self._want, self._clock)
        self._store.on_record(self._see_progress)
        work = [parts.source.run, partial(self._rounds, parts), partial(self._poll_members, parts.rounds)]
        work.append(partial(record_positions, self._store, self._may_write, self._examined, self._clock))
        if parts.target_groups is not None:
            work.append(parts.target_groups.run)
        for each in work:
            self._tasks.keep(each)

    async def report(self, *, reverse: bool = False) -> GroupsReport:
        """Return the current positions of all groups, and the lag of each position on the target.

        With `reverse`, instead return the positions that are synced from the target back to the source. No lag is
        determined for these positions.
        """
        flow = self._setup.flow.name
        if self._parts is None:
            return GroupsReport(flow=flow, at_ms=self._clock.wall_ms(), reverse=reverse, source="starting")
        if reverse:
            return self._reverse_report(self._parts)
        source, rounds = self._parts.source, self._parts.rounds
        await self._check_again(rounds)
        statuses = rounds.sorted_statuses()
        return GroupsReport(
            flow=flow,
            at_ms=self._clock.wall_ms(),
            source=source.kind,
            note=self.note,
            skipped=source.skipped,
            is_current=not rounds.due and not rounds.unanswered and not self._in_round,
            groups=await with_lags(statuses, self._lanes.of(self._store.state), self._parts.lags, self._clock),
        )

    async def _check_again(self, rounds: GroupRounds) -> None:
        """Compare all positions on the two clusters again, unless the last comparison began less than `FRESH_S` ago.

        A report needs this comparison because a group may be consuming on the target. In that case, its position on the
        target changes without any commit on the source.
        """
        if self._clock.monotonic() - self._checked < FRESH_S:
            return
        self._done.clear()
        self._check_all(rounds)
        with suppress(TimeoutError):
            async with asyncio.timeout(FRESH_S):
                await self._done.wait()

    def _check_all(self, rounds: GroupRounds) -> None:
        self._checked = self._clock.monotonic()
        rounds.want_all()
        self._wanted.set()

    def _reverse_report(self, parts: "_Parts") -> GroupsReport:
        flow = self._setup.flow.name
        if parts.back is None or parts.target_groups is None:
            note = "groups.reverse is false"
            return GroupsReport(flow=flow, at_ms=self._clock.wall_ms(), reverse=True, source="starting", note=note)
        groups = parts.target_groups
        return GroupsReport(
            flow=flow,
            at_ms=self._clock.wall_ms(),
            reverse=True,
            source=groups.kind,
            note=self.note,
            skipped=groups.skipped,
            groups=tuple(parts.back.sorted_statuses()),
        )

    def news(self) -> GroupsNews:
        """Return the translated positions that have changed since the last call. At most once every `COUNT_S` seconds,
        the result also contains the number of positions in each state."""
        if self._parts is None:
            return GroupsNews(self.note)
        now, states = self._clock.monotonic(), None
        if now - self._counted >= COUNT_S:
            self._counted, states = now, self._parts.rounds.states()
        return GroupsNews(self.note, tuple(self._parts.rounds.take_translated()), states)

    def report_all(self) -> None:
        """Make the next calls to `news` return every position again. This is necessary for a new caller of `news`,
        which has not seen the results of earlier calls."""
        if self._parts is not None:
            self._parts.rounds.want_all()
            self._wanted.set()

    @property
    def note(self) -> str:
        """One line for operators that says why some or all of the groups are not followed. Empty if all groups are
        followed."""
        parts = self._parts
        sources = [each for each in (parts.source, parts.target_groups) if each is not None] if parts else []
        fault = next(filter(None, (*self._troubles.lines, *(each.note for each in sources))), "")
        # A permanent fault must not hide which groups are left out.
        return "; ".join(filter(None, (fault, next(filter(None, (each.remark for each in sources)), ""))))

    async def close(self) -> None:
        """Stop following the groups, and close all connections. Planned commits that have not been made yet are
        dropped. The next group follower of the flow plans them again."""
        await self._leave(self._close_connections)

    async def _close_connections(self) -> None:
        if self._parts is not None:
            await self._parts.close()

    async def _chart(self, furthest: Mapping[TopicAndPartition, int]) -> Atlas:
        """Return the current offset maps of all lanes. `furthest` holds the highest position of any group in each
        source partition.

        This method first notes the resume positions and log ends, and then reads the ledger to its end. Because of this
        order, the ledger contains everything that was decided about the records below these positions and log ends.
        """
        if self._parts is not None and self._parts.crossings is not None:
            return await self._crossed(self._parts.crossings, furthest)
        progress_by_lane = dict(self._store.state.progress)
        lanes = ahead_of(self._lanes.of(self._store.state), progress_by_lane, furthest)
        ends = await self._parts.ends.ask(lanes) if self._parts is not None and lanes else {}
        await self._store.read_to_end()
        return Atlas(self._lanes.of(self._store.state), progress_by_lane, ends)

    async def _crossed(self, crossings: Crossings, furthest: Mapping[TopicAndPartition, int]) -> Atlas:
        lanes = self._lanes.of(self._store.state)
        await crossings.read_ends([lanes[place] for place in furthest if place in lanes])
        progress_by_lane = dict(self._store.state.progress)
        await self._store.read_to_end()
        lanes = self._lanes.of(self._store.state)
        return CrossedAtlas(lanes, progress_by_lane, await crossings.ways(lanes, progress_by_lane))

    async def _rounds(self, parts: "_Parts") -> None:
        setup, rounds = self._setup, parts.rounds
        copies = Atlas(self._lanes.of(self._store.state), {}).copies
        await remember(setup.flow, setup.target, setup.request_timeout_s, copies, parts.pairs)
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await asyncio.sleep(ROUND_S if parts.crossings is None else BOTH_WAYS_ROUND_S)
            if rounds.due:
                await self._round(parts)
            if rounds.due:
                self._wanted.set()
            else:
                self._done.set()

    async def _round(self, parts: "_Parts") -> None:
        complete_at = parts.source.complete_at
        self._in_round = True
        try:
            if await self._try("commits", parts.rounds.round) and not parts.rounds.unanswered:
                self._reflected_at = complete_at
        finally:
            self._in_round = False

    def _examined(self) -> Examined | None:
        """Return the statuses of all positions, and how many seconds ago all commits on the source were reflected in
        them. Return None if this is not known, or while the statuses are changing."""
        if self._parts is None or self._in_round:
            return None
        rounds, source = self._parts.rounds, self._parts.source
        if not rounds.due and not rounds.unanswered:
            self._reflected_at = source.complete_at
        if self._reflected_at is None:
            return None
        return Examined(rounds.statuses, asyncio.get_running_loop().time() - self._reflected_at)

    async def _poll_members(self, rounds: GroupRounds) -> None:
        every_s = (self._setup.flow.groups.refresh_ms or 5_000) / 1000
        lanes = 0
        while True:
            await self._try("members", rounds.read_members)
            if self._clock.monotonic() - self._checked >= CHECK_S or self._store.state.lanes_changed != lanes:
                lanes = self._store.state.lanes_changed
                rounds.forget_expired()
                self._check_all(rounds)
            if rounds.due:
                self._wanted.set()
            await asyncio.sleep(every_s)

    async def _try(self, what: str, work: Callable[[], Awaitable[None]]) -> bool:
        """Carry out the work, and report a failure. Return whether it succeeded."""
        line = ""
        try:
            await work()
        except MirrordError as fault:
            line = str(fault)
        self._troubles.report(line, what)
        if line:
            await asyncio.sleep(RETRY_S)
        return not line

    def _want(self, groups: set[str]) -> None:
        if self._parts is not None:
            self._parts.rounds.want(groups)
            self._wanted.set()

    def _see_progress(self, record: StateRecord) -> None:
        if isinstance(record, Progress) and record.source is None and self._parts is not None:
            self._parts.rounds.want_waiting()
            if self._parts.rounds.due:
                self._wanted.set()


class _Parts:
    """The parts of a group follower that use connections to the two clusters."""

    def __init__(
        self,
        setup: FlowSetup,
        chart: Callable[[Mapping[TopicAndPartition, int]], Awaitable[Atlas]],
        may_write: Callable[[], bool],
        changed: Callable[[set[str]], None],
        clock: Clock,
    ) -> None:
        flow = setup.flow
        options = ConnectionOptions(client_id=f"mirrord-{flow.name}-groups", request_timeout_s=setup.request_timeout_s)
        pool = BufferPool(BUFFER_BYTES)
        self._from = ClusterView(flow.source, setup.source, pool, options, setup.source_cluster_id)
        self._to = ClusterView(flow.target, setup.target, pool, options, setup.target_cluster_id)
        for view in (self._from, self._to):
            view.start()
        self._asks = Asks(self._from, read_committed=True)
        self._fetches = SourceFetcher(self._from, self._asks, MemoryBudget(BUFFER_BYTES), read_committed=True)
        self.source = GroupSource(self._from, self._fetches, self._asks, flow.groups, changed)
        self.pairs = PositionPairs()
        self.back: GroupBack | None = None
        self.target_groups: GroupSource | None = None
        """Tracks the commits on the target. None if `groups.reverse` is not set."""
        closing = [self._fetches.close, self._asks.close]
        if flow.groups.reverse:
            asks, bounds = Asks(self._to, read_committed=True), LaneEnds(self._from, "source")
            fetches = SourceFetcher(self._to, asks, MemoryBudget(BUFFER_BYTES), read_committed=True)
            self.target_groups = GroupSource(self._to, fetches, asks, flow.groups, changed)
            self.back = GroupBack(GroupAdmin(self._from), bounds, self.pairs, Asked())
            closing += [fetches.close, asks.close, bounds.close]
        target = GroupAdmin(self._to)
        mode = flow.groups.mode
        self.rounds = GroupRounds(self.source.book, target, mode, chart, may_write, self.pairs, self.back)
        self.lags = TargetLags(self._to, setup.target, setup.flow.limits.rebuild_bytes)
        self.ends = LaneEnds(self._to, "target")
        self._closing = [*closing, self.ends.close]
        self.crossings: Crossings | None = None
        """Reads the state of the opposite flow, which copies the same topics from the target back to the source, under
        the same names. None if `groups.both_ways` is not set."""
        if flow.groups.both_ways:
            here = LaneEnds(self._from, "source")
            self._closing.append(here.close)
            self.crossings = Crossings(setup, here, self.ends, clock)

    async def close(self) -> None:
        """Close all connections."""
        for close in self._closing:
            close()
        if self.crossings is not None:
            await self.crossings.close()
        for view in (self._from, self._to):
            await view.close()
