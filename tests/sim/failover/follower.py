"""The group follower of a daemon: the product's rounds, on the positions of the simulation."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mirrord.groups.group_follower import FRESH_S
from mirrord.groups.group_position_translation import Atlas, Lanes, ahead_of
from mirrord.groups.rules.commit_plan import GroupBook
from mirrord.groups.sync_rounds import GroupRounds
from mirrord.kafka.protocol.consumer_offsets import OffsetValue
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.last_seen.group_positions import group_records
from mirrord.model.group_status import GroupsReport
from tests.sim.failover.brokers import Groups, Side
from tests.sim.failover.groups import HERE

if TYPE_CHECKING:
    from tests.sim.failover.process import Process


class Follower:
    """Follows the groups on the source, and commits their positions on the target."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._lanes = Lanes(omits_ended=True)
        self._book = GroupBook(lambda _: True)
        target: Any = Groups(Side(process, "target"))
        self._rounds = GroupRounds(self._book, target, "follow", self._chart, lambda: process.is_valid)
        self._work: asyncio.Task[None] | None = None
        self._is_examined = False

    def look(self) -> None:
        """See the newest commits on the source, and sync the positions."""
        process, world = self._process, self._process.world
        if self._work is not None and not self._work.done():
            return
        if not process.failover.is_source_dead and world.rng.random() < 0.6:
            for group, offset in sorted(process.failover.groups.source.items()):
                self._book.replace(group, {HERE: OffsetValue(offset, 0, "", world.wall_ms)})
        self._rounds.want_all()
        self._work = process.begin(self._rounds.round())
        self._is_examined = True
        process.run()

    async def _chart(self, furthest: Mapping[TopicAndPartition, int]) -> Atlas:
        """Return the offset maps, as `GroupSync._chart` does."""
        process = self._process
        progress = dict(process.state.progress)
        ahead = ahead_of(self._lanes.of(process.state), progress, furthest)
        await process.reach("target")
        ends = {lane.key.id: process.world.target.high_watermark for lane in ahead}
        await process.reach("ledger")
        while process.state.next_offset < len(process.world.ledger) and process.alive:
            process.read()
        return Atlas(self._lanes.of(process.state), progress, ends)

    @property
    def _is_in_round(self) -> bool:
        return self._work is not None and not self._work.done()

    def record(self) -> None:
        """Record the positions that do not match."""
        process = self._process
        if self._is_in_round or not self._is_examined or self._rounds.due or self._rounds.unanswered:
            return
        statuses, now_ms = self._rounds.sorted_statuses(), process.world.wall_ms
        groups = len(self._rounds.statuses)
        process.save(group_records(process.state, statuses, groups, now_ms, process.state.lease_epoch, now_ms))

    async def report(self) -> GroupsReport | None:
        """Compare all positions again, and return them. Now and then, it does not answer."""
        process = self._process
        await process.reach("ledger")
        if process.is_unlucky(0.3):
            return None
        self.look()
        if self._work is not None:
            await asyncio.wait({self._work}, timeout=FRESH_S)
        is_current = self._is_examined and not self._rounds.due and not self._rounds.unanswered
        return GroupsReport(
            flow="f",
            at_ms=process.world.wall_ms,
            source="log",
            is_current=is_current and not self._is_in_round,
            groups=tuple(self._rounds.sorted_statuses()),
        )
