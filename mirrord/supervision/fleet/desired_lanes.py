"""Determines which lanes a flow should have, and on which replicators they should be placed.

The placement depends on the configuration, on operator commands and on the load of the lanes.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence

from mirrord.config.schema import ReplicatorsConfig
from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneId, TopicPartition
from mirrord.replication.lane.assignment import ReplicatorReport
from mirrord.supervision.fleet.engine import Engine
from mirrord.supervision.fleet.lane_loads import Loads
from mirrord.supervision.fleet.suspects import Suspects
from mirrord.supervision.rules.order_resolution import FlowView, pinned_lanes, wanted_lanes
from mirrord.supervision.rules.reconcile import (
    ObservedReplicator,
    ReconcileStep,
    Release,
    Wishes,
    destinations,
    reconcile,
    takers,
)
from mirrord.topics.rules.topic_plan import PlannedLane


class DesiredLanes:
    """The desired lanes of one flow, and their placement. A new object is created for each lease."""

    def __init__(self, engine: Engine, config: ReplicatorsConfig, ledger: Callable[[], FlowState]) -> None:
        self.lanes: dict[LaneId, PlannedLane] = {}
        """All lanes that the flow should have, including those that an operator has paused."""
        self.is_known = False
        """Whether the desired lanes are known. They are known after the first call to `want`."""
        self.loads = Loads()
        self.suspects = Suspects(ledger)
        self._engine = engine
        self._ledger = ledger
        self._alone: frozenset[LaneId] = frozenset()
        """Lanes that must each have a replicator to themselves (`replicators.alone`)."""
        self.place_by(config)

    def place_by(self, config: ReplicatorsConfig) -> None:
        """Use this configuration for the number of replicators and the placement of lanes."""
        self._config = config
        self.loads.by_bytes = config.placement == "balanced"
        self._alone = self._lanes_alone()

    def want(self, lanes: Iterable[PlannedLane]) -> None:
        """Set the lanes that the flow should have. They replace all earlier ones."""
        self.lanes = {lane.lane: lane for lane in lanes}
        self.is_known = True
        self.loads.keep(self.lanes)
        self._alone = self._lanes_alone()

    def note(self, report: ReplicatorReport, now: float) -> None:
        """Update what is known about the lanes with a replicator's report."""
        self.loads.note(report, now)
        self.suspects.note(report, now)

    def steps(
        self, hosts: Sequence[ObservedReplicator], orphans: Collection[LaneId], now: float
    ) -> list[ReconcileStep]:
        """Return the next steps that lead from the current state of the replicators to the desired state. `orphans` are
        lanes whose replicator died or was lost."""
        self.suspects.keep(self.lanes)
        desired, wishes = self._wished(now, hosts)
        steps = reconcile(desired, hosts, self._config, self._engine.cores, orphans, wishes)
        if any(isinstance(step, Release) and not set(desired).isdisjoint(step.lanes) for step in steps):
            self.loads.evened_out(now)
        return steps

    def destinations(
        self, leaving: Collection[LaneId], hosts: Sequence[ObservedReplicator], now: float
    ) -> dict[str, list[LaneId]]:
        """Return the lanes that each replicator will get, by the replicator's name. `leaving` contains the lanes that
        are leaving their current replicators, and only these lanes are returned. A lane whose next replicator is not
        known yet is omitted."""
        desired, wishes = self._wished(now, hosts)
        return destinations(leaving, desired, hosts, self._config, self._engine.cores, wishes)

    def view(self, flow: str, hosts: Sequence[ObservedReplicator], now: float) -> FlowView:
        """Return the information that is needed to interpret operator commands, such as the flow's lanes and
        replicators."""
        ledger = self._ledger()
        names = {TopicPartition(each.source_topic, each.key.partition): lane for lane, each in self.lanes.items()}
        once = {TopicPartition(lane.source_topic, lane.partition) for lane in ledger.lanes.values()}
        desired, wishes = self._wished(now, hosts)
        free = takers(desired, hosts, self._config, self._engine.cores, wishes)
        known = (names, once - names.keys(), hosts, free, self._alone, ledger.orders, ledger.quarantines())
        return FlowView(flow, *known, standings=ledger.standings(), recoveries=ledger.recoveries)

    def _wished(self, now: float, hosts: Sequence[ObservedReplicator]) -> tuple[list[LaneId], Wishes]:
        """Return the lanes that replicators must host, and the constraints on the placement of these lanes."""
        orders, recoveries = self._ledger().orders, self._ledger().recoveries
        suspects = self.suspects.arrange({lane for host in hosts for lane in host.lanes})
        wishes = Wishes(
            alone=self._alone | suspects.alone,
            weights=self.loads.weights,
            even_out=self.loads.may_even_out(now),
            pins=pinned_lanes(self.lanes.values(), orders),
            drained=frozenset(orders.drained),
            nodes=self._engine.nodes,
        )
        lanes = wanted_lanes(self.lanes.values(), orders, recoveries)
        return [lane for lane in lanes if lane not in suspects.held] if suspects.held else lanes, wishes

    def _lanes_alone(self) -> frozenset[LaneId]:
        alone = [re.compile(pattern) for pattern in self._config.alone]
        return frozenset(
            lane
            for lane, each in self.lanes.items()
            if any(pattern.fullmatch(f"{each.source_topic}-{each.key.partition}") for pattern in alone)
        )
