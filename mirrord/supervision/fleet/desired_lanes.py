"""The desired state of a flow: its lanes, and their placement on replicators.

The placement follows from the configuration, from operator commands and from the load.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence

from mirrord.config.schema import ReplicatorsConfig
from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneId, TopicPartition
from mirrord.supervision.fleet.engine import Engine
from mirrord.supervision.fleet.lane_loads import Loads
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
    """The desired state of one flow under one lease."""

    def __init__(self, engine: Engine, config: ReplicatorsConfig, ledger: Callable[[], FlowState]) -> None:
        self.lanes: dict[LaneId, PlannedLane] = {}
        """The lanes that should exist, without regard to operator commands."""
        self.is_known = False
        """Whether the desired lanes have been set."""
        self.loads = Loads()
        self._engine = engine
        self._ledger = ledger
        self._alone: frozenset[LaneId] = frozenset()
        """Lanes that have a replicator to themselves."""
        self.place_by(config)

    def place_by(self, config: ReplicatorsConfig) -> None:
        """Use this configuration for the number of replicators and the placement of lanes."""
        self._config = config
        self.loads.by_bytes = config.placement == "balanced"
        self._alone = self._lanes_alone()

    def want(self, lanes: Iterable[PlannedLane]) -> None:
        """Set the lanes that should exist from now on."""
        self.lanes = {lane.lane: lane for lane in lanes}
        self.is_known = True
        self.loads.keep(self.lanes)
        self._alone = self._lanes_alone()

    def steps(
        self, hosts: Sequence[ObservedReplicator], orphans: Collection[LaneId], now: float
    ) -> list[ReconcileStep]:
        """Return the next steps for these replicators."""
        desired, wishes = self._wished(now)
        steps = reconcile(desired, hosts, self._config, self._engine.cores, orphans, wishes)
        if any(isinstance(step, Release) and not set(desired).isdisjoint(step.lanes) for step in steps):
            self.loads.evened_out(now)
        return steps

    def destinations(
        self, leaving: Collection[LaneId], hosts: Sequence[ObservedReplicator], now: float
    ) -> dict[str, list[LaneId]]:
        """Return which of these replicators will get the lanes that leave another one, if that is known."""
        desired, wishes = self._wished(now)
        return destinations(leaving, desired, hosts, self._config, self._engine.cores, wishes)

    def view(self, flow: str, hosts: Sequence[ObservedReplicator], now: float) -> FlowView:
        """Return the flow as operator commands see it."""
        ledger = self._ledger()
        names = {TopicPartition(each.source_topic, each.key.partition): lane for lane, each in self.lanes.items()}
        once = {TopicPartition(lane.source_topic, lane.partition) for lane in ledger.lanes.values()}
        desired, wishes = self._wished(now)
        free = takers(desired, hosts, self._config, self._engine.cores, wishes)
        known = (names, once - names.keys(), hosts, free, self._alone, ledger.orders, ledger.quarantines())
        return FlowView(flow, *known, standings=ledger.standings())

    def _wished(self, now: float) -> tuple[list[LaneId], Wishes]:
        """Return the lanes that are to be hosted, and the constraints on their placement."""
        orders = self._ledger().orders
        wishes = Wishes(
            alone=self._alone,
            weights=self.loads.weights,
            even_out=self.loads.may_even_out(now),
            pins=pinned_lanes(self.lanes.values(), orders),
            drained=frozenset(orders.drained),
            nodes=self._engine.nodes,
        )
        return wanted_lanes(self.lanes.values(), orders), wishes

    def _lanes_alone(self) -> frozenset[LaneId]:
        alone = [re.compile(pattern) for pattern in self._config.alone]
        return frozenset(
            lane
            for lane, each in self.lanes.items()
            if any(pattern.fullmatch(f"{each.source_topic}-{each.key.partition}") for pattern in alone)
        )
