"""The brokers of both clusters, as the process that carries out a failover sees them: clients in place of those that
open connections."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from mirrord.groups import sync_rounds
from mirrord.kafka.client.range_reader import ReadBatch
from mirrord.kafka.protocol.groups import CommittedOffset, GroupOffsets, ListedGroup
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.source_ends import SourcePartition
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneKey, TopicPartition
from mirrord.supervision import settled_lanes
from mirrord.supervision.failover import (
    cluster_ends,
    daemon_hands,
    executor,
    final_commits,
    ledger_hands,
    source_use,
)
from mirrord.supervision.rules import final_positions
from tests.sim.failover import moments
from tests.sim.failover.groups import HERE, THERE
from tests.sim.host import LANE
from tests.sim.log_readers import PARTITION, TargetReader

if TYPE_CHECKING:
    from tests.sim.failover.process import Process

KEY = LaneKey.parse(LANE)
WHERE = SourcePartition("orders", KEY.source_topic_id, 0)
ANSWER_S = 5.0
_LOST = 13
"""The answer to a request has been lost (`mirrord.kafka.client.group_admin.NETWORK`)."""
_HAS_MEMBERS = 25


class Side(NamedTuple):
    """One cluster, as one process reaches it. It takes the place of the cluster's configuration."""

    process: "Process"
    name: str
    """"source" or "target"."""
    bootstrap: tuple[str, ...] = ("broker:1",)

    async def reach(self, timeout_s: float = ANSWER_S) -> None:
        """Wait until a request arrives. Raises EnvironmentFault if it does not."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.process.reach(self.name)
        except TimeoutError:
            raise EnvironmentFault(f"the {self.name} does not answer") from None


class Offsets:
    """Asks for high watermarks, as `LogOffsets` does."""

    def __init__(self, side: Side, timeout_s: float = ANSWER_S) -> None:
        self._side, self._timeout_s = side, timeout_s
        if side.name == "source":
            side.process.answered = None

    def close(self) -> None:
        """There are no connections."""

    async def high_watermarks(self, partitions: Collection[Any]) -> dict[Any, int]:
        """Return the high watermarks. Now and then, a leader does not answer."""
        await self._side.reach(self._timeout_s)
        process, world = self._side.process, self._side.process.world
        if process.is_unlucky(0.03):
            return {}
        if process.failover.silent_once and self._side.name == "source":
            process.failover.silent_once = False
            return {}
        if self._side.name == "source":
            if WHERE in partitions:
                process.answered = world.source.end
            return dict.fromkeys(partitions, world.source.end)
        error, end, _ = world.target.visible(world.target.leader, world.target.epoch)
        return {} if error else dict.fromkeys(partitions, end)


class Groups:
    """Reads and commits positions of consumer groups, as `GroupAdmin` does."""

    def __init__(self, side: Side) -> None:
        self._side = side

    async def listed(self) -> Mapping[str, ListedGroup]:
        """Return all groups."""
        await self._side.reach()
        groups = self._side.process.failover.groups
        if self._side.name == "source":
            known, members = groups.source.keys(), groups.reading
        else:
            known, members = groups.target.keys(), frozenset[str]()
        return {each: ListedGroup(each, "consumer", "Stable" if each in members else "Empty") for each in sorted(known)}

    async def offsets(self, wanted: Collection[str]) -> dict[str, GroupOffsets]:
        """Return the committed offsets."""
        await self._side.reach()
        groups = self._side.process.failover.groups
        if self._side.process.is_unlucky(0.03):
            return {each: GroupOffsets(_LOST, {}) for each in wanted}
        found: dict[str, GroupOffsets] = {}
        for each in wanted:
            here, there = groups.source.get(each), groups.target.get(each)
            offsets: dict[TopicAndPartition, CommittedOffset] = {}
            if self._side.name == "source" and here is not None:
                offsets[HERE] = CommittedOffset(here, 0, "")
            elif self._side.name == "target" and there is not None:
                offsets[THERE] = CommittedOffset(there, -1, "")
            found[each] = GroupOffsets(0, offsets)
        return found

    async def commit(
        self, commits: Mapping[str, Mapping[TopicAndPartition, CommittedOffset]]
    ) -> dict[str, dict[TopicAndPartition, int]]:
        """Commit these offsets. The answer may be lost."""
        await self._side.reach()
        process = self._side.process
        for group, places in commits.items():
            for place, each in places.items():
                assert (self._side.name, place) == ("target", THERE)
                process.failover.groups.commit(process.name, group, each.offset)
        error = _LOST if process.is_unlucky(0.1) else 0
        return {group: dict.fromkeys(places, error) for group, places in commits.items()}


@asynccontextmanager
async def view_of(_alias: str, side: Side, _cluster_id: object = None) -> AsyncGenerator[Side]:
    """Take the place of the view of a cluster."""
    yield side


async def fence_off(_alias: str, side: Side, _producers: object) -> str:
    """Take the place of the fence. This target has no permission for mirrord to write markers, so processes that were
    suspended can still deliver late batches."""
    await side.reach()
    return "no permission"


class Logs:
    """Reads the target log, as `LogReader` does."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._target = process.world.target
        self.topics = {"eu.orders": SimpleNamespace(topic_id=KEY.target_topic_id)}

    async def _reach(self) -> None:
        await self._process.reach("target")
        if not self._target.exists or self._target.unreadable:
            raise EnvironmentFault("the target does not answer")

    async def bounds(self, _named: TopicPartition, *, committed: bool) -> tuple[int, int]:
        """Return the log start offset and the high watermark."""
        assert not committed
        await self._reach()
        error, end, start = self._target.visible(self._target.leader, self._target.epoch)
        if error:
            raise EnvironmentFault("the high watermark is not known yet")
        return start, end

    async def leader_end(self, _named: TopicPartition) -> int:
        """Return the end of the leader's log."""
        await self._reach()
        return self._target.end

    async def read(self, _named: TopicPartition, start: int, end: int, *, committed: bool) -> AsyncGenerator[ReadBatch]:
        """Yield the batches."""
        await self._reach()
        if start < self._target.start:
            raise EnvironmentFault("the first of these batches have just been deleted")
        if end > self._target.high_watermark:
            raise EnvironmentFault("the log lost its last records while it was being read")
        async for batch in TargetReader(self._target).read(PARTITION, start, end, committed=committed):
            yield batch
        if self._process.failover.is_drama or self._process.is_unlucky(0.5):
            moments.arrive_late(self._process.world)
            moments.hurry(self._process.world)


