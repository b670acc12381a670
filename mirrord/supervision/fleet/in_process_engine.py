"""Runs replicators and group followers as tasks in this process (`engine = "process"`). This engine is meant for tests,
small machines and deployments without Ray."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType

import msgspec

from mirrord.groups.group_follower import GroupSync
from mirrord.ledger.store.log_interface import LedgerLog
from mirrord.model.errors import MirrordError
from mirrord.model.group_status import GroupsNews, GroupsReport
from mirrord.model.names import LaneId
from mirrord.replication.host.replicator import Replicator
from mirrord.replication.lane.assignment import FlowSetup, Greeting, LaneAssignment, Parting, ReplicatorReport
from mirrord.runtime.build_info import program
from mirrord.runtime.tasks import keep_running, report_failure
from mirrord.supervision.fleet.engine import ReplicatorDead, ReplicatorUnsure


class ProcessEngine:
    """An `Engine` whose replicators and group followers run on the event loop of this process."""

    cores = 1
    """The engine counts as one core, because all replicators share one event loop."""
    nodes: Mapping[str, int] = MappingProxyType({})
    hosts_all = True

    def __init__(self, topics: Callable[[FlowSetup], LedgerLog]) -> None:
        """Create an engine without replicators. `topics` returns a new, unopened connection to the ledger of a flow."""
        self._topics = topics
        self._running: dict[str, _Task] = {}
        self._groups: dict[str, _Groups] = {}

    async def start(
        self,
        name: str,
        setup: FlowSetup,
        on_death: Callable[[], None],
        node: str = "",  # noqa: ARG002
    ) -> "_Task":
        """Start a replicator on this event loop. The replicator ends with this process, or when its lease is lost.
        Raises EnvironmentFault if the replicator does not start."""
        replicator = Replicator(name, setup, self._topics(setup))
        try:
            await replicator.open()
        except BaseException:
            await replicator.close(0)
            raise
        task = self._running[name] = _Task(name, setup, replicator, self._running)
        task.watch = _watched(task.end_when_lost(on_death), name)
        return task

    async def start_groups(self, name: str, setup: FlowSetup, on_death: Callable[[], None]) -> "_Groups":
        """Start a group follower on this event loop. The follower ends with this process, or when its lease is lost.
        Raises EnvironmentFault if the follower does not start."""
        sync = GroupSync(name, setup, self._topics(setup))
        try:
            await sync.open()
        except BaseException:
            await sync.close()
            raise
        groups = self._groups[name] = _Groups(name, sync, self._groups)
        groups.watch = _watched(groups.end_when_lost(on_death), name)
        return groups

    async def found(self, prefix: str) -> list[str]:  # noqa: ARG002
        """Return an empty list. Replicators that another process started have ended together with that process."""
        return []

    def running(self, prefix: str) -> "list[_Task]":
        """Return the running replicators whose names begin with `prefix`."""
        return [task for name, task in self._running.items() if name.startswith(prefix)]

    async def attach(self, name: str, on_death: Callable[[], None]) -> "_Task":  # noqa: ARG002
        """Raise ReplicatorDead, because the replicators of another process ended with that process."""
        raise ReplicatorDead(f"{name} has ended with its process")

    async def attach_groups(self, name: str, on_death: Callable[[], None]) -> "_Groups":  # noqa: ARG002
        """Raise ReplicatorDead, because the group followers of another process ended with that process."""
        raise ReplicatorDead(f"{name} has ended with its process")

    async def end(self, name: str) -> None:
        """Do nothing. A replicator that another process started has already ended together with that process."""

    async def close(self) -> None:
        """End all replicators and group followers."""
        for task in (*self._groups.values(), *self._running.values()):
            await task.kill()


def _watched(watch: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
    task = asyncio.create_task(watch)
    task.add_done_callback(report_failure("worker_not_closed", worker=name))
    return task


class _Task:
    """The `ReplicatorHandle` of a replicator on this event loop."""

    def __init__(self, name: str, setup: FlowSetup, replicator: Replicator, running: dict[str, "_Task"]) -> None:
        self.name = name
        self._setup = setup
        self.watch: asyncio.Task[None] | None = None
        self._replicator = replicator
        self._running = running

    async def end_when_lost(self, on_death: Callable[[], None]) -> None:
        """Wait until the replicator's lease is lost, close the replicator, and call `on_death`. A replicator whose
        lease has been lost must never write again."""
        await keep_running(self._replicator.until_lost, "worker_watch_failed", worker=self.name)
        if self._running.pop(self.name, None) is not None:
            try:
                await self._replicator.close(0)
            finally:
                on_death()

    async def prepare(self, lanes: Sequence[LaneAssignment]) -> None:
        """Announce lanes that the replicator may get."""
        self._check()
        await self._replicator.prepare(lanes)

    async def assign(self, lanes: Sequence[LaneAssignment]) -> None:
        """Assign lanes to the replicator."""
        self._check()
        await self._replicator.assign(lanes)

    async def release(self, lanes: Sequence[LaneId], deadline_s: float) -> dict[LaneId, Parting]:
        """Make the replicator drain these lanes. For each lane, return how the replicator left it."""
        self._check()
        return await self._replicator.part_with(lanes, deadline_s)

    async def hurry(self, lanes: Sequence[LaneId]) -> None:
        """Make the replicator fetch these lanes first."""
        self._check()
        self._replicator.hurry(lanes)

    async def report(self) -> ReplicatorReport:
        """Return the current state of the replicator and of its lanes."""
        self._check()
        return self._replicator.report()

    async def greet(self) -> Greeting:
        """Return the replicator's version, its setup and its report. A new daemon requests them when it replaces this
        daemon."""
        report = msgspec.msgpack.encode(await self.report())
        return Greeting(program(), msgspec.msgpack.encode(self._setup), report)

    async def close(self, deadline_s: float) -> None:
        """Make the replicator drain its lanes and then shut down."""
        self._check()
        del self._running[self.name]
        self._unwatch()
        try:
            await self._replicator.close(deadline_s)
        except MirrordError as error:
            raise ReplicatorUnsure(str(error)) from error

    async def kill(self) -> None:
        """Close the replicator without waiting for in-flight batches."""
        if self._running.pop(self.name, None) is not None:
            self._unwatch()
            await self._replicator.close(0)

    def _unwatch(self) -> None:
        if self.watch is not None:
            self.watch.cancel()

    def _check(self) -> None:
        if self.name not in self._running:
            raise ReplicatorDead(f"{self.name} has ended")


class _Groups:
    """The `GroupsHandle` of a group follower on this event loop."""

    def __init__(self, name: str, sync: GroupSync, running: dict[str, "_Groups"]) -> None:
        self.name = name
        self.watch: asyncio.Task[None] | None = None
        self._sync = sync
        self._running = running

    async def end_when_lost(self, on_death: Callable[[], None]) -> None:
        """Wait until the follower's lease is lost, close the follower, and call `on_death`. A follower whose lease has
        been lost must never commit again."""
        await keep_running(self._sync.until_lost, "worker_watch_failed", worker=self.name)
        if self._running.pop(self.name, None) is not None:
            try:
                await self._sync.close()
            finally:
                on_death()

    async def news(self) -> GroupsNews:
        """Return the translated positions of consumer groups that have changed since the last call."""
        self._check()
        return self._sync.news()

    async def report(self, *, reverse: bool = False) -> GroupsReport:
        """Return the current positions of all consumer groups."""
        self._check()
        try:
            return await self._sync.report(reverse=reverse)
        except MirrordError as error:
            raise ReplicatorUnsure(str(error)) from error

    async def greet(self) -> Greeting:
        """Raise ReplicatorUnsure, because no other process can take over this follower."""
        raise ReplicatorUnsure(f"{self.name} belongs to this process")

    async def kill(self) -> None:
        """End the group follower."""
        if self._running.pop(self.name, None) is not None:
            if self.watch is not None:
                self.watch.cancel()
            await self._sync.close()

    def _check(self) -> None:
        if self.name not in self._running:
            raise ReplicatorDead(f"{self.name} has ended")
