"""Replicators that cannot be reached and that may still run: their node is cut off, or it is unknown if they ended.

Their lanes have been given to others. Such a replicator is reported as long as the ledger still records one of these
lanes under its name. It learns from the ledger that its lanes were taken, and then it ends.
"""

from collections.abc import Callable, Iterable

from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneId
from mirrord.model.status import HostState
from mirrord.replication.lane.assignment import ReplicatorReport
from mirrord.supervision.fleet.member import Member, lanes_by_ledger


class CutOff:
    """The unreachable replicators of one flow, under one lease."""

    def __init__(self, ledger: Callable[[], FlowState]) -> None:
        self._ledger = ledger
        self._members: dict[str, tuple[Member, frozenset[LaneId]]] = {}

    def add(self, member: Member) -> None:
        """Add a replicator that is no longer among the active ones; its lanes are given to others."""
        self._members[member.name] = (member, frozenset(member.lanes))

    def ended(self, name: str) -> None:
        """Remove a replicator that is known to have ended."""
        self._members.pop(name, None)

    def forget_replaced(self, wanted: Iterable[LaneId]) -> None:
        """Forget replicators whose lanes the ledger records under other names, or whose lanes are no longer wanted."""
        wanted = frozenset(wanted)
        for name, (_, lanes) in list(self._members.items()):
            if not lanes & wanted & lanes_by_ledger(self._ledger(), name):
                del self._members[name]

    @property
    def reports(self) -> list[ReplicatorReport]:
        """The last reports of these replicators."""
        return [member.report for member, _ in self._members.values() if member.report is not None]

    def states(self) -> dict[str, HostState]:
        """Return their states as operators see them."""
        state: HostState = "unknown"
        return dict.fromkeys(self._members, state)
