"""What a fleet knows about its replicators, and about which of them holds which lane."""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from mirrord.ledger.facts.core import Progress
from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneId
from mirrord.model.status import HostState
from mirrord.replication.lane.assignment import Former, ReplicatorReport
from mirrord.supervision.fleet.engine import ReplicatorHandle

UNSURE_S = 3.0
"""Silence after which a replicator is shown as unsure, in seconds. Polls are a second apart."""
MOVE_S = 5.0
"""Time that a moving lane has to drain, in seconds."""
LONGEST_PAUSE_S = 10.0
"""Longest pause between two attempts to start replicators, in seconds."""
_SLOT = re.compile(r"/replicator-([0-9]{1,9})\.g")


class Held(NamedTuple):
    """The last replicator that a lane was given to, and what was known about the previous one at that time."""

    name: str
    former: Former
    until: float
    """The time until which the previous replicator may still be writing."""
    grant: int
    """The lane's grant when `former` was determined."""
    left: bool = False
    word: Progress | None = None
    """The handoff checkpoint that the previous replicator gave when it left."""
    parting: Progress | None = None
    """The handoff checkpoint of this replicator."""


@dataclass(eq=False)
class Member:
    """One replicator."""

    name: str
    slot: int
    state: Literal["starting", "serving", "stopping"] = "starting"
    handle: ReplicatorHandle | None = None
    lanes: set[LaneId] = field(default_factory=set[LaneId])
    leaving: set[LaneId] = field(default_factory=set[LaneId])
    assigned_at: dict[LaneId, float] = field(default_factory=dict[LaneId, float])
    """The time of the last assignment of each lane that the replicator has not reported since."""
    sending: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    """Assignments in flight to the replicator. A release must not overtake them."""
    hurried: bool = False
    """True if the replicator was last informed that some lanes are urgent."""
    report: ReplicatorReport | None = None
    heard: float = 0.0
    """When the replicator last answered."""
    greeted: bool = True
    """True if the replicator takes its commands from this process."""
    quarantined: bool = False
    """True if the replicator is being ended because it did not answer."""
    killed: bool = False
    """True if this process has asked its engine to end the replicator. If the engine then reports it dead, that proves
    nothing.
    """
    node: str = ""
    """The node on which the replicator runs, or was asked to run; empty while unknown."""

    @property
    def is_asked(self) -> bool:
        """Whether the replicator is polled for its health."""
        return not self.quarantined and (self.state == "serving" or not self.greeted)

    def health(self, now: float) -> HostState:
        """Return the state that people are shown."""
        if self.state == "starting":
            return "starting"
        if self.quarantined:
            return "quarantined"
        if self.state == "stopping":
            return "leaving"
        hangs = self.report is not None and self.report.loop_age_ms > UNSURE_S * 1000
        return "unsure" if hangs or not self.greeted or now - self.heard > UNSURE_S else "healthy"


def slot_of(name: str) -> int | None:
    """Return the slot in a replicator's name."""
    found = _SLOT.search(name)
    return int(found[1]) if found else None


def former_of(state: FlowState, lane: LaneId) -> Former:
    """Return what the ledger says about the lane's last holder.

    It is accurate if the ledger was read after the lease was taken.
    """
    known = state.lanes.get(lane)
    if known is None or known.grant == 0:
        return "none"
    return "left" if _was_left(state, lane) else "unknown"


def grant_of(state: FlowState, lane: LaneId) -> int:
    """Return the lane's grant, or 0 if the lane was never taken."""
    known = state.lanes.get(lane)
    return known.grant if known is not None else 0


def lanes_by_ledger(state: FlowState, replicator: str) -> set[LaneId]:
    """Return the lanes that a replicator hosts according to the ledger: those that it took last and has not left."""
    taken = (lane for lane, known in state.lanes.items() if known.replicator.rpartition("/")[0] == replicator)
    return {lane for lane in taken if not _was_left(state, lane)}


def _was_left(state: FlowState, lane: LaneId) -> bool:
    progress, known = state.progress.get(lane), state.lanes[lane]
    return progress is not None and progress.state == "drained" and progress.grant == known.grant
