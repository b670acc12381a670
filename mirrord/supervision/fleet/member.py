"""The state that a `Fleet` keeps about each of its replicators and about the holder of each lane."""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from mirrord.ledger.facts.core import Progress
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.names import LaneId
from mirrord.model.status import HostState
from mirrord.replication.lane.assignment import Former, ReplicatorReport
from mirrord.supervision.fleet.engine import ReplicatorHandle

UNSURE_S = 3.0
"""A replicator that has not answered for this long is reported as unsure. Replicators are polled once a second."""
MOVE_S = 5.0
"""Time limit for draining a lane when it moves."""
LONGEST_PAUSE_S = 10.0
"""Maximum pause between two attempts to start a replicator."""
_SLOT = re.compile(r"/replicator-([0-9]{1,9})\.g")


class Held(NamedTuple):
    """The replicator to which a lane was last assigned, and what was known at that time about the lane's previous
    replicator."""

    name: str
    former: Former
    until: float
    """The time until which the previous replicator may still be writing."""
    grant: int
    """The lane's grant at the time when `former`, which describes the previous replicator, was determined."""
    left: bool = False
    word: Progress | None = None
    """The handoff checkpoint of the previous replicator, if that replicator left one."""
    parting: Progress | None = None
    """The handoff checkpoint of this replicator, if it wrote one when it left the lane."""


@dataclass(eq=False)
class Member:
    """The state of one replicator, as its `Fleet` knows it."""

    name: str
    slot: int
    state: Literal["starting", "serving", "stopping"] = "starting"
    handle: ReplicatorHandle | None = None
    lanes: set[LaneId] = field(default_factory=set[LaneId])
    leaving: set[LaneId] = field(default_factory=set[LaneId])
    assigned_at: dict[LaneId, float] = field(default_factory=dict[LaneId, float])
    """For each lane that the replicator has not reported since the lane was assigned, the time of the latest
    assignment."""
    sending: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    """The pending calls that assign lanes to the replicator. A release waits until they have completed, so that it
    cannot overtake them."""
    hurried: bool = False
    """True if the latest call to `hurry` named urgent lanes."""
    report: ReplicatorReport | None = None
    heard: float = 0.0
    """When the replicator last answered."""
    greeted: bool = True
    """True if the replicator takes its commands from this process."""
    quarantined: bool = False
    """True if the replicator is being killed because it did not answer."""
    killed: bool = False
    """True if this process has asked the engine to kill the replicator. From then on, the engine may report the
    replicator as dead before its process has ended."""
    node: str = ""
    """The Ray node on which the replicator runs or will be started. Empty if the node is not known."""

    @property
    def is_asked(self) -> bool:
        """Whether the replicator is polled for its health."""
        return not self.quarantined and (self.state == "serving" or not self.greeted)

    def health(self, now: float) -> HostState:
        """Return the replicator's state as it is shown in the status."""
        if self.state == "starting":
            return "starting"
        if self.quarantined:
            return "quarantined"
        if self.state == "stopping":
            return "leaving"
        hangs = self.report is not None and self.report.loop_age_ms > UNSURE_S * 1000
        return "unsure" if hangs or not self.greeted or now - self.heard > UNSURE_S else "healthy"


def slot_of(name: str) -> int | None:
    """Return the number (slot) in a replicator's name, or None if `name` is not the name of a replicator."""
    found = _SLOT.search(name)
    return int(found[1]) if found else None


def former_of(state: FlowState, lane: LaneId) -> Former:
    """Return what the ledger says about the lane's last holder: that there was none, that it has left the lane, or that
    it may still be writing.

    The result is valid only if the ledger was read to its end after this daemon took the lease.
    """
    known = state.lanes.get(lane)
    if known is None or known.grant == 0:
        return "none"
    return "left" if _was_left(state, lane) else "unknown"


def grant_of(state: FlowState, lane: LaneId) -> int:
    """Return the lane's grant, or 0 if no replicator has ever taken the lane."""
    known = state.lanes.get(lane)
    return known.grant if known is not None else 0


def replicator_of(lane: LaneState) -> str:
    """Return the name of the replicator that was the last to take the lane, or "" if none has."""
    return lane.replicator.rpartition("/")[0]


def lanes_by_ledger(state: FlowState, replicator: str) -> set[LaneId]:
    """Return the lanes that a replicator hosts according to the ledger: the lanes that it was the last to take and that
    it has not left."""
    taken = (lane for lane, known in state.lanes.items() if replicator_of(known) == replicator)
    return {lane for lane in taken if not _was_left(state, lane)}


def _was_left(state: FlowState, lane: LaneId) -> bool:
    progress, known = state.progress.get(lane), state.lanes[lane]
    return progress is not None and progress.state == "drained" and progress.grant == known.grant
