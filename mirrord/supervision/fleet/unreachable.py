"""Tracks unreachable replicators. Such a replicator may still be running: its node is cut off from the network, or it
could not be confirmed that the replicator has ended.

The lanes of an unreachable replicator have been assigned to other replicators. The status shows it while the ledger
names it as the holder of any of these lanes. When it learns from the ledger that others have taken its lanes, it shuts
down.
"""

from collections.abc import Callable, Iterable

from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneId
from mirrord.model.status import HostState
from mirrord.replication.lane.assignment import ReplicatorReport
from mirrord.supervision.fleet.member import Member, lanes_by_ledger


class CutOff:
    """The unreachable replicators of one flow. A new object is created for each lease."""

    def __init__(self, ledger: Callable[[], FlowState]) -> None:
        self._ledger = ledger
        self._members: dict[str, tuple[Member, frozenset[LaneId]]] = {}

    def add(self, member: Member) -> None:
        """Add a replicator that counts as lost, with the lanes that it hosted."""
        self._members[member.name] = (member, frozenset(member.lanes))

    def ended(self, name: str) -> None:
        """Remove a replicator that is known to have ended."""
        self._members.pop(name, None)

    def forget_replaced(self, wanted: Iterable[LaneId]) -> None:
        """Forget each replicator that is no longer the holder of any of the lanes in `wanted`, according to the
        ledger."""
        wanted = frozenset(wanted)
        for name, (_, lanes) in list(self._members.items()):
            if not lanes & wanted & lanes_by_ledger(self._ledger(), name):
                del self._members[name]

    @property
    def reports(self) -> list[ReplicatorReport]:
        """The latest reports of the unreachable replicators."""
        return [member.report for member, _ in self._members.values() if member.report is not None]

    def states(self) -> dict[str, HostState]:
        """Return the state of each unreachable replicator, as it is shown in the status. The state is always
        "unknown"."""
        state: HostState = "unknown"
        return dict.fromkeys(self._members, state)
