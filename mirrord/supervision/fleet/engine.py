"""How supervision runs replicators: as processes on Ray (`actors.engine`) or as tasks of this process.

Liveness is advice; the target log is the truth. `ReplicatorDead` is raised only if the process is known to have ended.
After that it can write nothing more, except for batches that were already in flight. Every other failure is
`ReplicatorUnsure`.
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
    """Raised when nothing can be reached where the replicator ran."""


class NodeLost(ReplicatorUnreachable):
    """Raised when the replicator's node counts as lost and will not be reached any more.

    A node that is only cut off keeps running, and so does the replicator.
    """


class ReplicatorForeign(ReplicatorUnsure):
    """Raised when the replicator is alive, but uses the protocol of another version."""


class ReplicatorHandle(Protocol):
    """A handle to one replicator. Every call raises ReplicatorDead or ReplicatorUnsure, and nothing else."""

    @property
    def name(self) -> str:
        """The name of this replicator, which is never used for another one, because it is recorded in the ledger."""
        ...

    async def prepare(self, lanes: Sequence[LaneAssignment]) -> None:
        """Announce lanes to the replicator. Returns when it is prepared; it may never get these lanes."""
        ...

    async def assign(self, lanes: Sequence[LaneAssignment]) -> None:
        """Assign lanes to the replicator; they start by themselves. A lane that it already has is left as it is."""
        ...

    async def release(self, lanes: Sequence[LaneId], deadline_s: float) -> dict[LaneId, Parting]:
        """Make the replicator drain lanes; return how it left each of them."""
        ...

    async def hurry(self, lanes: Sequence[LaneId]) -> None:
        """Make the replicator fetch these lanes first, and those that it finds by itself, until the next call.

        Correctness does not depend on this call, and an older version ignores it.
        """
        ...

    async def report(self) -> ReplicatorReport:
        """Return the replicator's current view of itself."""
        ...

    async def greet(self) -> Greeting:
        """Return what the replicator is and what it does.

        From now on it takes commands from this process and no other.
        """
        ...

    async def close(self, deadline_s: float) -> None:
        """Make the replicator drain its lanes and end."""
        ...

    async def kill(self) -> None:
        """End it at once. Returns when it is known to have ended; raises ReplicatorUnsure when that is not known."""
        ...


class GroupsHandle(Protocol):
    """A handle to one follower of consumer groups (`mirrord.groups.group_follower`).

    Every call raises ReplicatorDead or ReplicatorUnsure, and nothing else.
    """

    async def news(self) -> GroupsNews:
        """Return what has changed since the last call."""
        ...

    async def report(self, *, reverse: bool = False) -> GroupsReport:
        """Return all groups as they are now; with `reverse`, the groups that are synced back to the source."""
        ...

    async def greet(self) -> Greeting:
        """Return what the follower is and what it does. After this call it reports all positions again."""
        ...

    async def kill(self) -> None:
        """End it at once; all that it knows is also stored elsewhere.

        Raises ReplicatorUnsure when it may still be alive.
        """
        ...


class Engine(Protocol):
    """A place where replicators run."""

    @property
    def cores(self) -> int:
        """The number of replicators that can work at the same time."""
        ...

    @property
    def nodes(self) -> Mapping[str, int]:
        """The nodes on which replicators can run now, with their cores; empty if there is only this process."""
        ...

    @property
    def hosts_all(self) -> bool:
        """Whether its replicators are tasks of this process, and end with it."""
        ...

    async def start(
        self, name: str, setup: FlowSetup, on_death: Callable[[], None], node: str = ""
    ) -> ReplicatorHandle:
        """Start a replicator, on `node` if possible.

        `on_death` is called once, from the event loop, if the replicator ends by itself. Raises EnvironmentFault when
        it does not start.
        """
        ...

    async def start_groups(self, name: str, setup: FlowSetup, on_death: Callable[[], None]) -> GroupsHandle:
        """Start a follower of a flow's groups; otherwise like `start`."""
        ...

    async def found(self, prefix: str) -> list[str]:
        """Return the names with this prefix that another process of this daemon started and that still run."""
        ...

    def running(self, prefix: str) -> Sequence[ReplicatorHandle]:
        """Return the replicators with this name prefix that this process has and no other has taken over."""
        ...

    async def attach(self, name: str, on_death: Callable[[], None]) -> ReplicatorHandle:
        """Attach to a replicator that was found; otherwise like `start`.

        Raises ReplicatorDead when it no longer exists.
        """
        ...

    async def attach_groups(self, name: str, on_death: Callable[[], None]) -> GroupsHandle:
        """Attach to a follower of groups that was found; otherwise like `attach`."""
        ...

    async def end(self, name: str) -> None:
        """End the replicator or follower that was found under this name.

        Raises ReplicatorUnsure when it may still be alive.
        """
        ...

    async def close(self) -> None:
        """End everything that still runs."""
        ...
