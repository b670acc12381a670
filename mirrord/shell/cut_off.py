"""Replicators that nobody can reach and that may go on all the same: their node is cut off, or their end is not known.

Their lanes are others' by now. They are told of as long as one of these lanes has not been taken in the ledger: from
there such a replicator learns of it, and ends.
"""

from collections.abc import Callable, Iterable

from mirrord.ledger.state import FlowState
from mirrord.model.assignment import ReplicatorReport
from mirrord.model.names import LaneId
from mirrord.model.status import HostState
from mirrord.shell.members import Member, lanes_by_ledger


class CutOff:
    """Of one flow, under one lease."""

    def __init__(self, ledger: Callable[[], FlowState]) -> None:
        self._ledger = ledger
        self._members: dict[str, tuple[Member, frozenset[LaneId]]] = {}

    def add(self, member: Member) -> None:
        """It is no longer among those that are at work; what it has is given to others."""
        self._members[member.name] = (member, frozenset(member.lanes))

    def ended(self, name: str) -> None:
        """It is known to have ended."""
        self._members.pop(name, None)

    def look(self, wanted: Iterable[LaneId]) -> None:
        """Forget those whose lanes stand under other names in the ledger, or are wanted no longer."""
        wanted = frozenset(wanted)
        for name, (_, lanes) in list(self._members.items()):
            if not lanes & wanted & lanes_by_ledger(self._ledger(), name):
                del self._members[name]

    @property
    def reports(self) -> list[ReplicatorReport]:
        """Their last words."""
        return [member.report for member, _ in self._members.values() if member.report is not None]

    def states(self) -> dict[str, HostState]:
        """As people are told."""
        state: HostState = "unknown"
        return dict.fromkeys(self._members, state)
