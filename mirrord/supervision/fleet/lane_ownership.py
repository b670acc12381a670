"""Tracks which replicator was the last holder of each lane of a flow, and whether the next holder has to wait until
that replicator can no longer write."""

from collections.abc import Callable, Collection, Iterable, Mapping

from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import FlowSetup, Former, LaneAssignment, Parting
from mirrord.supervision.fleet.member import Held, former_of, grant_of, replicator_of
from mirrord.topics.rules.topic_plan import PlannedLane

_WEIGHT: dict[Former, int] = {"none": 0, "left": 1, "dead": 2, "unknown": 3}


class Custody:
    """The last holder of each lane of one flow. A new object is created for each lease."""

    def __init__(self, setup: FlowSetup, ledger: Callable[[], FlowState], *, former_ended: bool) -> None:
        """Begin without any known holders. `former_ended` is true if all writers under older leases are known to have
        ended."""
        self.orphans: set[LaneId] = set()
        """Lanes whose replicator died or was lost. They are assigned before all other lanes."""
        self._setup = setup
        self._ledger = ledger
        self._former_ended = former_ended
        self._held: dict[LaneId, Held] = {}
        self._others: set[LaneId] = set()
        """Lanes that had an earlier holder under this lease. That holder may still be writing, but this object no
        longer records its name."""
        self._dead: set[str] = set()
        """Replicators that are known to have ended."""

    @property
    def held(self) -> Mapping[LaneId, Held]:
        """The last holder of each lane under this lease."""
        return self._held

    def give(self, lane: LaneId, name: str, now: float) -> None:
        """Record that a lane is about to be assigned to the replicator `name`."""
        former, before = self._former(lane, now), self._held.get(lane)
        word = before.parting if before is not None and former == "left" else None
        until = now + self._barrier_s(lane, former)
        grant = grant_of(self._ledger(), lane) if word is None else word.grant
        self._held[lane] = Held(name, former, until, grant, word=word)
        self.orphans.discard(lane)

    def found(self, lanes: Iterable[LaneId], name: str, now: float) -> None:
        """Record that a replicator already hosted these lanes before this process started."""
        for lane in lanes:
            until = now + self._barrier_s(lane, "unknown")
            self._held[lane] = Held(name, "unknown", until, grant_of(self._ledger(), lane))

    def not_found(self, lanes: Iterable[LaneId]) -> None:
        """Record that a replicator does not host these lanes, although it was assumed to host them."""
        for lane in lanes:
            self._held.pop(lane, None)
            self.orphans.add(lane)

    def left(self, lane: LaneId, name: str, parting: Parting) -> None:
        """Record that a replicator no longer hosts a lane."""
        held = self._held.get(lane)
        if held is not None and held.name == name:
            self._held[lane] = held._replace(left=parting.clean, parting=parting.word)

    def taken_away(self, lane: LaneId) -> None:
        """Record that, according to the ledger, a lane now has a different holder."""
        self._held.pop(lane, None)
        self._others.add(lane)

    def ended(self, name: str) -> None:
        """Record that a replicator's process has ended."""
        self._dead.add(name)

    def assignment(self, lane: PlannedLane) -> LaneAssignment:
        """Return the assignment of a lane to the replicator that `give` has recorded for it."""
        held = self._held[lane.lane]
        return LaneAssignment(lane.key, lane.source_topic, lane.target_topic, held.former, held.grant, held.word)

    def keep(self, lanes: Collection[LaneId]) -> None:
        """Forget all lanes except the given ones. Also forget replicators that held only forgotten lanes."""
        kept = set(lanes)
        for lane in self._held.keys() - kept:
            held = self._held.pop(lane)
            if not held.left and held.name not in self._dead:
                # The replicator may still be writing to this lane, even if the writers of older leases have ended.
                self._others.add(lane)
        self.orphans &= kept
        # A lane that is not in the ledger has never been written.
        self._others &= kept | self._ledger().lanes.keys()
        self._dead &= {held.name for held in self._held.values()}

    def longest_s(self, lanes: Iterable[LaneId]) -> float:
        """Return the longest time in seconds for which a previous holder of any of these lanes may still write. This is
        an upper limit, because the method does not check whether a holder has already ended or left its lane."""
        return max((self._barrier_s(lane, "unknown") for lane in lanes), default=0.0)

    def _barrier_s(self, lane: LaneId, former: Former) -> float:
        known = self._ledger().lanes.get(lane)
        return self._setup.barrier_s(former, known.times if known is not None else (0, 0))

    def _former(self, lane: LaneId, now: float) -> Former:
        """Return what is known about the lane's previous holder: the last holder under this lease or, if there was
        none, the last holder in the ledger.

        If the last holder under this lease has not taken the lane in the ledger, the replicator that has the lane there
        does not know yet that it has lost it. However much time has passed, it may still be writing.
        """
        held = self._held.get(lane)
        if held is None:
            former = former_of(self._ledger(), lane)
            ended = self._former_ended and lane not in self._others
            return "dead" if former == "unknown" and ended else former
        if held.left:
            former: Former = "left"
        else:
            former = "dead" if held.name in self._dead else "unknown"
        known = self._ledger().lanes.get(lane)
        is_taken = held.left or (known is not None and replicator_of(known) == held.name)
        if not is_taken and grant_of(self._ledger(), lane) != held.grant:
            return "unknown"  # a replicator other than the last holder has taken the lane since
        # The holder before the last one may also still be writing.
        return max(former, held.former, key=_WEIGHT.__getitem__) if now < held.until or not is_taken else former
