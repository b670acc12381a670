"""What runs replicators, as supervision sees it: processes on Ray (`actors.engine`) or tasks of this process.

Liveness is advice, the target log is truth: `ReplicatorDead` is said only when the process is known to have ended, and
then nothing more can be written by it than what was already on its way. Everything else is `ReplicatorUnsure`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from mirrord.model.assignment import FlowSetup, Greeting, LaneAssignment, Parting, ReplicatorReport
from mirrord.model.errors import EnvironmentFault
from mirrord.model.groups import GroupsNews, GroupsReport
from mirrord.model.names import LaneId


class ReplicatorDead(EnvironmentFault):
    """The replicator's process has ended."""


class ReplicatorUnsure(EnvironmentFault):
    """The replicator did not answer in time, or cannot be reached; it may live and go on copying."""


class ReplicatorUnreachable(ReplicatorUnsure):
    """Nobody can be reached where the replicator ran."""


class NodeLost(ReplicatorUnreachable):
    """The node of the replicator counts as lost, and it will not be reached any more. A node that is only cut off goes
    on, and so does the replicator."""


class ReplicatorForeign(ReplicatorUnsure):
    """The replicator lives, but speaks as another version does."""


class ReplicatorHandle(Protocol):
    """One replicator. Every call raises ReplicatorDead or ReplicatorUnsure, and nothing else."""

    @property
    def name(self) -> str:
        """Of this replicator and no other, ever: it stands in the ledger."""
        ...

    async def prepare(self, lanes: Sequence[LaneAssignment]) -> None:
        """Tell it of lanes that it will get. Returns when it is prepared; it may never get them."""
        ...

    async def assign(self, lanes: Sequence[LaneAssignment]) -> None:
        """Give it lanes; they start by themselves. A lane that it has already is left as it is."""
        ...

    async def release(self, lanes: Sequence[LaneId], deadline_s: float) -> dict[LaneId, Parting]:
        """Let it drain lanes; for each how it was left."""
        ...

    async def hurry(self, lanes: Sequence[LaneId]) -> None:
        """Let it fetch these lanes first, and those that it finds by itself; until told otherwise. Nothing rests on
        that, and an older version does not do it."""
        ...

    async def report(self) -> ReplicatorReport:
        """How it sees itself now."""
        ...

    async def greet(self) -> Greeting:
        """Who it is and what it does; from then on it takes its orders from this process and no other."""
        ...

    async def close(self, deadline_s: float) -> None:
        """Let it drain what it has and end."""
        ...

    async def kill(self) -> None:
        """End it at once. Returns when it is known to have ended; raises ReplicatorUnsure when that is not known."""
        ...


class GroupsHandle(Protocol):
    """One follower of groups (`mirrord.shell.group_sync`). Calls raise ReplicatorDead or ReplicatorUnsure, and nothing
    else."""

    async def news(self) -> GroupsNews:
        """What there is to say since it was last asked."""
        ...

    async def report(self, *, reverse: bool = False) -> GroupsReport:
        """All groups as they are now; with `reverse`, on their way back to the source."""
        ...

    async def greet(self) -> Greeting:
        """Who it is and what it does; all positions are told anew."""
        ...

    async def kill(self) -> None:
        """End it at once: it has nothing that is not known elsewhere. Raises ReplicatorUnsure when it may live on."""
        ...


class Engine(Protocol):
    """Where replicators run."""

    @property
    def cores(self) -> int:
        """How many replicators can work at the same time."""
        ...

    @property
    def nodes(self) -> Mapping[str, int]:
        """The nodes that replicators can run on now, and their cores; empty where there is only this process."""
        ...

    @property
    def hosts_all(self) -> bool:
        """Its replicators are tasks of this process, and end with it."""
        ...

    async def start(
        self, name: str, setup: FlowSetup, on_death: Callable[[], None], node: str = ""
    ) -> ReplicatorHandle:
        """Start a replicator; `on_death` is called once, from the event loop, when it ended by itself. It runs on
        `node` if that is possible.

        Raises EnvironmentFault when it does not start.
        """
        ...

    async def start_groups(self, name: str, setup: FlowSetup, on_death: Callable[[], None]) -> GroupsHandle:
        """Start a follower of a flow's groups; the rest as `start`."""
        ...

    async def found(self, prefix: str) -> list[str]:
        """Who still runs that another process of this daemon started: the names that begin so."""
        ...

    def running(self, prefix: str) -> Sequence[ReplicatorHandle]:
        """The replicators that this process has, and no other one has taken over: those whose names begin so."""
        ...

    async def attach(self, name: str, on_death: Callable[[], None]) -> ReplicatorHandle:
        """A replicator that was found; the rest as `start`. Raises ReplicatorDead when it is there no more."""
        ...

    async def attach_groups(self, name: str, on_death: Callable[[], None]) -> GroupsHandle:
        """A follower of groups that was found; the rest as `attach`."""
        ...

    async def end(self, name: str) -> None:
        """End whoever was found under this name. Raises ReplicatorUnsure when it may live on."""
        ...

    async def close(self) -> None:
        """End everything that still runs."""
        ...
