"""Tracks which lanes of a flow may have ended their replicators. `mirrord.supervision.rules.suspect_lanes` decides what
follows.

A lane that is to be halted is paused in the ledger by mirrord itself, so that `mirrord resume` lets it continue. Until
the pause is in the ledger, the lane is kept from all replicators here.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

import structlog

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.orders import CopyingPaused
from mirrord.ledger.standing_orders import POLICY
from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import LaneReport, ReplicatorReport
from mirrord.supervision.fleet.member import Held, Member, replicator_of
from mirrord.supervision.rules import suspect_lanes
from mirrord.supervision.rules.suspect_lanes import (
    MOST_ALONE,
    Arrangement,
    Lived,
    Suspicion,
    after_death,
    arrange,
    is_cleared,
    to_halt,
)
from mirrord.topics.rules.topic_plan import PlannedLane

log = structlog.get_logger()


class Suspects:
    """The lanes of one flow that may have ended their replicators. A new object is created for each lease."""

    def __init__(self, ledger: Callable[[], FlowState]) -> None:
        self._ledger = ledger
        self._known: dict[LaneId, Suspicion] = {}
        self._given: dict[LaneId, str] = {}
        """The replicator that got each lane last."""
        self._copying: dict[LaneId, float] = {}
        """Since when each of these lanes has been seen copying on that replicator."""
        self._deaths: list[tuple[float, frozenset[LaneId]]] = []
        """The latest deaths: when, and which lanes the replicator had."""

    def given(self, lanes: Iterable[LaneId], name: str) -> None:
        """Record that lanes are about to be assigned to the replicator `name`."""
        for lane in lanes:
            self._given[lane] = name
            self._copying.pop(lane, None)

    def note(self, report: ReplicatorReport, now: float) -> None:
        """Clear the lanes that have made progress, or that cannot have ended a replicator, according to a report."""
        for lane in report.lanes:
            if self._given.get(lane.lane) != report.name:
                continue
            if lane.phase == "copying":
                since = self._copying.setdefault(lane.lane, now)
            else:
                since = now
                self._copying.pop(lane.lane, None)
            suspicion = self._known.get(lane.lane)
            if suspicion and is_cleared(suspicion, Lived(lane.source_offset, now - since, _has_all(lane))):
                del self._known[lane.lane]

    def died(self, member: Member, held: Mapping[LaneId, Held], now: float) -> None:
        """Record that the process of a replicator has ended although nobody asked it to. `held` says since when its
        lanes have been able to copy."""
        reported = {lane.lane: lane for lane in member.report.lanes} if member.report is not None else {}
        lanes = {lane: self._lived(lane, member.name, reported.get(lane), held.get(lane), now) for lane in member.lanes}
        self._deaths = [(then, theirs) for then, theirs in self._deaths if now - then < suspect_lanes.TOGETHER_S]
        others = any(theirs.isdisjoint(lanes) for _, theirs in self._deaths)
        self._deaths.append((now, frozenset(lanes)))
        self._known = after_death(self._known, lanes, others_died=others)
        suspects = arrange(self._known, ())
        if suspects.alone or suspects.held:
            most = max(each.deaths for each in self._known.values())
            log.warning("replicators_die_again", replicator=member.name, deaths=most, alone=sorted(suspects.alone))

    def arrange(self, hosted: Collection[LaneId]) -> Arrangement:
        """Return how the suspects are placed. Lanes that are to be halted do not run."""
        if not self._known:
            return Arrangement()
        found = arrange(self._known, hosted)
        return found._replace(held=found.held | to_halt(self._known))

    def keep(self, lanes: Mapping[LaneId, PlannedLane]) -> None:
        """Forget all lanes except the given ones. Also forget lanes that the ledger has as paused."""
        orders = self._ledger().orders
        for lane in list(self._known):
            planned = lanes.get(lane)
            if planned is None or orders.pause_of(planned.source_topic, planned.key.partition) is not None:
                del self._known[lane]
        for lane in self._given.keys() - lanes.keys():
            del self._given[lane]
            self._copying.pop(lane, None)

    def pauses(self, lanes: Mapping[LaneId, PlannedLane], at_ms: int) -> list[CopyingPaused]:
        """Return the pauses to record in the ledger, for the lanes that are to be halted."""
        found: list[CopyingPaused] = []
        for lane in sorted(to_halt(self._known) & lanes.keys()):
            topic, partition = lanes[lane].source_topic, lanes[lane].key.partition
            position = self._known[lane].position
            place = f"at source offset {position}" if position >= 0 else "before its first record"
            line = (
                f"its replicator died {MOST_ALONE} times in succession {place}, while it had no other partition; "
                f"`mirrord resume {topic}-{partition}` tries again"
            )
            found.append(CopyingPaused(topic, partition, Origin(POLICY, line, at_ms)))
        return found

    def _lived(self, lane: LaneId, name: str, report: LaneReport | None, held: Held | None, now: float) -> Lived:
        state = self._ledger()
        known, progress = state.lanes.get(lane), state.progress.get(lane)
        offsets = [each.source_offset for each in (progress, report) if each is not None]
        position = max(offsets, default=-1)
        if self._given.get(lane) != name or known is None or replicator_of(known) != name:
            return Lived(position, -1.0)  # the replicator has not taken the lane, or this process did not assign it
        since = self._copying.get(lane)
        if since is None and held is not None and now < held.until and progress is not None and not progress.protected:
            return Lived(position, -1.0)  # an unprotected lane waits until the previous holder can no longer write
        return Lived(position, 0.0 if since is None else now - since, report is not None and _has_all(report))


def _has_all(lane: LaneReport) -> bool:
    """Return whether a lane has nothing to copy, or does not copy."""
    if lane.phase == "copying":
        return 0 <= lane.source_end <= lane.source_offset
    return lane.phase in {"halted", "gone", "drained"}
