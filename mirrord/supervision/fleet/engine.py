"""The interface through which supervision runs replicators: as processes on Ray (`actors.engine`) or as tasks in this
process.

`ReplicatorDead` is raised only if the replicator's process is known to have ended. After that, it writes nothing except
batches that were already in flight. Every other failure is raised as `ReplicatorUnsure`. The state of a replicator
never proves what it has written. Only the target log does.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from mirrord.model.errors import EnvironmentFault
from mirrord.model.group_status import GroupsNews, GroupsReport
from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import FlowSetup, Greeting, LaneAssignment, Parting, ReplicatorReport


class ReplicatorDead(EnvironmentFault):
    """Raised when the replicator's process has ended."""


class ReplicatorUnsure(EnvironmentFault):
    """Raised when the replicator did not answer in time or cannot be reached. It may still be alive and copying."""


class ReplicatorUnreachable(ReplicatorUnsure):
    """Raised when the replicator's process or node cannot be reached."""


class NodeLost(ReplicatorUnreachable):
    """Raised when Ray counts the replicator's node as lost and will not reconnect to it.

    If the node is merely cut off from the network, it keeps running, and so do its replicators.
    """


class ReplicatorForeign(ReplicatorUnsure):
    """Raised when the replicator is alive, but answers in the format of a different version of mirrord."""


class ReplicatorHandle(Protocol):
    """A handle to one replicator. Every call that fails raises ReplicatorDead or ReplicatorUnsure, and no other
    error."""

    @property
    def name(self) -> str:
        """The name of this replicator. The name is never reused for another replicator, because the ledger refers to
        it."""
        ...

    async def prepare(self, lanes: Sequence[LaneAssignment]) -> None:
        """Announce lanes that the replicator may get, so that it can connect to their brokers. Return when it is
        connected. The announcement does not mean that the replicator will get these lanes."""
        ...

    async def assign(self, lanes: Sequence[LaneAssignment]) -> None:
        """Assign lanes to the replicator. It starts those that it does not already host."""
        ...

    async def release(self, lanes: Sequence[LaneId], deadline_s: float) -> dict[LaneId, Parting]:
        """Make the replicator drain these lanes. For each lane, return how the replicator left it."""
        ...

    async def hurry(self, lanes: Sequence[LaneId]) -> None:
        """Make the replicator fetch these lanes first, in addition to the lanes that it prioritizes on its own. Each
        call replaces the lanes of the previous call.

        The call affects only speed. A replicator that runs an older version ignores it.
        """
        ...

    async def report(self) -> ReplicatorReport:
        """Return the current state of the replicator and of its lanes."""
        ...

    async def greet(self) -> Greeting:
        """Make the replicator take its commands only from this process. Return its version, its setup and its
        report."""
        ...

    async def close(self, deadline_s: float) -> None:
        """Make the replicator drain its lanes and then shut down."""
        ...

    async def kill(self) -> None:
        """Kill the replicator without draining it. Return when it is known to have ended. Raises ReplicatorUnsure if it
        may still be running."""
        ...


class GroupsHandle(Protocol):
    """A handle to one group follower, which `mirrord.groups.group_follower` implements.

    Every call that fails raises ReplicatorDead or ReplicatorUnsure, and no other error.
    """

    async def news(self) -> GroupsNews:
        """Return the translated positions of consumer groups that have changed since the last call."""
        ...

    async def report(self, *, reverse: bool = False) -> GroupsReport:
        """Return the current positions of all consumer groups. With `reverse`, return the positions that are synced
        from the target to the source."""
        ...

    async def greet(self) -> Greeting:
        """Return the mirrord version that the group follower runs, and its setup. The next call to `news` returns all
        positions again, because the caller may be a new process that does not know them."""
        ...

    async def kill(self) -> None:
        """Kill the group follower. It has no state that a new follower could not rebuild.

        Raises ReplicatorUnsure if it may still be running.
        """
        ...


class Engine(Protocol):
    """Starts, finds and terminates the replicators and group followers of a daemon."""

    @property
    def cores(self) -> int:
        """The number of processor cores on which replicators can run. This is also the number of replicators that can
        work at the same time."""
        ...

    @property
    def nodes(self) -> Mapping[str, int]:
        """Maps each node on which replicators can currently run to its number of cores. Empty if replicators run only
        in this process."""
        ...

    @property
    def hosts_all(self) -> bool:
        """Whether all replicators are tasks in this process, so that they end when the process exits."""
        ...

    async def start(
        self, name: str, setup: FlowSetup, on_death: Callable[[], None], node: str = ""
    ) -> ReplicatorHandle:
        """Start a replicator, on `node` if possible, and return its handle.

        `on_death` is called once, on the event loop, if the replicator ends without being asked to. Raises
        EnvironmentFault if the replicator does not start.
        """
        ...

    async def start_groups(self, name: str, setup: FlowSetup, on_death: Callable[[], None]) -> GroupsHandle:
        """Start a group follower of a flow, and return its handle. The arguments and errors are those of `start`."""
        ...

    async def found(self, prefix: str) -> list[str]:
        """Return the names of the running replicators and group followers that another process of this daemon started.
        Only names that begin with `prefix` are returned."""
        ...

    def running(self, prefix: str) -> Sequence[ReplicatorHandle]:
        """Return the handles of the replicators whose names begin with `prefix` and that take their commands from this
        process."""
        ...

    async def attach(self, name: str, on_death: Callable[[], None]) -> ReplicatorHandle:
        """Attach to a running replicator whose name was returned by `found`. `on_death` is called as for `start`.

        Raises ReplicatorDead if the replicator no longer exists.
        """
        ...

    async def attach_groups(self, name: str, on_death: Callable[[], None]) -> GroupsHandle:
        """Attach to a running group follower whose name was returned by `found`. The arguments and errors are those of
        `attach`."""
        ...

    async def end(self, name: str) -> None:
        """Terminate the replicator or group follower whose name was returned by `found`.

        Raises ReplicatorUnsure if it may still be running.
        """
        ...

    async def close(self) -> None:
        """Terminate all replicators and group followers that this process has started or attached to."""
        ...