class Quiet:
    """A log that keeps nothing."""

    def bind(self, **_: object) -> "Quiet":
        return self

    def info(self, *_: object, **__: object) -> None:
        pass

    warning = error = debug = info


_REPLACED: tuple[tuple[Any, str, Any], ...] = (
    (cluster_ends, "LogOffsets", Offsets),
    (source_use, "view_of", view_of),
    (source_use, "GroupAdmin", Groups),
    (final_commits, "view_of", view_of),
    (daemon_hands, "fence_off", fence_off),
    (ledger_hands, "fence_off", fence_off),
    (final_commits, "GroupAdmin", Groups),
    (executor, "log", Quiet()),
    (daemon_hands, "log", Quiet()),
    (settled_lanes, "log", Quiet()),
    (sync_rounds, "log", Quiet()),
)
"""What opens connections or prints lines, and what takes its place while a process runs."""


@contextmanager
def in_place(process: "Process") -> Iterator[None]:
    """Let the fakes take the place of the real clients, and note what the final positions are decided from."""

    def noted(*arguments: Any, **named: Any) -> final_positions.FinalPlan:
        plan = true(*arguments, **named)
        process.note_final(list(arguments[0]), plan)
        return plan

    true = final_commits.final_plan
    before = [(module, name, getattr(module, name)) for module, name, _ in _REPLACED]
    for module, name, fake in _REPLACED:
        setattr(module, name, fake)
    final_commits.final_plan = noted
    try:
        yield
    finally:
        final_commits.final_plan = true
        for module, name, real in before:
            setattr(module, name, real)
