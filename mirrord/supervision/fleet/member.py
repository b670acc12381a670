"""What a fleet knows of its replicators and of who holds which lane."""

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
"""A replicator that has not answered for so long is told to be unsure; polls are a second apart."""
MOVE_S = 5.0
"""How long a lane that moves may take to drain."""
LONGEST_PAUSE_S = 10.0
"""Between two tries to start replicators."""
_SLOT = re.compile(r"/replicator-([0-9]{1,9})\.g")


class Held(NamedTuple):
    """The last replicator that a lane was given to, and what was known then of the one before."""

    name: str
    former: Former
    until: float
    """The one before may be writing until then."""
    grant: int
    """The lane's grant when `former` was found out."""
    left: bool = False
    word: Progress | None = None
    """What the one before said when it left."""
    parting: Progress | None = None
    """The same, of this one."""


@dataclass(eq=False)
class Member:
    """One replicator."""

    name: str
    slot: int
    state: Literal["starting", "serving", "stopping"] = "starting"
    handle: ReplicatorHandle | None = None
    lanes: set[LaneId] = field(default_factory=set[LaneId])
    leaving: set[LaneId] = field(default_factory=set[LaneId])
    told: dict[LaneId, float] = field(default_factory=dict[LaneId, float])
    """When it was last told of a lane that it has not reported since."""
    sending: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    """Assignments on their way to it: a release must not overtake them."""
    hurried: bool = False
    """It was told last that some lanes are urgent."""
    report: ReplicatorReport | None = None
    heard: float = 0.0
    """When it last answered."""
    greeted: bool = True
    """It takes its orders from this process."""
    quarantined: bool = False
    """It is being ended, because it did not answer."""
    killed: bool = False
    """This process has told its engine to end it: that the engine calls it dead afterwards proves nothing."""
    node: str = ""
    """Where it runs, or was asked to; empty while that is not known."""

    @property
    def is_asked(self) -> bool:
        """Whether it is asked how it is."""
        return not self.quarantined and (self.state == "serving" or not self.greeted)

    def health(self, now: float) -> HostState:
        """As people are told."""
        if self.state == "starting":
            return "starting"
        if self.quarantined:
            return "quarantined"
        if self.state == "stopping":
            return "leaving"
        hangs = self.report is not None and self.report.loop_age_ms > UNSURE_S * 1000
        return "unsure" if hangs or not self.greeted or now - self.heard > UNSURE_S else "healthy"


def slot_of(name: str) -> int | None:
    """The slot in a replicator's name."""
    found = _SLOT.search(name)
    return int(found[1]) if found else None


def former_of(state: FlowState, lane: LaneId) -> Former:
    """What the ledger knows of the lane's last holder; it is true if the ledger was read since the lease was taken."""
    known = state.lanes.get(lane)
    if known is None or known.grant == 0:
        return "none"
    return "left" if _was_left(state, lane) else "unknown"


def grant_of(state: FlowState, lane: LaneId) -> int:
    """The lane's grant; 0 when it was never taken."""
    known = state.lanes.get(lane)
    return known.grant if known is not None else 0


def lanes_by_ledger(state: FlowState, replicator: str) -> set[LaneId]:
    """What a replicator hosts for all that the ledger knows: what it took last and has not left."""
    taken = (lane for lane, known in state.lanes.items() if known.replicator.rpartition("/")[0] == replicator)
    return {lane for lane in taken if not _was_left(state, lane)}


def _was_left(state: FlowState, lane: LaneId) -> bool:
    progress, known = state.progress.get(lane), state.lanes[lane]
    return progress is not None and progress.state == "drained" and progress.grant == known.grant
