"""The interface through which supervision runs replicators: as processes on Ray (`actors.engine`) or as tasks of this
process.

`ReplicatorDead` is raised only if the replicator's process is known to have ended. After that, nothing more of it is
written, except for batches that were already in flight. Every other failure is raised as `ReplicatorUnsure`. Whether a
replicator seems alive is never proof of what it has written: only the target log is.
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
    """Raised when the replicator did not answer in time, or cannot be reached. It may be alive and continue to copy."""


class ReplicatorUnreachable(ReplicatorUnsure):
    """Raised when the place where the replicator ran cannot be reached at all."""


class NodeLost(ReplicatorUnreachable):
    """Raised when Ray counts the replicator's node as lost, and will not reach it any more.

    A node that is only cut off from the network keeps running, and so does the replicator.
    """


class ReplicatorForeign(ReplicatorUnsure):
    """Raised when the replicator is alive, but answers in the format of another version of mirrord."""


class ReplicatorHandle(Protocol):
    """A handle to one replicator. A call that fails raises ReplicatorDead or ReplicatorUnsure, and no other error."""

    @property
    def name(self) -> str:
        """The name of this replicator. It is never used for another replicator, because the ledger contains it."""
        ...

    async def prepare(self, lanes: Sequence[LaneAssignment]) -> None:
        """Announce lanes that the replicator may get, so that it connects to their brokers. Returns when it is
        prepared. The replicator may never get these lanes."""
        ...

    async def assign(self, lanes: Sequence[LaneAssignment]) -> None:
        """Assign lanes to the replicator, which then starts them. A lane that it already hosts is not changed."""
        ...

    async def release(self, lanes: Sequence[LaneId], deadline_s: float) -> dict[LaneId, Parting]:
        """Make the replicator drain lanes, and return how it left each of them."""
        ...

    async def hurry(self, lanes: Sequence[LaneId]) -> None:
        """Until the next call, make the replicator fetch these lanes before others, in addition to those that it
        prefers by itself.

        This only affects speed. A replicator of an older version ignores it.
        """
        ...

    async def report(self) -> ReplicatorReport:
        """Return the current state of the replicator and of its lanes."""
        ...

    async def greet(self) -> Greeting:
        """Return the replicator's version, setup and report.

        From now on, the replicator takes commands only from this process.
        """
        ...

    async def close(self, deadline_s: float) -> None:
        """Make the replicator drain its lanes and end."""
        ...

    async def kill(self) -> None:
        """End the replicator without draining it. Returns when it is known to have ended. Raises ReplicatorUnsure if it
        may still be alive."""
        ...


class GroupsHandle(Protocol):
    """A handle to one follower of consumer groups (`mirrord.groups.group_follower`).

    A call that fails raises ReplicatorDead or ReplicatorUnsure, and no other error.
    """

    async def news(self) -> GroupsNews:
        """Return the translated positions that have changed since the last call."""
        ...

    async def report(self, *, reverse: bool = False) -> GroupsReport:
        """Return the current positions of all groups. With `reverse`, return the positions that are synced from the
        target to the source."""
        ...

    async def greet(self) -> Greeting:
        """Return the follower's version and setup. After this call, the follower reports all positions again."""
        ...

    async def kill(self) -> None:
        """End the follower at once. Nothing is lost, because it can rebuild its state after a start.

        Raises ReplicatorUnsure when it may still be alive.
        """
        ...


class Engine(Protocol):
    """Starts, finds and ends the replicators and group followers of a daemon."""

    @property
    def cores(self) -> int:
        """The number of cores, and so of replicators that can work at the same time."""
        ...

    @property
    def nodes(self) -> Mapping[str, int]:
        """The number of cores of each node on which replicators can run now. Empty if replicators run only in this
        process."""
        ...

    @property
    def hosts_all(self) -> bool:
        """Whether all replicators are tasks of this process, and so end with it."""
        ...

    async def start(
        self, name: str, setup: FlowSetup, on_death: Callable[[], None], node: str = ""
    ) -> ReplicatorHandle:
        """Start a replicator, on `node` if possible.

        `on_death` is called once, on the event loop, if the replicator ends by itself. Raises EnvironmentFault if the
        replicator does not start.
        """
        ...

    async def start_groups(self, name: str, setup: FlowSetup, on_death: Callable[[], None]) -> GroupsHandle:
        """Start a group follower of a flow. The arguments and errors are those of `start`."""
        ...

    async def found(self, prefix: str) -> list[str]:
        """Return the names of running replicators and followers that begin with this prefix and that another process of
        this daemon started."""
        ...

    def running(self, prefix: str) -> Sequence[ReplicatorHandle]:
        """Return the replicators with this name prefix that take their commands from this process."""
        ...

    async def attach(self, name: str, on_death: Callable[[], None]) -> ReplicatorHandle:
        """Attach to a running replicator whose name `found` has returned. `on_death` is that of `start`.

        Raises ReplicatorDead if it no longer exists.
        """
        ...

    async def attach_groups(self, name: str, on_death: Callable[[], None]) -> GroupsHandle:
        """Attach to a running group follower whose name `found` has returned. Everything else is like `attach`."""
        ...

    async def end(self, name: str) -> None:
        """End the replicator or follower whose name `found` has returned.

        Raises ReplicatorUnsure if it may still be alive.
        """
        ...

    async def close(self) -> None:
        """End all replicators and followers that this process has started or attached to."""
        ...
